// SPDX-License-Identifier: MIT
//
// The gate and what it is compared with, all with one face: `admit(x)` waits for a
// permit and returns an object whose destructor gives it back; `try_admit(x)` does not
// wait; `admit_within(x, d)` waits for a limited time. Peers that are not in the
// standard library are there only where their headers are found.
#ifndef DB_BULKHEAD_BENCH_PEERS_HPP
#define DB_BULKHEAD_BENCH_PEERS_HPP

#include <semaphore.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <deque>
#include <mutex>
#include <semaphore>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "db_bulkhead/admission.hpp"

// By way of the queue that it comes with: the semaphore's own header does not compile alone everywhere.
#if __has_include(<concurrentqueue/blockingconcurrentqueue.h>)
#include <concurrentqueue/blockingconcurrentqueue.h>
#define BENCH_HAS_MOODYCAMEL 1
#elif __has_include(<concurrentqueue/moodycamel/blockingconcurrentqueue.h>)
#include <concurrentqueue/moodycamel/blockingconcurrentqueue.h>
#define BENCH_HAS_MOODYCAMEL 1
#endif

#if __has_include(<boost/interprocess/sync/interprocess_semaphore.hpp>)
#include <boost/interprocess/sync/interprocess_semaphore.hpp>
#define BENCH_HAS_BOOST 1
#endif

namespace bench {
/// The platform of a gate whose waiters sleep at once.
struct NeverSpins : db_bulkhead::detail::StdPlatform {};
}  // namespace bench

template <>
class db_bulkhead::detail::HandOffPace<bench::NeverSpins> {
 public:
  static constexpr std::size_t spinners = 0;
  bool is_fast() const noexcept { return false; }
  void record(Deadline::clock::time_point, std::size_t) noexcept {}
  void sleeper_ran(std::chrono::nanoseconds) noexcept {}
  void spinner_ran(std::chrono::nanoseconds) noexcept {}
};

namespace bench {

/// Gives one acquisition back, as `Permit` does for the gate.
template <class Semaphore>
class Held {
 public:
  Held(Semaphore& semaphore, bool taken) noexcept : semaphore_{taken ? &semaphore : nullptr} {}
  Held(Held&& other) noexcept : semaphore_{std::exchange(other.semaphore_, nullptr)} {}
  Held& operator=(Held&&) = delete;
  ~Held() {
    if (semaphore_ != nullptr) semaphore_->release();
  }
  explicit operator bool() const noexcept { return semaphore_ != nullptr; }

 private:
  Semaphore* semaphore_;
};

// ---- the gate ----

template <class Platform>
struct BasicGate {
  static constexpr char const* name =
      std::is_same_v<Platform, NeverSpins> ? "the same, never spinning" : "AdmissionGate";
  // More slots than any question has threads: nobody is refused for want of one.
  explicit BasicGate(std::size_t permits) : gate{{permits, 4096}} {}
  db_bulkhead::BasicAdmissionGate<Platform> gate;
};
using Gate = BasicGate<db_bulkhead::detail::StdPlatform>;
using GateWithoutSpinning = BasicGate<NeverSpins>;

template <class Platform>
auto admit(BasicGate<Platform>& peer) {
  return peer.gate.try_admit(db_bulkhead::Deadline::never());
}
template <class Platform>
auto try_admit(BasicGate<Platform>& peer) {
  return peer.gate.try_admit(std::chrono::nanoseconds{0});
}
template <class Platform>
auto admit_within(BasicGate<Platform>& peer, std::chrono::nanoseconds wait) {
  return peer.gate.try_admit(wait);
}

// ---- the peers ----

template <class Semaphore>
Held<Semaphore> admit(Semaphore& semaphore) {
  semaphore.acquire();
  return {semaphore, true};
}
template <class Semaphore>
Held<Semaphore> try_admit(Semaphore& semaphore) {
  return {semaphore, semaphore.try_acquire()};
}
template <class Semaphore>
Held<Semaphore> admit_within(Semaphore& semaphore, std::chrono::nanoseconds wait) {
  return {semaphore, semaphore.acquire_within(wait)};
}

/// The floor: an atomic add and an atomic subtract on one word, whose results are looked at (two `lock
/// xadd`), as whoever counts has to. It bounds nothing.
class BarePair {
 public:
  static constexpr char const* name = "bare pair";
  explicit BarePair(std::size_t) noexcept {}
  void acquire() noexcept { look_at(word_.fetch_add(1, std::memory_order_acq_rel)); }
  void release() noexcept { look_at(word_.fetch_sub(1, std::memory_order_acq_rel)); }

 private:
  static void look_at(std::uint64_t word) noexcept { asm volatile("" : : "r"(word)); }

  std::atomic<std::uint64_t> word_{0};
};

/// Two of any, taken in turn: what two separate semaphores for slots and permits cost.
template <class Semaphore>
class TwoOf {
 public:
  explicit TwoOf(std::size_t permits) : slots_{permits}, permits_{permits} {}
  void acquire() {
    slots_.acquire();
    permits_.acquire();
  }
  void release() {
    permits_.release();
    slots_.release();
  }

 private:
  alignas(64) Semaphore slots_;
  alignas(64) Semaphore permits_;
};
struct TwoBarePairs : TwoOf<BarePair> {
  static constexpr char const* name = "two words, four RMWs";
  using TwoOf::TwoOf;
};

class StdSemaphore {
 public:
  static constexpr char const* name = "std::counting_semaphore";
  explicit StdSemaphore(std::size_t permits) : semaphore_{static_cast<std::ptrdiff_t>(permits)} {}
  void acquire() { semaphore_.acquire(); }
  bool try_acquire() { return semaphore_.try_acquire(); }
  bool acquire_within(std::chrono::nanoseconds wait) { return semaphore_.try_acquire_for(wait); }
  void release(std::size_t count = 1) { semaphore_.release(static_cast<std::ptrdiff_t>(count)); }

 private:
  std::counting_semaphore<> semaphore_;
};
struct TwoStdSemaphores : TwoOf<StdSemaphore> {
  static constexpr char const* name = "two counting_semaphores";
  using TwoOf::TwoOf;
};

class PosixSemaphore {
 public:
  static constexpr char const* name = "sem_t";
  explicit PosixSemaphore(std::size_t permits) noexcept {
    ::sem_init(&semaphore_, 0, static_cast<unsigned>(permits));
  }
  PosixSemaphore(PosixSemaphore const&) = delete;
  PosixSemaphore& operator=(PosixSemaphore const&) = delete;
  ~PosixSemaphore() { ::sem_destroy(&semaphore_); }
  void acquire() noexcept {
    while (::sem_wait(&semaphore_) != 0 && errno == EINTR) {
    }
  }
  bool try_acquire() noexcept { return ::sem_trywait(&semaphore_) == 0; }
  bool acquire_within(std::chrono::nanoseconds wait) noexcept {
    std::timespec until{};
    ::clock_gettime(CLOCK_REALTIME, &until);
    auto const nanoseconds = until.tv_nsec + wait.count();
    until.tv_sec += nanoseconds / 1'000'000'000;
    until.tv_nsec = nanoseconds % 1'000'000'000;
    return ::sem_timedwait(&semaphore_, &until) == 0;
  }
  void release(std::size_t count = 1) noexcept {
    for (; count > 0; --count) ::sem_post(&semaphore_);
  }

 private:
  ::sem_t semaphore_;
};

/// A mutex and one condition variable for all. Not FIFO.
class MutexSemaphore {
 public:
  static constexpr char const* name = "mutex + condvar";
  explicit MutexSemaphore(std::size_t permits) noexcept : free_{permits} {}
  void acquire() {
    std::unique_lock lock{mutex_};
    released_.wait(lock, [this] { return free_ > 0; });
    --free_;
  }
  bool try_acquire() {
    std::lock_guard const lock{mutex_};
    if (free_ == 0) return false;
    --free_;
    return true;
  }
  bool acquire_within(std::chrono::nanoseconds wait) {
    std::unique_lock lock{mutex_};
    if (!released_.wait_for(lock, wait, [this] { return free_ > 0; })) return false;
    --free_;
    return true;
  }
  void release(std::size_t count = 1) {
    {
      std::lock_guard const lock{mutex_};
      free_ += count;
    }
    for (; count > 0; --count) released_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  std::size_t free_;
};

/// A mutex and a queue of waiters, each with a condition variable of its own. FIFO, with hand-off.
class FifoSemaphore {
 public:
  static constexpr char const* name = "FIFO, condvar each";
  explicit FifoSemaphore(std::size_t permits) noexcept : free_{permits} {}
  void acquire() {
    std::unique_lock lock{mutex_};
    if (free_ > 0) {
      --free_;
      return;
    }
    Waiter self;
    waiters_.push_back(&self);
    self.granted_to.wait(lock, [&self] { return self.granted; });
  }
  bool try_acquire() {
    std::lock_guard const lock{mutex_};
    if (free_ == 0) return false;
    --free_;
    return true;
  }
  void release(std::size_t count = 1) {
    std::lock_guard const lock{mutex_};
    for (; count > 0 && !waiters_.empty(); --count) {
      waiters_.front()->granted = true;
      waiters_.front()->granted_to.notify_one();
      waiters_.pop_front();
    }
    free_ += count;
  }

 private:
  struct Waiter {
    std::condition_variable granted_to;
    bool granted = false;
  };

  std::mutex mutex_;
  std::deque<Waiter*> waiters_;
  std::size_t free_;
};

#if defined(BENCH_HAS_MOODYCAMEL)
class MoodycamelSemaphore {
 public:
  static constexpr char const* name = "moodycamel Lightweight";
  explicit MoodycamelSemaphore(std::size_t permits)
      : semaphore_{static_cast<moodycamel::LightweightSemaphore::ssize_t>(permits)} {}
  void acquire() { semaphore_.wait(); }
  bool try_acquire() { return semaphore_.tryWait(); }
  void release() { semaphore_.signal(); }

 private:
  moodycamel::LightweightSemaphore semaphore_;
};
#endif

#if defined(BENCH_HAS_BOOST)
class BoostSemaphore {
 public:
  static constexpr char const* name = "Boost interprocess";
  explicit BoostSemaphore(std::size_t permits) : semaphore_{static_cast<unsigned>(permits)} {}
  void acquire() { semaphore_.wait(); }
  bool try_acquire() { return semaphore_.try_wait(); }
  void release() { semaphore_.post(); }

 private:
  boost::interprocess::interprocess_semaphore semaphore_;
};
#endif

}  // namespace bench

#endif
