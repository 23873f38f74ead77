# shellcheck shell=bash
# shellcheck disable=SC2034  # server_dsn is read by ./run
# The PostgreSQL that demo, tests and benchmarks run on. Sourced by ./run.
#
# `server_start` leaves its connection string in the variable `server_dsn`; `server_stop`,
# which ./run calls however it ends, leaves nothing behind. Where it comes from:
#
#   1. the caller's own server, named by the variable that the subcommand reads,
#   2. DB_BULKHEAD_TEST_POSTGRES=container: docker or podman, image DB_BULKHEAD_TEST_IMAGE,
#   3. a cluster of its own, made from the installed server binaries in a temporary directory.

server_image=postgres@sha256:839fbb5a4942a7758dd93e18b42ea5649807491a0545b5eeeb8f0b8bb11857a5
server_dsn=
server_dir=
server_container=

# Fails, with the reason, on a choice that cannot be served; succeeds before anything is built.
server_check_choice() {
  local own=$1
  [[ -z ${!own:-} ]] || return 0
  case ${DB_BULKHEAD_TEST_POSTGRES:-} in
    '' | local) ;;
    container) container_engine >/dev/null ;;
    *) die "DB_BULKHEAD_TEST_POSTGRES is '$DB_BULKHEAD_TEST_POSTGRES'; it can be 'local' (the default) or 'container'" ;;
  esac
}

# Whether server_start will need the server's binaries.
server_is_local() {
  local own=$1
  [[ -z ${!own:-} && ${DB_BULKHEAD_TEST_POSTGRES:-local} == local ]]
}

server_start() {
  local own=$1
  server_check_choice "$own"
  if [[ -n ${!own:-} ]]; then
    server_dsn=${!own}
  elif [[ ${DB_BULKHEAD_TEST_POSTGRES:-local} == container ]]; then
    start_container
  else
    start_cluster
  fi
}

server_stop() {
  if [[ -n $server_container ]]; then
    local engine
    engine=$(container_engine) && "$engine" rm --force --volumes "$server_container" >/dev/null 2>&1
    server_container=
  fi
  if [[ -n $server_dir ]]; then
    if [[ -e $server_dir/data/postmaster.pid ]]; then
      as_server_user "$(server_bindir)/pg_ctl" -D "$server_dir/data" -m immediate -w stop >/dev/null 2>&1
    fi
    rm -rf "$server_dir"
    server_dir=
  fi
}

# --- a cluster of its own ---------------------------------------------------------------------

# The newest installed server: Debian keeps one directory per version, out of PATH.
server_bindir() {
  local dir
  while read -r dir; do
    if [[ -x $dir/initdb && -x $dir/postgres ]]; then
      echo "$dir"
      return 0
    fi
  done < <(
    printf '%s\n' /usr/lib/postgresql/*/bin | sort -Vr
    pg_config --bindir 2>/dev/null
    dirname "$(command -v initdb)" 2>/dev/null
  )
  return 1
}

# The server refuses to run as root; the user that its package made is the next best, nobody the last.
server_user() {
  local user
  for user in postgres nobody; do
    if id -u "$user" >/dev/null 2>&1; then
      echo "$user"
      return 0
    fi
  done
  return 1
}

# An environment of its own: PGPORT, PGOPTIONS and the like are the caller's business, not this server's.
as_server_user() {
  local clean=(env -i "PATH=$(server_bindir):/usr/bin:/bin" LC_ALL=C TZ=UTC "HOME=$server_dir" "$@")
  if ((EUID != 0)); then
    "${clean[@]}"
    return
  fi
  local user
  user=$(server_user) || return 1
  if command -v setpriv >/dev/null; then
    setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups "${clean[@]}"
  elif command -v runuser >/dev/null; then
    runuser -u "$user" -- "${clean[@]}"
  else
    su -s /bin/sh "$user" -c 'exec "$@"' sh "${clean[@]}"
  fi
}

start_cluster() {
  local bin port attempt
  bin=$(server_bindir) || die "no PostgreSQL server found: install one (Debian: postgresql), or set $own or DB_BULKHEAD_TEST_POSTGRES=container"
  ((EUID != 0)) || server_user >/dev/null || die "root cannot run the server, and there is no user postgres or nobody to run it"

  # The socket's path has to stay below 108 bytes, and the server's user has to get there.
  local base
  for base in "${TMPDIR:-/tmp}" /tmp; do
    ((${#base} <= 60)) && as_server_user test -w "$base" -a -x "$base" && break
  done
  server_dir=$(mktemp -d "$base/db_bulkhead.XXXXXX")
  chmod 700 "$server_dir"
  ((EUID != 0)) || chown "$(server_user): " "$server_dir" 2>/dev/null || chown "$(server_user)" "$server_dir"

  as_server_user "$bin/initdb" -D "$server_dir/data" -U postgres -A trust --no-sync --no-instructions -E UTF8 --locale=C \
    >"$server_dir/initdb.log" 2>&1 || {
    cat "$server_dir/initdb.log" >&2
    die "initdb failed"
  }

  # Whoever took the port in the meantime makes the server fail to start, so the next one is tried.
  for attempt in {1..20}; do
    port=$((20000 + RANDOM % 12000))
    cat >"$server_dir/data/postgresql.auto.conf" <<CONF
listen_addresses = '127.0.0.1'
port = $port
unix_socket_directories = '$server_dir'
fsync = off
synchronous_commit = off
full_page_writes = off
shared_buffers = 32MB
max_connections = 100
max_prepared_transactions = 10
CONF
    if as_server_user "$bin/pg_ctl" -D "$server_dir/data" -l "$server_dir/log" -w start >/dev/null 2>&1 </dev/null; then
      server_dsn="host=127.0.0.1 port=$port dbname=postgres user=postgres"
      return 0
    fi
    grep -q 'Address already in use' "$server_dir/log" || break
  done
  cat "$server_dir/log" >&2
  die "the PostgreSQL server did not start (attempt $attempt)"
}

# --- a container ------------------------------------------------------------------------------

# docker where its daemon answers, else podman.
container_engine() {
  if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
    echo docker
  elif command -v podman >/dev/null; then
    echo podman
  else
    die "DB_BULKHEAD_TEST_POSTGRES=container needs docker with a running daemon, or podman"
  fi
}

start_container() {
  local engine image=${DB_BULKHEAD_TEST_IMAGE:-$server_image} password port
  engine=$(container_engine)
  password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')

  # The name is known before the container is, so that a signal in between leaves none behind. The password
  # goes through the environment: a command line is there for all to read.
  server_container=db_bulkhead-test-$$-$RANDOM
  POSTGRES_PASSWORD=$password "$engine" run --detach --name "$server_container" --publish 127.0.0.1::5432 \
    --env POSTGRES_PASSWORD --env POSTGRES_USER=postgres --env POSTGRES_DB=postgres "$image" \
    postgres -c fsync=off -c synchronous_commit=off -c full_page_writes=off \
    -c max_connections=100 -c max_prepared_transactions=10 >/dev/null ||
    die "$engine could not run the image $image"

  # By TCP: while the image prepares its database, a first server listens on the socket alone.
  local end=$((SECONDS + 60))
  until "$engine" exec "$server_container" pg_isready -q -h 127.0.0.1 -U postgres -d postgres 2>/dev/null; do
    if ((SECONDS >= end)) || [[ $("$engine" inspect -f '{{.State.Running}}' "$server_container" 2>/dev/null) != true ]]; then
      "$engine" logs "$server_container" 2>&1 | tail -n 20 >&2
      die "PostgreSQL did not get ready in the container"
    fi
    sleep 0.2
  done
  port=$("$engine" port "$server_container" 5432/tcp | sed -n '1s/.*://p')
  [[ -n $port ]] || die "$engine published no port"
  server_dsn="host=127.0.0.1 port=$port dbname=postgres user=postgres password=$password"
}
