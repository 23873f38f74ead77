// SPDX-License-Identifier: MIT
//
// A pool of connections, of any driver that there is a `connector` for.
//
// Bounded: at most `max_size` connections at every instant, those being opened or
// closed included (but while a shrink by `resize` drains); at most `max_waiting`
// callers wait, one more is refused at once.
// Order: waiters are served strictly in the order of their arrival; whatever frees
// room (a return, a closed connection, a failed connect) serves the next. Idle
// connections are lent newest first.
// Waiting ends at the caller's deadline, after `connection_timeout`, by the stop token,
// and when the pool is closed or suspended. Connections are opened by threads of the
// pool: a connect that comes too late for whoever asked for it serves the next.
// Outages: while connecting fails and no connection is idle, callers fail at once with
// the cause, and the pool tries again by itself, at random and growing intervals.
// What comes back is kept only if its session could be reset and proven clean, and is
// lent only if its peer is still there, which is proven by a round trip where it was
// idle for long; else it is closed and replaced. So is what has become too old.
// Lifetime: leases may outlive the pool. Thread safety: every member may be called from
// any thread; the destructor is the exception. It closes the pool, waiting for no lease.
// Not promised: that a connection which passed the checks at borrow does not die after.
#ifndef DB_BULKHEAD_CONNECTION_POOL_HPP
#define DB_BULKHEAD_CONNECTION_POOL_HPP

#include <cstddef>
#include <memory>
#include <utility>

#include "db_bulkhead/connection_lease.hpp"
#include "db_bulkhead/connector.hpp"
#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/detail/pool_state.hpp"
#include "db_bulkhead/detail/pool_threads.hpp"
#include "db_bulkhead/permit.hpp"
#include "db_bulkhead/pool_concept.hpp"
#include "db_bulkhead/pool_options.hpp"
#include "db_bulkhead/source_location.hpp"

namespace db_bulkhead {

template <connector Connector>
class ConnectionPool {
 public:
  using lease_type = ConnectionLease<Connector>;

  /// Starts the pool's threads, which open `min_idle` connections; waits for none. std::invalid_argument for
  /// options out of range, std::system_error where no thread can be started.
  explicit ConnectionPool(Connector connector, PoolOptions options = {})
      : state_{std::make_shared<State>(std::move(connector), std::move(options))}, threads_{state_} {}
  ConnectionPool(ConnectionPool const&) = delete;
  ConnectionPool& operator=(ConnectionPool const&) = delete;
  ~ConnectionPool() { close(QueueWait{}); }

  /// Lends a connection, waiting until `deadline` and for `connection_timeout` at most. A deadline that has
  /// passed still takes an idle connection. `site` is told in leak reports. Throws ConnectionUnavailable:
  /// full, timed_out, cancelled, closed, suspended, or connect_failed.
  lease_type acquire(Deadline deadline, AcquireOptions const& options = {},
                     SourceLocation const& site = SourceLocation::current()) {
    require_valid(options);
    detail::Patience patience{deadline, state_->options().connection_timeout};
    Permit permit = state_->admit(patience, options);
    auto& entry = state_->obtain(patience, options, site);
    return lease_type{state_, std::move(permit), entry};
  }

  /// Changes max_size, at once. More room is used as callers come; what is too much is closed as it comes
  /// back, idle connections now. std::invalid_argument, with nothing changed, outside of 1 to
  /// Limits::max_total less max_waiting.
  void resize(std::size_t max_size) { state_->resize(max_size); }

  /// Closes what is idle now and everything that is lent when it comes back: for credentials that have
  /// changed, or a server that has moved. Tries again at once where connecting had failed.
  void evict_all() noexcept { state_->evict_all(); }

  /// Lends nothing more until `resume`, and opens nothing: callers fail with `suspended`, those in line when
  /// it is their turn. Loans go on. Both return at once.
  void suspend() noexcept { state_->suspend(); }
  void resume() noexcept { state_->resume(); }

  /// A snapshot of one instant.
  PoolStats stats() const { return state_->stats(); }

  /// What the pool was made with.
  PoolOptions const& options() const noexcept { return state_->options(); }

  /// Closes the pool: waiters and newcomers fail with `closed`, idle connections are closed, leased ones
  /// when they come back. Returns when all are closed, or after `grace`. Idempotent.
  void close(QueueWait grace) noexcept { state_->close_all(Deadline::after(grace)); }

 private:
  using State = detail::PoolState<Connector>;

  std::shared_ptr<State> state_;
  detail::PoolThreads<State> threads_;
};

}  // namespace db_bulkhead

#endif
