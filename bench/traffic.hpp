// SPDX-License-Identifier: MIT
//
// Many threads that take turns without a pause, for a while: how many turns each got,
// and what processor time that took.
#ifndef DB_BULKHEAD_BENCH_TRAFFIC_HPP
#define DB_BULKHEAD_BENCH_TRAFFIC_HPP

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "peers.hpp"

namespace bench {

using Clock = std::chrono::steady_clock;

struct Traffic {
  std::vector<std::uint64_t> turns;  // of each thread
  double seconds = 0;
  double processor_seconds = 0;

  std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (auto const count : turns) sum += count;
    return sum;
  }
  double least_to_most() const {
    auto const [least, most] = std::minmax_element(turns.begin(), turns.end());
    return static_cast<double>(*least) / static_cast<double>(std::max<std::uint64_t>(*most, 1));
  }
};

inline void busy_for(std::chrono::nanoseconds hold) {
  if (hold.count() <= 0) return;
  auto const end = Clock::now() + hold;
  while (Clock::now() < end) {
  }
}

inline double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto const seconds = [](timeval const& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Sets free whoever sleeps for ever: libstdc++ 12's counting_semaphore loses a wake-up now and then, and
/// notifies only when its count leaves zero.
template <class Peer>
void rescue(Peer&, std::size_t) {}
inline void rescue(StdSemaphore& semaphore, std::size_t threads) {
  while (semaphore.try_acquire()) {
  }
  semaphore.release(threads);
}

/// `turn(thread, measuring)` is called over and over by each thread; it admits, holds and releases.
template <class Peer, class Turn>
Traffic run_traffic(Peer& peer, std::size_t threads, std::chrono::nanoseconds warm_up,
                    std::chrono::nanoseconds length, Turn turn) {
  struct alignas(64) Count {
    std::atomic<std::uint64_t> turns{0};
  };
  std::vector<Count> counts(threads);
  std::atomic<bool> measuring{false};
  std::atomic<bool> ended{false};
  std::atomic<std::size_t> running{threads};
  std::vector<std::jthread> workers;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      while (!ended.load(std::memory_order_relaxed)) {
        turn(thread, measuring.load(std::memory_order_relaxed));
        counts[thread].turns.fetch_add(1, std::memory_order_relaxed);
      }
      running.fetch_sub(1);
    });
  }

  Traffic traffic;
  std::this_thread::sleep_for(warm_up);
  for (auto const& count : counts) traffic.turns.push_back(count.turns.load(std::memory_order_relaxed));
  auto const start = Clock::now();
  auto const processor_start = processor_seconds();
  measuring = true;
  std::this_thread::sleep_for(length);
  measuring = false;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    traffic.turns[thread] = counts[thread].turns.load(std::memory_order_relaxed) - traffic.turns[thread];
  }
  traffic.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  traffic.processor_seconds = processor_seconds() - processor_start;
  ended = true;
  while (running > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    rescue(peer, threads);
  }
  return traffic;
}

inline std::chrono::nanoseconds milliseconds(double count) {
  return std::chrono::nanoseconds{static_cast<std::int64_t>(count * 1e6)};
}

/// The value that `part` (0 to 1) of `values` are not above; zero where there are none.
template <class T>
T quantile(std::vector<T>& values, double part) {
  if (values.empty()) return T{};
  auto const index = static_cast<std::size_t>(part * static_cast<double>(values.size() - 1));
  auto const place = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace bench

#endif
