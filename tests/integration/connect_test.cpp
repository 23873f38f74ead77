// SPDX-License-Identifier: MIT
//
// How connections are opened: what a connection string may say, whom it is asked of,
// how long it may take, and what must never be shown of it.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "catch.hpp"
#include "db_bulkhead/pqxx.hpp"
#include "server.hpp"
#include "silent_server.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;
using Reason = ConnectionUnavailable::Reason;

namespace {

struct Failure {
  Reason reason;
  std::string message;  // those of nested exceptions included
};

std::string all_messages(std::exception const& outer) {
  try {
    std::rethrow_if_nested(outer);
  } catch (std::exception const& inner) {
    return std::string{outer.what()} + " | " + all_messages(inner);
  } catch (...) {
  }
  return outer.what();
}

Failure failure_of(PqxxPool& pool, Deadline deadline = Deadline::after(30s), AcquireOptions const& how = {}) {
  try {
    static_cast<void>(pool.acquire(deadline, how));
  } catch (ConnectionUnavailable const& failure) {
    return {failure.reason(), all_messages(failure)};
  }
  throw std::logic_error{"a connection was lent"};
}

bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

std::string ask(PqxxPool& pool, std::string const& sql) {
  PqxxLease lease = pool.acquire(Deadline::after(30s));
  pqxx::nontransaction tx{*lease};
  return tx.exec(sql)[0][0].as<std::string>();
}

}  // namespace

TEST_CASE("a connection string that does not parse is refused at once, and nothing of it is shown") {
  for (std::string const text :
       {"host=x password=s3cret bad", "postgresql://user:s3cret@host/db?no_such_key=1", "s3cret",
        "password='s3cret", "no_such_key=s3cret"}) {
    try {
      PqxxPool const pool{text};
      FAIL("accepted: " + text);
    } catch (std::invalid_argument const& refused) {
      std::string const message = all_messages(refused);
      CHECK_FALSE(contains(message, "s3cret"));
      CHECK_FALSE(contains(message, "host="));
      CHECK_FALSE(contains(message, "no_such_key"));
    }
  }
  CHECK_THROWS_AS((PqxxPool{std::string{"host=x\0y", 8}}), std::invalid_argument);
}

TEST_CASE("options out of range are refused at construction") {
  CHECK_THROWS_AS((PqxxPool{test_dsn(), {.max_size = 0}}), std::invalid_argument);
  CHECK_THROWS_AS((PqxxPool{test_dsn(), {.name = "no blanks"}}), std::invalid_argument);
}

TEST_CASE("an empty provider is refused at construction") {
  CHECK_THROWS_AS((PqxxPool{std::function<std::string()>{}}), std::invalid_argument);
}

TEST_CASE("the provider is asked at every connect, and what it throws is the cause that is told",
          "[row-39]") {
  std::atomic<int> asked{0};
  PqxxPool pool{[&]() -> std::string {
    if (++asked == 2) throw std::runtime_error{"the vault is shut"};
    return test_dsn();
  }};
  pool.acquire(Deadline::never()).discard();
  CHECK(asked == 1);
  Failure const failure = failure_of(pool);
  CHECK(failure.reason == Reason::connect_failed);
  CHECK(contains(failure.message, "the vault is shut"));
  pool.resume();  // tries again at once
  { PqxxLease const lease = pool.acquire(Deadline::never()); }
  { PqxxLease const lease = pool.acquire(Deadline::never()); }
  CHECK(asked == 3);
}

TEST_CASE("a provider may use the pool that asks it") {
  PqxxPool* self = nullptr;
  PqxxPool pool{[&] {
    static_cast<void>(self->stats());
    return test_dsn();
  }};
  self = &pool;
  CHECK(ask(pool, "SELECT 1") == "1");
}

TEST_CASE("no message shows a password") {
  for (std::string const dsn :
       {"host=127.0.0.1 port=1 user=s3cret password=s3cret", "host=s3cret.invalid password=s3cret",
        "postgresql://u:s3cret@127.0.0.1:1/s3cret", "postgresql://u:s%33cret@127.0.0.1:1/s3cret",
        "host=/nowhere/s3cret password=s3cret sslpassword=s3cret",
        "host=127.0.0.1 port=s3cret password=s3cret",
        // Passwords that should have been percent-encoded: libpq takes what follows for the host or the port.
        "postgresql://u:pass@s3cret@127.0.0.1:1/db", "postgresql://u:s3cret/word@127.0.0.1:1/db",
        "postgresql://u:p@127.0.0.1:1,u2:s3cret@127.0.0.1:1/db"}) {
    PqxxPool pool{dsn};
    Failure const failure = failure_of(pool);
    CHECK(failure.reason == Reason::connect_failed);
    CHECK_FALSE(contains(failure.message, "s3cret"));
  }
}

TEST_CASE("no message shows what may be a part of a password, though a server quotes it") {
  auto const encoded = [](std::string const& text) {
    std::string result;
    for (char c : text) {
      constexpr char digits[] = "0123456789ABCDEF";
      auto const byte = static_cast<unsigned char>(c);
      result += std::string{'%'} + digits[byte / 16] + digits[byte % 16];
    }
    return result;
  };
  // A password of "p@/s3cret" that should have been percent-encoded: libpq takes its end for the database.
  std::string dsn = "postgresql:///s3cret@host/db?connect_timeout=30";
  for (auto const& key : {"host", "hostaddr", "port", "user", "password", "sslmode"}) {
    if (!test_parameter(key).empty()) dsn += "&" + std::string{key} + "=" + encoded(test_parameter(key));
  }
  PqxxPool pool{dsn};
  Failure const failure = failure_of(pool);
  CHECK(failure.reason == Reason::connect_failed);
  CHECK_FALSE(contains(failure.message, "s3cret"));
  CHECK(contains(failure.message, "3D000"));
  CHECK(contains(failure.message, "percent-encoded"));
}

TEST_CASE("no message shows the rest of a secret that another one begins with") {
  PqxxPool pool{"host=127.0.0.1 port=1 dbname=x user=x password=127 sslpassword=127.0.0.1"};
  Failure const failure = failure_of(pool);
  CHECK(failure.reason == Reason::connect_failed);
  CHECK_FALSE(contains(failure.message, ".0.0.1"));
}

TEST_CASE("no message shows what a provider returned") {
  PqxxPool pool{[] { return std::string{"password=s3cret no_such_key=1"}; }};
  Failure const failure = failure_of(pool);
  CHECK(failure.reason == Reason::connect_failed);
  CHECK_FALSE(contains(failure.message, "s3cret"));
  CHECK_FALSE(contains(failure.message, "no_such_key"));
}

TEST_CASE("the server's refusal is told with its SQLSTATE, on one line") {
  PqxxPool pool{test_dsn_with("dbname", "no_such_database_here")};
  Failure const failure = failure_of(pool);
  CHECK(failure.reason == Reason::connect_failed);
  CHECK(contains(failure.message, "3D000"));
  CHECK(contains(failure.message, "no_such_database_here"));
  CHECK_FALSE(contains(failure.message, "LOCATION"));
  CHECK_FALSE(contains(failure.message, "\n"));
}

TEST_CASE("the application is named db_bulkhead, unless somebody names it otherwise") {
  PqxxPool plain{test_dsn()};
  CHECK(ask(plain, "SHOW application_name") == "db_bulkhead");
  PqxxPool named{test_dsn_with("application_name", "orders")};
  CHECK(ask(named, "SHOW application_name") == "orders");
  ::setenv("PGAPPNAME", "from_the_environment", 1);
  PqxxPool by_environment{test_dsn()};
  std::string const name = ask(by_environment, "SHOW application_name");
  ::unsetenv("PGAPPNAME");
  CHECK(name == "from_the_environment");
}

TEST_CASE("a failing init_sql is a failed connect") {
  SECTION("with the SQLSTATE of its error") {
    PqxxPool pool{test_dsn(), {.init_sql = "SELECT no_such_column"}};
    Failure const failure = failure_of(pool);
    CHECK(failure.reason == Reason::connect_failed);
    CHECK(contains(failure.message, "42703"));
    CHECK(settled(pool).total == 0);
  }
  SECTION("also if it leaves a transaction open") {
    PqxxPool pool{test_dsn(), {.init_sql = "BEGIN"}};
    CHECK(failure_of(pool).reason == Reason::connect_failed);
  }
  SECTION("also if it is not possible in a transaction, where each reset runs it") {
    auto const reset = GENERATE(db_bulkhead::SessionReset::clean, db_bulkhead::SessionReset::discard_all);
    PqxxPool pool{test_dsn(), {.reset = reset, .init_sql = "VACUUM pg_catalog.pg_enum"}};
    Failure const failure = failure_of(pool);
    CHECK(failure.reason == Reason::connect_failed);
    CHECK(contains(failure.message, "25001"));
  }
  SECTION("also if it asks for data that nobody sends") {
    PqxxPool pool{test_dsn(), {.init_sql = "CREATE TEMP TABLE t (i int); COPY t FROM STDIN"}};
    CHECK(failure_of(pool).reason == Reason::connect_failed);
  }
}

TEST_CASE("a server that never answers costs no more than the caller's deadline", "[row-24]") {
  SilentServer const server;
  PqxxPool pool{server.dsn()};
  auto const start = Deadline::clock::now();
  CHECK(failure_of(pool, Deadline::after(50ms)).reason == Reason::timed_out);
  auto const took = Deadline::clock::now() - start;
  CHECK(took >= 50ms);
  CHECK(took < 5s);
  CHECK(pool.stats().timeouts == 1);
  CHECK(pool.stats().connecting == 1);  // it goes on, for the next one
}

TEST_CASE("a connect that takes more than connection_timeout is given up") {
  SilentServer const server;
  PqxxPool pool{server.dsn(), {.connection_timeout = 50ms}};
  // The wait for it and the connect have the same limit: which ends first is a matter of luck.
  auto const reason = failure_of(pool, Deadline::never()).reason;
  CHECK((reason == Reason::timed_out || reason == Reason::connect_failed));
}

TEST_CASE("a stop ends the wait for a connect") {
  SilentServer const server;
  PqxxPool pool{server.dsn()};
  std::stop_source stop;
  auto stopped = std::async(std::launch::async, [&] {
    return failure_of(pool, Deadline::never(), {.stop = stop.get_token()}).reason;
  });
  while (pool.stats().connecting != 1) std::this_thread::yield();
  stop.request_stop();
  CHECK(stopped.get() == Reason::cancelled);
  CHECK(pool.stats().waiting == 0);
}

TEST_CASE("a host that never answers does not keep the next one from being tried") {
  std::string host, port;
  {
    PqxxPool pool{test_dsn()};
    PqxxLease lease = pool.acquire(Deadline::never());
    host = lease->hostname();
#include <pqxx/internal/ignore-deprecated-pre.hxx>
    port = lease->port();
#include <pqxx/internal/ignore-deprecated-post.hxx>
  }
  SilentServer const silent;
  auto const two_hosts = [&](std::string const& more) {
    std::string dsn;
    for (auto const& key : {"user", "dbname", "password"}) {
      if (!test_parameter(key).empty())
        dsn += std::string{key} + "=" + conninfo_quoted(test_parameter(key)) + " ";
    }
    return dsn + "host=127.0.0.1," + host + " port=" + silent.port() + "," + port + " " + more;
  };
  SECTION("within a share of the time that is left") {
    PqxxPool pool{two_hosts(""), {.connection_timeout = 2s}};
    CHECK(ask(pool, "SELECT 1") == "1");
  }
  SECTION("within connect_timeout, where it is given") {
    PqxxPool pool{two_hosts("connect_timeout=1"), {.connection_timeout = 60s}};
    auto const start = Deadline::clock::now();
    CHECK(ask(pool, "SELECT 1") == "1");
    auto const took = Deadline::clock::now() - start;
    CHECK(took >= 1s);
    CHECK(took < 20s);
  }
  SECTION("but one that refuses does, as with libpq itself") {
    PqxxPool pool{two_hosts(" dbname=no_such_database_here host=" + host + "," + host + " port=" + port)};
    std::string const message = failure_of(pool).message;
    CHECK(message.find("3D000") == message.rfind("3D000"));
    CHECK(contains(message, "3D000"));
  }
  SECTION("with a preference for standbys, which the primary satisfies last") {
    PqxxPool pool{two_hosts("target_session_attrs=prefer-standby"), {.connection_timeout = 2s}};
    CHECK(ask(pool, "SELECT 1") == "1");
  }
}
