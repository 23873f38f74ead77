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
#include <charconv>
#include <chrono>
#include <cstddef>
#include <new>
#include <string>
#include <string_view>

#include "db_bulkhead/connector.hpp"
#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/pqxx/conninfo.hpp"
#include "db_bulkhead/pqxx/libpq.hpp"
#include "db_bulkhead/pqxx/socket.hpp"

namespace db_bulkhead::detail {

inline RawConnection start_connect(Conninfo const& attempt) {
  auto const parameters = attempt.parameters();
  RawConnection raw{PQconnectStartParams(parameters.keywords.data(), parameters.values.data(), 0)};
  if (!raw) throw std::bad_alloc{};
  silence_notices(raw.get());
  // For the SQLSTATE, which there is no other way to get from a refused connect.
  PQsetErrorVerbosity(raw.get(), PQERRORS_VERBOSE);
  return raw;
}

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

// connect_timeout in seconds, wherever libpq found it (string, environment, service file); 0 where nowhere.
inline std::chrono::seconds connect_timeout(PGconn* raw) noexcept {
  int seconds = 0;
  RawConninfo const options{PQconninfo(raw)};
  for (auto option = options.get(); option != nullptr && option->keyword != nullptr; ++option) {
    std::string_view const value{option->val != nullptr ? option->val : ""};
    if (std::string_view{option->keyword} == "connect_timeout") {
      std::from_chars(value.data(), value.data() + value.size(), seconds);
    }
  }
  return std::chrono::seconds{seconds};
}

// What limits an attempt: connect_timeout, which libpq's non-blocking connect leaves to its user (5 s where
// nobody set one), and a fair share of the time left, so that a host that never answers does not keep the
// others from being tried.
inline Deadline attempt_end(PGconn* raw, Deadline deadline, std::size_t attempts_left) noexcept {
  auto const limit = connect_timeout(raw);
  Deadline const patience = Deadline::after(limit.count() > 0 ? limit : std::chrono::seconds{5});
  if (deadline.is_never() || attempts_left < 2) return std::min(deadline, patience);
  auto const share = deadline.remaining() / static_cast<std::chrono::nanoseconds::rep>(attempts_left);
  return std::min(Deadline::after(share), patience);
}

// libpq's verbose text, "... FATAL:  28P01: ...", less what follows the server's message: where in its
// sources that comes from. And the SQLSTATE in it; an empty one where no server had a say.
struct Refusal {
  explicit Refusal(std::string_view verbose) noexcept : text{verbose} {
    constexpr std::string_view before = ":  ", code = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for (auto at = text.find(before); at != std::string_view::npos; at = text.find(before, at + 1)) {
      auto const candidate = text.substr(at + before.size(), 5);
      if (candidate.size() < 5 || candidate.find_first_not_of(code) != std::string_view::npos) continue;
      if (text.substr(at + before.size() + 5, 2) != ": ") continue;
      sqlstate = candidate;
      text = text.substr(0, text.find('\n', at));
      return;
    }
  }
  std::string_view text;
  std::string_view sqlstate;

  // As libpq does it: wrong credentials are not tried on every host. 57P03 is a server that is starting up.
  bool is_final() const noexcept { return !sqlstate.empty() && sqlstate != "57P03"; }

  // By the class of the SQLSTATE (PostgreSQL's manual, appendix A). Insufficient resources (53) and operator
  // intervention (57: starting up, shutting down) pass. Wrong credentials (28), no such database (3D), one
  // that takes no connections (55), and names, options or rights that are wrong (22, 42) do not.
  ConnectFailure kind() const noexcept {
    auto const of_class = sqlstate.substr(0, 2);
    if (of_class == "53" || of_class == "57") return ConnectFailure::busy;
    bool const stays =
        of_class == "28" || of_class == "3D" || of_class == "55" || of_class == "22" || of_class == "42";
    return stays ? ConnectFailure::refused : ConnectFailure::unreachable;
  }
};

inline std::string told(Refusal const& refusal, Conninfo const& conninfo, char const* password) {
  if (!conninfo.names_may_be_secret()) {
    return conninfo.without_secrets(std::string{refusal.text}, password != nullptr ? password : "");
  }
  std::string const sqlstate =
      refusal.sqlstate.empty() ? "" : " (SQLSTATE " + std::string{refusal.sqlstate} + ")";
  return "the reason" + sqlstate +
         " is not shown: host, port or database in the URI holds an @, as when a password is not "
         "percent-encoded";
}

/// Tries every host in turn. Throws ConnectError, with what libpq said, less the secrets.
inline RawConnection connect_raw(Conninfo const& conninfo, SocketWait& wait) {
  auto kind = ConnectFailure::unreachable;
  std::string failures;
  auto const attempts = conninfo.attempts();
  for (std::size_t i = 0; i < attempts.size() && !wait.deadline().passed(); ++i) {
    RawConnection raw = start_connect(attempts[i]);
    Deadline const end = attempt_end(raw.get(), wait.deadline(), attempts.size() - i);
    Waited const waited = complete_connect(raw.get(), wait, end);
    if (waited == Waited::ready && PQstatus(raw.get()) == CONNECTION_OK) {
      PQsetErrorVerbosity(raw.get(), PQERRORS_DEFAULT);
      return raw;
    }
    if (waited == Waited::cancelled) throw ConnectError{kind, "stopped while connecting"};
    failures += failures.empty() ? ": " : "; ";
    if (waited == Waited::timed_out) {
      failures += "no answer in time";
      continue;
    }
    Refusal const refusal{PQerrorMessage(raw.get())};
    failures += told(refusal, conninfo, PQpass(raw.get()));
    if (!refusal.sqlstate.empty()) kind = refusal.kind();
    if (refusal.is_final()) break;
  }
  throw ConnectError{kind, "connecting failed" + failures};
}

}  // namespace db_bulkhead::detail

#endif
