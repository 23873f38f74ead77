// SPDX-License-Identifier: MIT
//
// The transaction itself, as a bulkhead drives it: begun, checked, committed or rolled
// back through TransactionTraits, with the rows looked at from another session.
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "catch.hpp"
#include "db_bulkhead/pqxx.hpp"
#include "server.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;
using Traits = TransactionTraits<PqxxConnection>;
using Tx = pqxx::dbtransaction;

namespace {

// How a transaction ended, as far as its exception tells.
struct End {
  std::string type;  // "committed" or the exception's class
  std::string sqlstate;
  std::optional<Effect> effect;
  std::string what;
};

template <class Function>
End end_of(Function&& function) {
  try {
    function();
  } catch (TransactionRolledBack const& error) {
    bool const lost = error.reason() == TransactionRolledBack::Reason::connection_lost;
    return {lost ? "connection_lost" : "server_refused", error.sqlstate(), error.effect(), error.what()};
  } catch (BoundaryViolated const& error) {
    return {"BoundaryViolated", {}, error.effect(), error.what()};
  } catch (CommitOutcomeUnknown const& error) {
    return {"CommitOutcomeUnknown", {}, error.effect(), error.what()};
  } catch (ConnectionUnavailable const& error) {
    bool const timed_out = error.reason() == ConnectionUnavailable::Reason::timed_out;
    return {timed_out ? "timed_out" : "begin_failed", {}, error.effect(), error.what()};
  }
  return {"committed", {}, std::nullopt, {}};
}

struct Fixture {
  // As a bulkhead does it: what is not settled in order ends with the socket shut and the lease discarded.
  End run(std::function<void(Tx&)> const& callback, TransactionOptions const& options = {}) {
    PqxxLease lease = pool.acquire(Deadline::never());
    pid = lease->backendpid();
    return end_of([&] {
      auto tx = Traits::begin(*lease, options);
      try {
        callback(tx);
        Traits::commit(tx);
      } catch (TransactionRolledBack const&) {
        roll_back(lease, tx);
        throw;
      } catch (...) {
        Traits::abandon(*lease, tx);
        lease.discard();
        throw;
      }
    });
  }

  static void roll_back(PqxxLease& lease, Traits::transaction_type& tx) {
    try {
      Traits::rollback(tx);
    } catch (Error const&) {
      Traits::abandon(*lease, tx);
      lease.discard();
    }
  }

  std::string insert(int id) const {
    return "INSERT INTO " + table.name() + " VALUES (" + std::to_string(id) + ")";
  }
  int rows() { return table.count(); }
  int next_pid() { return pool.acquire(Deadline::never())->backendpid(); }

  TestTable table{"id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED"};
  PqxxPool pool{test_dsn(), {.max_size = 1}};
  int pid = 0;
};

void swallow(Tx& tx, std::string const& sql) {
  try {
    tx.exec(sql);
  } catch (std::exception const&) {
  }
}

}  // namespace

TEST_CASE("what a transaction did is durable once commit returns") {
  Fixture f;
  CHECK(f.run([&](Tx& tx) { tx.exec(f.insert(1)); }).type == "committed");
  CHECK(f.rows() == 1);
  CHECK(f.next_pid() == f.pid);
}

TEST_CASE("what a transaction did is gone once rollback returns, and the connection is as good as before") {
  Fixture f;
  {
    PqxxLease lease = f.pool.acquire(Deadline::never());
    auto tx = Traits::begin(*lease, {});
    static_cast<Tx&>(tx).exec(f.insert(1));
    Traits::rollback(tx);
    Traits::rollback(tx);  // there is nothing left to do
    f.pid = lease->backendpid();
  }
  CHECK(f.rows() == 0);
  CHECK(f.next_pid() == f.pid);
}

TEST_CASE("a transaction that is left to itself is rolled back when its connection returns") {
  Fixture f;
  {
    PqxxLease lease = f.pool.acquire(Deadline::never());
    auto tx = Traits::begin(*lease, {});
    static_cast<Tx&>(tx).exec(f.insert(1));
    f.pid = lease->backendpid();
  }
  CHECK(f.rows() == 0);
  CHECK(f.next_pid() == f.pid);
}

TEST_CASE("a swallowed SQL error is told as a rollback, with the SQLSTATE of the error", "[row-55]") {
  Fixture f;
  End end;
  SECTION("of exec") {
    end = f.run([&](Tx& tx) {
      tx.exec(f.insert(1));
      swallow(tx, "SELECT no_such_column");
    });
  }
  SECTION("repeated") {
    end = f.run([&](Tx& tx) {
      tx.exec(f.insert(1));
      swallow(tx, "SELECT no_such_column");
      swallow(tx, f.insert(2));
    });
  }
  SECTION("of a statement with parameters") {
    end = f.run([&](Tx& tx) {
      tx.exec(f.insert(1));
      try {
#include <pqxx/internal/ignore-deprecated-pre.hxx>
        tx.exec_params("SELECT no_such_column, $1", 1);
#include <pqxx/internal/ignore-deprecated-post.hxx>
      } catch (std::exception const&) {
      }
    });
  }
  CHECK(end.type == "server_refused");
  CHECK(end.sqlstate == "42703");
  CHECK(end.effect == Effect::none);
  CHECK(f.rows() == 0);
  CHECK(f.next_pid() == f.pid);
}

TEST_CASE("text that ends or begins a transaction is a violated boundary", "[row-55]") {
  Fixture f;
  std::string const text =
      GENERATE(as<std::string>{}, "ROLLBACK", "ROLLBACK; BEGIN", "COMMIT", "COMMIT; BEGIN",
               "COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "END", "END AND CHAIN", "ABORT",
               "ABORT; START TRANSACTION", "ROLLBACK; START TRANSACTION ISOLATION LEVEL SERIALIZABLE",
               "BEGIN", "START TRANSACTION", "SAVEPOINT s; ROLLBACK AND CHAIN; SAVEPOINT s; ROLLBACK TO s");
  INFO(text);
  bool const commits = text[0] == 'C' || text[0] == 'E';
  End const end = f.run([&](Tx& tx) {
    tx.exec(f.insert(1));
    tx.exec(text);
    tx.exec(f.insert(2));
  });
  CHECK(end.type == "BoundaryViolated");
  CHECK(end.effect == Effect::unknown);
  // What the callback itself committed is there; after ROLLBACK or COMMIT alone, so is what ran by itself.
  bool const alone = text == "ROLLBACK" || text == "COMMIT" || text == "END" || text == "ABORT";
  CHECK(f.rows() == (commits ? 1 : 0) + (alone ? 1 : 0));
  CHECK(f.next_pid() != f.pid);
}

TEST_CASE("a boundary that was violated by a callback that throws is found out by check") {
  Fixture f;
  auto const check_after = [&](std::function<void(Tx&)> const& callback) {
    return f
        .run([&](Tx& tx) {
          callback(tx);
          Traits::check(static_cast<Traits::transaction_type&>(tx));
          throw TransactionRolledBack{TransactionRolledBack::Reason::server_refused, "nothing found"};
        })
        .what;
  };
  std::string const none = "db_bulkhead: nothing found";
  CHECK(check_after([&](Tx& tx) { tx.exec(f.insert(1)); }) == none);
  CHECK(check_after([&](Tx& tx) { swallow(tx, "SELECT no_such_column"); }) == none);
  CHECK(check_after([&](Tx& tx) { tx.exec("SAVEPOINT s; ROLLBACK TO s"); }) == none);
  CHECK(check_after([&](Tx&) { kill_backend(f.pid); }) == none);
  CHECK(check_after([&](Tx& tx) { tx.exec("ROLLBACK"); }) != none);
  CHECK(check_after([&](Tx& tx) { tx.exec("ROLLBACK AND CHAIN"); }) != none);
  CHECK(check_after([&](Tx& tx) { tx.exec("COMMIT; BEGIN"); }) != none);
  CHECK(check_after([&](Tx& tx) { tx.abort(); }) != none);
  CHECK(f.rows() == 0);
}

TEST_CASE("PREPARE TRANSACTION is a violated boundary where the server allows it, else a refused one") {
  Fixture f;
  std::string const name = "'" + f.table.name() + "'";
  End const end = f.run([&](Tx& tx) {
    tx.exec(f.insert(1));
    swallow(tx, "PREPARE TRANSACTION " + name);
  });
  if (Admin{}.exec("SHOW max_prepared_transactions")[0][0].as<int>() > 0) {
    CHECK(end.type == "BoundaryViolated");
    Admin{}.exec("COMMIT PREPARED " + name);
    CHECK(f.rows() == 1);  // and so it may be durable
  } else {
    // A PREPARE TRANSACTION that fails leaves no transaction at all.
    CHECK(end.type == "BoundaryViolated");
    CHECK(f.rows() == 0);
  }
}

TEST_CASE("libpqxx's own commit() is refused before anything is sent") {
  Fixture f;
  End end;
  SECTION("and its exception says so") {
    end = f.run([&](Tx& tx) {
      tx.exec(f.insert(1));
      tx.commit();
    });
  }
  SECTION("also if the callback swallows it") {
    end = f.run([&](Tx& tx) {
      tx.exec(f.insert(1));
      try {
        tx.commit();
      } catch (std::exception const&) {
      }
    });
  }
  CHECK(end.type == "BoundaryViolated");
  CHECK(f.rows() == 0);
}

TEST_CASE("libpqxx's own abort() rolls back, and is a violated boundary") {
  Fixture f;
  End const end = f.run([&](Tx& tx) {
    tx.exec(f.insert(1));
    tx.abort();
    CHECK(f.rows() == 0);
    CHECK_THROWS(tx.exec(f.insert(2)));
  });
  CHECK(end.type == "BoundaryViolated");
  CHECK(f.rows() == 0);
}

TEST_CASE("a subtransaction is the callback's own affair") {
  Fixture f;
  End const end = f.run([&](Tx& tx) {
    tx.exec(f.insert(1));
    {
      pqxx::subtransaction inner{tx, "inner"};
      inner.exec(f.insert(2));
      inner.abort();
    }
    {
      pqxx::subtransaction inner{tx, "failing"};
      CHECK_THROWS(inner.exec("SELECT no_such_column"));
    }
    {
      pqxx::subtransaction inner{tx, "kept"};
      inner.exec(f.insert(3));
      inner.commit();
    }
  });
  CHECK(end.type == "committed");
  CHECK(f.rows() == 2);
}

TEST_CASE("a pipeline with queries that are not sent yet means no commit") {
  Fixture f;
  std::unique_ptr<pqxx::pipeline> open;
  PqxxLease lease = f.pool.acquire(Deadline::never());
  End const end = end_of([&] {
    auto tx = Traits::begin(*lease, {});
    static_cast<Tx&>(tx).exec(f.insert(1));
    open = std::make_unique<pqxx::pipeline>(tx);
    open->retain(2);
    open->insert(f.insert(2));
    try {
      Traits::commit(tx);
    } catch (TransactionRolledBack const& error) {
      CHECK_THROWS_AS(std::rethrow_if_nested(error), std::exception);
      open.reset();
      Traits::rollback(tx);
      throw;
    }
  });
  CHECK(end.type == "server_refused");
  CHECK(f.rows() == 0);
}

TEST_CASE("a command that is still under way means no commit") {
  Fixture f;
  End const end = end_of([&] {
    PqxxLease lease = f.pool.acquire(Deadline::never());
    auto tx = Traits::begin(*lease, {});
    static_cast<Tx&>(tx).exec(f.insert(1));
    static_cast<Tx&>(tx).exec("COPY " + f.table.name() + " FROM STDIN");
    try {
      Traits::commit(tx);
    } catch (TransactionRolledBack const&) {
      CHECK_THROWS_AS(Traits::rollback(tx), Error);
      Traits::abandon(*lease, tx);
      lease.discard();
      throw;
    }
  });
  CHECK(end.type == "server_refused");
  CHECK(f.rows() == 0);
}

TEST_CASE("a deferred constraint that fails at COMMIT is a certain rollback, and the connection is kept",
          "[row-58]") {
  Fixture f;
  End const end = f.run([&](Tx& tx) {
    tx.exec(f.insert(1));
    tx.exec(f.insert(1));
  });
  CHECK(end.type == "server_refused");
  CHECK(end.sqlstate == "23505");
  CHECK(end.effect == Effect::none);
  CHECK(f.rows() == 0);
  CHECK(f.next_pid() == f.pid);
}

TEST_CASE("a serialization failure at COMMIT is a certain rollback") {
  Fixture f;
  auto const sum = "SELECT sum(id) FROM " + f.table.name();
  End const end = f.run(
      [&](Tx& tx) {
        tx.exec(sum);
        tx.exec(f.insert(1));
        pqxx::connection other{test_dsn()};
        pqxx::transaction<pqxx::serializable> rival{other};
        rival.exec(sum);
        rival.exec(f.insert(2));
        rival.commit();
      },
      {.isolation = Isolation::serializable});
  CHECK(end.type == "server_refused");
  CHECK(end.sqlstate == "40001");
  CHECK(f.rows() == 1);
  CHECK(f.next_pid() == f.pid);
}

TEST_CASE("a backend that is killed before COMMIT is sent has certainly not committed", "[row-58]") {
  Fixture f;
  SECTION("and nobody noticed") {
    End const end = f.run([&](Tx& tx) {
      tx.exec(f.insert(1));
      kill_backend(f.pid);
    });
    CHECK(end.type == "connection_lost");
    CHECK(end.effect == Effect::none);
  }
  SECTION("and the callback swallowed the error") {
    End const end = f.run([&](Tx& tx) {
      tx.exec(f.insert(1));
      kill_backend(f.pid);
      swallow(tx, f.insert(2));
    });
    CHECK(end.type == "connection_lost");
    CHECK(end.sqlstate == "57P01");
  }
  CHECK(f.rows() == 0);
  CHECK(f.next_pid() != f.pid);
}

TEST_CASE("a backend that is killed while COMMIT is under way leaves the outcome unknown", "[row-57]") {
  Fixture f;
  AdvisoryLock const lock;
  f.table.make_commit_wait_for(lock);
  auto killer = std::async(std::launch::deferred, [] {});
  End const end = f.run([&](Tx& tx) {
    tx.exec(f.insert(1));
    killer = std::async(std::launch::async, [pid = f.pid] {
      wait_until_blocked(pid);
      kill_backend(pid);
    });
  });
  killer.get();
  CHECK(end.type == "CommitOutcomeUnknown");
  CHECK(end.effect == Effect::unknown);
  CHECK(f.next_pid() != f.pid);
}

TEST_CASE("a lock timeout ends the statement with 55P03, and the connection goes on") {
  Fixture f;
  Admin{}.exec(f.insert(1));
  pqxx::connection other{test_dsn()};
  pqxx::work holder{other};
  holder.exec("LOCK TABLE " + f.table.name());
  End const end = f.run([&](Tx& tx) { swallow(tx, f.insert(2)); }, {.lock_timeout = 20ms});
  holder.abort();
  CHECK(end.type == "server_refused");
  CHECK(end.sqlstate == "55P03");
  CHECK(f.run([&](Tx& tx) { tx.exec(f.insert(3)); }).type == "committed");
  CHECK(f.next_pid() == f.pid);
  CHECK(f.rows() == 2);
}

TEST_CASE("a statement timeout ends the statement with 57014, and the connection goes on") {
  Fixture f;
  int const pid = f.next_pid();
  End const end = f.run([](Tx& tx) { swallow(tx, "SELECT pg_sleep(60)"); }, {.statement_timeout = 20ms});
  CHECK(end.type == "server_refused");
  CHECK(end.sqlstate == "57014");
  CHECK(f.run([](Tx& tx) { CHECK(tx.exec("SHOW statement_timeout")[0][0].as<std::string>() == "0"); }).type ==
        "committed");
  CHECK(f.next_pid() == pid);
}

TEST_CASE("isolation, access mode and time limits are in force, and end with the transaction") {
  Fixture f;
  auto const show = [](Tx& tx, std::string const& name) {
    return tx.exec("SHOW " + name)[0][0].as<std::string>();
  };
  f.run(
      [&](Tx& tx) {
        CHECK(show(tx, "transaction_isolation") == "serializable");
        CHECK(show(tx, "transaction_read_only") == "on");
        CHECK(show(tx, "statement_timeout") == "1234ms");
        CHECK(show(tx, "lock_timeout") == "567ms");
      },
      {.statement_timeout = 1234ms,
       .lock_timeout = 567ms,
       .isolation = Isolation::serializable,
       .access = Access::read_only});
  f.run([&](Tx& tx) { CHECK(show(tx, "transaction_isolation") == "repeatable read"); },
        {.isolation = Isolation::repeatable_read});
  f.run([&](Tx& tx) {
    CHECK(show(tx, "transaction_isolation") == "read committed");
    CHECK(show(tx, "transaction_read_only") == "off");
    CHECK(show(tx, "statement_timeout") == "0");
    CHECK(show(tx, "lock_timeout") == "0");
  });
  End const end = f.run([&](Tx& tx) { swallow(tx, f.insert(1)); }, {.access = Access::read_only});
  CHECK(end.sqlstate == "25006");
  CHECK(f.rows() == 0);
}

TEST_CASE("a server that is read-only by default stays so") {
  TestTable table{"id int"};
  PqxxPool pool{test_dsn(), {.max_size = 1, .init_sql = "SET default_transaction_read_only = on"}};
  PqxxLease lease = pool.acquire(Deadline::never());
  auto tx = Traits::begin(*lease, {.access = Access::read_write});
  CHECK_THROWS(static_cast<Tx&>(tx).exec("INSERT INTO " + table.name() + " VALUES (1)"));
}

TEST_CASE("the deadline limits each statement to what is left of it") {
  Fixture f;
  auto const limit = [&](TransactionOptions const& options) {
    int milliseconds = 0;
    f.run(
        [&](Tx& tx) {
          milliseconds =
              tx.exec("SELECT setting FROM pg_settings WHERE name = 'statement_timeout'")[0][0].as<int>();
        },
        options);
    return milliseconds;
  };
  int const left = limit({.deadline = Deadline::after(60s)});
  CHECK((left > 30000 && left <= 60000));
  CHECK(limit({.deadline = Deadline::after(60s), .statement_timeout = 5ms * 1000}) == 5000);
  int const less = limit({.deadline = Deadline::after(60s), .statement_timeout = 1h});
  CHECK((less > 30000 && less <= 60000));
  CHECK(limit({.deadline = Deadline::after(24h * 365)}) == 0);  // more than PostgreSQL can hold
  CHECK(limit({.deadline = Deadline::never()}) == 0);
}

TEST_CASE("a deadline that has passed begins nothing") {
  Fixture f;
  End const end = f.run([](Tx&) { FAIL("the callback ran"); }, {.deadline = Deadline::after(-1s)});
  CHECK(end.type == "timed_out");
  CHECK(end.effect == Effect::none);
  CHECK(f.next_pid() == f.pid);
}

TEST_CASE("a BEGIN that fails says why") {
  Fixture f;
  SECTION("by the SQLSTATE of the server's error") {
    PqxxLease lease = f.pool.acquire(Deadline::never());
    pqxx::nontransaction{*lease}.exec("BEGIN");
    pqxx::nontransaction aborted{*lease};
    CHECK_THROWS(aborted.exec("SELECT no_such_column"));
    End const end = end_of([&] { Traits::begin(*lease, {}); });
    CHECK(end.type == "begin_failed");
    CHECK(end.what.find("25P02") != std::string::npos);
  }
  SECTION("or by that of the connection's end") {
    PqxxLease lease = f.pool.acquire(Deadline::never());
    kill_backend(lease->backendpid());
    End const end = end_of([&] { Traits::begin(*lease, {}); });
    CHECK(end.type == "begin_failed");
    CHECK(end.what.find("57P01") != std::string::npos);
  }
}

TEST_CASE("BEGIN, COMMIT and ROLLBACK are one query each, with all that belongs to it") {
  Fixture f;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> const file{std::tmpfile(), &std::fclose};
  PqxxLease lease = f.pool.acquire(Deadline::never());
  lease->trace(file.get());
  // Queries from the client in libpq's trace.
  auto const queries_sent = [&] {
    std::fflush(file.get());
    std::rewind(file.get());
    int count = 0;
    char line[4096];
    while (std::fgets(line, sizeof line, file.get()) != nullptr) {
      std::string_view const text{line};
      if (text.find("\tF\t") != std::string_view::npos && text.find("\tQuery\t") != std::string_view::npos) {
        ++count;
      }
    }
    return count;
  };
  {
    auto tx = Traits::begin(*lease, {.deadline = Deadline::after(60s),
                                     .lock_timeout = 1s,
                                     .isolation = Isolation::serializable,
                                     .access = Access::read_only});
    CHECK(queries_sent() == 1);
    Traits::commit(tx);
  }
  CHECK(queries_sent() == 2);
  {
    auto tx = Traits::begin(*lease, {});
    Traits::rollback(tx);
  }
  CHECK(queries_sent() == 4);
}

TEST_CASE("an abandoned transaction sends nothing and blocks nowhere") {
  Fixture f;
  {
    PqxxLease lease = f.pool.acquire(Deadline::never());
    f.pid = lease->backendpid();
    auto tx = Traits::begin(*lease, {});
    static_cast<Tx&>(tx).exec(f.insert(1));
    Traits::abandon(*lease, tx);
    lease.discard();
  }
  CHECK(f.rows() == 0);
  CHECK(f.next_pid() != f.pid);
}
