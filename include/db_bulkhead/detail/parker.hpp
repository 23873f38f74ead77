// SPDX-License-Identifier: MIT
//
// One thread sleeps until somebody settles how its wait ended, or a deadline passes.
// A parker is used once. `settle` is called at most once, by whoever holds the lock
// that guards the wait; the returned waker is run after that lock is given up and may
// outlive the parker. Whatever the settling thread did before is visible to the
// sleeper once it has seen the outcome (release by `settle`, acquire by `outcome`).
// A wait never ends before it is settled or its deadline has passed.
//
// On Linux a parker is a futex; elsewhere a mutex and a condition variable of the
// waiter's own, for one waiter per condition variable is the case in which no
// wake-up has been lost anywhere (glibc bug 25847 needs several).
#ifndef DB_BULKHEAD_DETAIL_PARKER_HPP
#define DB_BULKHEAD_DETAIL_PARKER_HPP

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "db_bulkhead/deadline.hpp"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#endif

namespace db_bulkhead::detail {

/// How a wait ended. `asleep` is `pending` with a thread that needs waking.
enum class WaitOutcome : std::uint32_t { pending, asleep, granted, timed_out, cancelled, closed };

constexpr bool is_settled(WaitOutcome outcome) noexcept {
  return outcome > WaitOutcome::asleep;
}

class CondvarParker {
 public:
  /// Nothing is left to do once the lock is given up: the sleeper was notified under its own mutex.
  struct Waker {
    void wake() const noexcept {}
  };

  CondvarParker() = default;
  CondvarParker(CondvarParker const&) = delete;
  CondvarParker& operator=(CondvarParker const&) = delete;
  // Waits for a `settle` that is still under way: it holds the mutex until it has notified.
  ~CondvarParker() { std::lock_guard const last_touch{mutex_}; }

  WaitOutcome outcome() const noexcept { return outcome_.load(std::memory_order_acquire); }

  Waker settle(WaitOutcome outcome) noexcept {
    std::lock_guard const lock{mutex_};
    outcome_.store(outcome, std::memory_order_release);  // pairs with outcome()
    settled_.notify_one();
    return {};
  }

  WaitOutcome park(Deadline deadline) noexcept {
    std::unique_lock lock{mutex_};
    auto const settled = [this] { return is_settled(outcome()); };
    // wait_until(time_point::max()) overflows inside the standard library: "never" is a plain wait.
    if (deadline.is_never()) {
      settled_.wait(lock, settled);
    } else {
      settled_.wait_until(lock, deadline.time_point(), settled);
    }
    return outcome();
  }

 private:
  std::atomic<WaitOutcome> outcome_{WaitOutcome::pending};  // written under mutex_
  std::mutex mutex_;
  std::condition_variable settled_;
};

#if defined(__linux__)

class FutexParker {
 public:
  /// Wakes by address, which may meet a parker that is gone, or another futex in its place: all it
  /// can do there is wake a thread early, and whoever sleeps on a futex checks why it woke.
  class Waker {
   public:
    Waker() = default;
    explicit Waker(void const* address) noexcept : address_{address} {}
    void wake() const noexcept {
      if (address_ != nullptr)
        ::syscall(SYS_futex, address_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
    }

   private:
    void const* address_ = nullptr;
  };

  FutexParker() = default;
  FutexParker(FutexParker const&) = delete;
  FutexParker& operator=(FutexParker const&) = delete;

  WaitOutcome outcome() const noexcept { return outcome_.load(std::memory_order_acquire); }

  Waker settle(WaitOutcome outcome) noexcept {
    void const* const address = &outcome_;  // taken first: after the exchange the parker may be gone
    auto const before = outcome_.exchange(outcome, std::memory_order_release);  // pairs with outcome()
    return before == WaitOutcome::asleep ? Waker{address} : Waker{};
  }

  WaitOutcome park(Deadline deadline) noexcept {
    auto expected = WaitOutcome::pending;
    outcome_.compare_exchange_strong(expected, WaitOutcome::asleep, std::memory_order_acquire);
    while (!is_settled(outcome()) && sleep(deadline)) {
    }
    return outcome();
  }

 private:
  static_assert(sizeof(std::atomic<WaitOutcome>) == sizeof(std::uint32_t), "a futex is a 32-bit word");

  // Returns whether there is a reason to go on sleeping; false once the deadline has passed.
  bool sleep(Deadline deadline) noexcept {
    std::timespec until{};
    if (!deadline.is_never()) {
      // Decided here for a deadline that is past: the kernel takes 30 microseconds to say so.
      if (deadline.passed()) return false;
      auto const since_epoch = deadline.time_point().time_since_epoch();
      // Durations of timespec's own types, which differ between systems.
      using Seconds = std::chrono::duration<decltype(until.tv_sec)>;
      using Nanoseconds = std::chrono::duration<decltype(until.tv_nsec), std::nano>;
      auto const seconds = std::chrono::floor<Seconds>(since_epoch);
      until.tv_sec = seconds.count();
      until.tv_nsec = std::chrono::duration_cast<Nanoseconds>(since_epoch - seconds).count();
    }
    // BITSET takes an absolute time on CLOCK_MONOTONIC, which is what steady_clock reads on Linux.
    ::syscall(SYS_futex, &outcome_, FUTEX_WAIT_BITSET_PRIVATE,
              static_cast<std::uint32_t>(WaitOutcome::asleep), deadline.is_never() ? nullptr : &until,
              nullptr, FUTEX_BITSET_MATCH_ANY);
    return true;
  }

  std::atomic<WaitOutcome> outcome_{WaitOutcome::pending};
};

using Parker = FutexParker;

#else

using Parker = CondvarParker;

#endif

}  // namespace db_bulkhead::detail

#endif
