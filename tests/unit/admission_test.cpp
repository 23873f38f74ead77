// SPDX-License-Identifier: MIT
#include "db_bulkhead/admission.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "support/gates.hpp"

#if defined(__unix__)
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#endif

using namespace db_bulkhead;
using namespace std::chrono_literals;
using support::endless;
using support::is_whole;
using support::NativePlatform;
using support::no_wait;
using support::PortablePlatform;
using support::reason;
using support::take;
using support::wait_until;
using support::wait_until_waiting;
using support::Watchdog;

namespace {

using Clock = std::chrono::steady_clock;

std::stop_token stopped_token() {
  std::stop_source source;
  source.request_stop();
  return source.get_token();
}

// A thread that arrives now, behind `before` others; it stands in line when the constructor returns. What
// it got is kept.
template <class Platform>
class Waiter {
 public:
  explicit Waiter(BasicAdmissionGate<Platform>& gate, std::size_t before = 0, QueueWait wait = endless)
      : thread_{[this, &gate, wait, stop = source_.get_token()] { result_ = gate.try_admit(wait, stop); }} {
    wait_until_waiting(gate, before + 1);
  }

  void stop() { source_.request_stop(); }
  BasicAdmission<Platform>& result() {
    if (thread_.joinable()) thread_.join();
    return *result_;
  }
  std::optional<Rejection> rejection() { return reason(result()); }

 private:
  std::stop_source source_;
  std::optional<BasicAdmission<Platform>> result_;
  std::jthread thread_;
};

}  // namespace

// ---- limits, refusals and their precedence ----

TEST_CASE("a gate takes limits in range and refuses others") {
  CHECK_NOTHROW(AdmissionGate{{1, 0}});
  CHECK_NOTHROW(AdmissionGate{{1, Limits::max_total - 1}});
  CHECK_THROWS_AS((AdmissionGate{{0, 5}}), std::invalid_argument);
  CHECK_THROWS_AS((AdmissionGate{{1, Limits::max_total}}), std::invalid_argument);
}

TEST_CASE("bad limits are refused by resize before anything changes") {
  AdmissionGate gate{{2, 1}};
  Permit const permit = take(gate);
  auto const before = gate.state();
  CHECK_THROWS_AS(gate.resize({0, 5}), std::invalid_argument);
  CHECK_THROWS_AS(gate.resize({1, Limits::max_total}), std::invalid_argument);
  CHECK(gate.state() == before);
}

TEST_CASE("B run and the next without room to wait is full") {
  AdmissionGate gate{{2, 0}};
  Permit const one = take(gate);
  CHECK(gate.available() == 1);
  Permit const two = take(gate);
  CHECK(reason(gate.try_admit(no_wait)) == Rejection::full);
  CHECK(reason(gate.try_admit(endless)) == Rejection::full);
  CHECK(gate.state() == GateState{2, 0, {2, 0}, false});
}

TEST_CASE("one who will not wait is timed out where there is room to wait") {
  AdmissionGate gate{{1, 1}};
  Permit const permit = take(gate);
  CHECK(reason(gate.try_admit(no_wait)) == Rejection::timed_out);
  CHECK(reason(gate.try_admit(-1ms)) == Rejection::timed_out);
  CHECK(gate.available_slots() == 1);
}

TEST_CASE("a deadline that has passed takes a free permit, and waits for none", "[row-32]") {
  AdmissionGate gate{{1, 1}};
  auto const past = Deadline::after(-1s);
  Permit const permit = gate.try_admit(past).permit();
  CHECK(permit);
  auto const refused = gate.try_admit(past);
  CHECK(reason(refused) == Rejection::timed_out);
  CHECK(refused.waited() == 0ns);
  CHECK(gate.available_slots() == 1);
}

TEST_CASE("of several reasons closed goes first, then cancelled, full and timed_out") {
  AdmissionGate gate{{1, 0}};
  Permit permit = take(gate);
  CHECK(reason(gate.try_admit(no_wait, stopped_token())) == Rejection::cancelled);
  CHECK(reason(gate.try_admit(no_wait)) == Rejection::full);
  permit = Permit{};
  CHECK(reason(gate.try_admit(no_wait, stopped_token())) == Rejection::cancelled);
  CHECK(gate.available() == 1);
  gate.close();
  CHECK(reason(gate.try_admit(no_wait, stopped_token())) == Rejection::closed);
  CHECK(reason(gate.try_admit(endless)) == Rejection::closed);
}

TEST_CASE("an admission has a permit or a reason, and asking for the other is an error") {
  AdmissionGate gate{{1, 0}};
  auto admitted = gate.try_admit(no_wait);
  CHECK(admitted);
  CHECK(admitted.waited() == 0ns);
  CHECK_THROWS_AS(admitted.rejection(), std::logic_error);
  auto refused = gate.try_admit(no_wait);
  CHECK_FALSE(refused);
  CHECK(refused.rejection() == Rejection::full);
  CHECK_THROWS_AS(std::move(refused).permit(), std::logic_error);
  Permit const permit = std::move(admitted).permit();
  CHECK(permit);
  CHECK_FALSE(admitted);
}

TEST_CASE("books are right after every one of many random calls", "[row-12]") {
  AdmissionGate gate{{3, 2}};
  std::mt19937 random{12};
  std::vector<Permit> permits;
  Limits limits = gate.limits();
  for (int step = 0; step < 20000; ++step) {
    auto const dice = random() % 8;
    if (dice == 0) {
      limits = {1 + random() % 5, random() % 4};
      gate.resize(limits);
    } else if (dice < 4 && !permits.empty()) {
      std::swap(permits[random() % permits.size()], permits.back());
      permits.pop_back();
    } else {
      auto admission = gate.try_admit(no_wait);
      auto const expected = permits.size() < limits.concurrent ? std::nullopt
                            : permits.size() < limits.total()  ? std::optional{Rejection::timed_out}
                                                               : std::optional{Rejection::full};
      if (reason(admission) != expected) FAIL("in step " << step);
      if (admission) permits.push_back(std::move(admission).permit());
    }
    auto const free = limits.concurrent - std::min(limits.concurrent, permits.size());
    auto const slots = limits.total() - std::min(limits.total(), permits.size());
    if (gate.state() != GateState{permits.size(), 0, limits, false} || gate.available() != free ||
        gate.available_slots() != slots)
      FAIL("after step " << step);
  }
  permits.clear();
  CHECK(is_whole(gate));
}

// ---- waiting ----

TEMPLATE_TEST_CASE("of 64 that arrive at once exactly B + Q are in, and the others never waited", "[row-11]",
                   NativePlatform, PortablePlatform) {
  Watchdog const watchdog;
  BasicAdmissionGate<TestType> gate{{3, 2}};
  std::atomic<int> full{0};
  std::atomic<int> admitted{0};
  std::atomic<bool> waited{false};
  {
    std::barrier start{64};
    std::vector<std::jthread> callers;
    for (int i = 0; i < 64; ++i) {
      callers.emplace_back([&] {
        start.arrive_and_wait();
        auto const admission = gate.try_admit(endless);
        if (admission) {
          ++admitted;
          wait_until([&] { return full == 59; });
        } else {
          if (admission.waited() != 0ns) waited = true;
          if (admission.rejection() == Rejection::full) ++full;
        }
      });
    }
  }
  CHECK(admitted == 5);
  CHECK(full == 59);
  CHECK_FALSE(waited);
  CHECK(is_whole(gate));
}

TEMPLATE_TEST_CASE("waiters that timed out take no permit with them", "[row-1]", NativePlatform,
                   PortablePlatform) {
  Watchdog const watchdog;
  BasicAdmissionGate<TestType> gate{{1, 8}};
  {
    auto const permit = take(gate);
    std::atomic<int> timed_out{0};
    std::vector<std::jthread> callers;
    for (int i = 0; i < 8; ++i) {
      callers.emplace_back([&] {
        auto const admission = gate.try_admit(10ms);
        if (reason(admission) == Rejection::timed_out && admission.waited() >= 10ms) ++timed_out;
      });
    }
    callers.clear();
    CHECK(timed_out == 8);
    CHECK(gate.state() == GateState{1, 0, {1, 8}, false});
  }
  CHECK(is_whole(gate));
}

TEMPLATE_TEST_CASE("a permit is handed from one to the next, and all of them run", "[row-2]", NativePlatform,
                   PortablePlatform) {
  Watchdog const watchdog;
  BasicAdmissionGate<TestType> gate{{1, 10}};
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  std::atomic<int> ran{0};
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 10; ++i) {
      callers.emplace_back([&] {
        auto const permit = gate.try_admit(endless).permit();
        most = std::max(most.load(), ++running);
        std::this_thread::sleep_for(1ms);
        --running;
        ++ran;
      });
    }
  }
  CHECK(ran == 10);
  CHECK(most == 1);
  CHECK(is_whole(gate));
}

TEMPLATE_TEST_CASE("what one did with a permit is seen by whoever runs with it next", "", NativePlatform,
                   PortablePlatform) {
  Watchdog const watchdog;
  BasicAdmissionGate<TestType> gate{{1, 8}};
  int plain = 0;  // guarded by nothing but the permit
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 8; ++i) {
      callers.emplace_back([&] {
        for (int round = 0; round < 500; ++round) {
          auto const permit = gate.try_admit(endless).permit();
          ++plain;
        }
      });
    }
  }
  CHECK(plain == 8 * 500);
}

TEMPLATE_TEST_CASE("waiters are served in their order under a storm of newcomers", "[row-18]", NativePlatform,
                   PortablePlatform) {
  Watchdog const watchdog;
  BasicAdmissionGate<TestType> gate{{1, 9}};
  for (int round = 0; round < 10; ++round) {
    std::vector<int> order;  // written by whoever has the permit
    std::atomic<bool> over{false};
    auto permit = take(gate);
    std::vector<std::jthread> waiters;
    for (int i = 0; i < 8; ++i) {
      waiters.emplace_back([&, i] {
        auto const mine = gate.try_admit(endless).permit();
        order.push_back(i);
      });
      wait_until_waiting(gate, static_cast<std::size_t>(i) + 1);
    }
    std::vector<std::jthread> storm;
    for (int i = 0; i < 2; ++i) {
      storm.emplace_back([&] {
        while (!over) gate.try_admit(no_wait);
      });
    }
    permit = {};
    wait_until([&] { return gate.state().waiting == 0; });
    over = true;
    waiters.clear();
    storm.clear();
    CHECK(order == std::vector{0, 1, 2, 3, 4, 5, 6, 7});
  }
  CHECK(is_whole(gate));
}

TEMPLATE_TEST_CASE("nobody is overtaken while the queue is never empty", "[row-19]", NativePlatform,
                   PortablePlatform) {
  Watchdog const watchdog;
  constexpr std::size_t callers = 200;
  BasicAdmissionGate<TestType> gate{{1, 4}};
  std::vector<std::size_t> order;  // written by whoever has the permit
  std::atomic<std::size_t> gone{0};
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < callers; ++i) {
      wait_until([&] { return gate.available_slots() > 0; });
      threads.emplace_back([&, i] {
        auto permit = gate.try_admit(endless).permit();
        // Until somebody stands behind: only then is there a queue to overtake.
        wait_until([&] { return gate.state().waiting > 0 || i == callers - 1; });
        order.push_back(i);
        permit = {};
        ++gone;
      });
      // In this order: one who leaves in between is counted not at all rather than twice.
      wait_until([&, i] {
        auto const before = gone.load();
        auto const state = gate.state();
        return before + state.running + state.waiting > i;
      });
    }
  }
  CHECK(order.size() == callers);
  CHECK(std::is_sorted(order.begin(), order.end()));
}

TEMPLATE_TEST_CASE("a wait too long for the clock is a wait without end", "[row-25]", NativePlatform,
                   PortablePlatform) {
  Watchdog const watchdog;
  auto const wait =
      GENERATE(QueueWait{std::chrono::nanoseconds::max()}, QueueWait{std::chrono::milliseconds::max()},
               QueueWait{std::chrono::hours::max()}, QueueWait{std::chrono::nanoseconds::max() - 1ns},
               QueueWait{std::chrono::duration<double>{std::numeric_limits<double>::infinity()}});
  BasicAdmissionGate<TestType> gate{{1, 1}};
  auto permit = take(gate);
  Waiter<TestType> waiter{gate, 0, wait};
  std::this_thread::sleep_for(2ms);  // for a wait that ends by mistake to do so
  CHECK(gate.state().waiting == 1);
  permit = {};
  CHECK_FALSE(waiter.rejection());
}

TEST_CASE("a wait below zero or not a number is no wait", "[row-25]") {
  AdmissionGate gate{{1, 1}};
  Permit const permit = take(gate);
  CHECK(reason(gate.try_admit(std::chrono::nanoseconds::min())) == Rejection::timed_out);
  CHECK(reason(gate.try_admit(std::chrono::hours::min())) == Rejection::timed_out);
  CHECK(reason(gate.try_admit(-1ms)) == Rejection::timed_out);
  std::chrono::duration<double> const nothing{std::numeric_limits<double>::quiet_NaN()};
  CHECK(reason(gate.try_admit(nothing)) == Rejection::timed_out);
  CHECK(reason(gate.try_admit(Deadline::at(Clock::time_point::min()))) == Rejection::timed_out);
}

TEMPLATE_TEST_CASE("a wait of 800 microseconds never ends early", "[row-26]", NativePlatform,
                   PortablePlatform) {
  Watchdog const watchdog;
  BasicAdmissionGate<TestType> gate{{1, 1}};
  auto const permit = take(gate);
  for (int round = 0; round < 200; ++round) {
    auto const before = Clock::now();
    auto const admission = gate.try_admit(800us);
    auto const took = Clock::now() - before;
    if (took < 800us || admission.waited() < 800us || reason(admission) != Rejection::timed_out)
      FAIL("in round " << round);
  }
  auto const deadline = Deadline::after(800us);
  CHECK(reason(gate.try_admit(deadline)) == Rejection::timed_out);
  CHECK(deadline.passed());
}

TEST_CASE("a wait ends at the earlier of its length and its deadline") {
  Watchdog const watchdog;
  AdmissionGate gate{{1, 1}};
  Permit const permit = take(gate);
  CHECK(reason(gate.try_admit(1ms, Deadline::never())) == Rejection::timed_out);
  CHECK(reason(gate.try_admit(endless, Deadline::after(1ms))) == Rejection::timed_out);
  CHECK(reason(gate.try_admit(1h, Deadline::after(1ms))) == Rejection::timed_out);
}

TEMPLATE_TEST_CASE("a waiter that is admitted says how long it waited", "", NativePlatform,
                   PortablePlatform) {
  Watchdog const watchdog;
  BasicAdmissionGate<TestType> gate{{1, 1}};
  auto permit = take(gate);
  Waiter<TestType> waiter{gate};
  auto const in_line = Clock::now();
  std::this_thread::sleep_for(2ms);
  auto const passed = Clock::now() - in_line;
  permit = {};
  CHECK(waiter.result().waited() >= passed);
}

TEMPLATE_TEST_CASE("of 500 callers all but B + Q are refused at once", "[row-29]", NativePlatform,
                   PortablePlatform) {
  Watchdog const watchdog;
  constexpr int callers = 500;
  BasicAdmissionGate<TestType> gate{{2, 4}};
  std::atomic<int> full{0};
  std::atomic<int> admitted{0};
  std::atomic<bool> waited{false};
  std::atomic<bool> crowded{false};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < callers; ++i) {
      threads.emplace_back([&] {
        auto const admission = gate.try_admit(endless);
        if (gate.state().waiting > 4) crowded = true;
        if (admission) {
          ++admitted;
          wait_until([&] { return full == callers - 6; });
          return;
        }
        if (admission.waited() != 0ns) waited = true;
        if (admission.rejection() == Rejection::full) ++full;
      });
    }
  }
  CHECK(admitted == 6);
  CHECK(full == callers - 6);
  CHECK_FALSE(waited);
  CHECK_FALSE(crowded);
}

#if defined(__linux__)
TEMPLATE_TEST_CASE("waiting costs no processor time", "[row-31]", NativePlatform, PortablePlatform) {
  Watchdog const watchdog;
  constexpr std::size_t count = 32;
  BasicAdmissionGate<TestType> gate{{1, count}};
  auto const permit = take(gate);
  std::atomic<std::chrono::microseconds::rep> used{0};
  {
    std::vector<std::jthread> waiters;
    for (std::size_t i = 0; i < count; ++i) {
      waiters.emplace_back([&] {
        gate.try_admit(300ms);
        ::rusage usage{};
        ::getrusage(RUSAGE_THREAD, &usage);
        used += (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
                usage.ru_stime.tv_usec;
      });
    }
  }
  // A tenth of the time that the threads waited would already be a loop somewhere.
  CHECK(std::chrono::microseconds{used} < count * 300ms / 10);
}
#endif

// ---- stop ----

TEMPLATE_TEST_CASE("a stopped waiter leaves with cancelled and gives back its slot", "", NativePlatform,
                   PortablePlatform) {
  Watchdog const watchdog;
  BasicAdmissionGate<TestType> gate{{1, 1}};
  auto permit = take(gate);
  Waiter<TestType> waiter{gate};
  CHECK(gate.available_slots() == 0);
  waiter.stop();
  CHECK(waiter.rejection() == Rejection::cancelled);
  CHECK(gate.available_slots() == 1);
  permit = {};
  CHECK(is_whole(gate));
}

TEMPLATE_TEST_CASE("a first in line that is stopped bars nobody's way", "[row-27]", NativePlatform,
                   PortablePlatform) {
  Watchdog const watchdog;
  BasicAdmissionGate<TestType> gate{{1, 2}};
  for (int round = 0; round < 50; ++round) {
    auto permit = take(gate);
    Waiter<TestType> first{gate};
    Waiter<TestType> second{gate, 1};
    // Before, at the same time as, and after the permit comes.
    if (round % 3 == 0) first.stop();
    std::jthread const stopper{[&] { first.stop(); }};
    permit = {};
    auto& outcome = first.result();
    if (outcome) std::exchange(outcome, {Rejection::full, 0ns});
    CHECK_FALSE(second.rejection());
  }
  CHECK(is_whole(gate));
}

TEMPLATE_TEST_CASE("a stop that comes at any moment costs no permit", "[row-4]", NativePlatform,
                   PortablePlatform) {
  Watchdog const watchdog;
  BasicAdmissionGate<TestType> gate{{1, 1}};
  for (int round = 0; round < 300; ++round) {
    auto permit = std::optional{take(gate)};
    std::stop_source source;
    std::barrier start{3};
    std::jthread const waiter{[&] {
      start.arrive_and_wait();
      gate.try_admit(endless, source.get_token());
    }};
    std::jthread const stopper{[&] {
      start.arrive_and_wait();
      source.request_stop();
    }};
    start.arrive_and_wait();
    permit.reset();
  }
  CHECK(is_whole(gate));
}

// ---- resize ----

TEMPLATE_TEST_CASE("a shrink returns at once, and takes effect as permits come back", "[row-14]",
                   NativePlatform, PortablePlatform) {
  Watchdog const watchdog;
  BasicAdmissionGate<TestType> gate{{3, 1}};
  std::vector<BasicPermit<TestType>> permits;
  for (int i = 0; i < 3; ++i) permits.push_back(take(gate));
  Waiter<TestType> waiter{gate};

  gate.resize({1, 0});  // on this thread, which holds all the permits: it could wait for nobody
  CHECK(gate.state() == GateState{3, 1, {1, 0}, false});
  CHECK(reason(gate.try_admit(endless)) == Rejection::full);
  permits.pop_back();
  permits.pop_back();
  CHECK(gate.state() == GateState{1, 1, {1, 0}, false});
  CHECK(reason(gate.try_admit(endless)) == Rejection::full);
  permits.pop_back();
  CHECK_FALSE(waiter.rejection());
  CHECK(gate.state() == GateState{1, 0, {1, 0}, false});
  waiter.result() = {Rejection::full, 0ns};
  CHECK(is_whole(gate));
}

TEMPLATE_TEST_CASE("grown limits let waiters in, in their order, before resize returns", "", NativePlatform,
                   PortablePlatform) {
  Watchdog const watchdog;
  BasicAdmissionGate<TestType> gate{{1, 3}};
  auto permit = take(gate);
  Waiter<TestType> first{gate};
  Waiter<TestType> second{gate, 1};
  Waiter<TestType> third{gate, 2};
  gate.resize({3, 3});
  CHECK(gate.state() == GateState{3, 1, {3, 3}, false});
  CHECK_FALSE(first.rejection());
  CHECK_FALSE(second.rejection());
  permit = {};
  CHECK_FALSE(third.rejection());
}

TEST_CASE("more room to wait is there at once") {
  Watchdog const watchdog;
  AdmissionGate gate{{1, 0}};
  Permit permit = take(gate);
  CHECK(reason(gate.try_admit(endless)) == Rejection::full);
  gate.resize({1, 1});
  Waiter<NativePlatform> waiter{gate};
  CHECK(reason(gate.try_admit(endless)) == Rejection::full);
  permit = {};
  CHECK_FALSE(waiter.rejection());
}

// ---- close ----

TEMPLATE_TEST_CASE("a closed gate sends waiters away and newcomers, and running work goes on", "",
                   NativePlatform, PortablePlatform) {
  Watchdog const watchdog;
  BasicAdmissionGate<TestType> gate{{1, 2}};
  auto permit = take(gate);
  Waiter<TestType> first{gate};
  Waiter<TestType> second{gate, 1};
  gate.close();
  CHECK(first.rejection() == Rejection::closed);
  CHECK(second.rejection() == Rejection::closed);
  CHECK(reason(gate.try_admit(endless)) == Rejection::closed);
  CHECK(gate.state() == GateState{1, 0, {1, 2}, true});
  gate.close();
  permit = {};
  CHECK(gate.state() == GateState{0, 0, {1, 2}, true});
  CHECK(reason(gate.try_admit(no_wait)) == Rejection::closed);
}

TEST_CASE("limits stay as they are once a gate is closed") {
  AdmissionGate gate{{1, 2}};
  gate.close();
  gate.resize({5, 5});
  CHECK(gate.limits() == Limits{1, 2});
  CHECK_THROWS_AS(gate.resize({0, 0}), std::invalid_argument);
}

// ---- the end of a gate ----

#if defined(__unix__)
namespace {

// Runs `action` in a process of its own; what it wrote to stderr, and how it ended.
template <class Action>
std::pair<std::string, int> in_child(Action const& action) {
  int pipe_ends[2];
  if (::pipe(pipe_ends) != 0) return {};
  auto const child = ::fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // not the test runner's
    ::rlimit const no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::dup2(pipe_ends[1], STDERR_FILENO);
    action();
    ::_exit(0);
  }
  ::close(pipe_ends[1]);
  std::string told;
  char buffer[256];
  for (auto n = ::read(pipe_ends[0], buffer, sizeof buffer); n > 0;
       n = ::read(pipe_ends[0], buffer, sizeof buffer)) {
    told.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(pipe_ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return {told, status};
}

}  // namespace

TEST_CASE("a gate that is destroyed while in use ends the program and says why") {
  auto const [told, status] = in_child([] {
    std::optional<AdmissionGate> gate{std::in_place, Limits{2, 1}};
    Permit const permit = take(*gate);
    gate.reset();
  });
  CHECK(told.find("db_bulkhead: a gate was destroyed while in use: 1 running, 0 waiting") !=
        std::string::npos);
  CHECK(WIFSIGNALED(status));
}

TEST_CASE("a gate that nobody uses is destroyed in silence, open or closed") {
  auto const [told, status] = in_child([] {
    { AdmissionGate gate{{2, 1}}; }
    AdmissionGate gate{{2, 1}};
    take(gate);
    gate.close();
  });
  CHECK(told.empty());
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}
#endif
