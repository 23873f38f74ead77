// SPDX-License-Identifier: MIT
//
// A stop is requested for a thread that waits: how soon is it back?
#include <atomic>
#include <condition_variable>
#include <string>
#include <thread>

#include "peers.hpp"
#include "question.hpp"
#include "traffic.hpp"

namespace bench {
namespace {

constexpr char const* gate_name = "AdmissionGate";
constexpr char const* condition_name = "condition_variable_any";
std::string const prefix = "stop/";

struct WaitAtGate {
  db_bulkhead::AdmissionGate gate{{1, 1}};
  db_bulkhead::Permit held = gate.try_admit(db_bulkhead::Deadline::never()).permit();
  void operator()(std::stop_token const& stop) {
    benchmark::DoNotOptimize(gate.try_admit(db_bulkhead::Deadline::never(), stop));
  }
};

struct WaitOnCondition {
  std::mutex mutex;
  std::condition_variable_any condition;
  void operator()(std::stop_token const& stop) {
    std::unique_lock lock{mutex};
    condition.wait(lock, stop, [] { return false; });
  }
};

template <class Wait>
double microseconds_to_return() {
  Wait wait;
  Clock::time_point returned;
  std::atomic<bool> about_to_wait{false};
  std::stop_source source;
  std::jthread waiter{[&, token = source.get_token()] {
    about_to_wait = true;
    wait(token);
    returned = Clock::now();
  }};
  while (!about_to_wait) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds{300});  // it sleeps by now
  auto const requested = Clock::now();
  source.request_stop();
  waiter.join();
  return std::chrono::duration<double, std::micro>(returned - requested).count();
}

template <class Wait>
void add(char const* name, Effort const& effort) {
  int const rounds = effort.quick ? 20 : 100;
  add_sampled(prefix + name, effort, [rounds](benchmark::State& state) {
    for (auto _ : state) {
      std::vector<double> latencies;
      for (int round = 0; round < rounds; ++round) latencies.push_back(microseconds_to_return<Wait>());
      state.SetIterationTime(1e-3 * rounds);
      state.counters["us"] = quantile(latencies, 0.5);
    }
  });
}

void ask(Effort const& effort) {
  add<WaitAtGate>(gate_name, effort);
  add<WaitOnCondition>(condition_name, effort);
}

void answer(Results const& results, Effort const&) {
  double const ours = results.median(prefix + gate_name, "us");
  double const theirs = results.median(prefix + condition_name, "us");
  Row{gate_name}.number(ours, 1).at_most(ours / theirs, 1.2);
  Row{condition_name}.number(theirs, 1);
}

}  // namespace

Question const stop{"Stop: from request_stop until the waiter has returned, microseconds", ask, answer};

}  // namespace bench
