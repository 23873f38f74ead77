// SPDX-License-Identifier: MIT
//
// A pool of connections, of any driver that there is a `connector` for.
//
// Bounded: at most `max_size` connections at every instant, those being opened or
// closed included; at most `max_waiting` callers wait, one more is refused at once.
// Order: waiters are served strictly in the order of their arrival; whatever frees
// room (a return, a closed connection, a failed connect) serves the next. Idle
// connections are lent newest first.
// Waiting ends at the caller's deadline, after `connection_timeout`, by the stop token,
// and when the pool is closed. Connections are opened on the caller's own thread, when
// none is idle; the pool has no threads.
// What comes back is kept only if its session could be reset and proven clean, and is
// lent only if its peer is still there; else it is closed and replaced.
// Lifetime: leases may outlive the pool. Thread safety: every member may be called from
// any thread; the destructor is the exception, and closes the pool without waiting.
// Not promised: that a connection which passed the check at borrow does not die after.
#ifndef DB_BULKHEAD_CONNECTION_POOL_HPP
#define DB_BULKHEAD_CONNECTION_POOL_HPP

#include <algorithm>
#include <memory>
#include <utility>

#include "db_bulkhead/connection_lease.hpp"
#include "db_bulkhead/connector.hpp"
#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/detail/pool_state.hpp"
#include "db_bulkhead/error.hpp"
#include "db_bulkhead/permit.hpp"
#include "db_bulkhead/pool_concept.hpp"
#include "db_bulkhead/pool_options.hpp"

namespace db_bulkhead {

template <connector Connector>
class ConnectionPool {
 public:
  using lease_type = ConnectionLease<Connector>;

  /// Opens nothing yet. std::invalid_argument for options out of range.
  explicit ConnectionPool(Connector connector, PoolOptions options = {})
      : state_{std::make_shared<State>(std::move(connector), std::move(options))} {}
  ConnectionPool(ConnectionPool const&) = delete;
  ConnectionPool& operator=(ConnectionPool const&) = delete;
  ~ConnectionPool() { close(QueueWait{}); }

  /// Lends a connection, waiting until `deadline` and for `connection_timeout` at most. A deadline that has
  /// passed still takes an idle connection. Throws ConnectionUnavailable: full, timed_out, cancelled, closed,
  /// or connect_failed.
  lease_type acquire(Deadline deadline, AcquireOptions const& options = {}) {
    Deadline const end = std::min(deadline, Deadline::after(state_->options().connection_timeout));
    auto admission = state_->gate().try_admit(end, options.stop);
    if (!admission) refuse(admission.rejection(), options);
    Permit permit = std::move(admission).permit();
    auto connection = state_->obtain(end, options);
    return lease_type{state_, std::move(permit), std::move(connection)};
  }

  /// A snapshot of one instant.
  PoolStats stats() const { return state_->stats(); }

  /// What the pool was made with.
  PoolOptions const& options() const noexcept { return state_->options(); }

  /// Closes the pool: waiters and newcomers fail with `closed`, idle connections are closed, leased ones
  /// when they come back. Returns when all are closed, or after `grace`. Idempotent.
  void close(QueueWait grace) noexcept { state_->close_all(Deadline::after(grace)); }

 private:
  using State = detail::PoolState<Connector>;
  using Reason = ConnectionUnavailable::Reason;

  [[noreturn]] void refuse(Rejection rejection, AcquireOptions const& options) {
    switch (rejection) {
      case Rejection::full:
        state_->refuse(Reason::full, "no connection free, and the queue is full", options);
      case Rejection::cancelled: state_->refuse(Reason::cancelled, "stopped while waiting", options);
      case Rejection::closed: state_->refuse(Reason::closed, "the pool is closed", options);
      default: state_->refuse(Reason::timed_out, "no connection came free in time", options);
    }
  }

  std::shared_ptr<State> state_;
};

}  // namespace db_bulkhead

#endif
