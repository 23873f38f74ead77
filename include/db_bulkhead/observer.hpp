// SPDX-License-Identifier: MIT
//
// What a bulkhead tells an observer. An observer is a compile-time hook: derive
// from `NullObserver` and hide what you want to see; what you leave costs nothing.
// Hooks run on the thread that made the call, under no lock, possibly on several
// threads at once. One that throws is ignored: accounting and outcome stay as they are.
#ifndef DB_BULKHEAD_OBSERVER_HPP
#define DB_BULKHEAD_OBSERVER_HPP

#include <exception>
#include <string_view>

namespace db_bulkhead {

/// A rollback that could not be confirmed. The server rolls back by itself when the session ends,
/// and the bulkhead ends the session then; the caller sees the cause of the rollback, not this.
struct RollbackFailed {
  std::string_view label;      ///< TransactionOptions::label; valid during the call
  std::exception_ptr failure;  ///< what the driver threw
};

struct NullObserver {
  void rollback_failed(RollbackFailed const& /*event*/) const noexcept {}
};

}  // namespace db_bulkhead

#endif
