// SPDX-License-Identifier: MIT
//
// Opening a connection under a deadline, to the millisecond, on the caller's thread.
// libpq's own blocking connect knows whole seconds only, and two of them at least.
//
// Not bounded by the deadline: the resolution of a host's name, which libpq does with
// a blocking call of the system's. Use `hostaddr`, or a resolver that is near.
#ifndef DB_BULKHEAD_PQXX_CONNECT_HPP
#define DB_BULKHEAD_PQXX_CONNECT_HPP

#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <string>
#include <utility>

#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/error.hpp"
#include "db_bulkhead/pqxx/conninfo.hpp"
#include "db_bulkhead/pqxx/libpq.hpp"
#include "db_bulkhead/pqxx/socket.hpp"

namespace db_bulkhead::detail {

// One attempt, at one host. `end` is never later than the deadline of `wait`.
inline Waited complete_connect(PGconn* raw, SocketWait& wait, Deadline end) {
  auto next = PQstatus(raw) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
  while (next == PGRES_POLLING_READING || next == PGRES_POLLING_WRITING) {
    short const event = next == PGRES_POLLING_READING ? POLLIN : POLLOUT;
    // libpq may change to another socket at each step: it is asked for anew.
    if (auto const waited = wait.until(PQsocket(raw), event, end); waited != Waited::ready) return waited;
    next = PQconnectPoll(raw);
  }
  return Waited::ready;
}

// What limits an attempt: the string's connect_timeout, and without one a fair share of the time left, so
// that a host that never answers does not keep the others from being tried.
inline Deadline attempt_end(Conninfo const& attempt, Deadline deadline, std::size_t attempts_left) {
  if (auto const limit = attempt.host_timeout()) return std::min(deadline, Deadline::after(*limit));
  if (deadline.is_never() || attempts_left < 2) return deadline;
  return Deadline::after(deadline.remaining() / static_cast<std::chrono::nanoseconds::rep>(attempts_left));
}

/// Tries every host in turn. Throws ConnectionUnavailable: timed_out, cancelled, or connect_failed with what
/// libpq said, less the secrets.
inline RawConnection connect_raw(Conninfo const& conninfo, SocketWait& wait) {
  using Reason = ConnectionUnavailable::Reason;
  std::string failures;
  auto attempts = conninfo.attempts();
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    if (wait.deadline().passed()) break;
    auto const parameters = attempts[i].parameters();
    RawConnection raw{PQconnectStartParams(parameters.keywords.data(), parameters.values.data(), 0)};
    if (!raw) throw std::bad_alloc{};
    silence_notices(raw.get());
    Deadline const end = attempt_end(attempts[i], wait.deadline(), attempts.size() - i);
    Waited const waited = complete_connect(raw.get(), wait, end);
    if (waited == Waited::ready && PQstatus(raw.get()) == CONNECTION_OK) return raw;
    if (waited == Waited::cancelled) {
      throw ConnectionUnavailable{Reason::cancelled, "stopped while connecting"};
    }
    if (!failures.empty()) failures += "; ";
    failures +=
        waited == Waited::timed_out
            ? "no answer in time"
            : conninfo.without_secrets(PQerrorMessage(raw.get()), PQpass(raw.get()) ? PQpass(raw.get()) : "");
  }
  if (!failures.empty()) failures = ": " + failures;
  if (wait.deadline().passed()) {
    throw ConnectionUnavailable{Reason::timed_out, "no time left while connecting" + failures};
  }
  throw ConnectionUnavailable{Reason::connect_failed, "connecting failed" + failures};
}

}  // namespace db_bulkhead::detail

#endif
