// SPDX-License-Identifier: MIT
//
// What the next borrower of a connection finds of the last one: nothing.
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "db_bulkhead/db_bulkhead.hpp"
#include "db_bulkhead/pqxx.hpp"
#include "server.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;

namespace {

// One connection at a time, so that the next borrower gets the same one if it is any good.
struct Fixture {
  explicit Fixture(SessionReset reset = SessionReset::clean, std::string init_sql = {})
      : pool{test_dsn(), {.max_size = 1, .reset = reset, .init_sql = std::move(init_sql)}} {}

  PqxxLease borrow() { return pool.acquire(Deadline::never()); }

  // Each on its own, as the server commits them.
  void run_as_borrower(std::vector<std::string> const& statements) {
    PqxxLease lease = borrow();
    pqxx::nontransaction tx{*lease};
    for (auto const& sql : statements) tx.exec(sql);
  }

  std::string ask(std::string const& sql) {
    PqxxLease lease = borrow();
    pqxx::nontransaction tx{*lease};
    return tx.exec(sql)[0][0].as<std::string>(std::string{"null"});
  }

  int pid() { return borrow()->backendpid(); }

  PqxxPool pool;
};

// The spelling that all versions have.
int run_prepared(PqxxLease& lease, std::string const& name) {
  pqxx::nontransaction tx{*lease};
#include <pqxx/internal/ignore-deprecated-pre.hxx>
  return tx.exec_prepared(name)[0][0].as<int>();
#include <pqxx/internal/ignore-deprecated-post.hxx>
}

std::string quoted(std::string const& text) {
  return "'" + text + "'";
}

}  // namespace

TEST_CASE("the next borrower finds no role and no setting of the last", "[row-60]") {
  auto const reset = GENERATE(SessionReset::clean, SessionReset::discard_all);
  Fixture f{reset};
  int const pid = f.pid();
  std::string const user = f.ask("SELECT current_user");
  std::string const search_path = f.ask("SHOW search_path");
  f.run_as_borrower({"SET ROLE pg_monitor", "SET search_path = pg_temp", "SET app.tenant = 'other'",
                     "SET statement_timeout = 12345", "SET client_encoding = 'LATIN1'",
                     "SET default_transaction_isolation = 'serializable'",
                     "SET default_transaction_read_only = on"});
  CHECK(f.ask("SELECT current_user") == user);
  CHECK(f.ask("SHOW search_path") == search_path);
  CHECK(f.ask("SELECT coalesce(current_setting('app.tenant', true), '')").empty());
  CHECK(f.ask("SHOW statement_timeout") == "0");
  CHECK(f.ask("SHOW client_encoding") == "UTF8");
  CHECK(f.ask("SHOW default_transaction_isolation") == "read committed");
  CHECK(f.ask("SHOW default_transaction_read_only") == "off");
  CHECK(f.pid() == pid);
}

TEST_CASE("the next borrower finds no object of the last's session", "[row-60]") {
  auto const reset = GENERATE(SessionReset::clean, SessionReset::discard_all);
  Fixture f{reset};
  int const pid = f.pid();
  std::string const key = std::to_string(unique_number());
  f.run_as_borrower({"CREATE TEMP TABLE left_behind (i int)", "SELECT pg_advisory_lock(" + key + ")",
                     "LISTEN left_behind",
                     "DECLARE left_behind CURSOR WITH HOLD FOR SELECT generate_series(1, 10)"});
  CHECK(f.ask("SELECT to_regclass('pg_temp.left_behind')") == "null");
  CHECK(f.ask("SELECT count(*) FROM pg_listening_channels()") == "0");
  CHECK(f.ask("SELECT count(*) FROM pg_cursors") == "0");
  CHECK(Admin{}.exec("SELECT pg_try_advisory_lock(" + key + ")")[0][0].as<bool>());
  CHECK(f.pid() == pid);
}

TEST_CASE("a session authorization does not outlive its borrower") {
  Fixture f;
  std::string const user = f.ask("SELECT session_user");
  f.run_as_borrower({"SET SESSION AUTHORIZATION pg_monitor"});
  CHECK(f.ask("SELECT session_user") == user);
}

TEST_CASE("prepared statements stay with a clean reset, and are dropped with DISCARD ALL", "[row-62]") {
  std::string const count = "SELECT count(*) FROM pg_prepared_statements";
  std::optional<Fixture> f;
  auto const prepare_and_run = [&] {
    PqxxLease lease = f->borrow();
    lease->prepare("answer", "SELECT 42");
    return run_prepared(lease, "answer");
  };
  SECTION("clean") {
    f.emplace();
    CHECK(prepare_and_run() == 42);
    CHECK(f->ask(count) == "1");
    PqxxLease lease = f->borrow();
    CHECK(run_prepared(lease, "answer") == 42);
  }
  SECTION("discard_all, where libpqxx must not believe in them any more either") {
    f.emplace(SessionReset::discard_all);
    CHECK(prepare_and_run() == 42);
    CHECK(f->ask(count) == "0");
    CHECK(prepare_and_run() == 42);
  }
}

#if PQXX_VERSION_MAJOR < 7
TEST_CASE("statements that a borrower dropped behind libpqxx's back are not believed in", "[row-62]") {
  Fixture f;
  int const pid = f.pid();
  auto const prepare_and_run = [&] {
    PqxxLease lease = f.borrow();
    lease->prepare("answer", "SELECT 42");
    return run_prepared(lease, "answer");
  };
  CHECK(prepare_and_run() == 42);
  f.run_as_borrower({GENERATE("DISCARD ALL", "DEALLOCATE ALL")});
  CHECK(prepare_and_run() == 42);
  CHECK(prepare_and_run() == 42);
  CHECK(f.pid() != pid);
  CHECK(settled(f.pool).created == 2);
}
#endif

TEST_CASE("what is dropped is of no interest where nothing was prepared") {
  Fixture f;
  int const pid = f.pid();
  f.run_as_borrower({"DISCARD ALL"});
  CHECK(f.pid() == pid);
}

TEST_CASE("a reset waits for nobody's transaction, whatever the borrower set") {
  auto const reset = GENERATE(SessionReset::clean, SessionReset::discard_all);
  Fixture f{reset};
  int const pid = f.pid();
  Admin stranger;
  stranger.exec("BEGIN ISOLATION LEVEL SERIALIZABLE");
  stranger.exec("SELECT count(*) FROM pg_class");
  f.run_as_borrower(
      {"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE"});
  PqxxLease const lease = f.pool.acquire(Deadline::after(10s));
  CHECK(lease->backendpid() == pid);
}

TEST_CASE("a lazy reset is left out after commands that only touch rows, and after no others") {
  TestTable table{"id int"};
  PqxxPool pool{test_dsn(), {.max_size = 1, .lazy_reset = true, .init_sql = "SET app.tenant = 'initial'"}};
  auto const resets_after = [&](std::vector<std::string> const& statements) {
    {
      PqxxLease lease = pool.acquire(Deadline::after(30s));
      for (auto const& sql : statements) {
        try {
          pqxx::nontransaction tx{*lease};
          tx.exec(sql);
        } catch (pqxx::sql_error const&) {
        }
      }
    }
    return pool.stats().resetting == 1;  // it was sent, and not read yet
  };
  CHECK_FALSE(resets_after({}));
  CHECK_FALSE(
      resets_after({"SELECT 1", "INSERT INTO " + table.name() + " VALUES (1)", "BEGIN",
                    "UPDATE " + table.name() + " SET id = 2", "SAVEPOINT a", "SELECT 1/0", "ROLLBACK"}));
  for (std::string const dirt :
       {"SET app.tenant = 'other'", "RESET app.tenant", "LISTEN left_behind",
        "CREATE TEMP TABLE left_behind (i int)", "DECLARE left_behind CURSOR WITH HOLD FOR SELECT 1",
        "DO $$ BEGIN PERFORM set_config('app.tenant', 'x', false); END $$", "SET ROLE pg_monitor",
        "DISCARD ALL"}) {
    CAPTURE(dirt);
    CHECK(resets_after({"SELECT 1", dirt}));
    CHECK_FALSE(resets_after({"SELECT 1"}));
    PqxxLease lease = pool.acquire(Deadline::after(30s));
    pqxx::nontransaction tx{*lease};
    CHECK(tx.exec("SELECT current_setting('app.tenant')")[0][0].as<std::string>() == "initial");
  }
  // The bulkhead's own settings are the transaction's.
  DbBulkhead bulkhead{pool, {.concurrent = 1}};
  bulkhead.transaction({.statement_timeout = 10s, .lock_timeout = 10s},
                       [](pqxx::dbtransaction& tx) { tx.exec("SELECT 1"); });
  CHECK(pool.stats().resetting == 0);
}

TEST_CASE("a reset of none keeps the session as it is, but for an open transaction") {
  Fixture f{SessionReset::none, "SET app.tenant = 'initial'"};
  CHECK(f.ask("SHOW app.tenant") == "initial");
  f.run_as_borrower({"SET app.tenant = 'kept'"});
  f.run_as_borrower({"BEGIN", "SET LOCAL app.tenant = 'gone'"});
  CHECK(f.ask("SHOW app.tenant") == "kept");
}

TEST_CASE("init_sql is in force on a new connection and after each reset") {
  auto const reset = GENERATE(SessionReset::clean, SessionReset::discard_all);
  Fixture f{reset, "SET app.tenant = 'initial'; SET search_path = pg_catalog -- a comment at the end"};
  CHECK(f.ask("SHOW app.tenant") == "initial");
  f.run_as_borrower({"SET app.tenant = 'other'", "RESET search_path"});
  CHECK(f.ask("SHOW app.tenant") == "initial");
  CHECK(f.ask("SHOW search_path") == "pg_catalog");
}

TEST_CASE("a connection whose reset fails is closed, and never lent") {
  TestTable table{"id int"};
  Admin admin;
  auto const fill = [&] { admin.exec("INSERT INTO " + table.name() + " VALUES (1)"); };
  fill();
  Fixture f{SessionReset::clean, "SELECT 1 / count(*) FROM " + table.name()};
  PqxxLease lease = f.borrow();
  int const pid = lease->backendpid();
  admin.exec("DELETE FROM " + table.name());
  { PqxxLease const end = std::move(lease); }
  CHECK_THROWS_AS(f.borrow(), ConnectionUnavailable);  // its successor cannot be initialised either
  CHECK(settled(f.pool).reset_failures == 1);
  fill();
  f.pool.evict_all();  // tries again at once
  CHECK(f.pid() != pid);
}

TEST_CASE("what libpqxx remembers of a session variable does not reach the next borrower") {
  Fixture f;
  int const pid = f.pid();
  std::string const before = f.ask("SHOW application_name");
#include <pqxx/internal/ignore-deprecated-pre.hxx>
  f.borrow()->set_variable("application_name", quoted("other"));
  {
    PqxxLease lease = f.borrow();
    pqxx::work tx{*lease};
    tx.set_variable("application_name", quoted("another"));
    tx.commit();
  }
  CHECK(f.borrow()->get_variable("application_name") == before);
#include <pqxx/internal/ignore-deprecated-post.hxx>
  CHECK(f.pid() == pid);
}

TEST_CASE("a transaction that was left open is rolled back, and the connection is kept", "[row-59]") {
  TestTable table{"id int"};
  Fixture f;
  int const pid = f.pid();
  SECTION("in order") {
    f.run_as_borrower({"BEGIN", "INSERT INTO " + table.name() + " VALUES (1)"});
  }
  SECTION("aborted by an error") {
    PqxxLease lease = f.borrow();
    pqxx::nontransaction tx{*lease};
    tx.exec("BEGIN");
    tx.exec("INSERT INTO " + table.name() + " VALUES (1)");
    CHECK_THROWS(tx.exec("SELECT no_such_column"));
  }
  CHECK(table.count() == 0);
  CHECK(f.pid() == pid);
  CHECK(f.ask("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND pid = " +
              std::to_string(pid)) == "0");
}

TEST_CASE("a connection that comes back with a command under way is closed") {
  TestTable table{"id int"};
  Fixture f;
  int const pid = f.pid();
  f.run_as_borrower({"COPY " + table.name() + " FROM STDIN"});
  CHECK(settled(f.pool).reset_failures == 1);
  CHECK(f.pid() != pid);
}

TEST_CASE("a connection that its borrower closed or lost is replaced", "[row-44]") {
  Fixture f;
  int const pid = f.pid();
  SECTION("closed") {
    PqxxLease lease = f.borrow();
#if PQXX_VERSION_MAJOR >= 7
    lease->close();
#else
    lease->disconnect();
#endif
  }
  SECTION("killed") {
    PqxxLease const lease = f.borrow();
    kill_backend(pid);
  }
#if PQXX_VERSION_MAJOR >= 7
  SECTION("moved away") {
    PqxxLease lease = f.borrow();
    pqxx::connection const mine{std::move(static_cast<pqxx::connection&>(*lease))};
  }
  SECTION("replaced by another") {
    PqxxLease lease = f.borrow();
    static_cast<pqxx::connection&>(*lease) = pqxx::connection{test_dsn()};
  }
#endif
  CHECK(f.pid() != pid);
  CHECK(settled(f.pool).closed == 1);
}

TEST_CASE("after a reset the session is idle, in no transaction", "[row-65]") {
  Fixture f;
  int const pid = f.pid();
  f.run_as_borrower({"SELECT 1"});
  auto const state = "SELECT state FROM pg_stat_activity WHERE pid = " + std::to_string(pid);
  Admin admin;
  // The reset was sent, not waited for.
  while (admin.exec(state)[0][0].as<std::string>() == "active") std::this_thread::yield();
  CHECK(admin.exec(state)[0][0].as<std::string>() == "idle");
  PqxxLease const lease = f.borrow();
  CHECK(lease->backendpid() == pid);
  CHECK(admin.exec(state)[0][0].as<std::string>() == "idle");
}

TEST_CASE("a reset that is not done waits for the next borrower, within the borrower's limits") {
  using Reason = ConnectionUnavailable::Reason;
  int const key = unique_number();
  Fixture f{SessionReset::clean, "SELECT pg_advisory_xact_lock_shared(" + std::to_string(key) + ")"};
  auto const refusal = [&](Deadline deadline, std::stop_token stop = {}) {
    try {
      static_cast<void>(f.pool.acquire(deadline, {.stop = std::move(stop)}));
    } catch (ConnectionUnavailable const& refused) {
      return refused.reason();
    }
    throw std::logic_error{"a connection was lent"};
  };
  int const pid = f.borrow()->backendpid();
  Admin holder;
  {
    PqxxLease const lease = f.borrow();
    holder.exec("SELECT pg_advisory_lock(" + std::to_string(key) + ")");
  }
  wait_until_blocked(pid);
  CHECK(refusal(Deadline::after(10ms)) == Reason::timed_out);
  std::stop_source stop;
  auto stopped = std::async(std::launch::async, [&] { return refusal(Deadline::never(), stop.get_token()); });
  while (f.pool.stats().timeouts != 1) std::this_thread::yield();
  stop.request_stop();
  CHECK(stopped.get() == Reason::cancelled);
  CHECK(settled(f.pool).resetting == 1);
  SECTION("and is finished in the end") {
    holder.exec("SELECT pg_advisory_unlock(" + std::to_string(key) + ")");
    CHECK(f.pid() == pid);
  }
  SECTION("and is replaced if it is killed meanwhile") {
    kill_backend(pid);
    holder.exec("SELECT pg_advisory_unlock(" + std::to_string(key) + ")");
    CHECK(f.pid() != pid);
    CHECK(settled(f.pool).reset_failures == 1);
  }
}

#include <pqxx/internal/ignore-deprecated-pre.hxx>

namespace {

struct CountingReceiver : pqxx::notification_receiver {
  CountingReceiver(PqxxConnection& connection, std::string const& channel, int& calls)
      : pqxx::notification_receiver{connection, channel}, calls_{calls} {}
  void operator()(std::string const&, int) override { ++calls_; }
  int& calls_;
};

struct SilentHandler : pqxx::errorhandler {
  explicit SilentHandler(PqxxConnection& connection) : pqxx::errorhandler{connection} {}
  bool operator()(char const*) noexcept override { return true; }
};

}  // namespace

TEST_CASE("notifications that were meant for the last borrower do not reach the next") {
  Fixture f;
  std::string const channel = "channel_" + std::to_string(unique_number());
  f.run_as_borrower({"LISTEN " + channel, "NOTIFY " + channel});
  {
    PqxxLease lease = f.borrow();
    pqxx::nontransaction{*lease}.exec("LISTEN " + channel);
    Admin{}.exec("NOTIFY " + channel);  // sent, and not asked for
  }
  int calls = 0;
  PqxxLease lease = f.borrow();
  CountingReceiver const receiver{*lease, channel, calls};
  CHECK(lease->get_notifs() == 0);
  CHECK(calls == 0);
  Admin{}.exec("NOTIFY " + channel);
  while (lease->get_notifs() == 0) std::this_thread::yield();
  CHECK(calls == 1);
}

TEST_CASE("a connection that somebody still listens on, or handles errors of, is closed") {
  // They must not outlive the lease: these do, for ever, and so are never destroyed.
  static auto& never_destroyed = *new std::vector<void*>;
  static int calls = 0;
  Fixture f;
  int const pid = f.pid();
  SECTION("a notification receiver") {
    PqxxLease lease = f.borrow();
    never_destroyed.push_back(new CountingReceiver{*lease, "left_behind", calls});
  }
  SECTION("an error handler") {
    PqxxLease lease = f.borrow();
    never_destroyed.push_back(new SilentHandler{*lease});
  }
  CHECK(f.pid() != pid);
}

#include <pqxx/internal/ignore-deprecated-post.hxx>

#if PQXX_VERSION_MAJOR > 7 || (PQXX_VERSION_MAJOR == 7 && PQXX_VERSION_MINOR >= 10)
TEST_CASE("handlers for notices and notifications end with their borrower") {
  Fixture f;
  int const pid = f.pid();
  auto const token = std::make_shared<int>();
  {
    PqxxLease lease = f.borrow();
    lease->set_notice_handler([token](pqxx::zview) { FAIL("the next borrower's notice"); });
    lease->listen("left_behind", [token](pqxx::notification) { FAIL("the next borrower's notification"); });
  }
  CHECK(token.use_count() == 1);
  f.run_as_borrower({"DO $$ BEGIN RAISE WARNING 'for nobody'; END $$", "LISTEN left_behind",
                     "NOTIFY left_behind", "SELECT 1"});
  CHECK(f.pid() == pid);
}
#endif

TEST_CASE("a trace ends with its borrower") {
  Fixture f;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> const file{std::tmpfile(), &std::fclose};
  f.borrow()->trace(file.get());
  std::fflush(file.get());
  long const written = std::ftell(file.get());
  f.run_as_borrower({"SELECT 1"});
  std::fflush(file.get());
  CHECK(std::ftell(file.get()) == written);
}
