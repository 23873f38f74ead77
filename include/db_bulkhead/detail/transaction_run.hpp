// SPDX-License-Identifier: MIT
//
// One transaction on one leased connection, from BEGIN to its checked end. The order
// at every end is: COMMIT or ROLLBACK (or the socket shut), the transaction object
// destroyed, then the connection discarded where it must not be used again. What
// leaves is the caller's own exception as the same object, unless the library ended
// the work itself or the callback broke the boundary.
//
// Lives on the caller's stack and belongs to its thread.
#ifndef DB_BULKHEAD_DETAIL_TRANSACTION_RUN_HPP
#define DB_BULKHEAD_DETAIL_TRANSACTION_RUN_HPP

#include <exception>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "db_bulkhead/error.hpp"
#include "db_bulkhead/observer.hpp"
#include "db_bulkhead/pool_concept.hpp"
#include "db_bulkhead/transaction_options.hpp"

namespace db_bulkhead::detail {

template <class Traits>
struct CallbackType {
  using type = typename Traits::transaction_type;
};
template <class Traits>
  requires requires {
    typename Traits::callback_type;
  }
struct CallbackType<Traits> {
  using type = typename Traits::callback_type;
};

template <connection_lease Lease, class Observer>
class TransactionRun {
 public:
  using connection_type = std::remove_cvref_t<decltype(*std::declval<Lease&>())>;
  using traits = TransactionTraits<connection_type>;
  using transaction_type = typename traits::transaction_type;
  /// What the callback sees: the transaction, or the base of it that the driver names.
  using callback_type = typename CallbackType<traits>::type;

  TransactionRun(Lease& lease, TransactionOptions const& options, Observer& observer) noexcept
      : lease_{lease}, options_{options}, observer_{observer} {}
  TransactionRun(TransactionRun const&) = delete;
  TransactionRun& operator=(TransactionRun const&) = delete;
  // Runs after the transaction object is gone: it is a local of `run`.
  ~TransactionRun() {
    if constexpr (requires { lease_.discard(); }) {
      if (discard_) lease_.discard();
    }
  }

  /// Runs `work` in a transaction and returns its result once the commit is acknowledged; sets
  /// `committed` then, so that what is thrown afterwards can be told from what is thrown before.
  template <class Result, class Work>
  Result run(Work& work, bool& committed) {
    transaction_type transaction = begin();
    if constexpr (std::is_void_v<Result>) {
      call<void>(work, transaction);
      commit(transaction);
      committed = true;
    } else {
      Result result = call<Result>(work, transaction);
      commit(transaction);
      committed = true;
      return result;
    }
  }

 private:
  // What ends before BEGIN is sent leaves the connection as good as it was.
  transaction_type begin() {
    using Reason = ConnectionUnavailable::Reason;
    if (options_.stop.stop_requested())
      throw ConnectionUnavailable{Reason::cancelled, "stopped before BEGIN"};
    if (options_.deadline.passed())
      throw ConnectionUnavailable{Reason::timed_out, "no time left before BEGIN"};
    try {
      return traits::begin(*lease_, options_);
    } catch (Error const&) {
      discard_ = true;
      throw;
    } catch (...) {
      discard_ = true;
      std::throw_with_nested(ConnectionUnavailable{ConnectionUnavailable::Reason::begin_failed,
                                                   "BEGIN failed; nothing was run"});
    }
  }

  template <class Result, class Work>
  Result call(Work& work, transaction_type& transaction) {
    try {
      return std::invoke(work, static_cast<callback_type&>(transaction));
    } catch (...) {
      if (auto const violation = boundary_violation(transaction)) {
        abandon(transaction);
        std::throw_with_nested(*violation);
      }
      roll_back(transaction);
      throw;
    }
  }

  void commit(transaction_type& transaction) {
    using Reason = TransactionRolledBack::Reason;
    if (options_.stop.stop_requested())
      end_without_commit(transaction, Reason::cancelled, "stop was requested");
    if (options_.deadline.passed()) {
      end_without_commit(transaction, Reason::deadline_exceeded, "the deadline passed");
    }
    try {
      traits::commit(transaction);
    } catch (TransactionRolledBack const& error) {
      if (error.reason() == Reason::connection_lost) {
        abandon(transaction);
      } else {
        roll_back(transaction);
      }
      throw;
    } catch (Error const&) {
      abandon(transaction);
      throw;
    } catch (...) {
      abandon(transaction);
      std::throw_with_nested(CommitOutcomeUnknown{"COMMIT failed in a way that leaves its outcome open"});
    }
  }

  [[noreturn]] void end_without_commit(transaction_type& transaction, TransactionRolledBack::Reason reason,
                                       char const* why) {
    if (auto const violation = boundary_violation(transaction)) {
      abandon(transaction);
      throw *violation;
    }
    roll_back(transaction);
    throw TransactionRolledBack{reason, std::string{"rolled back before COMMIT: "} + why};
  }

  // Whether the callback ended the transaction itself. A driver that cannot even find out has lost the
  // connection, which the rollback will meet and report.
  std::optional<BoundaryViolated> boundary_violation(transaction_type& transaction) {
    if constexpr (requires { traits::check(transaction); }) {
      try {
        traits::check(transaction);
      } catch (BoundaryViolated const& violation) {
        return violation;
      } catch (...) {
      }
    }
    return std::nullopt;
  }

  // A rollback that fails is told to the observer only; the server rolls back when the session ends.
  void roll_back(transaction_type& transaction) noexcept {
    try {
      traits::rollback(transaction);
    } catch (...) {
      tell_rollback_failed(std::current_exception());
      abandon(transaction);
    }
  }

  void tell_rollback_failed(std::exception_ptr failure) noexcept {
    try {
      observer_.rollback_failed(RollbackFailed{options_.label, std::move(failure)});
    } catch (...) {  // an observer has no say in how a transaction ends
    }
  }

  void abandon(transaction_type& transaction) noexcept {
    if constexpr (requires { traits::abandon(*lease_, transaction); }) {
      traits::abandon(*lease_, transaction);
    }
    discard_ = true;
  }

  Lease& lease_;
  TransactionOptions const& options_;
  Observer& observer_;
  bool discard_ = false;
};

}  // namespace db_bulkhead::detail

#endif
