// SPDX-License-Identifier: MIT
//
// A service through an outage of its database: sixteen threads that go on calling while the server is
// restarted, is away for long, or turns read-only.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <typeinfo>
#include <vector>

#include "catch.hpp"
#include "db_bulkhead/db_bulkhead.hpp"
#include "db_bulkhead/pqxx.hpp"
#include "integration/server.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;
using Clock = Deadline::clock;

namespace {

void control(std::string const& command) {
  char const* const control = std::getenv("DB_BULKHEAD_TEST_SERVER_CONTROL");
  if (control == nullptr)
    throw std::runtime_error{"run by tests/support/own_server.sh, which gives these tests a server"};
  if (std::system((std::string{control} + " " + command).c_str()) != 0)
    throw std::runtime_error{"pg_ctl " + command};
}

constexpr std::size_t pool_size = 8;
constexpr int thread_count = 16;

// Threads that call until they are told to stop, and remember what they got.
class Service {
 public:
  explicit Service(PqxxPool& pool) : bulkhead_{pool, {.concurrent = pool_size, .extra_slots = thread_count}} {
    for (int i = 0; i < thread_count; ++i) threads_.emplace_back([this, i] { call(served_[i]); });
  }
  ~Service() { stop(); }

  void stop() {
    over_ = true;
    threads_.clear();
  }

  /// Returns once every thread was served so often, from now on.
  void wait_until_served(int times) {
    std::vector<int> before;
    for (auto const& served : served_) before.push_back(served);
    for (int i = 0; i < thread_count; ++i) {
      while (served_[i] < before[static_cast<std::size_t>(i)] + times) std::this_thread::sleep_for(1ms);
    }
  }

  int failures() const { return failures_; }
  std::set<std::string> untyped() const {
    std::lock_guard const lock{mutex_};
    return untyped_;
  }

 private:
  void call(std::atomic<int>& served) {
    while (!over_) {
      try {
        bulkhead_.transaction({.queue_wait = 5s, .deadline = Deadline::after(5s)},
                              [](pqxx::dbtransaction& tx) { tx.exec("SELECT pg_sleep(0.001)"); });
        ++served;
      } catch (Error const&) {
        ++failures_;
        std::this_thread::sleep_for(1ms);  // a service has something else to do as well
      } catch (pqxx::failure const&) {     // the callback's own, which leaves as it is
        ++failures_;
      } catch (std::exception const& error) {
        std::lock_guard const lock{mutex_};
        untyped_.insert(std::string{typeid(error).name()} + ": " + error.what());
      }
    }
  }

  DbBulkhead<PqxxPool> bulkhead_;
  std::atomic<bool> over_{false};
  std::atomic<int> served_[thread_count]{};
  std::atomic<int> failures_{0};
  mutable std::mutex mutex_;
  std::set<std::string> untyped_;
  std::vector<std::jthread> threads_;
};

// Asks the server itself how many sessions the pool has, all along.
class SessionMonitor {
 public:
  SessionMonitor() : thread_{[this](std::stop_token const& stop) { watch(stop); }} {}
  int most() const { return most_; }

 private:
  void watch(std::stop_token const& stop) {
    while (!stop.stop_requested()) {
      try {
        Admin admin;
        while (!stop.stop_requested()) {
          int const now =
              admin.exec("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'db_bulkhead'")[0][0]
                  .as<int>();
          most_ = std::max(most_.load(), now);
        }
      } catch (std::exception const&) {  // it is away
        std::this_thread::sleep_for(10ms);
      }
    }
  }

  std::atomic<int> most_{0};
  std::jthread thread_;
};

void require_whole(PqxxPool& pool) {
  auto const stats = settled(pool);
  CHECK(stats.leased == 0);
  CHECK(stats.total == stats.idle + stats.resetting);
  CHECK(stats.created - stats.closed == stats.total);
  std::vector<PqxxLease> all;
  for (std::size_t i = 0; i < stats.max; ++i) all.push_back(pool.acquire(Deadline::after(30s)));
}

}  // namespace

TEST_CASE("a restart under load: every error has its type, and service is full again soon", "[row-44]") {
  PqxxPool pool{test_dsn(), {.max_size = pool_size}};
  SessionMonitor const monitor;
  Service service{pool};
  service.wait_until_served(5);
  for (int round = 0; round < 3; ++round) {
    control("restart -m immediate");
    auto const accepting = Clock::now();
    service.wait_until_served(5);
    std::cout << "  full service again "
              << std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - accepting).count()
              << " ms after the server accepts\n";
  }
  service.stop();
  CHECK(service.untyped().empty());
  CHECK(service.failures() > 0);
  CHECK(monitor.most() <= static_cast<int>(pool_size));
  CHECK(monitor.most() > 0);
  require_whole(pool);
}

TEST_CASE("a long outage: few connects, callers told at once, and then service as before", "[row-36]") {
  PqxxPool pool{test_dsn(), {.max_size = pool_size}};
  Service service{pool};
  service.wait_until_served(5);
  control("stop -m immediate");
  auto const before = pool.stats().connect_failures;
  int const failures = service.failures();
  std::this_thread::sleep_for(10s);
  auto const attempts = pool.stats().connect_failures - before;
  std::cout << "  connects in 10 s of an outage: " << attempts
            << ", callers told at once: " << service.failures() - failures << '\n';
  CHECK(attempts < 20);
  CHECK(attempts > 2);
  CHECK(service.failures() - failures > 1000);
  control("start");
  service.wait_until_served(5);
  service.stop();
  CHECK(service.untyped().empty());
  require_whole(pool);
}

TEST_CASE("a server that turns read-only is found out by its first refused write", "[row-40]") {
  PqxxPool pool{test_dsn(), {.max_size = 4}};
  Admin admin;
  admin.exec("CREATE TABLE demoted (i int)");
  std::vector<int> pids;
  {
    std::vector<PqxxLease> all;
    for (int i = 0; i < 4; ++i) all.push_back(pool.acquire(Deadline::after(30s)));
    for (auto& lease : all) pids.push_back(lease->backendpid());
  }
  DbBulkhead bulkhead{pool, {.concurrent = 4}};
  auto const write = [&] {
    bulkhead.transaction({}, [](pqxx::dbtransaction& tx) { tx.exec("INSERT INTO demoted VALUES (1)"); });
  };
  write();
  admin.exec("ALTER SYSTEM SET default_transaction_read_only = on");
  admin.exec("SELECT pg_reload_conf()");
  for (bool writable = true; writable;) {
    try {
      write();
    } catch (pqxx::sql_error const&) {
      writable = false;
    }
  }
  CHECK(settled(pool).total == 0);
  admin.exec("SET default_transaction_read_only = off");
  admin.exec("ALTER SYSTEM RESET default_transaction_read_only");
  admin.exec("SELECT pg_reload_conf()");
  while (admin
             .exec("SELECT setting FROM pg_settings WHERE name = 'default_transaction_read_only' AND "
                   "reset_val = 'off'")
             .empty())
    std::this_thread::yield();
  pool.evict_all();
  write();
}

TEST_CASE("a password that has changed: sessions go on, new ones use the new one, and nobody hammers the old",
          "[row-39]") {
  Admin admin;
  admin.exec("CREATE ROLE rotated LOGIN PASSWORD 'first'");
  // The first line that fits counts: this role has to name its password.
  auto const hba = admin.exec("SHOW hba_file")[0][0].as<std::string>();
  admin.exec("CREATE TEMP TABLE hba (line text)");
  admin.exec("COPY hba FROM '" + hba + "'");
  admin.exec(
      "COPY (SELECT 'host all rotated 127.0.0.1/32 scram-sha-256' UNION ALL SELECT line FROM hba) TO '" +
      hba + "'");
  admin.exec("SELECT pg_reload_conf()");
  while (admin.exec("SELECT 1 FROM pg_hba_file_rules WHERE 'rotated' = ANY (user_name)").empty())
    std::this_thread::yield();

  std::atomic<int> asked{0};
  std::mutex mutex;
  std::string password = "first";
  PqxxPool pool{[&] {
                  ++asked;
                  std::lock_guard const lock{mutex};
                  return test_dsn_with("user", "rotated") + " password=" + password;
                },
                {.max_size = 2, .max_lifetime = 10min}};
  PqxxLease lease = pool.acquire(Deadline::after(30s));
  admin.exec("ALTER ROLE rotated PASSWORD 'second'");
  pqxx::nontransaction{*lease}.exec("SELECT 1");  // a session outlives its password
  std::string message;
  for (int i = 0; i < 100; ++i) {
    try {
      static_cast<void>(pool.acquire(Deadline::after(30s)));
      FAIL("the old password was taken");
    } catch (ConnectionUnavailable const& refused) {
      message = refused.what();
    }
  }
  CHECK(asked == 2);
  CHECK(message.find("28P01") != std::string::npos);
  CHECK(message.find("first") == std::string::npos);
  {
    std::lock_guard const lock{mutex};
    password = "second";
  }
  pool.evict_all();  // what whoever rotates calls: it tries again at once
  PqxxLease const fresh = pool.acquire(Deadline::after(30s));
  CHECK(asked == 3);
}
