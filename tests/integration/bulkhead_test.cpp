// SPDX-License-Identifier: MIT
//
// The bulkhead over PqxxPool on a real server: what a caller is told, and what the
// tables hold then.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <latch>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include "catch.hpp"
#include "db_bulkhead/db_bulkhead.hpp"
#include "db_bulkhead/pqxx.hpp"
#include "server.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;
using Tx = pqxx::dbtransaction;

namespace {

struct MyError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr auto no_work = [](Tx&) {};

// A pool, a bulkhead over it, and a table of its own for each test.
struct Fixture {
  explicit Fixture(Limits limits = {.concurrent = 2, .extra_slots = 2}, PoolOptions options = {.max_size = 2})
      : pool{test_dsn(), std::move(options)}, bulkhead{pool, limits} {}

  // Permits, slots and connections are whole: B + Q fresh calls are admitted, one more is not, all are
  // served.
  void require_whole() {
    Limits const limits = bulkhead.limits();
    REQUIRE(bulkhead.state() == GateState{0, 0, limits, false});
    REQUIRE(settled(pool).leased == 0);
    std::promise<void> release;
    auto const released = release.get_future().share();
    std::vector<std::future<int>> calls;
    for (std::size_t i = 0; i < limits.total(); ++i) {
      calls.push_back(std::async(std::launch::async, [&] {
        return bulkhead.transaction(1min, [&](Tx& tx) {
          released.wait();
          return tx.exec("SELECT 1")[0][0].as<int>();
        });
      }));
      while (bulkhead.state().running + bulkhead.state().waiting <= i) std::this_thread::yield();
    }
    REQUIRE(bulkhead.try_admit(1min).rejection() == Rejection::full);
    release.set_value();
    for (auto& call : calls) REQUIRE(call.get() == 1);
    auto const stats = settled(pool);
    REQUIRE(stats.leased == 0);
    REQUIRE(stats.created - stats.closed == stats.total);
  }

  std::string insert(int id) const {
    return "INSERT INTO " + table.name() + " VALUES (" + std::to_string(id) + ")";
  }
  int rows() { return table.count(); }

  TestTable table{"id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED"};
  PqxxPool pool;
  DbBulkhead<PqxxPool> bulkhead;
};

int backend_pid(Tx& tx) {
  return tx.exec("SELECT pg_backend_pid()")[0][0].as<int>();
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

TEST_CASE("a commit is visible to others once the value is") {
  Fixture f;
  int const value = f.bulkhead.transaction(0ns, [&](Tx& tx) {
    tx.exec(f.insert(1));
    REQUIRE(f.rows() == 0);
    return 42;
  });
  REQUIRE(value == 42);
  REQUIRE(f.rows() == 1);
  f.require_whole();
}

TEST_CASE("whatever leaves the callback rolls everything back and leaves as it is", "[row-56]") {
  Fixture f;
  auto const insert_and_throw = [&](auto thrower) {
    f.bulkhead.transaction(0ns, [&](Tx& tx) {
      tx.exec(f.insert(1));
      thrower(tx);
    });
  };
  REQUIRE_THROWS_AS(insert_and_throw([](Tx& tx) { tx.exec("SELECT no_such_column"); }), pqxx::sql_error);
  REQUIRE_THROWS_AS(insert_and_throw([](Tx&) { throw MyError{"mine"}; }), MyError);
  REQUIRE_THROWS_AS(insert_and_throw([](Tx&) { throw 17; }), int);
  REQUIRE(f.rows() == 0);
  REQUIRE(settled(f.pool).created == 1);  // the connection is good and was kept
  f.require_whole();
}

TEST_CASE("a call that is refused opens no connection", "[row-13]") {
  Fixture f{{.concurrent = 1}};
  {
    Permit const held = f.bulkhead.admit(0ns);
    REQUIRE(caught<AdmissionRejected>([&] { f.bulkhead.transaction(1h, no_work); }).reason() ==
            Rejection::full);
  }
  REQUIRE(settled(f.pool).created == 0);
  f.require_whole();
}

TEST_CASE("waiting ends by time-out and by stop, and the queue serves the next") {
  Fixture f{{.concurrent = 1, .extra_slots = 2}};
  f.bulkhead.transaction(0ns, [&](Tx&) {
    std::stop_source stop;
    auto stopped = std::async(std::launch::async, [&] {
      return caught<AdmissionRejected>(
                 [&] { f.bulkhead.transaction({.queue_wait = 1h, .stop = stop.get_token()}, no_work); })
          .reason();
    });
    auto timed_out = std::async(std::launch::async, [&] {
      return caught<AdmissionRejected>([&] { f.bulkhead.transaction(5ms, no_work); }).reason();
    });
    REQUIRE(timed_out.get() == Rejection::timed_out);
    stop.request_stop();
    REQUIRE(stopped.get() == Rejection::cancelled);
  });
  f.require_whole();
}

TEST_CASE("after a statement_timeout the same connection goes on") {
  Fixture f{{.concurrent = 1}, {.max_size = 1}};
  int const pid = f.bulkhead.transaction(0ns, backend_pid);
  for (int i = 0; i < 3; ++i) {
    auto const timed_out = [&] {
      f.bulkhead.transaction({.statement_timeout = 50ms}, [](Tx& tx) { tx.exec("SELECT pg_sleep(20)"); });
    };
    try {
      timed_out();
      FAIL("must throw");
    } catch (pqxx::sql_error const& error) {
      REQUIRE(std::string{error.sqlstate()} == "57014");
    }
    REQUIRE(f.bulkhead.transaction(0ns, backend_pid) == pid);
  }
  f.require_whole();
}

TEST_CASE("the deadline reaches each statement through the server") {
  Fixture f;
  try {
    f.bulkhead.transaction({.deadline = Deadline::after(100ms)},
                           [](Tx& tx) { tx.exec("SELECT pg_sleep(20)"); });
    FAIL("must throw");
  } catch (pqxx::sql_error const& error) {
    REQUIRE(std::string{error.sqlstate()} == "57014");
  }
  f.require_whole();
}

TEST_CASE("a deadline never lengthens the session's own statement_timeout") {
  Fixture f{{.concurrent = 1}, {.max_size = 1, .init_sql = "SET statement_timeout = '70ms'"}};
  auto const timeout = [](Tx& tx) { return std::string{tx.exec("SHOW statement_timeout")[0][0].c_str()}; };
  REQUIRE(f.bulkhead.transaction({.deadline = Deadline::after(1h)}, timeout) == "70ms");
  REQUIRE(f.bulkhead.transaction({.deadline = Deadline::after(1h), .statement_timeout = 90ms}, timeout) ==
          "90ms");
  REQUIRE(f.bulkhead.transaction({.deadline = Deadline::after(60ms)}, timeout) != "70ms");
}

TEST_CASE("a session that does not finish its reset stands in nobody's way") {
  std::string const key = std::to_string(unique_number());
  Fixture f{{.concurrent = 2}, {.max_size = 2, .init_sql = "SELECT pg_advisory_xact_lock(" + key + ")"}};
  Admin other;
  int good_pid = 0;
  {
    auto stuck = f.pool.acquire(Deadline::never());
    {
      auto const good = f.pool.acquire(Deadline::never());
      good_pid = good->backendpid();
    }
    wait_until_reset(good_pid);
    other.exec("SELECT pg_advisory_lock(" + key + ")");
  }  // the newest, whose reset waits for the lock
  auto const call = [&](std::chrono::milliseconds time) {
    return f.bulkhead.transaction({.deadline = Deadline::after(time)}, backend_pid);
  };
  REQUIRE(caught<ConnectionUnavailable>([&] { call(50ms); }).reason() ==
          ConnectionUnavailable::Reason::timed_out);
  REQUIRE(call(1min) == good_pid);
  other.exec("SELECT pg_advisory_unlock(" + key + ")");
  f.require_whole();
}

TEST_CASE("a gate wider than the pool waits in the pool, bounded by its time-out") {
  Fixture f{{.concurrent = 2}, {.max_size = 1, .max_waiting = 1, .connection_timeout = 500ms}};
  f.bulkhead.transaction(0ns, [&](Tx&) {
    std::thread{[&] {
      auto const unavailable = caught<ConnectionUnavailable>([&] { f.bulkhead.transaction(0ns, no_work); });
      REQUIRE(unavailable.reason() == ConnectionUnavailable::Reason::timed_out);
      REQUIRE(unavailable.effect() == Effect::none);
    }}.join();
  });
  REQUIRE(f.bulkhead.available() == 2);
  REQUIRE(f.bulkhead.transaction(0ns, [](Tx&) { return 1; }) == 1);
}

TEST_CASE("a pool with no room to wait refuses at once, and costs no permit") {
  Fixture f{{.concurrent = 2}, {.max_size = 1, .max_waiting = 0}};
  f.bulkhead.transaction(0ns, [&](Tx&) {
    std::thread{[&] {
      REQUIRE(caught<ConnectionUnavailable>([&] { f.bulkhead.transaction(0ns, no_work); }).reason() ==
              ConnectionUnavailable::Reason::full);
    }}.join();
  });
  REQUIRE(f.bulkhead.available() == 2);
}

TEST_CASE("work that goes on after its caller gave up keeps its permit and its connection", "[row-4]") {
  Fixture f{{.concurrent = 1}};
  std::latch started{1};
  std::promise<void> release;
  auto work = std::async(std::launch::async, [&] {
    f.bulkhead.transaction(0ns, [&](Tx& tx) {
      tx.exec(f.insert(1));
      started.count_down();
      release.get_future().wait();
    });
  });
  started.wait();
  REQUIRE(work.wait_for(1ms) == std::future_status::timeout);
  REQUIRE(f.bulkhead.try_admit(0ns).rejection() == Rejection::full);
  REQUIRE(settled(f.pool).leased == 1);
  release.set_value();
  work.get();
  REQUIRE(f.rows() == 1);
  f.require_whole();
}

TEST_CASE("a swallowed SQL error ends as rolled back, with its SQLSTATE", "[row-55]") {
  Fixture f;
  auto const error = caught<TransactionRolledBack>([&] {
    f.bulkhead.transaction(0ns, [&](Tx& tx) {
      tx.exec(f.insert(1));
      try {
        tx.exec("SELECT 1/0");
      } catch (pqxx::sql_error const&) {
      }
    });
  });
  REQUIRE(error.reason() == TransactionRolledBack::Reason::server_refused);
  REQUIRE(error.sqlstate() == "22012");
  REQUIRE(error.effect() == Effect::none);
  REQUIRE(f.rows() == 0);
  f.require_whole();
}

TEST_CASE("a callback that ends the transaction itself is told so, whatever it does to look innocent",
          "[row-55]") {
  Fixture f;
  auto const text = GENERATE(as<std::string>{}, "ROLLBACK", "ROLLBACK; BEGIN", "ROLLBACK AND CHAIN", "ABORT",
                             "COMMIT", "COMMIT; BEGIN", "COMMIT AND CHAIN", "END", "END AND CHAIN", "BEGIN",
                             "START TRANSACTION", "COMMIT; START TRANSACTION ISOLATION LEVEL SERIALIZABLE");
  INFO(text);
  bool const throws = GENERATE(false, true);
  auto const violation = [&]() -> std::exception_ptr {
    try {
      f.bulkhead.transaction(0ns, [&](Tx& tx) {
        tx.exec(f.insert(1));
        tx.exec(text);
        if (throws) throw MyError{"mine"};
      });
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }();
  REQUIRE(violation);
  try {
    std::rethrow_exception(violation);
  } catch (BoundaryViolated const& error) {
    REQUIRE(error.effect() == Effect::unknown);
    if (throws) REQUIRE_THROWS_AS(std::rethrow_if_nested(error), MyError);
  }
  bool const durable = text.rfind("COMMIT", 0) == 0 || text.rfind("END", 0) == 0;
  REQUIRE(f.rows() == (durable ? 1 : 0));
  REQUIRE(settled(f.pool).closed == 1);  // a connection with such a past is not lent again
  f.require_whole();
}

TEST_CASE("libpqxx's own commit and abort are the callback's to leave alone") {
  Fixture f;
  REQUIRE_THROWS_AS(f.bulkhead.transaction(0ns,
                                           [&](Tx& tx) {
                                             tx.exec(f.insert(1));
                                             tx.commit();
                                           }),
                    BoundaryViolated);
  REQUIRE_THROWS_AS(f.bulkhead.transaction(0ns,
                                           [&](Tx& tx) {
                                             tx.exec(f.insert(2));
                                             try {
                                               tx.commit();
                                             } catch (std::exception const&) {
                                             }
                                           }),
                    BoundaryViolated);
  REQUIRE_THROWS_AS(f.bulkhead.transaction(0ns,
                                           [&](Tx& tx) {
                                             tx.exec(f.insert(3));
                                             tx.abort();
                                           }),
                    BoundaryViolated);
  REQUIRE(f.rows() == 0);
  f.require_whole();
}

TEST_CASE("a subtransaction may fail and the rest commits") {
  Fixture f;
  f.bulkhead.transaction(0ns, [&](Tx& tx) {
    tx.exec(f.insert(1));
    try {
      pqxx::subtransaction inner{tx, "inner"};
      inner.exec(f.insert(2));
      inner.exec("SELECT 1/0");
    } catch (pqxx::sql_error const&) {
    }
    tx.exec(f.insert(3));
  });
  REQUIRE(f.rows() == 2);
  REQUIRE(settled(f.pool).created == 1);
  f.require_whole();
}

TEST_CASE("what a stream wrote commits with the rest, and what a failed one wrote does not") {
  Fixture f{{.concurrent = 1}, {.max_size = 1}};
  auto const write = [&](Tx& tx, int id) {
#if PQXX_VERSION_MAJOR >= 7
    auto stream = pqxx::stream_to::table(tx, {f.table.name()});
    stream.write_values(id);
#else
    pqxx::stream_to stream{tx, f.table.name()};
    stream << std::make_tuple(id);
#endif
    stream.complete();
  };
  f.bulkhead.transaction(0ns, [&](Tx& tx) { write(tx, 1); });
  REQUIRE(f.rows() == 1);
  REQUIRE_THROWS_AS(f.bulkhead.transaction(0ns,
                                           [&](Tx& tx) {
                                             write(tx, 2);
                                             throw MyError{"mine"};
                                           }),
                    MyError);
  REQUIRE(f.rows() == 1);
  REQUIRE(settled(f.pool).created == 1);
  f.require_whole();
}

TEST_CASE("a stream that the server refuses costs no connection") {
  Fixture f{{.concurrent = 1}, {.max_size = 1}};
  auto const write_wrong = [&](Tx& tx) {
#if PQXX_VERSION_MAJOR >= 7
    auto stream = pqxx::stream_to::table(tx, {f.table.name()});
    stream.write_values("not a number");
#else
    pqxx::stream_to stream{tx, f.table.name()};
    stream << std::make_tuple("not a number");
#endif
    stream.complete();
  };
  auto const swallow = [&](Tx& tx) {
    try {
      write_wrong(tx);
    } catch (std::exception const&) {
    }
  };
  // Often: whether the server's last word has arrived by then is a matter of luck.
  for (int i = 0; i < 50; ++i) {
    REQUIRE_THROWS(f.bulkhead.transaction(0ns, write_wrong));
    REQUIRE(caught<TransactionRolledBack>([&] { f.bulkhead.transaction(0ns, swallow); }).sqlstate() ==
            "22P02");
  }
  REQUIRE(f.rows() == 0);
  REQUIRE(settled(f.pool).created == 1);
  f.require_whole();
}

TEST_CASE("an error of COPY that was swallowed ends as rolled back, with its SQLSTATE") {
  Fixture f{{.concurrent = 1}, {.max_size = 1}};
  auto const error = caught<TransactionRolledBack>([&] {
    f.bulkhead.transaction(0ns, [&](Tx& tx) {
      tx.exec(f.insert(1));
      try {
        tx.exec("COPY " + f.table.name() + " FROM '/nowhere'");
      } catch (pqxx::sql_error const&) {
      }
    });
  });
  REQUIRE(error.sqlstate() == "58P01");
  REQUIRE(f.rows() == 0);
  REQUIRE(settled(f.pool).closed == 0);
  f.require_whole();
}

TEST_CASE("a constraint that fails at COMMIT is rolled back, with its SQLSTATE, and the connection kept",
          "[row-58]") {
  Fixture f{{.concurrent = 1}, {.max_size = 1}};
  int const pid = f.bulkhead.transaction(0ns, backend_pid);
  auto const error = caught<TransactionRolledBack>([&] {
    f.bulkhead.transaction(0ns, [&](Tx& tx) {
      tx.exec(f.insert(1));
      tx.exec(f.insert(1));
    });
  });
  REQUIRE(error.sqlstate() == "23505");
  REQUIRE(error.effect() == Effect::none);
  REQUIRE(f.rows() == 0);
  REQUIRE(f.bulkhead.transaction(0ns, backend_pid) == pid);
  f.require_whole();
}

TEST_CASE("a backend killed in the callback: the caller's exception leaves and the next call is served",
          "[row-7]") {
  Fixture f;
  for (int i = 0; i < 3; ++i) {
    REQUIRE_THROWS_AS(f.bulkhead.transaction(0ns,
                                             [&](Tx& tx) {
                                               tx.exec(f.insert(i));
                                               kill_backend(backend_pid(tx));
                                               tx.exec("SELECT 1");
                                             }),
                      pqxx::broken_connection);
    REQUIRE_THROWS_AS(f.bulkhead.transaction(0ns,
                                             [&](Tx& tx) {
                                               kill_backend(backend_pid(tx));
                                               throw MyError{"mine"};
                                             }),
                      MyError);
  }
  REQUIRE(f.rows() == 0);
  f.require_whole();
}

TEST_CASE("a backend killed before COMMIT was sent: certainly not committed", "[row-58]") {
  Fixture f;
  for (int i = 0; i < 3; ++i) {
    auto const error = caught<TransactionRolledBack>([&] {
      f.bulkhead.transaction(0ns, [&](Tx& tx) {
        tx.exec(f.insert(i));
        kill_backend(backend_pid(tx));
      });
    });
    REQUIRE(error.reason() == TransactionRolledBack::Reason::connection_lost);
    REQUIRE(error.effect() == Effect::none);
  }
  REQUIRE(f.rows() == 0);
  f.require_whole();
}

TEST_CASE("a backend killed while COMMIT is under way: in doubt, and never run again", "[row-57]") {
  Fixture f;
  AdvisoryLock const held;
  f.table.make_commit_wait_for(held);
  int runs = 0;
  std::promise<int> pid;
  std::jthread const killer{[&, future = pid.get_future()]() mutable {
    int const victim = future.get();
    wait_until_blocked(victim);
    kill_backend(victim);
  }};
  auto const error = caught<CommitOutcomeUnknown>([&] {
    f.bulkhead.transaction(0ns, [&](Tx& tx) {
      ++runs;
      tx.exec(f.insert(1));
      pid.set_value(backend_pid(tx));
    });
  });
  REQUIRE(error.effect() == Effect::unknown);
  REQUIRE(runs == 1);
  REQUIRE(settled(f.pool).closed == 1);
  f.require_whole();
}

// Not with UndefinedBehaviorSanitizer, which runs together with this one: it opens descriptors of its own to
// look at a vptr, and takes it for broken where it cannot.
#if defined(__SANITIZE_ADDRESS__)
#define DB_BULKHEAD_TEST_SPARES_DESCRIPTORS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DB_BULKHEAD_TEST_SPARES_DESCRIPTORS 1
#endif
#endif
#if !defined(DB_BULKHEAD_TEST_SPARES_DESCRIPTORS)
TEST_CASE("an answer to COMMIT that cannot be read is in doubt, although the server has committed",
          "[row-57]") {
  Fixture f;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  try {
    f.bulkhead.transaction(0ns, [&](Tx& tx) {
      tx.exec(f.insert(1));
      // From here on poll() refuses to wait for more than one descriptor, which reading an answer does.
      rlimit few = before;
      few.rlim_cur = 1;
      ::setrlimit(RLIMIT_NOFILE, &few);
    });
    FAIL("must throw");
  } catch (CommitOutcomeUnknown const& error) {
    ::setrlimit(RLIMIT_NOFILE, &before);
    REQUIRE(error.effect() == Effect::unknown);
    REQUIRE_THROWS_AS(std::rethrow_if_nested(error), std::system_error);
  }
  while (f.rows() == 0) std::this_thread::yield();
  f.require_whole();
}
#endif

TEST_CASE("hundreds of failures of every kind leave permits, slots and connections whole") {
  Fixture f{{.concurrent = 3, .extra_slots = 4}, {.max_size = 3}};
  std::atomic<int> id{0};
  std::atomic<int> committed{0};
  std::vector<std::function<void(Tx&)>> const ways{
      [&](Tx& tx) { tx.exec(f.insert(++id)); },
      [](Tx&) { throw MyError{"mine"}; },
      [](Tx&) { throw 17; },
      [](Tx& tx) { tx.exec("SELECT no_such_column"); },
      [](Tx& tx) { tx.exec("ROLLBACK"); },
      [&](Tx& tx) {
        tx.exec(f.insert(++id));
        try {
          tx.exec("SELECT 1/0");
        } catch (std::exception const&) {
        }
      },
      [](Tx& tx) { kill_backend(backend_pid(tx)); },
      [&](Tx& tx) {
        int const twice = ++id;
        tx.exec(f.insert(twice));
        tx.exec(f.insert(twice));
      },
      [](Tx& tx) { tx.exec("SELECT pg_sleep(5)"); },
  };
  {
    std::vector<std::jthread> callers;
    for (std::size_t t = 0; t < 6; ++t) {
      callers.emplace_back([&, t] {
        for (std::size_t i = 0; i < 45; ++i) {
          std::size_t const way = (t + i) % ways.size();
          try {
            f.bulkhead.transaction(
                {.queue_wait = 1min, .statement_timeout = way + 1 == ways.size() ? 5ms : 10s}, ways[way]);
            if (way == 0) ++committed;
          } catch (...) {
          }
        }
      });
    }
  }
  REQUIRE(committed == 30);
  REQUIRE(f.rows() == committed);
  f.require_whole();
}

TEST_CASE("under stress of 64 threads every commit is there and nothing else", "[stress]") {
  Fixture f{{.concurrent = 4, .extra_slots = 24}, {.max_size = 4}};
  std::atomic<int> committed{0};
  std::atomic<int> refused{0};
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  {
    std::vector<std::jthread> callers;
    for (int t = 0; t < 64; ++t) {
      callers.emplace_back([&, t] {
        for (int i = 0; i < 12; ++i) {
          try {
            f.bulkhead.transaction(std::chrono::milliseconds{(t * 7 + i) % 30}, [&](Tx& tx) {
              int const now = ++inside;
              int seen = most;
              while (now > seen && !most.compare_exchange_weak(seen, now)) {
              }
              tx.exec(f.insert(t * 1000 + i));
              --inside;
              if ((t + i) % 5 == 0) throw MyError{"mine"};
            });
            ++committed;
          } catch (AdmissionRejected const&) {
            ++refused;
          } catch (MyError const&) {
          }
        }
      });
    }
    for (int i = 0; i < 20; ++i) {
      f.bulkhead.resize({.concurrent = 1 + static_cast<std::size_t>(i) % 4, .extra_slots = 24});
      auto const state = f.bulkhead.state();
      REQUIRE(state.running <= 4);
      std::this_thread::yield();
    }
    f.bulkhead.resize({.concurrent = 4, .extra_slots = 24});
  }
  REQUIRE(most <= 4);
  REQUIRE(f.rows() == committed);
  f.require_whole();
}
