// SPDX-License-Identifier: MIT
//
// Whether a waiter should spin for a moment before it sleeps. Waking a sleeping thread
// takes 25 to 35 microseconds; where permits are handed on faster than that, a waiter
// that is still awake when its turn comes is worth many sleepers, and where they are
// not (any real transaction) spinning only burns the processor. So the pace of the
// hand-offs is measured, and only the first few in line spin, for a bounded time.
//
// The measure is the gap between hand-offs less the time that woken sleepers took to
// start: with it left in, a gate whose waiters sleep would look slow and keep them
// asleep for ever. `record` and `is_fast` are called under the gate's lock;
// `woke_after` by any thread.
#ifndef DB_BULKHEAD_DETAIL_HAND_OFF_PACE_HPP
#define DB_BULKHEAD_DETAIL_HAND_OFF_PACE_HPP

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>

#include "db_bulkhead/deadline.hpp"

namespace db_bulkhead::detail {

template <class Platform>
class HandOffPace {
 public:
  using time_point = Deadline::clock::time_point;

  /// Waiters further back than this never spin.
  static constexpr std::size_t spinners = 16;

  /// The mean gap is short enough for spinning to pay.
  bool is_fast() const noexcept { return mean_gap_ < cap; }

  /// A permit was handed on at `now`; `concurrent` is the number of permits that take turns.
  void record(time_point now, std::size_t concurrent) noexcept {
    auto const waking = std::chrono::nanoseconds{waking_.exchange(0, std::memory_order_relaxed)};
    auto const gap = now - last_ - waking / static_cast<std::chrono::nanoseconds::rep>(concurrent);
    last_ = now;
    // One pause in the traffic must not outweigh what was learnt before: it counts as four caps.
    mean_gap_ +=
        (std::clamp<std::chrono::nanoseconds>(gap, std::chrono::nanoseconds{0}, 4 * cap) - mean_gap_) / 8;
  }

  /// A sleeper ran `latency` after its permit was handed to it.
  void woke_after(std::chrono::nanoseconds latency) noexcept {
    waking_.fetch_add(latency.count(), std::memory_order_relaxed);  // a statistic: orders nothing
  }

 private:
  // Measured: 20 microseconds costs no processor time at any hold; 50 costs 2.3 times as much.
  static constexpr std::chrono::nanoseconds cap = std::chrono::microseconds{20};

  time_point last_{};
  std::chrono::nanoseconds mean_gap_ = 4 * cap;
  typename Platform::template atomic<std::chrono::nanoseconds::rep> waking_{0};
};

}  // namespace db_bulkhead::detail

#endif
