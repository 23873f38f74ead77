// SPDX-License-Identifier: MIT
//
// What admission costs when a permit is free: admit and release on one thread.
#include <string>

#include "peers.hpp"
#include "question.hpp"

namespace bench {
namespace {

constexpr std::size_t permits = 8;
std::string const prefix = "free permit/";

// ClobberMemory stands for the work: what is held stays in a register, as it would in a caller.

// As callers use it: a deadline and a stop token are at hand, and are passed.
void admit_with_deadline_and_token(benchmark::State& state) {
  db_bulkhead::AdmissionGate gate{{permits, 64}};
  std::stop_source source;
  std::stop_token const token = source.get_token();
  auto const deadline = db_bulkhead::Deadline::after(std::chrono::hours{1});
  for (auto _ : state) {
    db_bulkhead::Permit permit = gate.try_admit(deadline, token).permit();
    benchmark::ClobberMemory();
  }
}

void admit_with_wait_and_token(benchmark::State& state) {
  db_bulkhead::AdmissionGate gate{{permits, 64}};
  std::stop_source source;
  std::stop_token const token = source.get_token();
  for (auto _ : state) {
    db_bulkhead::Permit permit = gate.try_admit(std::chrono::milliseconds{100}, token).permit();
    benchmark::ClobberMemory();
  }
}

template <class Peer>
void admit_and_release(benchmark::State& state) {
  Peer peer{permits};
  for (auto _ : state) {
    auto held = admit(peer);
    benchmark::ClobberMemory();
  }
}

void add(std::string const& name, Effort const& effort, void (*function)(benchmark::State&)) {
  benchmark::RegisterBenchmark((prefix + name).c_str(), function)
      ->Repetitions(3 * effort.samples)  // many and short: they differ by nanoseconds
      ->MinTime(0.01 * effort.length);
}

template <class... Peers>
void add_peers(Effort const& effort) {
  (add(Peers::name, effort, admit_and_release<Peers>), ...);
}

char const* const by_deadline = "gate, deadline + token";
char const* const by_wait = "gate, wait + token";

void ask(Effort const& effort) {
  add(by_deadline, effort, admit_with_deadline_and_token);
  add(by_wait, effort, admit_with_wait_and_token);
  add_peers<BarePair, TwoBarePairs, StdSemaphore, TwoStdSemaphores, PosixSemaphore, MutexSemaphore,
            FifoSemaphore>(effort);
#if defined(BENCH_HAS_MOODYCAMEL)
  add_peers<MoodycamelSemaphore>(effort);
#endif
#if defined(BENCH_HAS_BOOST)
  add_peers<BoostSemaphore>(effort);
#endif
}

void answer(Results const& results, Effort const&) {
  auto const cost = [&](std::string const& name) { return results.median(prefix + name, "cpu_ns"); };
  double const pair = cost(BarePair::name);
  double const ours = cost(by_deadline);
  Row{""}.text("ns").text("/ pair").text("gate / it");
  auto const print = [&](std::string const& name) {
    Row{name}.number(cost(name), 1).number(cost(name) / pair, 2).number(ours / cost(name), 2);
  };
  Row{by_deadline}.number(ours, 1).at_most(ours / pair, 1.30);
  print(by_wait);
  print(BarePair::name);
  print(TwoBarePairs::name);
  print(StdSemaphore::name);
  double const two = cost(TwoStdSemaphores::name);
  Row{TwoStdSemaphores::name}.number(two, 1).number(two / pair, 2).at_most(ours / two, 0.65);
  print(PosixSemaphore::name);
  print(MutexSemaphore::name);
  print(FifoSemaphore::name);
#if defined(BENCH_HAS_MOODYCAMEL)
  print(MoodycamelSemaphore::name);
#endif
#if defined(BENCH_HAS_BOOST)
  print(BoostSemaphore::name);
#endif
}

}  // namespace

Question const free_permit{"A permit is free: admit and release, one thread (processor time)", ask, answer};

}  // namespace bench
