// SPDX-License-Identifier: MIT
//
// The life of a pool's connections, on a real server: when they are opened, what ends them, who is told.
#include <atomic>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <latch>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "db_bulkhead/db_bulkhead.hpp"
#include "db_bulkhead/pqxx.hpp"
#include "server.hpp"
#include "silent_server.hpp"
#include "support/fault_proxy.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;
using Reason = ConnectionUnavailable::Reason;

namespace {

int pid_of(PqxxPool& pool) {
  return pool.acquire(Deadline::after(30s))->backendpid();
}

std::string ask(PqxxLease& lease, std::string const& sql) {
  pqxx::nontransaction tx{*lease};
  return tx.exec(sql)[0][0].as<std::string>();
}

// Runs as a borrower, who swallows the error.
void run(PqxxPool& pool, std::vector<std::string> const& statements) {
  PqxxLease lease = pool.acquire(Deadline::after(30s));
  for (std::string const& sql : statements) {
    try {
      pqxx::nontransaction tx{*lease};
      tx.exec(sql);
    } catch (std::exception const&) {
    }
  }
}

std::optional<Reason> refusal(PqxxPool& pool, Deadline deadline = Deadline::after(30s)) {
  try {
    static_cast<void>(pool.acquire(deadline));
  } catch (ConnectionUnavailable const& refused) {
    return refused.reason();
  }
  return std::nullopt;
}

std::string message_of_refusal(PqxxPool& pool) {
  try {
    static_cast<void>(pool.acquire(Deadline::after(30s)));
  } catch (ConnectionUnavailable const& refused) {
    return refused.what();
  }
  return {};
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::ptrdiff_t entries_of(char const* directory) {
  return std::distance(std::filesystem::directory_iterator{directory}, std::filesystem::directory_iterator{});
}

// What the pool's threads and a test's thread both touch.
struct Reports {
  void add(LeakReport const& report) {
    std::lock_guard const lock{mutex};
    all.push_back(report);
  }
  std::size_t count() {
    std::lock_guard const lock{mutex};
    return all.size();
  }
  std::mutex mutex;
  std::vector<LeakReport> all;
};

}  // namespace

TEST_CASE("a thousand borrows, one after the other, open one connection") {
  PqxxPool pool{test_dsn(), {.max_size = 8}};
  for (int i = 0; i < 1000; ++i) static_cast<void>(pool.acquire(Deadline::after(30s)));
  CHECK(settled(pool).created == 1);
}

TEST_CASE("a burst of 200 callers opens as many connections as there may be, and serves them all",
          "[row-29]") {
  PqxxPool pool{test_dsn(), {.max_size = 8, .max_waiting = 200}};
  std::latch all_lent{8};
  std::atomic<int> served{0};
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 200; ++i) {
      callers.emplace_back([&] {
        PqxxLease const lease = pool.acquire(Deadline::after(30s));
        if (served.fetch_add(1) < 8) all_lent.arrive_and_wait();
      });
    }
  }
  CHECK(served == 200);
  auto const stats = settled(pool);
  CHECK(stats.created == 8);
  CHECK(stats.total == 8);
}

TEST_CASE("min_idle connections are there before anybody asks, and are replaced when they are lost",
          "[row-50]") {
  PqxxPool pool{test_dsn(), {.max_size = 4, .min_idle = 2}};
  while (pool.stats().idle != 2) std::this_thread::yield();
  {
    PqxxLease lease = pool.acquire(Deadline::after(30s));
    while (pool.stats().idle != 2) std::this_thread::yield();
    lease.discard();
  }
  while (pool.stats().total != 2) std::this_thread::yield();
  CHECK(settled(pool).created == 3);
}

TEST_CASE("what is idle for too long is closed, down to min_idle") {
  PqxxPool pool{test_dsn(), {.max_size = 4, .min_idle = 1, .idle_timeout = 30ms}};
  {
    std::vector<PqxxLease> all;
    for (int i = 0; i < 4; ++i) all.push_back(pool.acquire(Deadline::after(30s)));
  }
  while (pool.stats().total > 1) std::this_thread::yield();
  PqxxLease const lease = pool.acquire(Deadline::after(30s));
  CHECK(pool.stats().leased == 1);
}

TEST_CASE("a connection that is too old is replaced, never under its borrower", "[row-33]") {
  PqxxPool pool{test_dsn(), {.max_size = 1, .max_lifetime = 50ms, .lifetime_jitter = 0ns}};
  PqxxLease lease = pool.acquire(Deadline::after(30s));
  int const pid = lease->backendpid();
  auto const old = Deadline::after(60ms);
  while (!old.passed()) CHECK(ask(lease, "SELECT pg_backend_pid()") == std::to_string(pid));
  { PqxxLease const end = std::move(lease); }
  CHECK(pid_of(pool) != pid);
  CHECK(settled(pool).closed >= 1);
}

TEST_CASE("keepalive proves idle connections, and takes out the dead ones before anybody borrows them") {
  PqxxPool pool{test_dsn(), {.max_size = 2, .min_idle = 2, .keepalive = 20ms}};
  while (pool.stats().idle != 2) std::this_thread::yield();
  kill_backend(pid_of(pool));
  while (pool.stats().validation_failures + pool.stats().reset_failures == 0) std::this_thread::yield();
  while (settled(pool).total != 2) std::this_thread::yield();
  CHECK(settled(pool).created == 3);
}

TEST_CASE("an error that says nothing about the connection costs none", "[row-41]") {
  PqxxPool pool{test_dsn(), {.max_size = 1}};
  int const pid = pid_of(pool);
  for (int i = 0; i < 20; ++i) {
    run(pool, {"SET statement_timeout = 1; SELECT pg_sleep(10)", "SELECT no_such_column", "SELECT 1/0",
               "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$", "DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$",
               "DO $$ BEGIN RAISE SQLSTATE '55P03'; END $$", "DO $$ BEGIN RAISE SQLSTATE '23505'; END $$"});
  }
  CHECK(pid_of(pool) == pid);
  CHECK(settled(pool).closed == 0);
}

TEST_CASE("an error after which a connection is of no use costs it", "[row-41]") {
  auto const code = GENERATE("57P01", "57P02", "57P05", "08006", "25P03", "0A000");
  CAPTURE(code);
  PqxxPool pool{test_dsn(), {.max_size = 1}};
  int const pid = pid_of(pool);
  run(pool, {"DO $$ BEGIN RAISE SQLSTATE '" + std::string{code} + "'; END $$"});
  CHECK(pid_of(pool) != pid);
}

TEST_CASE("a prepared statement whose result has changed its type fails once", "[row-42]") {
  TestTable table{"id int"};
  PqxxPool pool{test_dsn(), {.max_size = 1}};
  run(pool, {"PREPARE all_of_it AS SELECT * FROM " + table.name(), "EXECUTE all_of_it"});
  Admin{}.exec("ALTER TABLE " + table.name() + " ADD COLUMN more int");
  run(pool, {"EXECUTE all_of_it"});
  PqxxLease lease = pool.acquire(Deadline::after(30s));
  CHECK(ask(lease, "SELECT count(*) FROM pg_prepared_statements") == "0");
}

TEST_CASE("which errors cost a connection is the user's to say, both ways", "[row-41]") {
  std::vector<std::string> asked;
  PqxxPool pool{test_dsn(), {.max_size = 1, .eviction = [&](std::string_view sqlstate, bool evict) {
                               asked.emplace_back(std::string{sqlstate} + (evict ? " evict" : " keep"));
                               return sqlstate == "22012";
                             }}};
  int const pid = pid_of(pool);
  run(pool, {"DO $$ BEGIN RAISE SQLSTATE '0A000'; END $$"});
  CHECK(pid_of(pool) == pid);
  run(pool, {"SELECT 1/0", "SELECT 1/0"});
  CHECK(pid_of(pool) != pid);
  CHECK(asked == std::vector<std::string>{"0A000 evict", "22012 keep"});
}

TEST_CASE("a session that cannot write any more ends all that are older", "[row-40]") {
  TestTable table{"id int"};
  PqxxPool pool{test_dsn(), {.max_size = 3}};
  std::string const insert = "INSERT INTO " + table.name() + " VALUES (1)";
  std::optional<PqxxLease> other = pool.acquire(Deadline::after(30s));
  std::optional<PqxxLease> idle = pool.acquire(Deadline::after(30s));
  int const other_pid = (*other)->backendpid(), idle_pid = (*idle)->backendpid();
  SECTION("where writing was expected") {
    PqxxLease demoted = pool.acquire(Deadline::after(30s));
    idle.reset();
    pqxx::nontransaction tx{*demoted};
    tx.exec("SET default_transaction_read_only = on");
    CHECK_THROWS(tx.exec(insert));
  }
  SECTION("not where the transaction was to be read-only") {
    idle.reset();
    DbBulkhead bulkhead{pool, {.concurrent = 1}};
    CHECK_THROWS(bulkhead.transaction({.access = Access::read_only},
                                      [&](pqxx::dbtransaction& tx) { tx.exec(insert); }));
    CHECK(settled(pool).closed == 0);
    return;
  }
  other.reset();
  CHECK(settled(pool).total == 0);
  int const fresh = pid_of(pool);
  CHECK((fresh != other_pid && fresh != idle_pid));
}

TEST_CASE("a server that is read-only from the first is no failover", "[row-40]") {
  TestTable table{"id int"};
  PqxxPool pool{test_dsn(), {.max_size = 1, .init_sql = "SET default_transaction_read_only = on"}};
  int const pid = pid_of(pool);
  run(pool, {"INSERT INTO " + table.name() + " VALUES (1)"});
  CHECK(pid_of(pool) == pid);
}

TEST_CASE("a loan that lasts is reported once, and once more when it comes back", "[row-48]") {
  Reports reports;
  PqxxPool pool{test_dsn(), {.max_size = 2, .leak_threshold = 10ms, .on_leak = [&](LeakReport const& r) {
                               reports.add(r);
                             }}};
  { PqxxLease const brief = pool.acquire(Deadline::after(30s), {.leak_threshold = 10min}); }
  int pid = 0;
  unsigned line = 0;
  {
    PqxxLease lease = pool.acquire(Deadline::after(30s), {.label = "orders"});
    line = SourceLocation::current().line() - 1;
    pid = lease->backendpid();
    while (reports.count() == 0) std::this_thread::yield();
    CHECK(ask(lease, "SELECT 42") == "42");  // it is reported, and nothing else
    CHECK(pool.stats().leaks_suspected == 1);
  }
  REQUIRE(reports.count() == 2);
  for (LeakReport const& report : reports.all) {
    CHECK(report.label == "orders");
    CHECK(report.backend_pid == pid);
    CHECK(report.age >= 10ms);
    CHECK(report.site.line() == line);
    CHECK(contains(report.site.file_name(), "pool_life_test.cpp"));
  }
  CHECK_FALSE(reports.all[0].came_back);
  CHECK(reports.all[1].came_back);
}

TEST_CASE("a transaction that lasts is reported with its label and where it was called", "[row-48]") {
  Reports reports;
  PqxxPool pool{test_dsn(), {.max_size = 1, .leak_threshold = 1ms, .on_leak = [&](LeakReport const& r) {
                               reports.add(r);
                             }}};
  DbBulkhead bulkhead{pool, {.concurrent = 1}};
  bulkhead.transaction({.label = "orders"}, [&](auto&) {
    while (reports.count() == 0) std::this_thread::yield();
  });
  CHECK(reports.all[0].label == "orders");
  CHECK(contains(reports.all[0].site.file_name(), "pool_life_test.cpp"));
}

TEST_CASE("a resize takes effect at once, and takes nothing from who has it", "[row-14]") {
  PqxxPool pool{test_dsn(), {.max_size = 1, .max_waiting = 4}};
  std::optional<PqxxLease> first = pool.acquire(Deadline::after(30s));
  pool.resize(3);
  std::optional<PqxxLease> second = pool.acquire(Deadline::after(30s)),
                           third = pool.acquire(Deadline::after(30s));
  CHECK(pool.stats().leased == 3);
  pool.resize(1);
  CHECK(ask(*third, "SELECT 42") == "42");
  CHECK(refusal(pool, Deadline::after(0ns)) == Reason::timed_out);
  first.reset();
  second.reset();
  CHECK(refusal(pool, Deadline::after(0ns)) == Reason::timed_out);
  CHECK(settled(pool).total == 1);
  third.reset();
  CHECK(refusal(pool) == std::nullopt);
  CHECK_THROWS_AS(pool.resize(0), std::invalid_argument);
  CHECK(pool.stats().max == 1);
}

TEST_CASE("evict_all replaces every connection, and no caller notices", "[row-46]") {
  PqxxPool pool{test_dsn(), {.max_size = 2}};
  PqxxLease lease = pool.acquire(Deadline::after(30s));
  int const lent = lease->backendpid(), idle = pid_of(pool);
  pool.evict_all();
  CHECK(ask(lease, "SELECT pg_backend_pid()") == std::to_string(lent));
  { PqxxLease const end = std::move(lease); }
  PqxxLease const one = pool.acquire(Deadline::after(30s)), other = pool.acquire(Deadline::after(30s));
  for (int pid : {one->backendpid(), other->backendpid()}) CHECK((pid != lent && pid != idle));
}

TEST_CASE("a suspended pool lends nothing, at once, and goes on where it was", "[row-51]") {
  PqxxPool pool{test_dsn(), {.max_size = 1}};
  PqxxLease lease = pool.acquire(Deadline::after(30s));
  int const pid = lease->backendpid();
  pool.suspend();
  CHECK(refusal(pool, Deadline::never()) == Reason::suspended);
  CHECK(ask(lease, "SELECT 42") == "42");
  { PqxxLease const end = std::move(lease); }
  CHECK(refusal(pool, Deadline::never()) == Reason::suspended);
  pool.resume();
  CHECK(pid_of(pool) == pid);
}

TEST_CASE("a pool that is suspended before it could connect fails those who wait", "[row-51]") {
  SilentServer const server;
  PqxxPool pool{server.dsn(), {.max_size = 1}};
  std::optional<Reason> reason;
  {
    std::jthread const waiter{[&] { reason = refusal(pool, Deadline::never()); }};
    while (pool.stats().waiting != 1) std::this_thread::yield();
    pool.suspend();
  }
  CHECK(reason == Reason::suspended);
}

TEST_CASE("a refusal that will not pass is not tried again soon, and callers are told why at once",
          "[row-39]") {
  std::atomic<int> asked{0};
  PqxxPool pool{[&] {
                  ++asked;
                  return test_dsn_with("dbname", "no_such_database_here");
                },
                {.max_size = 4}};
  for (int i = 0; i < 200; ++i) {
    std::string const message = message_of_refusal(pool);
    REQUIRE(contains(message, "3D000"));
    REQUIRE(contains(message, "next try in"));
  }
  CHECK(asked == 1);
}

TEST_CASE("a connection that is not encrypted is refused where TLS is required") {
  PqxxPool pool{test_dsn_with("sslmode", "disable"), {.require_tls = true}};
  CHECK(contains(message_of_refusal(pool), "require_tls"));
  CHECK(settled(pool).total == 0);
}

TEST_CASE("pooler mode leaves the session alone, and the transaction's settings in it", "[row-68]") {
  PqxxPool pool{test_dsn(), {.max_size = 1, .pooler_mode = true}};
  int const pid = pid_of(pool);
  run(pool, {"SET app.tenant = 'kept'"});
  DbBulkhead bulkhead{pool, {.concurrent = 1}};
  auto const seen = bulkhead.transaction({.statement_timeout = 1234ms}, [](pqxx::dbtransaction& tx) {
    return tx.exec("SELECT current_setting('app.tenant') || current_setting('statement_timeout')")[0][0]
        .as<std::string>();
  });
  CHECK(seen == "kept1234ms");
  CHECK(pid_of(pool) == pid);
}

namespace {

// The test server behind a network that forgets silent connections after 200 ms.
struct ForgetfulNetwork {
  ForgetfulNetwork() { proxy.drop_silent_after(200ms); }
  std::string const& dsn() const { return proxy.dsn(); }
  support::FaultProxy proxy{test_dsn()};
};

}  // namespace

TEST_CASE("keepalive keeps a connection alive through a network that forgets silent ones", "[row-43]") {
  ForgetfulNetwork const network;
  PqxxPool pool{network.dsn(), {.max_size = 1, .keepalive = 50ms}};
  int const pid = pid_of(pool);
  auto const later = Deadline::after(600ms);
  while (!later.passed()) std::this_thread::sleep_for(10ms);
  PqxxLease lease = pool.acquire(Deadline::after(30s));
  CHECK(ask(lease, "SELECT pg_backend_pid()") == std::to_string(pid));
  CHECK(network.proxy.forgotten() == 0);
}

TEST_CASE("a lifetime below what the network allows replaces connections before they are forgotten",
          "[row-43]") {
  ForgetfulNetwork const network;
  PqxxPool pool{network.dsn(), {.max_size = 2, .min_idle = 1, .max_lifetime = 100ms}};
  while (pool.stats().closed < 4) std::this_thread::sleep_for(1ms);
  PqxxLease lease = pool.acquire(Deadline::after(30s));
  CHECK(ask(lease, "SELECT 42") == "42");
  CHECK(network.proxy.forgotten() == 0);
}

TEST_CASE("a connection that the network has forgotten is found out before it is lent", "[row-43]") {
  ForgetfulNetwork const network;
  PqxxPool pool{network.dsn(), {.max_size = 2, .validation_timeout = 100ms, .validate_after_idle = 50ms}};
  int const pid = pid_of(pool);
  while (network.proxy.forgotten() == 0) std::this_thread::sleep_for(1ms);
  PqxxLease lease = pool.acquire(Deadline::after(30s));
  CHECK(ask(lease, "SELECT pg_backend_pid()") != std::to_string(pid));
  CHECK(pool.stats().validation_failures == 1);
}

TEST_CASE("a proof takes no longer than its caller has, and what is not proven is not lent", "[row-21]") {
  ForgetfulNetwork const network;
  PqxxPool pool{network.dsn(), {.max_size = 1, .validation_timeout = 10s, .validate_after_idle = 0ns}};
  static_cast<void>(pid_of(pool));
  while (network.proxy.forgotten() == 0) std::this_thread::sleep_for(1ms);
  auto const start = Deadline::clock::now();
  CHECK(refusal(pool, Deadline::after(50ms)) == Reason::timed_out);
  CHECK(Deadline::clock::now() - start < 5s);
  CHECK(settled(pool).total == 1);
}

TEST_CASE("a pool leaves no thread, no descriptor and no session behind", "[row-50]") {
  Admin admin;
  std::string const name = "pool_life_" + std::to_string(unique_number());
  auto const sessions = [&] {
    return admin.exec("SELECT count(*) FROM pg_stat_activity WHERE application_name = '" + name + "'")[0][0]
        .as<int>();
  };
  { PqxxPool const first{test_dsn()}; }  // a sanitizer starts a thread of its own with the first of a program
  auto const threads = entries_of("/proc/self/task"), descriptors = entries_of("/proc/self/fd");
  for (int i = 0; i < 20; ++i) {
    PqxxPool pool{test_dsn_with("application_name", name),
                  {.max_size = 4, .min_idle = static_cast<std::size_t>(i % 4), .keepalive = 1ms}};
    if (i % 2 == 0) static_cast<void>(pool.acquire(Deadline::after(30s)));
  }
  CHECK(entries_of("/proc/self/task") == threads);
  CHECK(entries_of("/proc/self/fd") == descriptors);
  while (sessions() != 0) std::this_thread::yield();
}

TEST_CASE("options that make no pool leave nothing behind", "[row-50]") {
  auto const threads = entries_of("/proc/self/task");
  CHECK_THROWS_AS((PqxxPool{test_dsn(), {.max_size = 2, .min_idle = 3}}), std::invalid_argument);
  CHECK_THROWS_AS((PqxxPool{test_dsn(), {.max_lifetime = 1s, .lifetime_jitter = 1s}}), std::invalid_argument);
  CHECK(entries_of("/proc/self/task") == threads);
}
