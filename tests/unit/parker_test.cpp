// SPDX-License-Identifier: MIT
#include "db_bulkhead/detail/parker.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "catch.hpp"
#include "support/threads.hpp"

using namespace std::chrono_literals;
using db_bulkhead::Deadline;
using db_bulkhead::detail::CondvarParker;
using db_bulkhead::detail::WaitOutcome;
#if defined(__linux__)
using db_bulkhead::detail::FutexParker;
#define DB_BULKHEAD_PARKERS FutexParker, CondvarParker
#else
#define DB_BULKHEAD_PARKERS CondvarParker
#endif

TEMPLATE_TEST_CASE("a parker that is settled already does not sleep", "", DB_BULKHEAD_PARKERS) {
  support::Watchdog const watchdog;
  TestType parker;
  CHECK(parker.outcome() == WaitOutcome::pending);
  parker.settle(WaitOutcome::closed).wake();
  CHECK(parker.outcome() == WaitOutcome::closed);
  CHECK(parker.park(Deadline::never()) == WaitOutcome::closed);
}

TEMPLATE_TEST_CASE("a sleeper wakes with the outcome it was given, and sees what was done before", "",
                   DB_BULKHEAD_PARKERS) {
  support::Watchdog const watchdog;
  auto const deadline = GENERATE(as<bool>{}, true, false) ? Deadline::never() : Deadline::after(1h);
  for (int round = 0; round < 200; ++round) {
    TestType parker;
    int written_before = 0;
    std::jthread const settler{[&] {
      // In half of the rounds only once the other one sleeps, or is about to.
      if (round % 2 == 0) std::this_thread::sleep_for(100us);
      written_before = round;
      parker.settle(WaitOutcome::granted).wake();
    }};
    auto const outcome = parker.park(deadline);
    if (outcome != WaitOutcome::granted || written_before != round) FAIL("in round " << round);
  }
  SUCCEED();
}

TEMPLATE_TEST_CASE("a wait that nobody settles ends at its deadline and not before", "",
                   DB_BULKHEAD_PARKERS) {
  support::Watchdog const watchdog;
  for (int round = 0; round < 50; ++round) {
    TestType parker;
    auto const deadline = Deadline::after(200us);
    CHECK_FALSE(is_settled(parker.park(deadline)));
    CHECK(deadline.passed());
  }
}

TEMPLATE_TEST_CASE("a deadline that has passed, however long ago, ends a wait at once", "",
                   DB_BULKHEAD_PARKERS) {
  support::Watchdog const watchdog;
  TestType parker;
  CHECK_FALSE(is_settled(parker.park(Deadline::at(Deadline::clock::time_point::min()))));
  CHECK_FALSE(is_settled(parker.park(Deadline::after(-1ns))));
}

TEMPLATE_TEST_CASE("a parker may be gone by the time its waker runs", "", DB_BULKHEAD_PARKERS) {
  support::Watchdog const watchdog;
  for (int round = 0; round < 200; ++round) {
    auto parker = std::make_unique<TestType>();
    std::optional<typename TestType::Waker> waker;
    std::jthread settler{[&waker, &parker = *parker] { waker = parker.settle(WaitOutcome::granted); }};
    // Sees the outcome without having to be woken: with a deadline that passes soon.
    while (!is_settled(parker->park(Deadline::after(50us)))) {
    }
    parker.reset();
    settler.join();
    waker->wake();
  }
  SUCCEED();
}

#if defined(__linux__)
TEST_CASE("a stray wake does not end a wait") {
  support::Watchdog const watchdog;
  FutexParker parker;
  std::atomic<bool> awake{false};
  std::jthread const sleeper{[&] {
    parker.park(Deadline::never());
    awake = true;
  }};
  support::wait_until([&] { return parker.outcome() == WaitOutcome::asleep; });
  // The futex is all there is of a parker: they have one address.
  for (int i = 0; i < 100; ++i) FutexParker::Waker{&parker}.wake();
  CHECK_FALSE(awake);
  CHECK(parker.outcome() == WaitOutcome::asleep);
  parker.settle(WaitOutcome::cancelled).wake();
}
#endif
