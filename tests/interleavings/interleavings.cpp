// SPDX-License-Identifier: MIT
//
//   interleavings all [name]           every interleaving of the small scenarios
//   interleavings random [first count] one run for each seed; some twice, to see that they are the same
//   interleavings mutant               all of that; succeeds when a promise is found broken
//   interleavings replay <name> [path] one run, told step by step; the path is as a failure prints it
//   interleavings seed <seed>          the same for a seed
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "choices.hpp"
#include "scenarios.hpp"
#include "scheduler.hpp"
#include "world.hpp"

namespace {

using namespace interleavings;
using End = Scheduler::End;

// B + Q fresh calls are admitted, in the order of their arrival, and the next is turned away.
void spawn_fresh_calls(World& world) {
  Limits const limits = world.model.limits();
  scheduler().spawn([&world, limits] {
    std::vector<Permit> permits;
    for (std::size_t i = 0; i < limits.concurrent; ++i) {
      auto admission = world.arrive(no_wait);
      if (!admission) return scheduler().fail("a permit is missing in the end");
      permits.push_back(std::move(admission).permit());
    }
    scheduler().wait_until([&] { return world.model.waiting() == limits.extra_slots; });
    if (world.arrive(endless)) return scheduler().fail("there was a permit too many in the end");
    for (Permit& permit : permits) world.leave(std::move(permit));
  });
  for (std::size_t i = 0; i < limits.extra_slots; ++i) scheduler().spawn([&world] { world.call(endless); });
}

End finish(World& world) {
  world.model.must_be_at_rest();
  if (!world.model.is_closed()) {
    surroundings.spurious_failures = 0;
    spawn_fresh_calls(world);
    GivenChoices undisturbed;
    if (scheduler().run(undisturbed) != End::finished) {
      scheduler().fail("B + Q fresh calls come to no end");
      return End::failed;
    }
    world.model.must_be_at_rest();
  }
  if (!scheduler().failure().empty()) return End::failed;
  world.gate().~Gate();
  return End::finished;
}

End run(Scenario const& scenario, Choices& choices, bool aloud = false) {
  scheduler().reset();
  surroundings = Surroundings{};
  World world{scenario.limits, aloud};
  scheduler().also = [&world] {
    return mix(world.model.digest() + surroundings.spurious_failures,
               static_cast<std::uint64_t>(surroundings.now.time_since_epoch().count()));
  };
  auto const spawn = [&world](Part const& part) { scheduler().spawn([&world, &part] { part(world); }); };
  for (Part const& part : scenario.before) spawn(part);
  GivenChoices undisturbed;
  if (scheduler().run(undisturbed) == End::failed) return End::failed;
  world.begun.happen();
  surroundings.spurious_failures = scenario.spurious_failures;
  for (Part const& part : scenario.fibers) spawn(part);
  End const end = scheduler().run(choices);
  if (end == End::stuck) scheduler().fail("somebody waits and nobody will wake him");
  if (end == End::finished) return finish(world);
  return end == End::known ? End::known : End::failed;
}

std::string text_of(std::vector<unsigned> const& path) {
  std::string text;
  for (unsigned const choice : path) text += (text.empty() ? "" : ".") + std::to_string(choice);
  return text;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool holds_in_all(Scenario const& scenario) {
  auto const start = std::chrono::steady_clock::now();
  AllChoices choices;
  std::size_t schedules = 0;
  do {
    ++schedules;
    if (run(scenario, choices) == End::failed) {
      auto const path = text_of(choices.path());
      std::printf("%s: %s, in schedule %zu\n  see it: replay '%s' %s\n", scenario.name.c_str(),
                  scheduler().failure().c_str(), schedules, scenario.name.c_str(), path.c_str());
      return false;
    }
  } while (choices.next());
  std::printf("%-44s %9zu states %9zu schedules %6.2f s\n", scenario.name.c_str(), choices.states(),
              schedules, seconds_since(start));
  return true;
}

bool holds_in_all(std::string const& name) {
  bool any = false;
  for (Scenario const& scenario : small_scenarios()) {
    if (!name.empty() && scenario.name != name) continue;
    any = true;
    if (!holds_in_all(scenario)) return false;
  }
  return any;
}

std::optional<std::uint64_t> trace_of(std::uint64_t seed, bool aloud = false) {
  SeededChoices choices{seed};
  if (run(large_scenario(seed), choices, aloud) != End::failed) return scheduler().trace();
  std::printf("seed %llu: %s\n  see it: seed %llu\n", static_cast<unsigned long long>(seed),
              scheduler().failure().c_str(), static_cast<unsigned long long>(seed));
  return std::nullopt;
}

bool holds_for_seeds(std::uint64_t first, std::uint64_t count) {
  auto const start = std::chrono::steady_clock::now();
  std::uint64_t steps = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    auto const trace = trace_of(seed);
    if (!trace) return false;
    steps += scheduler().steps();
    if (seed % 16 == 0 && trace != trace_of(seed)) {
      std::printf("seed %llu: two runs differ\n", static_cast<unsigned long long>(seed));
      return false;
    }
  }
  std::printf("%llu seeds, %llu steps, %.2f s\n", static_cast<unsigned long long>(count),
              static_cast<unsigned long long>(steps), seconds_since(start));
  return true;
}

bool replay(std::string const& name, std::string const& text) {
  std::vector<unsigned> path;
  for (std::size_t at = 0; at < text.size(); at = std::min(text.find('.', at), text.size() - 1) + 1)
    path.push_back(static_cast<unsigned>(std::stoul(text.substr(at))));
  for (Scenario const& scenario : small_scenarios()) {
    if (scenario.name != name) continue;
    GivenChoices choices{path};
    bool const held = run(scenario, choices, true) != End::failed;
    std::printf("%s\n", held ? "every promise was kept" : scheduler().failure().c_str());
    return held;
  }
  std::printf("there is no scenario '%s'\n", name.c_str());
  return false;
}

constexpr std::uint64_t seeds = 20000;

}  // namespace

int main(int count, char** words) {
  std::vector<std::string> const arguments(words + 1, words + count);
  auto const argument = [&](std::size_t i) { return i < arguments.size() ? arguments[i] : std::string{}; };
  auto const number = [&](std::size_t i, std::uint64_t otherwise) {
    return argument(i).empty() ? otherwise : std::stoull(argument(i));
  };
  bool well = false;
  if (argument(0) == "all") well = holds_in_all(argument(1));
  if (argument(0) == "random") well = holds_for_seeds(number(1, 1), number(2, seeds));
  if (argument(0) == "mutant") well = !holds_in_all("") || !holds_for_seeds(1, seeds);
  if (argument(0) == "replay") well = replay(argument(1), argument(2));
  if (argument(0) == "seed") well = trace_of(number(1, 1), true).has_value();
  return well ? EXIT_SUCCESS : EXIT_FAILURE;
}
