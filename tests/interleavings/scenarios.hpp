// SPDX-License-Identifier: MIT
//
// Small settings that are gone through completely, and a large one drawn by a seed.
#ifndef DB_BULKHEAD_TESTS_INTERLEAVINGS_SCENARIOS_HPP
#define DB_BULKHEAD_TESTS_INTERLEAVINGS_SCENARIOS_HPP

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "choices.hpp"
#include "world.hpp"

namespace interleavings {

using Part = std::function<void(World&)>;

struct Scenario {
  std::string name;
  Limits limits;
  std::vector<Part> before;  // these go, in order and undisturbed, as far as they come by themselves
  std::vector<Part> fibers{};
  unsigned spurious_failures = 0;
};

// ---- parts for fibers to play ----

inline Part caller(QueueWait wait) {
  return [=](World& world) { world.call(wait); };
}
/// A caller that `stopper(number)` may stop.
inline Part stoppable(unsigned number, QueueWait wait = endless) {
  return [=](World& world) { world.call(wait, &world.stops[number]); };
}
inline Part stopper(unsigned number) {
  return [=](World& world) { world.stops[number].request_stop(); };
}
/// Keeps its permit until the others begin.
inline Part holder() {
  return [=](World& world) {
    auto admission = world.arrive(no_wait);
    world.begun.wait();
    world.leave(std::move(admission).permit());
  };
}
/// Keeps its permit until the arrival of `fiber` is over: whatever ends it, it is not this permit.
inline Part holder_until_return_of(unsigned fiber) {
  return [=](World& world) {
    if (auto admission = world.arrive(no_wait)) {
      world.returned[fiber].wait();
      world.leave(std::move(admission).permit());
    }
  };
}
inline Part resizer(Limits to) {
  return [=](World& world) { world.resize(to); };
}
inline Part resizer(Limits to, Limits then) {
  return [=](World& world) {
    world.resize(to);
    world.resize(then);
  };
}
inline Part closer() {
  return [](World& world) { world.close(); };
}
inline Part onlooker(int times = 1) {
  return [=](World& world) {
    for (int i = 0; i < times; ++i) world.look();
  };
}
/// Moves the clock by as many ticks: this is what ends timed waits.
inline Part clock(int ticks = 1) {
  return [=](World& world) {
    for (int i = 0; i < ticks; ++i) world.tick();
  };
}
/// Moves it once `fiber` waits: if nothing else ends that wait, its deadline does.
inline Part clock_for(unsigned fiber) {
  return [=](World& world) {
    scheduler().wait_until([&] { return world.model.waiting() > 0 || world.returned[fiber].has_happened(); });
    world.tick();
  };
}
/// Has its permit given back by the fiber that plays `taker`.
inline Part giver(unsigned taker_fiber) {
  return [=](World& world) {
    auto admission = world.arrive(endless);
    auto permit = std::move(admission).permit();
    world.handed_over = &permit;
    world.offered.happen();
    world.returned[taker_fiber].wait();
  };
}
inline Part taker(unsigned giver_fiber) {
  return [=](World& world) {
    world.offered.wait();
    world.model.takes_over_from(giver_fiber);
    Permit permit = std::move(*world.handed_over);
    world.returned[scheduler().current()].happen();
    world.leave(std::move(permit));
  };
}

inline std::vector<Scenario> small_scenarios() {
  return {
      {"two callers, no queue", {1, 0}, {}, {caller(no_wait), caller(endless)}},
      {"two callers, one waits", {1, 1}, {}, {caller(endless), caller(endless)}},
      {"three callers, no queue", {1, 0}, {}, {caller(endless), caller(no_wait), caller(endless)}},
      {"three callers, one place to wait", {1, 1}, {}, {caller(endless), caller(endless), caller(endless)}},
      {"three callers, two places to wait", {1, 2}, {}, {caller(endless), caller(endless), caller(endless)}},
      {"three callers, two permits", {2, 1}, {}, {caller(endless), caller(endless), caller(endless)}},
      {"an exchange that fails for no reason", {1, 1}, {}, {caller(endless), caller(endless)}, 2},

      {"a grant races with a timeout", {1, 1}, {}, {caller(endless), caller(one_tick), clock()}},
      {"a timeout with no grant", {1, 1}, {}, {holder_until_return_of(1), caller(one_tick), clock_for(1)}},
      {"a newcomer when the first in line times out",
       {1, 2},
       {holder(), caller(one_tick)},
       {caller(endless), clock()}},
      {"the first of two in line times out",
       {1, 2},
       {holder(), caller(one_tick), caller(endless)},
       {clock()}},
      {"three in line, all may time out",
       {1, 3},
       {holder(), caller(one_tick), caller(one_tick), caller(one_tick)},
       {clock()}},

      {"a grant races with a stop", {1, 1}, {}, {caller(endless), stoppable(1), stopper(1)}},
      {"a stop with no grant", {1, 1}, {}, {holder_until_return_of(1), stoppable(1), stopper(1)}},
      {"a stop races with a timeout",
       {1, 1},
       {},
       {caller(endless), stoppable(1, one_tick), stopper(1), clock()}},
      {"a newcomer when the first in line is stopped",
       {1, 2},
       {holder(), stoppable(1)},
       {caller(endless), stopper(1)}},
      {"the first of two in line is stopped",
       {1, 2},
       {holder(), stoppable(1), caller(endless)},
       {stopper(1), caller(no_wait)}},
      {"two in line are stopped at once", {1, 2}, {holder(), stoppable(1), stoppable(1)}, {stopper(1)}},
      {"two stops at once", {1, 2}, {holder(), stoppable(1), stoppable(2)}, {stopper(1), stopper(2)}},

      {"a grant races with a close", {1, 1}, {}, {caller(endless), caller(endless), closer()}},
      {"a close with no grant", {1, 1}, {}, {holder_until_return_of(1), caller(endless), closer()}},
      {"a close and two in line",
       {1, 2},
       {holder(), caller(endless), caller(endless)},
       {closer(), caller(endless)}},
      {"a close races with a stop", {1, 1}, {}, {caller(endless), stoppable(1), stopper(1), closer()}},
      {"a close races with a timeout",
       {1, 2},
       {holder(), caller(one_tick), caller(endless)},
       {closer(), clock()}},

      {"limits grow with one in line",
       {1, 1},
       {},
       {holder_until_return_of(1), caller(endless), resizer({2, 1})}},
      {"limits grow with two in line",
       {1, 2},
       {holder(), caller(endless), caller(endless)},
       {resizer({3, 1}), caller(no_wait)}},
      {"limits grow while one gives up",
       {1, 1},
       {},
       {caller(endless), caller(one_tick), resizer({2, 0}), clock()}},
      {"limits shrink while two run", {2, 1}, {holder(), holder()}, {caller(endless), resizer({1, 1})}},
      {"limits shrink while two run and one waits",
       {2, 1},
       {holder(), holder(), caller(endless)},
       {caller(endless), resizer({1, 1})}},
      {"limits shrink below those in line",
       {1, 2},
       {holder(), caller(endless), caller(endless)},
       {caller(endless), resizer({1, 0})}},
      {"limits shrink and grow again",
       {2, 1},
       {holder(), holder(), caller(endless)},
       {resizer({1, 1}, {2, 1})}},
      {"limits grow and shrink again",
       {1, 2},
       {holder(), caller(endless), caller(endless)},
       {resizer({2, 1}, {1, 1})}},
      {"a resize races with a close",
       {1, 1},
       {},
       {caller(endless), caller(endless), resizer({2, 1}), closer()}},
      {"two resizes at once", {1, 1}, {holder(), caller(endless)}, {resizer({2, 1}), resizer({1, 2})}},

      {"a permit moves to another fiber", {1, 1}, {}, {giver(1), taker(0), caller(endless)}},
      {"somebody looks on", {1, 1}, {}, {caller(endless), caller(endless), onlooker(2)}},
      {"somebody looks on while limits shrink",
       {2, 1},
       {holder(), caller(no_wait)},
       {resizer({1, 0}), onlooker()}},
      {"somebody looks on at two resizes", {2, 1}, {}, {resizer({1, 2}, {2, 1}), onlooker()}},
      {"somebody looks on at a close", {1, 1}, {}, {caller(endless), closer(), onlooker(2)}},

      // The largest, last: most mutants are found before.
      {"somebody looks on while limits grow",
       {1, 1},
       {holder(), caller(endless)},
       {resizer({2, 0}), onlooker()}},
      {"three callers, all may time out",
       {1, 1},
       {},
       {caller(one_tick), caller(one_tick), caller(one_tick), clock()}},
  };
}

/// Eight callers of several rounds, and others that resize, stop, close or look on.
inline Scenario large_scenario(std::uint64_t seed) {
  Dice dice{~seed};  // not those by which fibers take turns
  auto const one_of = [&](unsigned count) { return dice.below(count); };
  auto const some_limits = [&] { return Limits{1 + one_of(3), one_of(4)}; };

  Scenario drawn{"seed " + std::to_string(seed), {2, 3}, {}, {}, one_of(2) * 8};
  for (unsigned i = 0; i < 8; ++i) {
    std::vector<QueueWait> waits;
    for (unsigned round = 4 + one_of(6); round > 0; --round)
      waits.push_back(one_of(8) == 0 ? no_wait : one_of(2) == 0 ? one_tick : endless);
    bool const may_stop = i < 2;
    drawn.fibers.push_back([=](World& world) {
      for (QueueWait const wait : waits) world.call(wait, may_stop ? &world.stops[i] : nullptr);
    });
  }
  for (unsigned i = 0; i < 2; ++i)
    if (one_of(2) == 0) drawn.fibers.push_back(stopper(i));
  if (one_of(2) == 0) {
    Limits const first = some_limits();  // drawn before the second by every compiler
    drawn.fibers.push_back(resizer(first, some_limits()));
  }
  if (one_of(8) == 0) drawn.fibers.push_back(closer());
  if (one_of(2) == 0) drawn.fibers.push_back(onlooker(3));
  drawn.fibers.push_back(clock(6));
  return drawn;
}

}  // namespace interleavings

#endif
