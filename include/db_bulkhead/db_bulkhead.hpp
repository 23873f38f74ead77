// SPDX-License-Identifier: MIT
//
// The bulkhead: decides in front of a connection pool which operations may run, which
// may wait and which are refused, and runs each admitted one as a transaction.
//
// Bounded: at most B calls have a connection or ask for one, at most B + Q are inside;
// one more is refused at once, before the pool is touched. Waiting calls are served in
// the order of their arrival, until `queue_wait` or `deadline` is over or `stop` is
// requested.
// Order at the end of a call: commit or rollback, the connection back in the pool (or
// destroyed), the permit, the slot; only then does the caller see value or exception.
// A value is seen only if the server acknowledged COMMIT. The callback's own exception
// leaves as the same object, after the rollback.
// Not re-entrant: inside a transaction, the same thread is refused by the same bulkhead
// (`Rejection::reentrant`), because it could wait for itself for ever. What it cannot
// see, and what is yours to avoid: nesting under a bare permit from `admit`, and two
// bulkheads that are taken in opposite orders.
// Lifetime: the pool must outlive the bulkhead. All permits must be back and all calls
// have returned before a bulkhead is destroyed: checked, and ends the program.
// Thread safety: every member may be called from any thread at any time.
// Not promised: how long the callback, the pool or the server take. A callback must not
// end the transaction itself, keep anything of the connection, or hand it to a thread.
#ifndef DB_BULKHEAD_DB_BULKHEAD_HPP
#define DB_BULKHEAD_DB_BULKHEAD_HPP

#include <chrono>
#include <concepts>
#include <cstddef>
#include <exception>
#include <functional>
#include <stdexcept>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "db_bulkhead/admission.hpp"
#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/detail/active_call.hpp"
#include "db_bulkhead/detail/transaction_run.hpp"
#include "db_bulkhead/error.hpp"
#include "db_bulkhead/limits.hpp"
#include "db_bulkhead/observer.hpp"
#include "db_bulkhead/owning_result.hpp"
#include "db_bulkhead/permit.hpp"
#include "db_bulkhead/pool_concept.hpp"
#include "db_bulkhead/source_location.hpp"
#include "db_bulkhead/transaction_options.hpp"

namespace db_bulkhead {

template <connection_pool Pool, class Observer = NullObserver>
class DbBulkhead {
 public:
  /// std::invalid_argument for limits out of range. `pool` is kept by reference, and `observer` is where
  /// Observer is a reference type.
  DbBulkhead(Pool& pool, Limits limits, Observer observer = {})
      : pool_{pool}, gate_{limits}, observer_{std::forward<Observer>(observer)} {}
  DbBulkhead(DbBulkhead const&) = delete;
  DbBulkhead& operator=(DbBulkhead const&) = delete;

  /// Admits, borrows a connection, runs `work(transaction)` in a transaction, commits, and returns its
  /// result. `queue_wait` bounds the wait for a permit.
  ///
  /// `work` is called once at most, on this thread. It returns nothing, or a value that owns what it holds.
  /// Throws AdmissionRejected, ConnectionUnavailable, TransactionRolledBack, BoundaryViolated,
  /// CommitOutcomeUnknown, ResultLost; see error.hpp for what the database holds then. Throws
  /// std::invalid_argument, with nothing touched, for a negative wait, options out of range or an empty
  /// std::function. Whatever `work` throws leaves after the rollback as the same object. `site` is told in
  /// the pool's leak reports.
  // Any duration, and not QueueWait itself: so `transaction({}, work)` means options only.
  template <class Rep, class Period, class Work>
  auto transaction(std::chrono::duration<Rep, Period> const& queue_wait, Work&& work,
                   SourceLocation const& site = SourceLocation::current()) {
    return transaction(TransactionOptions{.queue_wait = queue_wait}, std::forward<Work>(work), site);
  }

  template <class Work>
  auto transaction(TransactionOptions const& options, Work&& work,
                   SourceLocation const& site = SourceLocation::current()) {
    static_assert(
        std::invocable<Work&, callback_type&>,
        "the callback is called, as an lvalue, with a reference to the transaction: write [](auto& tx) "
        "{ ... }, or name the driver's type (for libpqxx: pqxx::dbtransaction&)");
    using Result = std::invoke_result_t<Work&, callback_type&>;
    static_assert(
        outlives_transaction<Result>,
        "the callback must return a value that owns what it holds, or nothing: a reference, pointer, "
        "view, iterator, future, cursor, stream or transaction is dead when the caller gets it");
    static_assert(std::is_void_v<Result> || std::move_constructible<Result>,
                  "the callback's result is moved to the caller and so must be movable");
    require_valid(options);
    require_not_empty(work);
    return run<std::remove_cv_t<Result>>(options, work, site);
  }

  /// A bare permit, for work whose transactions somebody else manages: admission first, the transaction
  /// inside. Throws AdmissionRejected; std::invalid_argument for a negative wait.
  [[nodiscard]] Permit admit(QueueWait queue_wait, std::stop_token const& stop = {}) {
    Admission admission = try_admit(queue_wait, stop);
    if (!admission) reject(admission.rejection(), admission.waited());
    return std::move(admission).permit();
  }

  /// The same, without an exception for a refusal: that costs a load. std::invalid_argument for a negative
  /// wait.
  [[nodiscard]] Admission try_admit(QueueWait queue_wait, std::stop_token const& stop = {}) {
    require_valid(queue_wait);
    if (detail::ActiveCall::inside(this)) return {Rejection::reentrant, {}};
    return gate_.try_admit(queue_wait, stop);
  }

  GateState state() const noexcept { return gate_.state(); }
  /// Free permits and slots: to look at, never to decide by.
  std::size_t available() const noexcept { return gate_.available(); }
  std::size_t available_slots() const noexcept { return gate_.available_slots(); }
  Limits limits() const noexcept { return gate_.limits(); }

  /// Returns at once. A shrink takes effect as permits come back; see AdmissionGate::resize.
  void resize(Limits limits) { gate_.resize(limits); }

  /// Refuses newcomers and wakes every waiter with `Rejection::closed`; running work goes on.
  void close() noexcept { gate_.close(); }

 private:
  using lease_type = decltype(std::declval<Pool&>().acquire(Deadline::never()));
  using run_type = detail::TransactionRun<lease_type, Observer>;
  using callback_type = typename run_type::callback_type;

  template <class Result, class Work>
  Result run(TransactionOptions const& options, Work& work, SourceLocation const& site) {
    bool committed = false;
    try {
      return run_admitted<Result>(options, work, site, committed);
    } catch (...) {
      if (!committed) throw;
      // All that runs after the commit and may throw is the move of the result.
      std::throw_with_nested(ResultLost{"committed, but the result could not be handed out"});
    }
  }

  // The order of these locals is the order of release, backwards.
  template <class Result, class Work>
  Result run_admitted(TransactionOptions const& options, Work& work, SourceLocation const& site,
                      bool& committed) {
    Permit const permit = admit(options);
    detail::ActiveCall const active{this};
    lease_type lease = borrow(options, site);
    return run_type{lease, options, observer_}.template run<Result>(work, committed);
  }

  Permit admit(TransactionOptions const& options) {
    if (detail::ActiveCall::inside(this)) reject(Rejection::reentrant);
    if (options.deadline.passed()) reject(Rejection::expired);
    Admission admission = gate_.try_admit(options.queue_wait, options.deadline, options.stop);
    if (!admission) reject(admission.rejection(), admission.waited());
    return std::move(admission).permit();
  }

  [[noreturn]] void reject(Rejection reason, std::chrono::nanoseconds waited = {}) const {
    GateState const now = gate_.state();
    throw AdmissionRejected{reason, now.limits, now.running, now.waiting, waited};
  }

  lease_type borrow(TransactionOptions const& options, SourceLocation const& site) {
    AcquireOptions const how{.stop = options.stop, .label = options.label};
    try {
      if constexpr (requires { pool_.acquire(options.deadline, how, site); }) {
        return pool_.acquire(options.deadline, how, site);
      } else if constexpr (requires { pool_.acquire(options.deadline, how); }) {
        return pool_.acquire(options.deadline, how);
      } else {
        return pool_.acquire(options.deadline);
      }
    } catch (Error const&) {
      throw;
    } catch (...) {
      std::throw_with_nested(ConnectionUnavailable{ConnectionUnavailable::Reason::connect_failed,
                                                   "the pool gave no connection; its exception is nested"});
    }
  }

  // Types that can be empty are those that can be made from nullptr and asked: std::function and its
  // relatives, function pointers. A lambda is none of them.
  template <class Work>
  static void require_not_empty(Work const& work) {
    if constexpr (std::constructible_from<Work, std::nullptr_t> && requires { static_cast<bool>(work); }) {
      if (!static_cast<bool>(work))
        throw std::invalid_argument("db_bulkhead: work is empty; allowed is a callable");
    }
  }

  Pool& pool_;
  AdmissionGate gate_;
  [[no_unique_address]] Observer observer_;
};

}  // namespace db_bulkhead

#endif
