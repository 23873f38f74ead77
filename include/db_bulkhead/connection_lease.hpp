// SPDX-License-Identifier: MIT
//
// A connection on loan, owned. The lease's destructor (or assigning another one over
// it) gives the connection back, exactly once, and then the place in the pool: the
// next in line gets both. A moved-from lease holds nothing, and giving that back is
// nothing.
//
// Lifetime: a lease may outlive its pool; the connection is closed then when the lease
// ends. No transaction, stream, receiver or result view made on the connection may
// outlive the lease. Thread safety: a lease may be moved to and ended on another
// thread; a single object, and its connection, are not for two threads at once.
#ifndef DB_BULKHEAD_CONNECTION_LEASE_HPP
#define DB_BULKHEAD_CONNECTION_LEASE_HPP

#include <memory>
#include <utility>

#include "db_bulkhead/connector.hpp"
#include "db_bulkhead/detail/pool_state.hpp"
#include "db_bulkhead/permit.hpp"

namespace db_bulkhead {

template <connector Connector>
class ConnectionPool;

template <connector Connector>
class ConnectionLease {
 public:
  using connection_type = typename Connector::connection_type;

  ConnectionLease(ConnectionLease&& other) noexcept
      : state_{std::move(other.state_)},
        permit_{std::move(other.permit_)},
        entry_{std::exchange(other.entry_, nullptr)},
        discard_{other.discard_} {}
  ConnectionLease& operator=(ConnectionLease&& other) noexcept {
    // By way of a temporary, so that what was held is given back in the destructor's order.
    ConnectionLease taken{std::move(other)};
    std::swap(state_, taken.state_);
    std::swap(permit_, taken.permit_);
    std::swap(entry_, taken.entry_);
    std::swap(discard_, taken.discard_);
    return *this;
  }
  ~ConnectionLease() {
    if (entry_ != nullptr) state_->give_back(*entry_, discard_);
  }

  /// Whether a connection is held: false once moved from.
  explicit operator bool() const noexcept { return entry_ != nullptr; }

  /// The connection. Undefined on a lease that was moved from, as for a std::unique_ptr.
  connection_type& operator*() const noexcept { return *entry_->connection; }

  /// The connection, or, where the connection itself is a handle, what it points to.
  auto operator->() const noexcept {
    if constexpr (requires { entry_->connection->operator->(); }) {
      return entry_->connection->operator->();
    } else {
      return entry_->connection.get();
    }
  }

  /// Makes the end of the lease close the connection instead of keeping it.
  void discard() noexcept { discard_ = true; }

 private:
  friend class ConnectionPool<Connector>;
  using State = detail::PoolState<Connector>;

  using Entry = typename State::Entry;

  ConnectionLease(std::shared_ptr<State> state, Permit permit, Entry& entry) noexcept
      : state_{std::move(state)}, permit_{std::move(permit)}, entry_{&entry} {}

  // The order is that of release, read from below: the connection goes back, or to whoever closes it, before
  // the permit, so that whoever gets the permit finds an idle connection or room for one; the state last.
  std::shared_ptr<State> state_;
  Permit permit_;
  Entry* entry_;
  bool discard_ = false;
};

}  // namespace db_bulkhead

#endif
