#!/usr/bin/env bash
# A PostgreSQL server of a test's own, which it may stop, restart and reconfigure:
#
#   own_server.sh run COMMAND...     starts one, runs COMMAND with DB_BULKHEAD_TEST_DSN and
#                                    DB_BULKHEAD_TEST_SERVER_CONTROL set, and throws it away
#   $DB_BULKHEAD_TEST_SERVER_CONTROL stop|start|restart [PG_CTL'S OPTIONS]
#
# Where no server is installed (it was a container's, or the caller's own) it says so and exits with 77.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
die() {
  printf '%s\n' "own_server.sh: $*" >&2
  exit 1
}
# shellcheck source=tests/support/server.sh
. "$here/server.sh"

case ${1:-} in
  run)
    shift
    server_bindir >/dev/null || {
      echo "own_server.sh: skipped, for no PostgreSQL server is installed here" >&2
      exit 77
    }
    trap server_stop EXIT
    trap 'exit 143' INT TERM HUP
    own=NONE
    start_cluster
    DB_BULKHEAD_TEST_DSN=$server_dsn \
      DB_BULKHEAD_TEST_SERVER_CONTROL="bash '$here/own_server.sh' control '$server_dir'" "$@"
    ;;
  control)
    server_dir=$2
    shift 2
    as_server_user "$(server_bindir)/pg_ctl" -D "$server_dir/data" -l "$server_dir/log" -w "$@" >/dev/null </dev/null
    ;;
  *) die "run COMMAND..., or control DIRECTORY PG_CTL_ARGUMENTS..." ;;
esac
