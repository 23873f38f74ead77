// SPDX-License-Identifier: MIT
//
// PqxxPool on a real server, alone: what it lends, what it counts, and that it stays
// whole. The pool's own logic is tested with a driver made for it, in tests/unit.
#include <dirent.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "db_bulkhead/pqxx.hpp"
#include "server.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;

namespace {

int ask_pid(PqxxLease& lease) {
  pqxx::work tx{*lease};
  int const pid = tx.exec("SELECT pg_backend_pid()")[0][0].as<int>();
  tx.commit();
  return pid;
}

// Lends as many as it may, each of them works, and one more is not lent.
void require_whole(PqxxPool& pool) {
  PoolStats const before = settled(pool);
  REQUIRE(before.leased == 0);
  REQUIRE(before.created - before.closed == before.total);
  std::vector<PqxxLease> all;
  while (all.size() < before.max) all.push_back(pool.acquire(Deadline::after(10s)));
  for (PqxxLease& lease : all) REQUIRE(ask_pid(lease) == lease->backendpid());
  REQUIRE_THROWS_AS(static_cast<void>(pool.acquire(Deadline::after(0ns))), ConnectionUnavailable);
}

std::size_t open_descriptors() {
  std::unique_ptr<DIR, int (*)(DIR*)> const folder{::opendir("/proc/self/fd"), &::closedir};
  std::size_t count = 0;
  while (folder && ::readdir(folder.get()) != nullptr) ++count;
  return count;
}

}  // namespace

TEST_CASE("a pool alone serves whatever takes a libpqxx connection") {
  TestTable table{"id int"};
  PqxxPool pool{test_dsn(), {.max_size = 1}};
  PqxxLease lease = pool.acquire(Deadline::never());
  {
    pqxx::work tx{*lease};
    tx.exec("INSERT INTO " + table.name() + " VALUES (1), (2)");
    pqxx::subtransaction inner{tx};
    inner.exec("DELETE FROM " + table.name());
    inner.abort();
    tx.commit();
  }
  pqxx::nontransaction tx{*lease};
  CHECK(tx.exec("SELECT count(*) FROM " + table.name())[0][0].as<int>() == 2);
  CHECK(lease->is_open());
}

TEST_CASE("what a pool counts adds up at every step") {
  PqxxPool pool{test_dsn(), {.max_size = 2}};
  CHECK(settled(pool).total == 0);
  std::optional<PqxxLease> lease = pool.acquire(Deadline::never());
  PoolStats const lent = pool.stats();
  CHECK((lent.max == 2 && lent.total == 1 && lent.leased == 1 && lent.created == 1 && lent.closed == 0));
  lease.reset();
  PoolStats const back = pool.stats();
  CHECK((back.total == 1 && back.leased == 0 && back.resetting == 1));
  pool.acquire(Deadline::never()).discard();
  PoolStats const discarded = settled(pool);
  CHECK((discarded.total == 0 && discarded.created == 1 && discarded.closed == 1));
  CHECK(discarded.reset_failures == 0);
}

TEST_CASE("a backend that is killed while idle is replaced, and the borrower never sees it", "[row-44]") {
  PqxxPool pool{test_dsn(), {.max_size = 2}};
  int pid = 0;
  {
    PqxxLease lease = pool.acquire(Deadline::never());
    pid = ask_pid(lease);
  }
  auto const state = "SELECT state FROM pg_stat_activity WHERE pid = " + std::to_string(pid);
  Admin admin;
  while (admin.exec(state)[0][0].as<std::string>() == "active") std::this_thread::yield();
  kill_backend(pid);
  PqxxLease lease = pool.acquire(Deadline::never());
  CHECK(ask_pid(lease) != pid);
  CHECK(settled(pool).validation_failures == 1);
  CHECK(settled(pool).closed == 1);
}

TEST_CASE("a pool is whole after hundreds of killed, discarded and broken connections", "[row-7][row-9]") {
  PqxxPool pool{test_dsn(), {.max_size = 3}};
  require_whole(pool);
  Admin admin;
  std::size_t const descriptors = open_descriptors();
  for (int round = 0; round < 200; ++round) {
    PqxxLease lease = pool.acquire(Deadline::after(10s));
    if (round % 3 == 0) lease.discard();
    if (round % 3 == 1) {
      admin.exec("SELECT pg_terminate_backend(" + std::to_string(lease->backendpid()) + ", 10000)");
    }
    if (round % 3 == 2) {
      pqxx::nontransaction tx{*lease};
      tx.exec("BEGIN");
      REQUIRE_THROWS(tx.exec("SELECT no_such_column"));
    }
  }
  require_whole(pool);
  CHECK(open_descriptors() == descriptors);
  pool.close(10s);
  CHECK(settled(pool).total == 0);
}

TEST_CASE("a pool is whole after hundreds of failed connects", "[row-7]") {
  std::atomic<bool> fails{true};
  PqxxPool pool{[&]() -> std::string { return fails ? "host=127.0.0.1 port=1 dbname=x" : test_dsn(); },
                {.max_size = 2, .reconnect_backoff = {.first = 2ns, .longest = 2ns}}};
  std::size_t const descriptors = open_descriptors();
  while (pool.stats().connect_failures < 300) {
    try {
      static_cast<void>(pool.acquire(Deadline::after(10s)));
      FAIL("a connection was lent");
    } catch (ConnectionUnavailable const& failure) {
      REQUIRE(failure.reason() == ConnectionUnavailable::Reason::connect_failed);
    }
  }
  CHECK(settled(pool).total == 0);
  CHECK(open_descriptors() == descriptors);
  fails = false;
  pool.resume();  // else whoever comes while a connect is being tried is told how the last one went
  require_whole(pool);
}

TEST_CASE("closing a pool ends its sessions on the server") {
  PqxxPool pool{test_dsn(), {.max_size = 2}};
  std::optional<PqxxLease> lease = pool.acquire(Deadline::never());
  int const pid = (*lease)->backendpid();
  pool.close(0ns);
  CHECK(ask_pid(*lease) == pid);  // what is lent goes on
  lease.reset();
  CHECK(settled(pool).total == 0);
  Admin admin;
  auto const alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = " + std::to_string(pid);
  while (admin.exec(alive)[0][0].as<int>() != 0) std::this_thread::yield();
  CHECK_THROWS_AS(static_cast<void>(pool.acquire(Deadline::never())), ConnectionUnavailable);
}

TEST_CASE("a lease may outlive its pool, and works to its end") {
  std::optional<PqxxPool> pool{std::in_place, test_dsn()};
  PqxxLease lease = pool->acquire(Deadline::never());
  pool.reset();
  CHECK(ask_pid(lease) == lease->backendpid());
}

TEST_CASE("threads that share a pool never share a connection") {
  PqxxPool pool{test_dsn(), {.max_size = 3, .max_waiting = 8}};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < 50; ++round) {
          PqxxLease lease = pool.acquire(Deadline::after(30s));
          pqxx::work tx{*lease};
          auto const mine = std::to_string(unique_number());
          tx.exec("SET LOCAL app.owner = '" + mine + "'");
          if (tx.exec("SHOW app.owner")[0][0].as<std::string>() != mine) std::terminate();
          tx.commit();
        }
      });
    }
  }
  CHECK(settled(pool).created <= 3);
  require_whole(pool);
}
