// SPDX-License-Identifier: MIT
//
// The pool over a driver made for it, whose every step can fail, wait or be watched.
#include "db_bulkhead/connection_pool.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "catch.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;
using Reason = ConnectionUnavailable::Reason;

namespace {

// What the fake connections of a test have in common.
struct Driver {
  std::function<void()> on_connect = [] {};
  std::function<ResetProgress()> on_begin_reset = [] { return ResetProgress::pending; };
  std::function<ResetProgress()> on_finish_reset = [] { return ResetProgress::done; };
  std::function<bool()> on_alive = [] { return true; };
  std::function<ResetProgress()> on_ping = [] { return ResetProgress::done; };
  std::function<Verdict()> on_judge = [] { return Verdict::keep; };
  std::atomic<int> open{0}, most_open{0}, last_id{0};
};

struct FakeConnection {
  explicit FakeConnection(std::shared_ptr<Driver> its_driver) : driver{std::move(its_driver)} {
    int const now = ++driver->open;
    int most = driver->most_open;
    while (now > most && !driver->most_open.compare_exchange_weak(most, now)) {
    }
  }
  ~FakeConnection() { --driver->open; }

  std::shared_ptr<Driver> driver;
  int id = ++driver->last_id;
};

struct FakeConnector {
  using connection_type = FakeConnection;
  std::shared_ptr<Driver> driver;

  std::unique_ptr<FakeConnection> connect(Deadline, std::stop_token const&) {
    driver->on_connect();
    return std::make_unique<FakeConnection>(driver);
  }
  bool alive(FakeConnection&) noexcept { return driver->on_alive(); }
  ResetProgress ping(FakeConnection&, Deadline, std::stop_token const&) noexcept { return driver->on_ping(); }
  Verdict judge(FakeConnection&) noexcept { return driver->on_judge(); }
  ResetProgress begin_reset(FakeConnection&, QueueWait) noexcept { return driver->on_begin_reset(); }
  ResetProgress finish_reset(FakeConnection&, Deadline, std::stop_token const&) noexcept {
    return driver->on_finish_reset();
  }
};

using Pool = ConnectionPool<FakeConnector>;
using Lease = Pool::lease_type;

// For tests of failing connects, which shall not wait.
constexpr ReconnectBackoff at_once{.first = 2ns, .longest = 2ns, .refused = 2ns};

struct Fixture {
  explicit Fixture(PoolOptions options = {.max_size = 2, .max_waiting = 2},
                   std::shared_ptr<Driver> its_driver = std::make_shared<Driver>())
      : driver{std::move(its_driver)}, pool{{driver}, std::move(options)} {}

  Lease acquire() { return pool.acquire(Deadline::never()); }

  std::optional<Reason> refusal(Deadline deadline = Deadline::never(), AcquireOptions const& options = {}) {
    try {
      static_cast<void>(pool.acquire(deadline, options));
    } catch (ConnectionUnavailable const& refused) {
      return refused.reason();
    }
    return std::nullopt;
  }

  void wait_until_waiting(std::size_t count) {
    while (pool.stats().waiting != count) std::this_thread::yield();
  }

  // The books add up, nobody holds anything, and the pool lends all that it may lend, no more.
  void require_whole() {
    PoolStats stats = pool.stats();
    // The pool's threads may be at it still.
    while (stats.connecting + stats.closing + stats.validating > 0) stats = pool.stats();
    REQUIRE(stats.total == stats.idle + stats.resetting);
    REQUIRE(stats.total <= stats.max);
    REQUIRE(stats.created - stats.closed == stats.total);
    REQUIRE(static_cast<std::size_t>(driver->open) == stats.total);
    REQUIRE(stats.waiting == 0);
    std::vector<Lease> all;
    for (std::size_t i = 0; i < stats.max; ++i) all.push_back(acquire());
    REQUIRE(refusal(Deadline::after(0ns)) == Reason::timed_out);
  }

  std::shared_ptr<Driver> driver;
  Pool pool;
};

void require_adding_up(PoolStats const& s) {
  REQUIRE(s.total == s.connecting + s.idle + s.leased + s.validating + s.resetting + s.closing);
  REQUIRE(s.total <= s.max);
  REQUIRE(s.created - s.closed == s.total - s.connecting);
}

}  // namespace

TEST_CASE("a pool opens connections when they are needed, and lends the newest idle one first") {
  Fixture f;
  CHECK(f.pool.stats().total == 0);
  std::optional<Lease> first = f.acquire(), second = f.acquire();
  int const first_id = (*first)->id, second_id = (*second)->id;
  first.reset();
  second.reset();
  CHECK(f.acquire()->id == second_id);
  Lease const one = f.acquire(), other = f.acquire();
  CHECK(one->id == second_id);
  CHECK(other->id == first_id);
  CHECK(f.pool.stats().created == 2);
}

TEST_CASE("waiters get connections in the order of their arrival, and newcomers overtake none", "[row-18]") {
  Fixture f{{.max_size = 1, .max_waiting = 8}};
  std::optional<Lease> held = f.acquire();
  std::vector<std::size_t> order;  // written by whoever has the one connection
  std::vector<std::jthread> waiters;
  for (std::size_t i = 0; i < 8; ++i) {
    waiters.emplace_back([&, i] {
      Lease const lease = f.acquire();
      order.push_back(i);
    });
    f.wait_until_waiting(i + 1);
  }
  CHECK(f.refusal(Deadline::after(0ns)) == Reason::full);
  held.reset();
  waiters.clear();
  CHECK(order == std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7});
  f.require_whole();
}

TEST_CASE("one caller more than may wait is refused at once", "[row-29]") {
  Fixture f{{.max_size = 1, .max_waiting = 1}};
  std::optional<Lease> held = f.acquire();
  std::jthread const waiter{[&] { Lease const lease = f.acquire(); }};
  f.wait_until_waiting(1);
  CHECK(f.refusal() == Reason::full);
  held.reset();
}

TEST_CASE("a wait ends at the deadline or after connection_timeout, whichever comes first") {
  Fixture f{{.max_size = 1, .connection_timeout = 20ms}};
  Lease const held = f.acquire();
  auto const start = Deadline::clock::now();
  CHECK(f.refusal(Deadline::never()) == Reason::timed_out);
  auto const waited = Deadline::clock::now() - start;
  CHECK(waited >= 20ms);
  CHECK(f.refusal(Deadline::after(1ms)) == Reason::timed_out);
  CHECK(f.pool.stats().timeouts == 2);
}

TEST_CASE("a deadline that has passed still takes an idle connection") {
  Fixture f;
  { Lease const lease = f.acquire(); }
  CHECK(f.refusal(Deadline::after(-1s)) == std::nullopt);
}

TEST_CASE("a stop ends a wait, and takes nothing from those behind", "[row-27]") {
  Fixture f{{.max_size = 1, .max_waiting = 2}};
  std::optional<Lease> held = f.acquire();
  std::stop_source stop;
  auto stopped = std::async(std::launch::async,
                            [&] { return f.refusal(Deadline::never(), {.stop = stop.get_token()}); });
  f.wait_until_waiting(1);
  auto behind = std::async(std::launch::async, [&] { return f.refusal(); });
  f.wait_until_waiting(2);
  stop.request_stop();
  CHECK(stopped.get() == Reason::cancelled);
  held.reset();
  CHECK(behind.get() == std::nullopt);
  f.require_whole();
}

TEST_CASE("a failed connect is told with its cause, and its place is free again", "[row-7]") {
  Fixture f{{.max_size = 2, .max_waiting = 2, .reconnect_backoff = at_once}};
  f.driver->on_connect = [] { throw std::runtime_error{"the cause"}; };
  for (int i = 0; i < 100; ++i) {
    try {
      static_cast<void>(f.acquire());
      FAIL("a connection was lent");
    } catch (ConnectionUnavailable const& failure) {
      REQUIRE(failure.reason() == Reason::connect_failed);
      REQUIRE_THROWS_WITH(std::rethrow_if_nested(failure), "the cause");
    }
  }
  CHECK(f.pool.stats().connect_failures > 0);
  CHECK(f.pool.stats().created == 0);
}

TEST_CASE("a pool that turned a caller away finds out by itself when it can connect again", "[row-36]") {
  std::atomic<int> failures{0};
  Fixture f{{.max_size = 2, .max_waiting = 2, .reconnect_backoff = {.first = 20ms, .longest = 20ms}}};
  f.driver->on_connect = [&] {
    if (++failures == 1) throw std::runtime_error{"down"};
  };
  CHECK(f.refusal() == Reason::connect_failed);
  while (f.pool.stats().idle == 0) std::this_thread::yield();
  f.require_whole();
}

TEST_CASE("a connect that takes longer than its caller waits serves the next one", "[row-23]") {
  Fixture f{{.max_size = 1}};
  std::latch go{1};
  f.driver->on_connect = [&] { go.wait(); };
  CHECK(f.refusal(Deadline::after(1ms)) == Reason::timed_out);
  std::stop_source stop;
  stop.request_stop();
  CHECK(f.refusal(Deadline::never(), {.stop = stop.get_token()}) == Reason::cancelled);
  go.count_down();
  CHECK(f.acquire()->id == 1);
  CHECK(f.pool.stats().created == 1);
  f.require_whole();
}

TEST_CASE("whoever waits is served when a failed connect frees the place", "[row-15]") {
  Fixture f{{.max_size = 1, .reconnect_backoff = at_once}};
  std::latch waiting{1};
  std::atomic<bool> refused{false};
  f.driver->on_connect = [&] {
    waiting.wait();
    if (!refused.exchange(true)) throw std::runtime_error{"refused"};
  };
  auto first = std::async(std::launch::async, [&] { return f.refusal(); });
  while (f.pool.stats().connecting != 1) std::this_thread::yield();
  auto second = std::async(std::launch::async, [&] { return f.refusal(); });
  f.wait_until_waiting(2);
  waiting.count_down();
  CHECK(first.get() == Reason::connect_failed);
  // It may have come while the pool was still known to be cut off.
  if (second.get() != std::nullopt) f.require_whole();
}

TEST_CASE("whoever waits is served when a connection is closed instead of returned", "[row-15]") {
  Fixture f{{.max_size = 1}};
  std::optional<Lease> held = f.acquire();
  int const closed_id = (*held)->id;
  auto waiter = std::async(std::launch::async, [&] { return f.acquire()->id; });
  f.wait_until_waiting(1);
  held->discard();
  held.reset();
  CHECK(waiter.get() != closed_id);
  CHECK(f.pool.stats().closed == 1);
  f.require_whole();
}

TEST_CASE("an idle connection whose peer is gone is closed and replaced", "[row-44]") {
  Fixture f;
  { Lease const one = f.acquire(), other = f.acquire(); }
  f.driver->on_alive = [] { return false; };
  Lease const lease = f.acquire();
  CHECK(lease->id == 3);
  CHECK(f.pool.stats().validation_failures == 2);
  while (f.pool.stats().closed != 2) std::this_thread::yield();
  CHECK(f.driver->open == 1);
}

TEST_CASE("a connection whose session could not be reset is never lent again") {
  Fixture f;
  SECTION("because the return fails") {
    f.driver->on_begin_reset = [] { return ResetProgress::failed; };
    { Lease const lease = f.acquire(); }
    while (f.driver->open != 0) std::this_thread::yield();
  }
  SECTION("because the reset fails") {
    f.driver->on_finish_reset = [] { return ResetProgress::failed; };
    { Lease const lease = f.acquire(); }
  }
  CHECK(f.acquire()->id == 2);
  CHECK(f.pool.stats().reset_failures >= 1);
  f.require_whole();
}

TEST_CASE(
    "a reset that is not done in the borrower's time goes on for the next one, if there is no room for "
    "another") {
  bool const room = GENERATE(false, true);
  Fixture f{{.max_size = room ? 2U : 1U}};
  { Lease const lease = f.acquire(); }
  f.driver->on_finish_reset = [] { return ResetProgress::pending; };
  CHECK(f.refusal() == Reason::timed_out);
  CHECK(f.pool.stats().resetting == 1);
  f.driver->on_finish_reset = [] { return ResetProgress::done; };
  CHECK(f.acquire()->id == (room ? 2 : 1));
  f.require_whole();
}

TEST_CASE("a reset that takes longer than anybody may wait is given up") {
  Fixture f{{.max_size = 1, .min_idle = 1, .connection_timeout = 1ns}};
  while (f.pool.stats().idle == 0) std::this_thread::yield();
  { Lease const lease = f.acquire(); }
  f.driver->on_finish_reset = [] { return ResetProgress::pending; };
  CHECK(f.refusal() == Reason::timed_out);
  while (f.pool.stats().closed != 1) std::this_thread::yield();
  CHECK(f.pool.stats().reset_failures == 1);
}

TEST_CASE("a lease gives back once, whatever is moved where", "[row-6]") {
  Fixture f;
  {
    Lease a = f.acquire();
    Lease b = std::move(a);
    CHECK_FALSE(a);
    a.discard();  // a lease that holds nothing has nothing to discard
    Lease c = f.acquire();
    c = std::move(b);
    CHECK(f.pool.stats().leased == 1);
    CHECK(f.pool.stats().resetting == 1);
    Lease& same = c;
    c = std::move(same);
    CHECK(c->id == 1);
  }
  CHECK(f.pool.stats().leased == 0);
  CHECK(f.pool.stats().total == 2);
  f.require_whole();
}

TEST_CASE("a lease may outlive its pool, and closes its connection then") {
  auto const driver = std::make_shared<Driver>();
  std::optional<Pool> pool{std::in_place, FakeConnector{driver}, PoolOptions{.max_size = 1}};
  Lease lease = pool->acquire(Deadline::never());
  pool.reset();
  CHECK(driver->open == 1);
  { Lease const end = std::move(lease); }
  CHECK(driver->open == 0);
}

TEST_CASE("a closed pool sends away waiters and newcomers, and closes what is idle and what comes back") {
  Fixture f{{.max_size = 2, .max_waiting = 1}};
  std::optional<Lease> held = f.acquire();
  Lease const other = f.acquire();
  auto waiter = std::async(std::launch::async, [&] { return f.refusal(); });
  f.wait_until_waiting(1);
  f.pool.close(0ns);
  f.pool.close(0ns);
  CHECK(waiter.get() == Reason::closed);
  CHECK(f.refusal() == Reason::closed);
  held.reset();
  while (f.pool.stats().closed != 1) std::this_thread::yield();
  CHECK(f.pool.stats().total == 1);
}

TEST_CASE("closing waits for leases, and no longer than its grace") {
  Fixture f;
  std::optional<Lease> held = f.acquire();
  auto const start = Deadline::clock::now();
  f.pool.close(10ms);
  CHECK(Deadline::clock::now() - start >= 10ms);
  auto closing = std::async(std::launch::async, [&] { f.pool.close(std::chrono::hours::max()); });
  held.reset();
  closing.get();
  CHECK(f.driver->open == 0);
}

TEST_CASE("a connection that is opened while the pool closes is closed with it") {
  Fixture f;
  std::latch go{1};
  f.driver->on_connect = [&] { go.wait(); };
  auto waiter = std::async(std::launch::async, [&] { return f.refusal(); });
  while (f.pool.stats().connecting != 1) std::this_thread::yield();
  f.pool.close(0ns);
  CHECK(waiter.get() == Reason::closed);
  go.count_down();
  f.pool.close(std::chrono::hours::max());
  CHECK(f.driver->open == 0);
  CHECK(f.pool.stats().total == 0);
}

TEST_CASE("neither bounds nor books are broken by random failures of every step", "[row-12]") {
  auto const driver = std::make_shared<Driver>();
  std::atomic<unsigned> seed{20};
  auto const one_in = [&](unsigned n) {
    thread_local std::minstd_rand random{++seed};
    return random() % n == 0;
  };
  driver->on_connect = [&] {
    if (one_in(4)) throw std::runtime_error{"connect"};
  };
  driver->on_begin_reset = [&] {
    return one_in(5) ? ResetProgress::failed : one_in(2) ? ResetProgress::done : ResetProgress::pending;
  };
  driver->on_finish_reset = [&] {
    return one_in(5) ? ResetProgress::failed : one_in(5) ? ResetProgress::pending : ResetProgress::done;
  };
  driver->on_alive = [&] { return !one_in(5); };
  driver->on_ping = [&] {
    return one_in(5) ? ResetProgress::failed : one_in(9) ? ResetProgress::pending : ResetProgress::done;
  };
  driver->on_judge = [&] {
    return one_in(9) ? Verdict::evict : one_in(20) ? Verdict::evict_older : Verdict::keep;
  };
  Fixture f{{.max_size = 3,
             .min_idle = 1,
             .max_waiting = 4,
             .max_lifetime = 2ms,
             .keepalive = 1ms,
             .validate_after_idle = 0ns,
             .reconnect_backoff = at_once},
            driver};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        std::stop_source stop;
        if (one_in(8)) stop.request_stop();
        try {
          auto lease = f.pool.acquire(Deadline::after(one_in(3) ? 0us : 200us), {.stop = stop.get_token()});
          if (one_in(6)) lease.discard();
        } catch (ConnectionUnavailable const&) {
        }
      }
    });
  }
  while (f.pool.stats().created < 50) require_adding_up(f.pool.stats());
  threads.clear();
  require_adding_up(f.pool.stats());
  CHECK(f.driver->most_open <= 3);
  f.pool.close(std::chrono::hours::max());
  CHECK(f.pool.stats().total == 0);
  CHECK(f.driver->open == 0);
}
