// SPDX-License-Identifier: MIT
//
// What the bulkhead asks of a pool and of a driver, so that anyone's fits.
//
// A pool hands out leases. `pool.acquire(deadline)` returns one or throws; it may
// be called from several threads at once. `*lease` is the connection; the lease's
// destructor gives it back and must not throw. Where a lease has
// `discard() noexcept`, it makes the destructor destroy the connection instead.
// A pool that also takes `AcquireOptions`, or these and a SourceLocation, gets them.
//
// A driver specialises `TransactionTraits` for its connection type:
//
//   using transaction_type = ...;
//       The transaction object. The callback gets it by reference, or, where
//       `using callback_type = ...` names a base of it, as that base.
//   static transaction_type begin(Connection&, TransactionOptions const&);
//       Opens the transaction. A prvalue, possibly immovable, never moved. It throws
//       ConnectionUnavailable, or anything else, which the bulkhead then nests in
//       ConnectionUnavailable (begin_failed).
//   static void check(transaction_type&);      (optional)
//       Throws BoundaryViolated where the callback ended or began a transaction
//       itself. Asked after a callback that threw, before rollback.
//   static void commit(transaction_type&);
//       Returns only if the server acknowledged the commit. Throws
//       TransactionRolledBack (certainly not committed; rollback is called next),
//       BoundaryViolated, or CommitOutcomeUnknown. Anything else counts as unknown.
//   static void rollback(transaction_type&);
//       May throw; that is observed, never passed on.
//   static void abandon(Connection&, transaction_type&) noexcept;   (optional)
//       Makes sure that nothing blocks any more on this connection, by shutting its
//       socket. After it the transaction is destroyed and the lease discarded.
#ifndef DB_BULKHEAD_POOL_CONCEPT_HPP
#define DB_BULKHEAD_POOL_CONCEPT_HPP

#include <concepts>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>

#include "db_bulkhead/deadline.hpp"

namespace db_bulkhead {

/// What a borrower may tell a pool besides the deadline.
struct AcquireOptions {
  /// Leaves the pool's queue with ConnectionUnavailable `cancelled`.
  std::stop_token stop{};
  /// Names the workload in the pool's messages and leak reports.
  std::string_view label{};
  /// In place of PoolOptions::leak_threshold, for this lease alone.
  std::optional<QueueWait> leak_threshold = std::nullopt;
};

/// Throws std::invalid_argument for a threshold out of range.
inline void require_valid(AcquireOptions const& options) {
  if (options.leak_threshold && options.leak_threshold->count() <= 0) {
    throw std::invalid_argument("db_bulkhead: AcquireOptions::leak_threshold is " +
                                std::to_string(options.leak_threshold->count()) +
                                " ns; allowed is more than 0");
  }
}

template <class L>
concept connection_lease = std::move_constructible<L> && requires(L& lease) {
  {*lease};
  requires std::is_lvalue_reference_v<decltype(*lease)>;
};

template <class P>
concept connection_pool = requires(P& pool, Deadline deadline) {
  { pool.acquire(deadline) } -> connection_lease;
};

/// The driver's side; see the contract above. Specialise it for your connection type.
template <class Connection>
struct TransactionTraits;

}  // namespace db_bulkhead

#endif
