// SPDX-License-Identifier: MIT
//
// One holder, one waiter asleep: from just before the release until the waiter runs.
// Also after a wait so long that a peer which polls has begun to doze.
#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "peers.hpp"
#include "question.hpp"
#include "traffic.hpp"

namespace bench {
namespace {

constexpr std::chrono::microseconds short_wait{300};  // long enough to be asleep
constexpr std::chrono::milliseconds long_wait{100};

/// Microseconds of each hand-off. `enter(peer)` is the waiter's call.
template <class Peer, class Enter>
std::vector<double> hand_offs(int rounds, std::chrono::nanoseconds wait, Enter enter) {
  std::vector<double> latencies;
  for (int round = 0; round < rounds; ++round) {
    Peer peer{1};
    Clock::time_point entered;
    std::atomic<bool> about_to_wait{false};
    std::optional holder{admit(peer)};
    std::jthread waiter{[&] {
      about_to_wait = true;
      auto const held = enter(peer);
      entered = Clock::now();
    }};
    while (!about_to_wait) std::this_thread::yield();
    std::this_thread::sleep_for(wait);
    auto const released = Clock::now();
    holder.reset();
    waiter.join();
    latencies.push_back(std::chrono::duration<double, std::micro>(entered - released).count());
  }
  return latencies;
}

std::string full_name(char const* kind, char const* peer) {
  return std::string{"hand-off/"} + kind + "/" + peer;
}

template <class Peer, class Enter>
void add(char const* kind, Effort const& effort, int rounds, std::chrono::nanoseconds wait, Enter enter) {
  add_sampled(full_name(kind, Peer::name), effort, [=](benchmark::State& state) {
    for (auto _ : state) {
      auto const start = Clock::now();
      auto latencies = hand_offs<Peer>(rounds, wait, enter);
      state.SetIterationTime(std::chrono::duration<double>(Clock::now() - start).count());
      state.counters["us"] = quantile(latencies, 0.5);
    }
  });
}

constexpr char const* soon = "soon";
constexpr char const* late = "after 100 ms";
constexpr char const* late_timed = "timed, after 100 ms";

template <class Peer>
void add_untimed(Effort const& effort) {
  auto const enter = [](Peer& peer) { return admit(peer); };
  add<Peer>(soon, effort, effort.quick ? 20 : 50, short_wait, enter);
  add<Peer>(late, effort, 3, long_wait, enter);
}
template <class Peer>
void add_timed(Effort const& effort) {
  add<Peer>(late_timed, effort, 3, long_wait,
            [](Peer& peer) { return admit_within(peer, std::chrono::seconds{10}); });
}

void ask(Effort const& effort) {
  add_untimed<Gate>(effort);
  add_untimed<FifoSemaphore>(effort);
  add_untimed<StdSemaphore>(effort);
  add_untimed<PosixSemaphore>(effort);
  add_untimed<MutexSemaphore>(effort);
  add_timed<Gate>(effort);
  add_timed<StdSemaphore>(effort);
  add_timed<PosixSemaphore>(effort);
  add_timed<MutexSemaphore>(effort);
}

void answer(Results const& results, Effort const&) {
  auto const get = [&](char const* kind, char const* peer) {
    return results.median(full_name(kind, peer), "us");
  };
  Row{""}.text("soon").text("late").text("late,timed").text("  soon: gate / it");
  for (auto const* peer :
       {Gate::name, FifoSemaphore::name, StdSemaphore::name, PosixSemaphore::name, MutexSemaphore::name}) {
    Row{peer}
        .number(get(soon, peer), 1)
        .number(get(late, peer), 1)
        .number(get(late_timed, peer), 1)
        .number(get(soon, Gate::name) / get(soon, peer), 2);
  }
  // "As fast" leaves room for what two medians of the same thing differ by here.
  Row{"  gate: timed / untimed, late"}.at_most(get(late_timed, Gate::name) / get(late, Gate::name), 1.2);
}

}  // namespace

Question const hand_off{"Hand-off: from the release until the one who slept for it runs, microseconds", ask,
                        answer};

}  // namespace bench
