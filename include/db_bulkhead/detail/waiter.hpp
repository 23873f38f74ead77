// SPDX-License-Identifier: MIT
//
// One caller in a gate's queue, living on that caller's stack. How long it spins before
// it sleeps is decided when it lines up; see hand_off_pace.hpp. Links, `is_first` and
// `granted_at` are written under the gate's lock.
#ifndef DB_BULKHEAD_DETAIL_WAITER_HPP
#define DB_BULKHEAD_DETAIL_WAITER_HPP

#include <atomic>

#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/detail/parker.hpp"

namespace db_bulkhead::detail {

template <class Platform>
class Waiter {
 public:
  typename Platform::parker parker{};
  bool may_spin = false;
  /// When the permit was handed over: written before the outcome is settled, read after it was seen.
  Deadline::clock::time_point granted_at{};
  Waiter* ahead = nullptr;
  Waiter* behind = nullptr;

  /// Tells the waiter that it is next in line.
  void make_first() noexcept { is_first_.store(true, std::memory_order_relaxed); }

  /// Returns once the wait is settled or `end` has passed; says whether the thread had to be woken.
  bool wait(Deadline end) noexcept {
    if (may_spin && spin(end)) return false;
    parker.park(end);
    return true;
  }

 private:
  // Bounded, so that a waiter costs no processor time while it waits for long. Whoever is next pauses
  // (a grant may be nanoseconds away); all others only let other threads run.
  static constexpr int yields = 16;
  static constexpr int pauses = 64;

  bool spin(Deadline end) noexcept {
    for (int round = 0; round < yields; ++round) {
      if (is_first_.load(std::memory_order_relaxed) && pause_until_settled()) return true;
      if (is_settled(parker.outcome()) || (!end.is_never() && end.passed(Platform::now()))) return true;
      Platform::yield();
    }
    return is_settled(parker.outcome());
  }

  bool pause_until_settled() const noexcept {
    for (int i = 0; i < pauses; ++i) {
      if (is_settled(parker.outcome())) return true;
      Platform::pause();
    }
    return false;
  }

  typename Platform::template atomic<bool> is_first_{false};
};

}  // namespace db_bulkhead::detail

#endif
