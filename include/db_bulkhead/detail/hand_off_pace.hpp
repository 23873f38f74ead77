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
// asleep for ever.
//
// Spinners let other threads run, and where another program wants the processor that
// can take milliseconds, in which the permit they were handed lies idle: a sleeper is
// woken in its place at once. So whoever lost the processor that way stops all spinning
// for a while. `record` and `is_fast` are called under the gate's lock; `sleeper_ran`
// and `spinner_ran` by any thread.
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

  /// The mean gap is short enough for spinning to pay, and no other program takes the processor away.
  bool is_fast() const noexcept { return mean_gap_ < cap && last_ >= spin_again_; }

  /// A permit was handed on at `now`; `concurrent` is the number of permits that take turns.
  void record(time_point now, std::size_t concurrent) noexcept {
    auto const waking = std::chrono::nanoseconds{waking_.exchange(0, std::memory_order_relaxed)};
    auto const gap = now - last_ - waking / static_cast<std::chrono::nanoseconds::rep>(concurrent);
    last_ = now;
    if (lost_.load(std::memory_order_relaxed) != 0) {
      spin_again_ = now + patience * std::chrono::nanoseconds{lost_.exchange(0, std::memory_order_relaxed)};
    }
    // One pause in the traffic must not outweigh what was learnt before: it counts as four caps.
    mean_gap_ +=
        (std::clamp<std::chrono::nanoseconds>(gap, std::chrono::nanoseconds{0}, 4 * cap) - mean_gap_) / 8;
  }

  /// A sleeper ran `latency` after its permit was handed to it.
  void sleeper_ran(std::chrono::nanoseconds latency) noexcept {
    waking_.fetch_add(latency.count(), std::memory_order_relaxed);  // a statistic: orders nothing
  }

  /// A spinner ran `latency` after its permit was handed to it.
  void spinner_ran(std::chrono::nanoseconds latency) noexcept {
    if (latency > longest_turn) lost_.store(latency.count(), std::memory_order_relaxed);  // as above
  }

 private:
  // Measured: 20 microseconds costs no processor time at any hold; 50 costs 2.3 times as much.
  static constexpr std::chrono::nanoseconds cap = std::chrono::microseconds{20};

  // Above what 16 spinners on two processors take to let each other run; a scheduler's slice is 700 and more.
  static constexpr std::chrono::nanoseconds longest_turn = std::chrono::microseconds{200};
  // One turn lost makes four without spinning, so that at most a fifth of the time is lost. Measured: 16 is
  // too timid.
  static constexpr int patience = 4;

  time_point last_{};
  time_point spin_again_{};
  std::chrono::nanoseconds mean_gap_ = 4 * cap;
  typename Platform::template atomic<std::chrono::nanoseconds::rep> waking_{0};
  typename Platform::template atomic<std::chrono::nanoseconds::rep> lost_{0};
};

}  // namespace db_bulkhead::detail

#endif
