# shellcheck shell=bash
# What a subcommand of ./run needs on the machine, and how it gets there. Sourced by ./run.
#
# `need THING...` looks for each thing itself (a command, a header, a server), never for
# a package's name, so that whatever the user installed by other means counts. What is
# missing is installed by apt-get: by root, or by sudo where it asks no password; anybody
# else is told the command.

# Each `have_THING` succeeds where THING is there; `package_THING` names what brings it to Debian and Ubuntu.
have_compiler() { command -v "${CXX:-c++}" || command -v g++; }
have_cmake() { command -v cmake; }
have_ninja() { command -v ninja; }
have_pkgconfig() { command -v pkg-config; }
have_libpqxx() { found_by_cmake libpqxx || pkg-config --exists libpqxx; }
have_libpq() { pkg-config --exists libpq || found_by_cmake libpq; }
have_catch2() { found_by_cmake Catch2 || have_header catch2/catch_all.hpp || have_header catch2/catch.hpp; }
have_benchmark() { found_by_cmake benchmark || have_header benchmark/benchmark.h; }
have_boost() { have_header boost/interprocess/sync/interprocess_semaphore.hpp; }
have_concurrentqueue() { have_header concurrentqueue/lightweightsemaphore.h; }
have_soci() { have_header soci/postgresql/soci-postgresql.h; }
have_server() { server_bindir; }
have_clang() { command -v clang++; }
have_clangruntime() { [[ -e $(clang++ -print-runtime-dir)/libclang_rt.tsan-$(uname -m).a || -e $(clang++ -print-runtime-dir)/libclang_rt.tsan.a ]]; }
have_clangformat() { command -v clang-format; }
have_clangtidy() { command -v clang-tidy; }
have_shellcheck() { command -v shellcheck; }
have_debootstrap() { command -v debootstrap; }
have_valgrind() { command -v valgrind; }
have_openssl() { command -v openssl; }
have_git() { command -v git; }

package_compiler() { echo g++; }
package_ninja() { echo ninja-build; }
package_pkgconfig() { echo pkg-config; }
package_libpqxx() { echo libpqxx-dev; }
package_libpq() { echo libpq-dev; }
package_benchmark() { echo libbenchmark-dev; }
package_boost() { echo libboost-dev; }
package_concurrentqueue() { echo libconcurrentqueue-dev; }
package_soci() { echo libsoci-dev; }
package_server() { echo postgresql; }
package_clangruntime() { echo libclang-rt-dev; }
package_clangformat() { echo clang-format; }
package_clangtidy() { echo clang-tidy; }

have_header() {
  local dir
  for dir in /usr/include /usr/local/include; do [[ ! -e $dir/$1 ]] || return 0; done
  return 1
}

# Whoever sets CMAKE_PREFIX_PATH (vcpkg, an own prefix) has CMake look there: it will say what it misses.
found_by_cmake() { [[ -n ${CMAKE_PREFIX_PATH:-}${CMAKE_TOOLCHAIN_FILE:-} ]]; }

need() {
  local thing missing=() packages=()
  for thing in "$@"; do
    "have_$thing" >/dev/null 2>&1 && continue
    missing+=("$thing")
    if declare -F "package_$thing" >/dev/null; then packages+=("$("package_$thing")"); else packages+=("$thing"); fi
  done
  ((${#missing[@]})) || return 0

  local as_root=()
  if ((EUID != 0)); then as_root=(sudo -n); fi
  command -v apt-get >/dev/null ||
    die "missing: ${missing[*]} (Debian and Ubuntu call them: ${packages[*]}); there is no apt-get here to install them by"
  if ((EUID != 0)) && ! sudo -n true 2>/dev/null; then
    die "missing: ${missing[*]}. Install them first: sudo apt-get install --no-install-recommends ${packages[*]}"
  fi

  say "installing ${packages[*]}: './run ${subcommand:?}' needs ${missing[*]}"
  install_packages "${as_root[@]}" || die "apt-get could not install: ${packages[*]}"

  local still=()
  for thing in "${missing[@]}"; do
    "have_$thing" >/dev/null 2>&1 || still+=("$thing")
  done
  ((${#still[@]} == 0)) || die "still missing after the installation: ${still[*]}"
}

# Installs the caller's `packages`; the arguments are how to become root.
install_packages() {
  # Debian's server package makes and starts a cluster "main" on port 5432. Nobody asked for that, so for
  # this one call its maker is a stand-in that makes nothing. No setting of the machine is changed.
  local stand_in status=0
  stand_in=$(mktemp -d)
  printf '#!/bin/sh\necho "db_bulkhead: no cluster \\"main\\" was made"\n' >"$stand_in/pg_createcluster"
  chmod -R a+rx "$stand_in"
  local apt=("$@" env DEBIAN_FRONTEND=noninteractive apt-get -q -y
    -o "DPkg::Path=$stand_in:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")

  # A list of packages that was never fetched, or is so old that the files are gone, is fetched once.
  if ! ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1; then
    "${apt[@]}" update || status=$?
    ((status)) || "${apt[@]}" install --no-install-recommends "${packages[@]}" || status=$?
  elif ! "${apt[@]}" install --no-install-recommends "${packages[@]}"; then
    "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${packages[@]}" || status=$?
  fi </dev/null >&2
  rm -rf "$stand_in"
  return "$status"
}
