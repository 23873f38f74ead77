// SPDX-License-Identifier: MIT
//
// What a pool asks of a driver: to open a connection, to see without a round trip
// whether one still lives, and to reset its session between two borrowers.
//
//   using connection_type = ...;
//       Destroying one closes it; that must not throw.
//   std::unique_ptr<connection_type> connect(Deadline, std::stop_token const&);
//       Opens a connection, ready to be lent, before the deadline. Throws
//       ConnectionUnavailable (timed_out, cancelled, connect_failed), or anything else,
//       which the pool then nests in connect_failed.
//   bool alive(connection_type&) noexcept;
//       Whether the peer is still there. No round trip.
//   ResetProgress begin_reset(connection_type&, Deadline) noexcept;
//       Called on return. Must not wait for the reset itself; the deadline bounds what
//       has to be put in order before it.
//   ResetProgress finish_reset(connection_type&, Deadline, std::stop_token const&) noexcept;
//       Called by the next borrower, where begin_reset answered `pending`.
//
// The pool calls all of them under no lock, for different connections from several
// threads at once; a single connection is used by one thread at a time.
#ifndef DB_BULKHEAD_CONNECTOR_HPP
#define DB_BULKHEAD_CONNECTOR_HPP

#include <concepts>
#include <memory>
#include <stop_token>

#include "db_bulkhead/deadline.hpp"

namespace db_bulkhead {

/// How far the reset of a session has come.
enum class ResetProgress {
  done,     ///< the session is as new
  pending,  ///< the reset is under way, its answers are still to be read
  failed,   ///< the connection must be closed
};

template <class C>
concept connector = requires(C& c, typename C::connection_type& connection, Deadline deadline,
                             std::stop_token const& stop) {
  { c.connect(deadline, stop) } -> std::same_as<std::unique_ptr<typename C::connection_type>>;
  { c.alive(connection) }
  noexcept->std::same_as<bool>;
  { c.begin_reset(connection, deadline) }
  noexcept->std::same_as<ResetProgress>;
  { c.finish_reset(connection, deadline, stop) }
  noexcept->std::same_as<ResetProgress>;
};

}  // namespace db_bulkhead

#endif
