// SPDX-License-Identifier: MIT
//
// More threads than permits, each holding its permit for a moment in which it keeps a
// processor busy, and coming back at once.
#include <string>

#include "peers.hpp"
#include "question.hpp"
#include "traffic.hpp"

namespace bench {
namespace {

struct Case {
  std::size_t threads;
  std::size_t permits;
  int hold_us;

  std::string name() const {
    return std::to_string(threads) + " threads, B=" + std::to_string(permits) + ", hold " +
           std::to_string(hold_us) + " us";
  }
  /// Times the FIFO semaphore with a condition variable for each waiter.
  double target() const {
    if (threads == 4 && permits == 1 && hold_us == 1) return 5;
    if (threads == 16 && permits == 1 && hold_us == 1) return 2;
    if (threads == 16 && permits == 2 && hold_us == 20) return 1.5;
    return 1;
  }
};

std::vector<Case> cases(Effort const& effort) {
  std::vector<Case> all;
  for (int const hold : {0, 1, 20}) {
    for (std::size_t const threads : {2u, 4u, 16u, 64u}) {
      for (std::size_t const permits : {1u, 2u, 8u}) {
        Case const one{threads, permits, hold};
        if (threads > permits && (!effort.quick || one.target() > 1)) all.push_back(one);
      }
    }
  }
  return all;
}

std::string full_name(Case const& one, char const* peer) {
  return "contended/" + one.name() + "/" + peer;
}

template <class Peer>
void add(Case const& one, Effort const& effort) {
  add_sampled(full_name(one, Peer::name), effort, [one, effort](benchmark::State& state) {
    for (auto _ : state) {
      Peer peer{one.permits};
      auto const traffic = run_traffic(peer, one.threads, milliseconds(6), milliseconds(20 * effort.length),
                                       [&](std::size_t, bool) {
                                         auto const held = admit(peer);
                                         busy_for(std::chrono::microseconds{one.hold_us});
                                       });
      state.SetIterationTime(traffic.seconds);
      state.counters["per_second"] = static_cast<double>(traffic.total()) / traffic.seconds;
    }
  });
}

template <class... Peers>
void add_peers(Case const& one, Effort const& effort) {
  (add<Peers>(one, effort), ...);
}

void ask(Effort const& effort) {
  for (Case const& one : cases(effort)) {
    add_peers<Gate, FifoSemaphore, StdSemaphore, PosixSemaphore, MutexSemaphore>(one, effort);
  }
}

void answer(Results const& results, Effort const& effort) {
  Row{""}.text("gate").text("FIFO").text("std").text("sem_t").text("condvar").text("  gate / FIFO");
  for (Case const& one : cases(effort)) {
    auto const rate = [&](char const* peer) {
      return results.median(full_name(one, peer), "per_second") / 1000;
    };
    double const ours = rate(Gate::name);
    double const fifo = rate(FifoSemaphore::name);
    Row{one.name()}
        .number(ours, 1)
        .number(fifo, 1)
        .number(rate(StdSemaphore::name), 1)
        .number(rate(PosixSemaphore::name), 1)
        .number(rate(MutexSemaphore::name), 1)
        .at_least(ours / fifo, one.target());
  }
}

}  // namespace

Question const contended{
    "Contended: thousand admissions a second. Gate and FIFO (a condition variable for each waiter) keep the\n"
    "order of arrival; std::counting_semaphore, sem_t and mutex + condition variable do not",
    ask, answer};

}  // namespace bench
