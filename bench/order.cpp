// SPDX-License-Identifier: MIT
//
// Who goes first. Every thread draws a ticket just before it asks and a place just
// after it was admitted; an admission is overtaken by each that has a later ticket and
// an earlier place. Some overtaking is the scheduler's: a thread may lose its processor
// between drawing and asking or, where B is above 1, between admission and its place.
#include <string>

#include "peers.hpp"
#include "question.hpp"
#include "traffic.hpp"

namespace bench {
namespace {

constexpr std::size_t threads = 16;

struct Case {
  std::size_t permits;
  int hold_us;
  std::string name() const {
    return "B=" + std::to_string(permits) + ", hold " + std::to_string(hold_us) + " us";
  }
};
constexpr Case cases[] = {{1, 1}, {2, 20}};

/// Counts per ticket, given the tickets in the order of their admission.
std::vector<std::size_t> overtakers(std::vector<std::size_t> const& admitted) {
  // A Fenwick tree of the tickets admitted so far.
  std::vector<std::size_t> tree(admitted.size() + 1);
  std::vector<std::size_t> counts;
  for (std::size_t place = 0; place < admitted.size(); ++place) {
    std::size_t earlier = 0;
    for (auto i = admitted[place]; i > 0; i &= i - 1) earlier += tree[i];
    counts.push_back(place - earlier);
    for (auto i = admitted[place] + 1; i < tree.size(); i += i & -i) ++tree[i];
  }
  return counts;
}

template <class Peer>
void watch_order(benchmark::State& state, Case const& one, double length) {
  for (auto _ : state) {
    Peer peer{one.permits};
    std::atomic<std::size_t> next_ticket{0};
    std::atomic<std::size_t> next_place{0};
    std::vector<std::vector<std::pair<std::size_t, std::size_t>>> drawn(threads);  // place, ticket
    auto const traffic =
        run_traffic(peer, threads, milliseconds(0), milliseconds(length), [&](std::size_t thread, bool) {
          auto const ticket = next_ticket.fetch_add(1);
          auto const held = admit(peer);
          drawn[thread].emplace_back(next_place.fetch_add(1), ticket);
          busy_for(std::chrono::microseconds{one.hold_us});
        });
    std::vector<std::size_t> admitted(next_place);
    for (auto const& of_thread : drawn) {
      for (auto const& [place, ticket] : of_thread) admitted[place] = ticket;
    }
    auto counts = overtakers(admitted);
    state.SetIterationTime(traffic.seconds);
    state.counters["p50"] = static_cast<double>(quantile(counts, 0.50));
    state.counters["p99"] = static_cast<double>(quantile(counts, 0.99));
    state.counters["most"] = static_cast<double>(quantile(counts, 1.0));
  }
}

std::string full_name(Case const& one, char const* peer) {
  return "order/" + one.name() + "/" + peer;
}

template <class... Peers>
void add_peers(Case const& one, Effort const& effort) {
  double const length = 50 * effort.length;
  (add_sampled(full_name(one, Peers::name), effort,
               [one, length](benchmark::State& state) { watch_order<Peers>(state, one, length); }),
   ...);
}

void ask(Effort const& effort) {
  for (Case const& one : cases) {
    add_peers<Gate, FifoSemaphore, StdSemaphore, PosixSemaphore, MutexSemaphore>(one, effort);
  }
}

void answer(Results const& results, Effort const&) {
  Row{""}.text("p50").text("p99").text("most");
  for (Case const& one : cases) {
    Row{one.name()};
    for (auto const* peer :
         {Gate::name, FifoSemaphore::name, StdSemaphore::name, PosixSemaphore::name, MutexSemaphore::name}) {
      auto const get = [&](char const* counter) { return results.median(full_name(one, peer), counter); };
      Row row{std::string{"  "} + peer};
      row.number(get("p50"), 0).number(get("p99"), 0).number(get("most"), 0);
      if (peer == Gate::name) row.at_most(get("p99"), 8).at_most(get("most"), 4 * threads);
    }
  }
}

}  // namespace

Question const order{"Order: by how many is an admission overtaken, 16 threads", ask, answer};

}  // namespace bench
