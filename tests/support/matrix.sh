# shellcheck shell=bash
# `./run matrix`: the whole build and test in roots of other Debian releases, which bring other
# versions of libpqxx, Catch2, the compiler and PostgreSQL. Sourced by ./run.
#
# A root is made by debootstrap from the package source that this machine is configured with, and kept
# outside the checkout; what the tests need in it, ./run installs in there as on any other machine.

matrix_roots=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/db_bulkhead/roots
matrix_checkout="/srv/db_bulkhead checkout" # with a space: scripts that forget their quotes fail here

# Runs in a subshell of its own: nothing it does to mounts is seen outside.
matrix() {
  local commands=(test) as_user=0 fresh=0 names=()
  while (($#)); do
    case $1 in
      --user) as_user=1 ;;
      --demo) commands=(demo test) ;;
      --fresh) fresh=1 ;;
      -*) die "matrix: unknown option $1; there are --user, --demo, --fresh" ;;
      *) names+=("$1") ;;
    esac
    shift
  done
  ((${#names[@]})) || names=(trixie sid)
  ((EUID == 0)) || die "matrix: needs root, for chroot and debootstrap"
  need debootstrap git

  local name status=0 outcome=()
  for name in "${names[@]}"; do
    say "matrix: $name"
    local began=$SECONDS
    if matrix_one "$name"; then outcome+=("$name passed"); else outcome+=("$name FAILED") status=1; fi
    outcome[-1]+=" ($((SECONDS - began)) s)"
  done
  printf 'matrix: %s\n' "${outcome[@]}"
  return "$status"
}

matrix_one() {
  local root=$matrix_roots/$1 command
  ((fresh == 0)) || rm -rf "$root"
  [[ -d $root ]] || make_root "$1" "$root" || return 1
  copy_tree "$root" || return 1
  if ((as_user)); then
    in_root "$root" root ./run packages "${commands[@]}" || return 1
    in_root "$root" root sh -c 'id -u tester >/dev/null 2>&1 || useradd --create-home tester; chown -R tester: .' || return 1
  fi
  for command in "${commands[@]}"; do
    if ((as_user)); then in_root "$root" tester ./run "$command"; else in_root "$root" root ./run "$command"; fi || return 1
  done
}

make_root() {
  local name=$1 root=$2 mirror
  mirror=$(debian_mirror) ||
    die "matrix: no Debian package source is configured on this machine; name one in DB_BULKHEAD_DEBIAN_MIRROR"
  mkdir -p "$matrix_roots"
  rm -rf "$root.partial"
  say "matrix: making a root of $name (once; kept in $matrix_roots)"
  debootstrap --variant=minbase "$name" "$root.partial" "$mirror" >"$root.log" 2>&1 || {
    tail -n 20 "$root.log" >&2
    return 1
  }
  printf '#!/bin/sh\nexit 101\n' >"$root.partial/usr/sbin/policy-rc.d" # no package starts a service in there
  chmod +x "$root.partial/usr/sbin/policy-rc.d"
  # How packages are fetched (a proxy, checks of dates) is this machine's business and holds in the root as well.
  apt-config dump 2>/dev/null | grep -E '^Acquire::(http|https|Retries|Check-|ForceIPv)' \
    >"$root.partial/etc/apt/apt.conf.d/90machine" || true
  mv "$root.partial" "$root"
}

# The first source that serves this machine's own release, from both of apt's formats.
debian_mirror() {
  if [[ -n ${DB_BULKHEAD_DEBIAN_MIRROR:-} ]]; then
    echo "$DB_BULKHEAD_DEBIAN_MIRROR"
    return 0
  fi
  local id codename
  id=$(sed -n 's/^ID=//p' /etc/os-release)
  codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release) # none in Debian unstable
  [[ $id == debian ]] || return 1
  local files=()
  local file
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    [[ ! -f $file ]] || files+=("$file")
  done
  ((${#files[@]})) || return 1
  awk -v suites="$codename stable testing unstable sid" '
    function serves(list,   i, j, n, m, have, want) {
      n = split(list, have, " "); m = split(suites, want, " ")
      for (i = 1; i <= n; i++) for (j = 1; j <= m; j++) if (have[i] == want[j]) return 1
      return 0
    }
    function take(uris, list,   parts) {
      if (found || !serves(list)) return
      split(uris, parts, " ")
      if (parts[1] ~ /^(https?|file|copy):/) { print parts[1]; found = 1 }
    }
    function paragraph() { if (type ~ /(^| )deb( |$)/ && enabled != "no") take(uris, list); type = uris = list = enabled = "" }
    FNR == 1 { paragraph() }
    FILENAME ~ /\.list$/ {
      sub(/#.*/, ""); gsub(/\[[^]]*\]/, "")
      if ($1 == "deb" && / main( |$)/) take($2, $3)
      next
    }
    /^#/ { next }
    /^[ \t]*$/ { paragraph(); next }
    tolower($1) == "types:"   { sub(/^[^:]*: */, ""); type = $0 }
    tolower($1) == "uris:"    { sub(/^[^:]*: */, ""); uris = $0 }
    tolower($1) == "suites:"  { sub(/^[^:]*: */, ""); list = $0 }
    tolower($1) == "enabled:" { enabled = tolower($2) }
    END { paragraph(); exit !found }
  ' "${files[@]}"
}

# What git tracks, with changes not yet committed; a build that is there already is kept.
copy_tree() {
  local target=$1$matrix_checkout
  mkdir -p "$target"
  find "$target" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
  git -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' file; do [[ ! -e $file ]] || printf '%s\0' "$file"; done |
    tar --create --null --files-from=- --owner=0 --group=0 | tar --extract --directory "$target"
}

# in_root ROOT USER COMMAND...: in the checkout inside ROOT, with proc, dev and sys in a mount namespace
# of its own. A process namespace as well: when the command ends, nothing that it started stays.
in_root() {
  local root=$1 user=$2
  shift 2
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
  # shellcheck disable=SC2016  # expanded by the inner shell
  supervised unshare --mount --pid --fork --kill-child --propagation private bash -c '
    set -eu
    root=$1 user=$2 checkout=$3
    shift 3
    mount -t proc proc "$root/proc" || mount --rbind /proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    exec chroot "$root" /usr/bin/setpriv --reuid="$user" --regid="$user" --init-groups \
      /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      HOME=/tmp LC_ALL=C.UTF-8 "TERM=${TERM:-dumb}" sh -c "cd \"\$0\" && exec \"\$@\"" "$checkout" "$@"
  ' bash "$root" "$user" "$matrix_checkout" "$@"
}
