// SPDX-License-Identifier: MIT
//
// What can go wrong, told so that a caller can act on it. Every exception of the
// library derives from `Error`, and `Error::effect()` answers the one question
// that decides about a retry: does the database hold anything of this call?
//
//   AdmissionRejected      none       refused before anything was touched
//   ConnectionUnavailable  none       no connection, or BEGIN failed
//   TransactionRolledBack  none       the transaction did not commit
//   BoundaryViolated       unknown    the callback ended or began a transaction itself
//   CommitOutcomeUnknown   unknown    COMMIT was sent and not answered
//   ResultLost             committed  committed, but the result could not be handed out
//
// Wrong arguments are std::invalid_argument, thrown before anything is touched.
// An exception of the caller's own leaves a transaction as it is, wrapped in
// nothing; everything was rolled back then. No message holds SQL text, parameters,
// passwords or a connection string. Exceptions are immutable: safe to share.
#ifndef DB_BULKHEAD_ERROR_HPP
#define DB_BULKHEAD_ERROR_HPP

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "db_bulkhead/limits.hpp"

namespace db_bulkhead {

/// Why the gate turned a caller away.
enum class Rejection {
  full,       ///< B + Q operations were in: nothing was waited for
  timed_out,  ///< no permit came free in time
  cancelled,  ///< the stop token was triggered
  closed,     ///< the gate is closed
  reentrant,  ///< the thread is inside a transaction of the same bulkhead
  expired,    ///< the deadline had passed on arrival
};

/// What the database holds because of the call.
enum class Effect { none, unknown, committed };

constexpr std::string_view to_string(Rejection reason) noexcept {
  switch (reason) {
    case Rejection::full: return "full";
    case Rejection::timed_out: return "timed_out";
    case Rejection::cancelled: return "cancelled";
    case Rejection::closed: return "closed";
    case Rejection::reentrant: return "reentrant";
    case Rejection::expired: return "expired";
  }
  return "?";
}

constexpr std::string_view to_string(Effect effect) noexcept {
  switch (effect) {
    case Effect::none: return "none";
    case Effect::unknown: return "unknown";
    case Effect::committed: return "committed";
  }
  return "?";
}

/// The root of the library's exceptions.
class Error : public std::runtime_error {
 public:
  Error(std::string const& what, Effect effect)
      : std::runtime_error{"db_bulkhead: " + what}, effect_{effect} {}

  /// What the database holds because of the call that threw.
  Effect effect() const noexcept { return effect_; }

 private:
  Effect effect_;
};

/// The operation was not admitted. Nothing ran, no connection was asked for.
class AdmissionRejected : public Error {
 public:
  AdmissionRejected(Rejection reason, Limits limits, std::size_t in_flight, std::size_t waiting,
                    std::chrono::nanoseconds waited)
      : Error{describe(reason, limits, in_flight, waiting, waited), Effect::none},
        reason_{reason},
        limits_{limits},
        in_flight_{in_flight},
        waiting_{waiting},
        waited_{waited} {}

  Rejection reason() const noexcept { return reason_; }
  /// The limits, and the operations running and waiting, as they were just after the refusal.
  Limits limits() const noexcept { return limits_; }
  std::size_t in_flight() const noexcept { return in_flight_; }
  std::size_t waiting() const noexcept { return waiting_; }
  /// How long the caller stood in the queue; zero if it never did.
  std::chrono::nanoseconds waited() const noexcept { return waited_; }

 private:
  static std::string describe(Rejection reason, Limits limits, std::size_t in_flight, std::size_t waiting,
                              std::chrono::nanoseconds waited) {
    return "admission rejected (" + std::string{to_string(reason)} + "): " + std::to_string(in_flight) +
           " of " + std::to_string(limits.concurrent) + " running, " + std::to_string(waiting) + " of " +
           std::to_string(limits.extra_slots) + " waiting, waited " + std::to_string(waited.count()) + " ns";
  }

  Rejection reason_;
  Limits limits_;
  std::size_t in_flight_;
  std::size_t waiting_;
  std::chrono::nanoseconds waited_;
};

/// The operation was admitted, but there was no connection for it, or BEGIN failed. Nothing ran.
class ConnectionUnavailable : public Error {
 public:
  enum class Reason { timed_out, full, connect_failed, begin_failed, cancelled, suspended, closed };

  ConnectionUnavailable(Reason reason, std::string const& what)
      : Error{what, Effect::none}, reason_{reason} {}

  Reason reason() const noexcept { return reason_; }

 private:
  Reason reason_;
};

/// The transaction certainly did not commit.
class TransactionRolledBack : public Error {
 public:
  enum class Reason { server_refused, connection_lost, deadline_exceeded, cancelled };

  TransactionRolledBack(Reason reason, std::string const& what, std::string sqlstate = {})
      : Error{what, Effect::none}, reason_{reason}, sqlstate_{std::move(sqlstate)} {}

  Reason reason() const noexcept { return reason_; }
  /// The five characters the server gave as the cause; empty where it gave none.
  std::string const& sqlstate() const noexcept { return sqlstate_; }

 private:
  Reason reason_;
  std::string sqlstate_;
};

/// The callback ended or began a transaction itself (COMMIT, ROLLBACK, BEGIN ... as text, or the
/// driver's own commit() or abort()): what it did before that may be durable, or gone.
class BoundaryViolated : public Error {
 public:
  explicit BoundaryViolated(std::string const& what) : Error{what, Effect::unknown} {}
};

/// COMMIT was sent and its answer did not come: it may have been committed. Never retry blindly;
/// ask the database, or make the operation idempotent.
class CommitOutcomeUnknown : public Error {
 public:
  explicit CommitOutcomeUnknown(std::string const& what) : Error{what, Effect::unknown} {}
};

/// The transaction is committed, but moving the callback's result out threw; that exception is
/// nested in this one.
class ResultLost : public Error {
 public:
  explicit ResultLost(std::string const& what) : Error{what, Effect::committed} {}
};

}  // namespace db_bulkhead

#endif
