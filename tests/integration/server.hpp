// SPDX-License-Identifier: MIT
//
// The server that the integration tests run on, as seen from beside the library: an
// administrator's sessions that look at tables, kill backends and hold locks. Tests that
// have no server fail with the reason; none is skipped.
#ifndef DB_BULKHEAD_TESTS_INTEGRATION_SERVER_HPP
#define DB_BULKHEAD_TESTS_INTEGRATION_SERVER_HPP

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <pqxx/pqxx>
#include <stdexcept>
#include <string>
#include <thread>

#include "db_bulkhead/pqxx/libpq.hpp"

/// The conninfo of the test server. std::runtime_error where none is given.
inline std::string test_dsn() {
  char const* const dsn = std::getenv("DB_BULKHEAD_TEST_DSN");
  if (dsn == nullptr || *dsn == '\0') {
    throw std::runtime_error(
        "DB_BULKHEAD_TEST_DSN is not set: these tests need a PostgreSQL server; ./run test starts one");
  }
  return dsn;
}

/// A session beside the library; each statement commits by itself.
class Admin {
 public:
  pqxx::result exec(std::string const& sql) {
    pqxx::nontransaction tx{connection_};
    return tx.exec(sql);
  }

 private:
  pqxx::connection connection_{test_dsn()};
};

/// How the test server is reached, as libpq names it; empty where the string leaves it to a default.
inline std::string test_parameter(std::string const& keyword) {
  db_bulkhead::detail::RawConninfo const options{PQconninfoParse(test_dsn().c_str(), nullptr)};
  for (auto option = options.get(); option != nullptr && option->keyword != nullptr; ++option) {
    if (keyword == option->keyword && option->val != nullptr) return option->val;
  }
  return {};
}

inline std::string conninfo_quoted(std::string const& text) {
  std::string result = "'";
  for (char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

/// The test server's connection string with one setting changed.
inline std::string test_dsn_with(std::string const& keyword, std::string const& value) {
  std::string dsn;
  for (auto const& key : {"host", "hostaddr", "port", "user", "dbname", "password", "sslmode"}) {
    if (key != keyword && !test_parameter(key).empty())
      dsn += std::string{key} + "=" + conninfo_quoted(test_parameter(key)) + " ";
  }
  return dsn + keyword + "=" + conninfo_quoted(value);
}

/// The pool's books, once its threads have opened and closed what they had to.
template <class Pool>
auto settled(Pool const& pool) {
  for (;;) {
    auto const stats = pool.stats();
    if (stats.connecting + stats.validating + stats.closing == 0) return stats;
    std::this_thread::yield();
  }
}

/// Ends a backend and returns once it is gone.
inline void kill_backend(int pid) {
  Admin{}.exec("SELECT pg_terminate_backend(" + std::to_string(pid) + ", 10000)");
}

/// Returns once the backend waits for a lock.
inline void wait_until_blocked(int pid) {
  Admin admin;
  while (admin
             .exec("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = " +
                   std::to_string(pid))[0][0]
             .as<int>() == 0) {
    std::this_thread::yield();
  }
}

/// Returns once the reset of the backend's session is done.
inline void wait_until_reset(int pid) {
  Admin admin;
  while (admin
             .exec("SELECT count(*) FROM pg_stat_activity WHERE state = 'idle' AND query LIKE '%CLOSE ALL%' "
                   "AND pid = " +
                   std::to_string(pid))[0][0]
             .as<int>() == 0) {
    std::this_thread::yield();
  }
}

/// A number that no other lock or table of this run has.
inline int unique_number() {
  static std::atomic<int> last{0};
  return ++last + static_cast<int>(::getpid() % 20000) * 100000;
}

/// An advisory lock that a session beside the library holds until this is destroyed.
class AdvisoryLock {
 public:
  AdvisoryLock() { admin_.exec("SELECT pg_advisory_lock(" + std::to_string(key_) + ")"); }
  int key() const noexcept { return key_; }

 private:
  int key_ = unique_number();
  Admin admin_;
};

/// A table of a test's own, dropped at its end.
class TestTable {
 public:
  explicit TestTable(std::string const& columns) {
    admin_.exec("CREATE TABLE " + name_ + " (" + columns + ")");
  }
  TestTable(TestTable const&) = delete;
  TestTable& operator=(TestTable const&) = delete;
  ~TestTable() {
    try {
      admin_.exec("DROP TABLE IF EXISTS " + name_);
      admin_.exec("DROP FUNCTION IF EXISTS " + name_ + "_wait");
    } catch (std::exception const&) {
    }
  }

  std::string const& name() const noexcept { return name_; }
  int count() { return admin_.exec("SELECT count(*) FROM " + name_)[0][0].as<int>(); }

  /// From now on a transaction that inserts a row waits, in its COMMIT, for `lock`.
  void make_commit_wait_for(AdvisoryLock const& lock) {
    admin_.exec("CREATE FUNCTION " + name_ + "_wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM " +
                "pg_advisory_xact_lock(" + std::to_string(lock.key()) + "); RETURN NULL; END $$");
    admin_.exec("CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON " + name_ +
                " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION " + name_ + "_wait()");
  }

 private:
  std::string name_ = "test_" + std::to_string(unique_number());
  Admin admin_;
};

#endif
