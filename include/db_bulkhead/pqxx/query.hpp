// SPDX-License-Identifier: MIT
//
// A simple query on the raw handle, sent at once and answered within a deadline. For
// the few commands that this library sends itself; none of them returns more than one
// value.
#ifndef DB_BULKHEAD_PQXX_QUERY_HPP
#define DB_BULKHEAD_PQXX_QUERY_HPP

#include <poll.h>

#include <optional>
#include <string>
#include <utility>

#include "db_bulkhead/pqxx/libpq.hpp"
#include "db_bulkhead/pqxx/socket.hpp"

namespace db_bulkhead::detail {

/// What came back. Unless `waited` is `ready`, answers are outstanding still.
struct Reply {
  Waited waited = Waited::ready;
  bool failed = false;               // an error, or what is no plain answer (COPY)
  std::string sqlstate;              // of the first error
  std::string tag;                   // of the last command that succeeded
  std::optional<std::string> value;  // of the last row's first column

  bool is_complete() const noexcept { return waited == Waited::ready; }
  bool succeeded() const noexcept { return is_complete() && !failed; }
};

/// Sends without waiting for an answer. False if that is impossible: connection lost, or answers outstanding.
inline bool send_query(PGconn* raw, char const* sql) noexcept {
  return PQstatus(raw) == CONNECTION_OK && PQsendQuery(raw, sql) == 1;
}

namespace query {

// False if no further result can follow.
inline bool take(PGresult* result, Reply& reply) {
  switch (PQresultStatus(result)) {
    case PGRES_TUPLES_OK:
      if (PQntuples(result) > 0 && PQgetisnull(result, 0, 0) == 0) reply.value = PQgetvalue(result, 0, 0);
      [[fallthrough]];
    case PGRES_COMMAND_OK:
    case PGRES_EMPTY_QUERY: reply.tag = PQcmdStatus(result); return true;
    case PGRES_COPY_IN:
    case PGRES_COPY_OUT:
    case PGRES_COPY_BOTH:
      // libpq would answer the same for ever. The session stays `active`, and is closed for that.
      reply.failed = true;
      return false;
    default:
      reply.failed = true;
      char const* code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
      if (code != nullptr && reply.sqlstate.empty()) reply.sqlstate = code;
      return true;
  }
}

}  // namespace query

/// Reads every answer to what was sent. A lost connection is a failure.
inline Reply read_reply(PGconn* raw, SocketWait& wait) {
  Reply reply;
  for (;;) {
    while (PQisBusy(raw) != 0) {
      reply.waited = wait.until(PQsocket(raw), POLLIN);
      if (!reply.is_complete()) return reply;
      // A failure is told by the result that follows, and with its SQLSTATE, if one had arrived.
      if (PQconsumeInput(raw) == 0) break;
    }
    RawResult const result{PQgetResult(raw)};
    if (!result || !query::take(result.get(), reply)) break;
  }
  if (PQstatus(raw) != CONNECTION_OK) reply.failed = true;
  return reply;
}

/// Sends and reads. Where sending is impossible, the reply has failed without a SQLSTATE.
inline Reply run_query(PGconn* raw, char const* sql, SocketWait& wait) {
  if (send_query(raw, sql)) return read_reply(raw, wait);
  Reply unsent;
  unsent.failed = true;
  return unsent;
}

}  // namespace db_bulkhead::detail

#endif
