// SPDX-License-Identifier: MIT
//
// Which bulkheads the current thread is inside of: a list on the stack, innermost first.
// Each thread sees its own only; nothing is shared.
#ifndef DB_BULKHEAD_DETAIL_ACTIVE_CALL_HPP
#define DB_BULKHEAD_DETAIL_ACTIVE_CALL_HPP

namespace db_bulkhead::detail {

class ActiveCall {
 public:
  explicit ActiveCall(void const* bulkhead) noexcept : bulkhead_{bulkhead}, outer_{innermost} {
    innermost = this;
  }
  ActiveCall(ActiveCall const&) = delete;
  ActiveCall& operator=(ActiveCall const&) = delete;
  ~ActiveCall() { innermost = outer_; }

  /// Whether this thread is inside a call of `bulkhead`.
  static bool inside(void const* bulkhead) noexcept {
    for (auto const* call = innermost; call != nullptr; call = call->outer_) {
      if (call->bulkhead_ == bulkhead) return true;
    }
    return false;
  }

 private:
  // constinit: no guard has to be asked at each access.
  inline static constinit thread_local ActiveCall const* innermost = nullptr;

  void const* bulkhead_;
  ActiveCall const* outer_;
};

}  // namespace db_bulkhead::detail

#endif
