#!/bin/sh
# What the official image's entrypoint does, as far as the tests use it: a database cluster made on first start
# for POSTGRES_USER with POSTGRES_PASSWORD and POSTGRES_DB, then the command, as the user postgres.
set -eu
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
export PATH
PGDATA=/var/lib/postgresql/data
if [ "$(id -u)" = 0 ]; then
  install -d -o postgres -g postgres -m 700 "$PGDATA"
  install -d -o postgres -g postgres /run/postgresql
  exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  : "${POSTGRES_PASSWORD:?}"
  printf '%s\n' "$POSTGRES_PASSWORD" >/tmp/pw
  initdb -D "$PGDATA" -U "${POSTGRES_USER:-postgres}" --pwfile=/tmp/pw -A scram-sha-256 -E UTF8 --locale=C >/dev/null
  rm /tmp/pw
  printf "listen_addresses='*'\n" >>"$PGDATA/postgresql.conf"
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  # As in the official image: the preparing server listens on its socket only.
  if [ "${POSTGRES_DB:-postgres}" != postgres ]; then
    pg_ctl -D "$PGDATA" -o "-c listen_addresses=''" -w start >/dev/null
    PGPASSWORD=$POSTGRES_PASSWORD createdb -U "$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl -D "$PGDATA" -m fast -w stop >/dev/null
  fi
fi
exec env "PGDATA=$PGDATA" "$@"
