// SPDX-License-Identifier: MIT
//
// What transactions look like: 64 threads, 8 permits, each held for a millisecond in
// which its thread sleeps. Evenly served, everyone waits 7 ms; what it costs in
// processor time shows whether somebody spins.
#include <string>

#include "peers.hpp"
#include "question.hpp"
#include "traffic.hpp"

namespace bench {
namespace {

constexpr std::size_t threads = 64;
constexpr std::size_t permits = 8;
constexpr std::chrono::milliseconds hold{1};
std::string const prefix = "sleeping/";

template <class Peer>
void sleep_holding(benchmark::State& state, double length) {
  for (auto _ : state) {
    Peer peer{permits};
    std::vector<std::vector<double>> waits(threads);
    auto const traffic = run_traffic(
        peer, threads, milliseconds(30), milliseconds(length), [&](std::size_t thread, bool measuring) {
          auto const start = Clock::now();
          auto const held = admit(peer);
          std::chrono::duration<double, std::milli> const wait = Clock::now() - start;
          if (measuring) waits[thread].push_back(wait.count());
          std::this_thread::sleep_for(hold);
        });
    std::vector<double> all;
    for (auto const& of_thread : waits) all.insert(all.end(), of_thread.begin(), of_thread.end());
    auto const total = static_cast<double>(traffic.total());
    state.SetIterationTime(traffic.seconds);
    state.counters["per_second"] = total / traffic.seconds;
    state.counters["p50"] = quantile(all, 0.50);
    state.counters["p99"] = quantile(all, 0.99);
    state.counters["longest"] = quantile(all, 1.0);
    state.counters["evenness"] = traffic.least_to_most();
    state.counters["processor_us"] = 1e6 * traffic.processor_seconds / total;
  }
}

template <class... Peers>
void add_peers(Effort const& effort) {
  double const length = 400 * effort.length;
  (add_sampled(prefix + Peers::name, effort,
               [length](benchmark::State& state) { sleep_holding<Peers>(state, length); }),
   ...);
}

void ask(Effort const& effort) {
  add_peers<Gate, GateWithoutSpinning, FifoSemaphore, StdSemaphore, PosixSemaphore, MutexSemaphore>(effort);
}

void answer(Results const& results, Effort const&) {
  auto const get = [&](char const* peer, char const* counter) {
    return results.median(prefix + peer, counter);
  };
  Row{""}.text("a second").text("p50 ms").text("p99 ms").text("longest").text("least/most").text("CPU us");
  auto const print = [&](char const* peer) {
    Row{peer}
        .number(get(peer, "per_second"), 0)
        .number(get(peer, "p50"), 2)
        .number(get(peer, "p99"), 2)
        .number(get(peer, "longest"), 2)
        .number(get(peer, "evenness"), 2)
        .number(get(peer, "processor_us"), 1);
  };
  for (auto const* peer : {Gate::name, GateWithoutSpinning::name, FifoSemaphore::name, StdSemaphore::name,
                           PosixSemaphore::name, MutexSemaphore::name}) {
    print(peer);
  }
  double const median_wait = get(Gate::name, "p50");
  Row{"  gate: p99 / p50"}.at_most(get(Gate::name, "p99") / median_wait, 1.3);
  Row{"  gate: longest / p50"}.at_most(get(Gate::name, "longest") / median_wait, 2);
  Row{"  gate: least / most served"}.at_least(get(Gate::name, "evenness"), 0.9);
  Row{"  gate: CPU / without spinning"}.at_most(
      get(Gate::name, "processor_us") / get(GateWithoutSpinning::name, "processor_us"), 1.15);
}

}  // namespace

Question const sleeping{"Like transactions: 64 threads, B=8, hold 1 ms asleep", ask, answer};

}  // namespace bench
