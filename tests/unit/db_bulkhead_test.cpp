// SPDX-License-Identifier: MIT
#include "db_bulkhead/db_bulkhead.hpp"

#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "support/fake_driver.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;
using fake::Step;
using fake::Transaction;

namespace {

using Bulkhead = DbBulkhead<fake::Pool>;
using Trace = std::vector<Step>;

constexpr auto no_work = [](Transaction&) {};

struct MyError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Permits and slots are whole, and B + Q fresh calls are admitted and served.
template <class AnyBulkhead>
void require_whole(AnyBulkhead& bulkhead, fake::Pool& pool) {
  pool.hook = [](Step) {};
  Limits const limits = bulkhead.limits();
  REQUIRE(bulkhead.state() == GateState{0, 0, limits, false});
  REQUIRE(bulkhead.available() == limits.concurrent);
  REQUIRE(bulkhead.available_slots() == limits.total());
  REQUIRE(pool.leased == 0);

  std::vector<std::future<int>> calls;
  std::latch inside{static_cast<std::ptrdiff_t>(limits.concurrent)};
  std::promise<void> release;
  auto const released = release.get_future().share();
  for (std::size_t i = 0; i < limits.total(); ++i) {
    calls.push_back(std::async(std::launch::async, [&, i] {
      return bulkhead.transaction(1h, [&, i](Transaction&) {
        if (i < limits.concurrent) inside.count_down();
        released.wait();
        return 1;
      });
    }));
    while (bulkhead.state().running + bulkhead.state().waiting <= i) std::this_thread::yield();
  }
  inside.wait();
  REQUIRE(bulkhead.try_admit(1h).rejection() == Rejection::full);
  release.set_value();
  for (auto& call : calls) REQUIRE(call.get() == 1);
  pool.trace();
}

template <class Exception, class Function>
Exception caught(Function&& function) {
  try {
    function();
  } catch (Exception const& exception) {
    return exception;
  }
  throw std::logic_error("nothing was thrown");
}

}  // namespace

TEST_CASE("a call begins, works, commits, and gives the connection back before the permit") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1}};
  std::size_t available_at_return = 99;
  pool.hook = [&](Step step) {
    if (step == Step::give_back) available_at_return = bulkhead.available();
  };
  REQUIRE(bulkhead.transaction(0ns, [](Transaction&) { return 42; }) == 42);
  REQUIRE(pool.trace() ==
          Trace{Step::acquire, Step::begin, Step::commit, Step::transaction_destroyed, Step::give_back});
  REQUIRE(available_at_return == 0);
  require_whole(bulkhead, pool);
}

TEST_CASE("void and move-only results come through") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1}};
  bool ran = false;
  bulkhead.transaction(0ns, [&](Transaction&) { ran = true; });
  REQUIRE(ran);
  REQUIRE(*bulkhead.transaction(0ns, [](Transaction&) { return std::make_unique<int>(7); }) == 7);
  static_assert(std::is_same_v<decltype(bulkhead.transaction(
                                   0ns, [](Transaction&) -> std::string const { return {}; })),
                               std::string>);
}

TEST_CASE("a move-only callback is called, once, and so is a function pointer") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1}};
  auto owned = std::make_unique<int>(5);
  REQUIRE(bulkhead.transaction(0ns, [owned = std::move(owned)](auto&) mutable { return ++*owned; }) == 6);
  int (*function)(Transaction&) = [](Transaction&) { return 8; };
  REQUIRE(bulkhead.transaction(0ns, function) == 8);
}

TEST_CASE("the caller's exception leaves as the same object after the rollback", "[row-56]") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1}};
  auto const thrown = std::make_exception_ptr(MyError{"mine"});
  std::exception_ptr seen;
  try {
    bulkhead.transaction(0ns, [&](Transaction&) { std::rethrow_exception(thrown); });
  } catch (...) {
    seen = std::current_exception();
  }
  REQUIRE(seen == thrown);
  REQUIRE(pool.trace() == Trace{Step::acquire, Step::begin, Step::check, Step::rollback,
                                Step::transaction_destroyed, Step::give_back});
  REQUIRE(pool.discarded == 0);
  require_whole(bulkhead, pool);
}

TEST_CASE("an exception that is no std::exception is rolled back and leaves as it is") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1}};
  REQUIRE_THROWS_AS(bulkhead.transaction(0ns, [](Transaction&) { throw 17; }), int);
  REQUIRE(pool.trace()[3] == Step::rollback);
  require_whole(bulkhead, pool);
}

TEST_CASE("a failed rollback is told to the observer and never replaces the caller's exception", "[row-56]") {
  struct Counting : NullObserver {
    std::shared_ptr<std::vector<std::string>> failures = std::make_shared<std::vector<std::string>>();
    void rollback_failed(RollbackFailed const& event) const {
      try {
        std::rethrow_exception(event.failure);
      } catch (std::exception const& failure) {
        failures->push_back(std::string{event.label} + ": " + failure.what());
      }
    }
  };
  fake::Pool pool;
  Counting observer;
  DbBulkhead bulkhead{pool, {.concurrent = 1}, observer};
  pool.hook = [](Step step) {
    if (step == Step::rollback) throw std::runtime_error("rollback broke");
  };
  REQUIRE_THROWS_AS(bulkhead.transaction({.label = "orders"}, [](Transaction&) { throw MyError{"mine"}; }),
                    MyError);
  REQUIRE(*observer.failures == std::vector<std::string>{"orders: rollback broke"});
  REQUIRE(pool.trace() == Trace{Step::acquire, Step::begin, Step::check, Step::rollback, Step::abandon,
                                Step::transaction_destroyed, Step::discard, Step::give_back});
  REQUIRE(pool.discarded == 1);
  require_whole(bulkhead, pool);
}

TEST_CASE("an observer may be kept by reference") {
  struct Counting : NullObserver {
    int failures = 0;
    void rollback_failed(RollbackFailed const&) { ++failures; }
  };
  fake::Pool pool;
  Counting observer;
  DbBulkhead<fake::Pool, Counting&> bulkhead{pool, {.concurrent = 1}, observer};
  pool.hook = [](Step step) {
    if (step == Step::rollback) throw std::runtime_error("rollback broke");
  };
  REQUIRE_THROWS_AS(bulkhead.transaction(0ns, [](Transaction&) { throw MyError{"mine"}; }), MyError);
  REQUIRE(observer.failures == 1);
}

TEST_CASE("braces in the first place are options, empty ones the defaults") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1}};
  REQUIRE(bulkhead.transaction({}, [](Transaction&) { return 1; }) == 1);
  REQUIRE(bulkhead.transaction({20ms}, [](Transaction&) { return 2; }) == 2);
  REQUIRE(bulkhead.transaction(QueueWait{20ms}, [](Transaction&) { return 3; }) == 3);
  REQUIRE(bulkhead.transaction(0.5s, [](Transaction&) { return 4; }) == 4);
}

TEST_CASE("an observer that throws changes neither outcome nor accounting", "[row-5]") {
  struct Throwing : NullObserver {
    void rollback_failed(RollbackFailed const&) const { throw 1; }
  };
  fake::Pool pool;
  DbBulkhead bulkhead{pool, {.concurrent = 2, .extra_slots = 1}, Throwing{}};
  pool.hook = [](Step step) {
    if (step == Step::rollback) throw std::runtime_error("rollback broke");
  };
  REQUIRE_THROWS_AS(bulkhead.transaction(0ns, [](Transaction&) { throw MyError{"mine"}; }), MyError);
  require_whole(bulkhead, pool);
}

TEST_CASE("a refused call has run nothing and asked no pool", "[row-13]") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1}};
  int runs = 0;
  {
    Permit const held = bulkhead.admit(0ns);
    auto const refusal =
        caught<AdmissionRejected>([&] { bulkhead.transaction(1h, [&](Transaction&) { ++runs; }); });
    REQUIRE(refusal.reason() == Rejection::full);
    REQUIRE(refusal.effect() == Effect::none);
    REQUIRE(refusal.limits() == Limits{1, 0});
    REQUIRE(refusal.in_flight() == 1);
    REQUIRE(refusal.waiting() == 0);
    REQUIRE(refusal.waited() == 0ns);
  }
  REQUIRE(runs == 0);
  REQUIRE(pool.acquired == 0);
  REQUIRE(pool.trace().empty());
  require_whole(bulkhead, pool);
}

TEST_CASE("a wait that times out says so and how long it took") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1, .extra_slots = 1}};
  {
    Permit const held = bulkhead.admit(0ns);
    auto const refusal = caught<AdmissionRejected>([&] { bulkhead.transaction(20ms, no_work); });
    REQUIRE(refusal.reason() == Rejection::timed_out);
    REQUIRE(refusal.waited() >= 20ms);
    REQUIRE(caught<AdmissionRejected>([&] { bulkhead.transaction(0ns, no_work); }).reason() ==
            Rejection::timed_out);
  }
  REQUIRE(pool.acquired == 0);
  require_whole(bulkhead, pool);
}

TEST_CASE("the earlier of queue_wait and deadline ends a wait") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1, .extra_slots = 1}};
  {
    Permit const held = bulkhead.admit(0ns);
    auto const by_deadline = caught<AdmissionRejected>(
        [&] { bulkhead.transaction({.queue_wait = 1h, .deadline = Deadline::after(10ms)}, no_work); });
    REQUIRE(by_deadline.reason() == Rejection::timed_out);
    auto const by_wait = caught<AdmissionRejected>(
        [&] { bulkhead.transaction({.queue_wait = 10ms, .deadline = Deadline::after(1h)}, no_work); });
    REQUIRE(by_wait.reason() == Rejection::timed_out);
  }
  require_whole(bulkhead, pool);
}

TEST_CASE("a deadline that is past on arrival is refused as expired, although a permit is free", "[row-32]") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1}};
  auto const refusal =
      caught<AdmissionRejected>([&] { bulkhead.transaction({.deadline = Deadline::after(-1s)}, no_work); });
  REQUIRE(refusal.reason() == Rejection::expired);
  REQUIRE(pool.acquired == 0);
  require_whole(bulkhead, pool);
}

TEST_CASE("a stopped waiter leaves with cancelled and has asked no pool") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1, .extra_slots = 1}};
  {
    Permit const held = bulkhead.admit(0ns);
    std::stop_source stop;
    auto waiting = std::async(std::launch::async, [&] {
      return caught<AdmissionRejected>(
                 [&] { bulkhead.transaction({.queue_wait = 1h, .stop = stop.get_token()}, no_work); })
          .reason();
    });
    while (bulkhead.state().waiting == 0) std::this_thread::yield();
    stop.request_stop();
    REQUIRE(waiting.get() == Rejection::cancelled);
    REQUIRE(bulkhead.state().waiting == 0);
  }
  REQUIRE(pool.acquired == 0);
  require_whole(bulkhead, pool);
}

TEST_CASE("a closed bulkhead refuses newcomers and wakes waiters, and running work goes on") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1, .extra_slots = 1}};
  int const result = bulkhead.transaction(0ns, [&](Transaction&) {
    auto waiting = std::async(std::launch::async, [&] {
      return caught<AdmissionRejected>([&] { bulkhead.transaction(1h, no_work); }).reason();
    });
    while (bulkhead.state().waiting == 0) std::this_thread::yield();
    bulkhead.close();
    bulkhead.close();
    REQUIRE(waiting.get() == Rejection::closed);
    return 3;
  });
  REQUIRE(result == 3);
  REQUIRE(caught<AdmissionRejected>([&] { bulkhead.transaction(1h, no_work); }).reason() ==
          Rejection::closed);
  REQUIRE(bulkhead.state() == GateState{0, 0, {1, 1}, true});
}

TEST_CASE("a nested call on the same thread is refused instead of waiting for itself", "[row-30]") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 2, .extra_slots = 2}};
  std::latch all_inside{2};
  auto const call = [&] {
    bulkhead.transaction(0ns, [&](Transaction&) {
      all_inside.arrive_and_wait();
      auto const forever = std::chrono::nanoseconds::max();
      REQUIRE(caught<AdmissionRejected>([&] { bulkhead.transaction(forever, no_work); }).reason() ==
              Rejection::reentrant);
      REQUIRE(caught<AdmissionRejected>([&] { (void)bulkhead.admit(forever); }).reason() ==
              Rejection::reentrant);
      REQUIRE(bulkhead.try_admit(forever).rejection() == Rejection::reentrant);
    });
  };
  {
    std::jthread const other{call};
    call();
  }
  require_whole(bulkhead, pool);
}

TEST_CASE("another bulkhead may be entered inside a transaction, and the first again after it") {
  fake::Pool pool;
  Bulkhead outer{pool, {.concurrent = 1}};
  Bulkhead inner{pool, {.concurrent = 1}};
  outer.transaction(0ns, [&](Transaction&) {
    inner.transaction(
        0ns, [&](Transaction&) { REQUIRE(outer.try_admit(0ns).rejection() == Rejection::reentrant); });
    REQUIRE(inner.try_admit(0ns));
  });
  REQUIRE(outer.transaction(0ns, [](Transaction&) { return 1; }) == 1);
}

TEST_CASE("a bare permit admits work whose transaction somebody else manages") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1, .extra_slots = 1}};
  {
    Permit permit = bulkhead.admit(0ns);
    REQUIRE(bulkhead.available() == 0);
    std::thread{[moved = std::move(permit)] {}}.join();
    REQUIRE(bulkhead.available() == 1);
    Admission refused_or_not = bulkhead.try_admit(0ns);
    REQUIRE(refused_or_not);
    REQUIRE(bulkhead.try_admit(0ns).rejection() == Rejection::timed_out);
  }
  REQUIRE_THROWS_AS(bulkhead.admit(-1ns), std::invalid_argument);
  REQUIRE_THROWS_AS(bulkhead.try_admit(std::chrono::nanoseconds::min()), std::invalid_argument);
  require_whole(bulkhead, pool);
}

TEST_CASE("bad input is refused before anything is touched") {
  fake::Pool pool;
  REQUIRE_THROWS_AS((Bulkhead{pool, {.concurrent = 0}}), std::invalid_argument);
  REQUIRE_THROWS_AS((Bulkhead{pool, {.concurrent = 1, .extra_slots = Limits::max_total}}),
                    std::invalid_argument);
  REQUIRE_THROWS_AS((Bulkhead{pool, {.concurrent = static_cast<std::size_t>(-1), .extra_slots = 2}}),
                    std::invalid_argument);

  Bulkhead bulkhead{pool, {.concurrent = 1}};
  REQUIRE_THROWS_AS(bulkhead.resize({.concurrent = 0}), std::invalid_argument);
  REQUIRE_THROWS_AS(bulkhead.transaction(-1ns, no_work), std::invalid_argument);
  REQUIRE_THROWS_AS(bulkhead.transaction(0ns, std::function<void(Transaction&)>{}), std::invalid_argument);
  void (*nothing)(Transaction&) = nullptr;
  REQUIRE_THROWS_AS(bulkhead.transaction(0ns, nothing), std::invalid_argument);
  REQUIRE_THROWS_AS(bulkhead.transaction({.statement_timeout = 0ms}, no_work), std::invalid_argument);
  REQUIRE_THROWS_AS(bulkhead.transaction({.lock_timeout = std::chrono::milliseconds{1LL << 31}}, no_work),
                    std::invalid_argument);
  REQUIRE(pool.trace().empty());
  require_whole(bulkhead, pool);
}

TEST_CASE("waits too long for a clock mean no limit", "[row-25]") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1, .extra_slots = 1}};
  for (QueueWait const wait :
       {QueueWait{std::chrono::nanoseconds::max()}, QueueWait{std::chrono::milliseconds::max()},
        QueueWait{std::chrono::hours::max()}}) {
    std::optional<Permit> held = bulkhead.admit(0ns);
    auto waiting = std::async(std::launch::async,
                              [&] { return bulkhead.transaction(wait, [](Transaction&) { return 1; }); });
    while (bulkhead.state().waiting == 0) std::this_thread::yield();
    held.reset();
    REQUIRE(waiting.get() == 1);
  }
}

TEST_CASE("a pool that gives no connection costs no permit, and says what it threw", "[row-7]") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 2, .extra_slots = 1}};
  pool.hook = [](Step step) {
    if (step == Step::acquire) throw MyError{"no route"};
  };
  for (int i = 0; i < 10; ++i) {
    try {
      bulkhead.transaction(0ns, no_work);
      FAIL("must throw");
    } catch (ConnectionUnavailable const& unavailable) {
      REQUIRE(unavailable.reason() == ConnectionUnavailable::Reason::connect_failed);
      REQUIRE(unavailable.effect() == Effect::none);
      REQUIRE_THROWS_AS(std::rethrow_if_nested(unavailable), MyError);
    }
  }
  require_whole(bulkhead, pool);
}

TEST_CASE("a pool's own ConnectionUnavailable leaves as it is") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1}};
  pool.hook = [](Step step) {
    if (step == Step::acquire) throw ConnectionUnavailable{ConnectionUnavailable::Reason::full, "full"};
  };
  REQUIRE(caught<ConnectionUnavailable>([&] { bulkhead.transaction(0ns, no_work); }).reason() ==
          ConnectionUnavailable::Reason::full);
  require_whole(bulkhead, pool);
}

TEST_CASE("a BEGIN that fails destroys the connection and gives everything back", "[row-8]") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 2}};
  pool.hook = [](Step step) {
    if (step == Step::begin) throw MyError{"broken"};
  };
  for (int i = 1; i <= 3; ++i) {
    auto const unavailable = caught<ConnectionUnavailable>([&] { bulkhead.transaction(0ns, no_work); });
    REQUIRE(unavailable.reason() == ConnectionUnavailable::Reason::begin_failed);
    REQUIRE(pool.discarded == i);
  }
  require_whole(bulkhead, pool);
}

TEST_CASE(
    "a stop or a deadline that comes while a connection is got begins nothing and keeps the connection") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1}};
  using Reason = ConnectionUnavailable::Reason;
  std::stop_source stop;
  pool.hook = [&](Step step) {
    if (step == Step::acquire) stop.request_stop();
  };
  REQUIRE(caught<ConnectionUnavailable>([&] {
            bulkhead.transaction({.stop = stop.get_token()}, no_work);
          }).reason() == Reason::cancelled);
  Deadline const later = Deadline::after(50ms);
  pool.hook = [&](Step step) {
    while (step == Step::acquire && !later.passed()) std::this_thread::yield();
  };
  REQUIRE(caught<ConnectionUnavailable>([&] {
            bulkhead.transaction({.deadline = later}, no_work);
          }).reason() == Reason::timed_out);
  REQUIRE(pool.trace() == Trace{Step::acquire, Step::give_back, Step::acquire, Step::give_back});
  REQUIRE(pool.discarded == 0);
  require_whole(bulkhead, pool);
}

TEST_CASE("a commit that fails gives everything back and says what the database holds", "[row-9]") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1, .extra_slots = 1}};
  using Reason = TransactionRolledBack::Reason;

  SECTION("refused by the server: rolled back, the connection is kept") {
    pool.hook = [](Step step) {
      if (step == Step::commit) throw TransactionRolledBack{Reason::server_refused, "refused", "23505"};
    };
    auto const error = caught<TransactionRolledBack>([&] { bulkhead.transaction(0ns, no_work); });
    REQUIRE(error.effect() == Effect::none);
    REQUIRE(error.sqlstate() == "23505");
    REQUIRE(pool.trace() == Trace{Step::acquire, Step::begin, Step::commit, Step::rollback,
                                  Step::transaction_destroyed, Step::give_back});
  }
  SECTION("connection lost before COMMIT was sent: no rollback is tried, the connection is destroyed") {
    pool.hook = [](Step step) {
      if (step == Step::commit) throw TransactionRolledBack{Reason::connection_lost, "lost"};
    };
    REQUIRE(caught<TransactionRolledBack>([&] { bulkhead.transaction(0ns, no_work); }).effect() ==
            Effect::none);
    REQUIRE(pool.trace() == Trace{Step::acquire, Step::begin, Step::commit, Step::abandon,
                                  Step::transaction_destroyed, Step::discard, Step::give_back});
  }
  SECTION("in doubt: never rolled back, the connection is destroyed") {
    pool.hook = [](Step step) {
      if (step == Step::commit) throw CommitOutcomeUnknown{"no answer"};
    };
    REQUIRE(caught<CommitOutcomeUnknown>([&] { bulkhead.transaction(0ns, no_work); }).effect() ==
            Effect::unknown);
    REQUIRE(pool.trace() == Trace{Step::acquire, Step::begin, Step::commit, Step::abandon,
                                  Step::transaction_destroyed, Step::discard, Step::give_back});
  }
  SECTION("an exception nobody knows counts as in doubt, with it nested") {
    pool.hook = [](Step step) {
      if (step == Step::commit) throw MyError{"odd"};
    };
    try {
      bulkhead.transaction(0ns, no_work);
      FAIL("must throw");
    } catch (CommitOutcomeUnknown const& error) {
      REQUIRE_THROWS_AS(std::rethrow_if_nested(error), MyError);
    }
    REQUIRE(pool.discarded == 1);
  }
  require_whole(bulkhead, pool);
}

TEST_CASE("a callback that broke the boundary and threw is reported so, with its exception nested") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1}};
  pool.hook = [](Step step) {
    if (step == Step::check) throw BoundaryViolated{"the callback sent COMMIT"};
  };
  try {
    bulkhead.transaction(0ns, [](Transaction&) { throw MyError{"mine"}; });
    FAIL("must throw");
  } catch (BoundaryViolated const& violation) {
    REQUIRE(violation.effect() == Effect::unknown);
    REQUIRE_THROWS_AS(std::rethrow_if_nested(violation), MyError);
  }
  REQUIRE(pool.discarded == 1);
  require_whole(bulkhead, pool);
}

TEST_CASE("a stop or a deadline that comes while the callback runs is rolled back, not committed") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1}};
  using Reason = TransactionRolledBack::Reason;
  std::stop_source stop;
  REQUIRE(caught<TransactionRolledBack>([&] {
            bulkhead.transaction({.stop = stop.get_token()}, [&](Transaction&) { stop.request_stop(); });
          }).reason() == Reason::cancelled);
  Deadline const deadline = Deadline::after(5ms);
  REQUIRE(caught<TransactionRolledBack>([&] {
            bulkhead.transaction({.deadline = deadline}, [&](Transaction&) {
              while (!deadline.passed()) std::this_thread::yield();
            });
          }).reason() == Reason::deadline_exceeded);
  for (Step const step : pool.trace()) REQUIRE(step != Step::commit);
  require_whole(bulkhead, pool);
}

TEST_CASE("work that goes on after its caller gave up keeps its permit") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 1}};
  std::promise<void> release;
  std::latch started{1};
  auto work = std::async(std::launch::async, [&] {
    return bulkhead.transaction(0ns, [&](Transaction&) {
      started.count_down();
      release.get_future().wait();
      return 1;
    });
  });
  started.wait();
  REQUIRE(work.wait_for(1ms) == std::future_status::timeout);  // the caller loses patience
  REQUIRE(bulkhead.available() == 0);
  REQUIRE(bulkhead.try_admit(0ns).rejection() == Rejection::full);
  release.set_value();
  REQUIRE(work.get() == 1);
  require_whole(bulkhead, pool);
}

TEST_CASE("a resize that has returned admits nobody by the old limit", "[row-14]") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 3}};
  bulkhead.transaction(0ns, [&](Transaction&) {
    std::thread{[&] {
      bulkhead.resize({.concurrent = 1});  // returns at once, although one is running
      REQUIRE(bulkhead.try_admit(0ns).rejection() == Rejection::full);
      bulkhead.resize({.concurrent = 2});
      REQUIRE(bulkhead.try_admit(0ns));
    }}.join();
  });
  REQUIRE(bulkhead.limits() == Limits{2, 0});
  require_whole(bulkhead, pool);
}

// Each step at which something can go wrong, each way of going wrong, many times over: permits stay whole.
TEST_CASE("no failure at any step costs a permit, a slot or a lease", "[sweep]") {
  fake::Pool pool;
  Bulkhead bulkhead{pool, {.concurrent = 2, .extra_slots = 2}};
  auto const failing_step = GENERATE(from_range(fake::throwing_steps));
  auto const way = GENERATE(range(0, 4));
  bool const callback_throws = GENERATE(false, true);
  std::stop_source stop;
  auto const fail = [&] {
    switch (way) {
      case 0: throw MyError{"injected"};
      case 1: throw 17;
      case 2: throw CommitOutcomeUnknown{"injected"};
      default: stop.request_stop();
    }
  };
  pool.hook = [&](Step step) {
    if (step == failing_step) fail();
  };
  for (int i = 0; i < 5; ++i) {
    try {
      bulkhead.transaction({.queue_wait = 1h, .stop = stop.get_token()}, [&](Transaction&) {
        if (callback_throws) throw MyError{"mine"};
      });
    } catch (...) {
      // Which exception leaves is what the other tests are about.
    }
    REQUIRE(bulkhead.available() == 2);
    REQUIRE(pool.leased == 0);
  }
  require_whole(bulkhead, pool);
}

TEST_CASE("under stress never more than B run, and everything is whole afterwards", "[stress]") {
  fake::Pool pool;
  pool.hook = [](Step step) {
    static std::atomic<unsigned> count{0};
    if (step == Step::commit && ++count % 7 == 0) throw CommitOutcomeUnknown{"injected"};
    if (step == Step::begin && ++count % 11 == 0) throw MyError{"injected"};
  };
  Bulkhead bulkhead{pool, {.concurrent = 3, .extra_slots = 20}};
  std::atomic<int> ended{0};
  constexpr int threads = 64;
  constexpr int rounds = 60;
  {
    std::vector<std::jthread> callers;
    for (int t = 0; t < threads; ++t) {
      callers.emplace_back([&, t] {
        for (int i = 0; i < rounds; ++i) {
          std::stop_source stop;
          std::jthread stopper;
          if ((t + i) % 5 == 0) stopper = std::jthread{[&stop] { stop.request_stop(); }};
          try {
            bulkhead.transaction(
                {.queue_wait = std::chrono::microseconds{(t * 37 + i * 11) % 900}, .stop = stop.get_token()},
                [&](Transaction&) {
                  if ((t + i) % 3 == 0) throw MyError{"mine"};
                  std::this_thread::yield();
                });
          } catch (Error const&) {
          } catch (MyError const&) {
          }
          ++ended;
        }
      });
    }
  }
  REQUIRE(ended == threads * rounds);
  REQUIRE(pool.most_leased <= 3);
  require_whole(bulkhead, pool);
}
