// SPDX-License-Identifier: MIT
//
// Sixty-four threads and everything at once, for the sanitizers to look at and for the
// promises that hold at every instant.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <random>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "db_bulkhead/admission.hpp"
#include "support/gates.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;
using support::endless;
using support::is_whole;
using support::NativePlatform;
using support::no_wait;
using support::PortablePlatform;
using support::reason;
using support::wait_until;
using support::Watchdog;

namespace {

constexpr unsigned threads = 64;
constexpr Limits largest{4, 12};

// Stop sources that callers lend to one thread which triggers them at random.
class Stopper {
 public:
  void lend(std::size_t place, std::stop_source source) {
    std::lock_guard const lock{mutex_};
    sources_[place % sources_.size()] = std::move(source);
  }
  void stop_one(std::size_t place) {
    std::stop_source source{std::nostopstate};
    {
      std::lock_guard const lock{mutex_};
      std::swap(source, sources_[place % sources_.size()]);
    }
    source.request_stop();
  }

 private:
  std::mutex mutex_;
  std::array<std::stop_source, 8> sources_{};
};

template <class Platform>
class Storm {
 public:
  explicit Storm(Limits limits) : gate{limits} {}

  // One caller's life: waits of all lengths, some of which are stopped.
  void call(unsigned seed, int rounds) {
    std::mt19937 random{seed};
    for (int round = 0; round < rounds; ++round) {
      std::stop_source source{std::nostopstate};
      if (random() % 4 == 0) stopper.lend(random(), source = std::stop_source{});
      auto const dice = random() % 4;
      QueueWait const wait = dice == 0 ? no_wait : dice == 1 ? QueueWait{50us} : endless;
      auto admission = gate.try_admit(wait, source.get_token());
      ++(admission ? admitted : refused);
      if (!admission) continue;
      int const now = ++running;
      for (int most = peak; now > most && !peak.compare_exchange_weak(most, now);) {
      }
      if (random() % 8 == 0) std::this_thread::yield();
      --running;
    }
  }

  // Counts that no state of the gate may show.
  void look() {
    auto const state = gate.state();
    if (state.running > largest.concurrent || state.waiting > largest.total() ||
        state.limits.concurrent == 0 || state.limits.total() > largest.total())
      ++impossible;
    if (gate.available() > largest.concurrent || gate.available_slots() > largest.total()) ++impossible;
  }

  BasicAdmissionGate<Platform> gate;
  Stopper stopper;
  std::atomic<int> running{0};
  std::atomic<int> peak{0};
  std::atomic<int> admitted{0};
  std::atomic<int> refused{0};
  std::atomic<int> impossible{0};
};

template <class Action>
std::jthread again_and_again(Action action) {
  return std::jthread{[action](std::stop_token const& over) {
    std::mt19937 random{7};
    while (!over.stop_requested()) {
      action(random);
      std::this_thread::sleep_for(50us);
    }
  }};
}

}  // namespace

TEMPLATE_TEST_CASE("no storm of timeouts, stops and resizes breaks a bound or costs a permit", "[stress]",
                   NativePlatform, PortablePlatform) {
  Watchdog const watchdog;
  constexpr int rounds = 300;
  Storm<TestType> storm{{3, 5}};
  {
    auto const stopping = again_and_again([&](std::mt19937& random) { storm.stopper.stop_one(random()); });
    auto const resizing = again_and_again([&](std::mt19937& random) {
      storm.gate.resize({1 + random() % largest.concurrent, random() % (largest.extra_slots + 1)});
    });
    auto const looking = again_and_again([&](std::mt19937&) { storm.look(); });
    std::vector<std::jthread> callers;
    for (unsigned i = 0; i < threads; ++i) callers.emplace_back([&storm, i] { storm.call(i, rounds); });
  }
  CHECK(storm.peak <= static_cast<int>(largest.concurrent));
  CHECK(storm.impossible == 0);
  CHECK(storm.admitted + storm.refused == static_cast<int>(threads) * rounds);
  storm.gate.resize({3, 5});
  CHECK(is_whole(storm.gate));
}

TEMPLATE_TEST_CASE("without resizes never more than B run, whatever the storm", "[stress]", NativePlatform,
                   PortablePlatform) {
  Watchdog const watchdog;
  Storm<TestType> storm{{2, 62}};
  {
    auto const stopping = again_and_again([&](std::mt19937& random) { storm.stopper.stop_one(random()); });
    std::vector<std::jthread> callers;
    for (unsigned i = 0; i < threads; ++i) callers.emplace_back([&storm, i] { storm.call(i, 300); });
  }
  CHECK(storm.peak <= 2);
  CHECK(is_whole(storm.gate));
}

TEMPLATE_TEST_CASE("a storm ends when the gate is closed in the middle of it", "[stress]", NativePlatform,
                   PortablePlatform) {
  Watchdog const watchdog;
  for (unsigned round = 0; round < 5; ++round) {
    Storm<TestType> storm{{2, 8}};
    std::vector<std::jthread> callers;
    for (unsigned i = 0; i < threads; ++i) {
      callers.emplace_back([&storm, seed = round * threads + i] {
        std::mt19937 random{seed};
        for (;;) {
          auto const admission = storm.gate.try_admit(random() % 2 == 0 ? endless : QueueWait{50us});
          ++(admission ? storm.admitted : storm.refused);
          if (reason(admission) == Rejection::closed) return;
        }
      });
    }
    wait_until([&] { return storm.admitted > 100; });
    storm.gate.close();
    callers.clear();
    CHECK(storm.gate.state() == GateState{0, 0, {2, 8}, true});
  }
}
