// SPDX-License-Identifier: MIT
//
// What a pool asks of a driver: to open a connection, to see whether one still lives,
// and to reset its session between two borrowers.
//
//   using connection_type = ...;
//       Destroying one closes it; that must not throw.
//   std::unique_ptr<connection_type> connect(Deadline, std::stop_token const&);
//       Opens a connection, ready to be lent, before the deadline. Throws
//       ConnectError, whose message callers get, or anything else, which counts as
//       `unreachable`, and whose text is nested in what callers get.
//   bool alive(connection_type&) noexcept;
//       Whether the peer is still there. No round trip.
//   ResetProgress ping(connection_type&, Deadline, std::stop_token const&) noexcept;
//       The same, by a round trip. `pending` if there was no answer in time, which
//       finish_reset will read then.
//   Verdict judge(connection_type&) noexcept;
//       Called on return, before the reset: whether what the borrower met on the
//       connection speaks against lending it again.
//   ResetProgress begin_reset(connection_type&, QueueWait) noexcept;
//       Called on return. Must not wait for the reset itself; the time is for what has to
//       be put in order before it.
//   ResetProgress finish_reset(connection_type&, Deadline, std::stop_token const&) noexcept;
//       Called by the next borrower, where begin_reset answered `pending`.
//   int backend_pid(connection_type&) noexcept;      (optional)
//       Names the session in reports.
//
// The pool calls all of them under no lock, for different connections from several
// threads at once; a single connection is used by one thread at a time.
#ifndef DB_BULKHEAD_CONNECTOR_HPP
#define DB_BULKHEAD_CONNECTOR_HPP

#include <concepts>
#include <memory>
#include <stop_token>
#include <string>

#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/error.hpp"

namespace db_bulkhead {

/// How far the reset of a session has come.
enum class ResetProgress {
  done,     ///< the session is as new
  pending,  ///< the reset is under way, its answers are still to be read
  failed,   ///< the connection must be closed
};

/// What becomes of a connection that comes back.
enum class Verdict {
  keep,
  evict,        ///< close it
  evict_older,  ///< close it, and all that were opened before now as they come free: a failover
};

/// Why a connect failed, as far as it matters for the next one.
enum class ConnectFailure {
  unreachable,  ///< no server answered: try again soon
  busy,         ///< a server answered that it is starting up or has too many clients: it will serve soon
  refused,      ///< wrong password, no such database ...: trying again soon would lock accounts, not help
};

/// A connect that failed.
class ConnectError : public ConnectionUnavailable {
 public:
  ConnectError(ConnectFailure kind, std::string const& what)
      : ConnectionUnavailable{Reason::connect_failed, what}, kind_{kind} {}

  ConnectFailure kind() const noexcept { return kind_; }

 private:
  ConnectFailure kind_;
};

template <class C>
concept connector = requires(C& c, typename C::connection_type& connection, Deadline deadline, QueueWait wait,
                             std::stop_token const& stop) {
  { c.connect(deadline, stop) } -> std::same_as<std::unique_ptr<typename C::connection_type>>;
  { c.alive(connection) }
  noexcept->std::same_as<bool>;
  { c.ping(connection, deadline, stop) }
  noexcept->std::same_as<ResetProgress>;
  { c.judge(connection) }
  noexcept->std::same_as<Verdict>;
  { c.begin_reset(connection, wait) }
  noexcept->std::same_as<ResetProgress>;
  { c.finish_reset(connection, deadline, stop) }
  noexcept->std::same_as<ResetProgress>;
};

}  // namespace db_bulkhead

#endif
