// SPDX-License-Identifier: MIT
//
// What it costs to be turned away by a gate that is full, alone and in a crowd.
#include <string>

#include "peers.hpp"
#include "question.hpp"

namespace bench {
namespace {

constexpr int crowd = 16;
std::string const prefix = "refusal/";

void refuse_by_gate(benchmark::State& state) {
  static db_bulkhead::AdmissionGate gate{{1, 0}};
  static db_bulkhead::Permit const only = gate.try_admit(db_bulkhead::Deadline::never()).permit();
  std::stop_source source;
  std::stop_token const token = source.get_token();
  auto const deadline = db_bulkhead::Deadline::after(std::chrono::hours{1});
  for (auto _ : state) {
    bool admitted{gate.try_admit(deadline, token)};
    benchmark::DoNotOptimize(admitted);
  }
}

template <class Peer>
void refuse(benchmark::State& state) {
  static Peer peer{1};
  static auto const only = admit(peer);
  for (auto _ : state) {
    bool admitted{try_admit(peer)};
    benchmark::DoNotOptimize(admitted);
  }
}

void bare_pair(benchmark::State& state) {
  BarePair pair{1};
  for (auto _ : state) {
    auto held = admit(pair);
    benchmark::ClobberMemory();
  }
}

std::string in_crowd(std::string const& name) {
  return name + ", crowd";
}

void add(std::string const& name, Effort const& effort, void (*function)(benchmark::State&)) {
  auto const benchmark = [&](std::string const& full_name) {
    return benchmark::RegisterBenchmark((prefix + full_name).c_str(), function)
        ->Repetitions(3 * effort.samples)  // many and short: they differ by nanoseconds
        ->MinTime(0.006 * effort.length);
  };
  benchmark(name);
  benchmark(in_crowd(name))->Threads(crowd);
}

template <class... Peers>
void add_peers(Effort const& effort) {
  (add(Peers::name, effort, refuse<Peers>), ...);
}

void ask(Effort const& effort) {
  add(Gate::name, effort, refuse_by_gate);
  add(BarePair::name, effort, bare_pair);
  add_peers<PosixSemaphore, MutexSemaphore, FifoSemaphore, StdSemaphore>(effort);
#if defined(BENCH_HAS_MOODYCAMEL)
  add_peers<MoodycamelSemaphore>(effort);
#endif
#if defined(BENCH_HAS_BOOST)
  add_peers<BoostSemaphore>(effort);
#endif
}

void answer(Results const& results, Effort const&) {
  auto const cost = [&](std::string const& name) { return results.median(prefix + name, "cpu_ns"); };
  double const ours = cost(Gate::name);
  double const ours_in_crowd = cost(in_crowd(Gate::name));
  Row{""}.text("ns").text("16 threads").text("it / gate");
  Row{Gate::name}.number(ours, 1).number(ours_in_crowd, 1).at_most(ours_in_crowd / ours, 2);
  double const pair = cost(BarePair::name);
  Row{"bare pair, no bound"}.number(pair, 1).text("-").number(pair / ours, 1).at_most(ours / pair, 0.7);
  auto const print = [&](std::string const& name) -> double {
    double const ratio = cost(name) / ours;
    Row{name}.number(cost(name), 1).number(cost(in_crowd(name)), 1).number(ratio, 1);
    return ratio;
  };
  print(PosixSemaphore::name);
  print(MutexSemaphore::name);
  print(FifoSemaphore::name);
#if defined(BENCH_HAS_MOODYCAMEL)
  print(MoodycamelSemaphore::name);
#endif
#if defined(BENCH_HAS_BOOST)
  print(BoostSemaphore::name);
#endif
  double const std_semaphore = print(StdSemaphore::name);
  Row{"  times faster than that"}.at_least(std_semaphore, 500);
}

}  // namespace

Question const refusal{"The gate is full: one refusal (processor time)", ask, answer};

}  // namespace bench
