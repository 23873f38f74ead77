// SPDX-License-Identifier: MIT
//
// A list whose links are in its members: waiters, which live on their own threads'
// stacks, and idle connections. Nothing is allocated; every operation takes constant
// time. Not synchronised: its owner guards it with a lock. A member must be out of the
// list before it dies.
#ifndef DB_BULKHEAD_DETAIL_WAIT_QUEUE_HPP
#define DB_BULKHEAD_DETAIL_WAIT_QUEUE_HPP

#include <cstddef>

namespace db_bulkhead::detail {

/// `Waiter` has members `Waiter* ahead` and `Waiter* behind`, both null while it is in no list.
template <class Waiter>
class WaitQueue {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  std::size_t size() const noexcept { return size_; }
  Waiter* first() const noexcept { return first_; }
  Waiter* last() const noexcept { return last_; }

  void push_last(Waiter& waiter) noexcept {
    waiter.ahead = last_;
    (last_ != nullptr ? last_->behind : first_) = &waiter;
    last_ = &waiter;
    ++size_;
  }

  void push_first(Waiter& waiter) noexcept {
    waiter.behind = first_;
    (first_ != nullptr ? first_->ahead : last_) = &waiter;
    first_ = &waiter;
    ++size_;
  }

  void remove(Waiter& waiter) noexcept {
    (waiter.ahead != nullptr ? waiter.ahead->behind : first_) = waiter.behind;
    (waiter.behind != nullptr ? waiter.behind->ahead : last_) = waiter.ahead;
    waiter.ahead = waiter.behind = nullptr;
    --size_;
  }

 private:
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace db_bulkhead::detail

#endif
