// SPDX-License-Identifier: MIT
//
// What the examples over pools of others show, whatever the pool: an overload is refused, a commit is a
// commit, and what was not committed is never reported as if it were, though the callback hides the error,
// the constraint fails at COMMIT only, the session dies, or the callback ends the transaction itself. Each
// throws where the pool's adaptor or traits do not keep that.
//
// `Sql` is how statements are written for the driver: `Sql::run(transaction, text)`, and
// `Sql::ask(transaction, text)` for the integer in the first row.
#ifndef DB_BULKHEAD_EXAMPLES_FOREIGN_POOL_HPP
#define DB_BULKHEAD_EXAMPLES_FOREIGN_POOL_HPP

#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <iostream>
#include <stdexcept>
#include <string>

#include "db_bulkhead/db_bulkhead.hpp"

inline void require(bool holds, char const* otherwise) {
  if (!holds) throw std::logic_error{otherwise};
}

// What the transaction that runs `work` ends with, which has to be an `Expected`.
template <class Expected, class Bulkhead, class Work>
Expected caught(Bulkhead& bulkhead, Work work) {
  try {
    bulkhead.transaction(std::chrono::seconds{0}, work);
  } catch (Expected const& error) {
    return error;
  }
  throw std::logic_error{"what was not committed, or not admitted, was reported as committed"};
}

template <class Sql>
constexpr auto backend_pid =
    [](auto& transaction) { return Sql::ask(transaction, "SELECT pg_backend_pid()"); };

template <class Sql, class Bulkhead>
void show_commit(Bulkhead& bulkhead) {
  using namespace std::chrono_literals;
  bulkhead.transaction(0s, [](auto& transaction) {
    Sql::run(transaction, "SET LOCAL client_min_messages = warning");
    Sql::run(transaction, "DROP TABLE IF EXISTS db_bulkhead_example");
    Sql::run(transaction,
             "CREATE TABLE db_bulkhead_example (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)");
  });
  int const value = bulkhead.transaction(0s, [&](auto& transaction) {
    // On a thread of its own: on this one it would be a call inside a call.
    auto const rejected = std::async(std::launch::async, [&] {
                            return caught<db_bulkhead::AdmissionRejected>(bulkhead, [](auto&) {});
                          }).get();
    require(rejected.reason() == db_bulkhead::Rejection::full, "the overload was refused for another reason");
    std::cout << "overload=rejected\n";
    Sql::run(transaction, "INSERT INTO db_bulkhead_example VALUES (42)");
    return Sql::ask(transaction, "SELECT id FROM db_bulkhead_example");
  });
  require(value == 42, "the database does not know the answer");
  std::cout << "query=" << value << '\n';
}

// After an insert, runs `text` and hides that it failed.
template <class Sql, class Bulkhead>
db_bulkhead::TransactionRolledBack swallowed(Bulkhead& bulkhead, std::string const& text) {
  return caught<db_bulkhead::TransactionRolledBack>(bulkhead, [&](auto& transaction) {
    Sql::run(transaction, "INSERT INTO db_bulkhead_example VALUES (1)");
    try {
      Sql::run(transaction, text);
    } catch (std::exception const&) {
    }
  });
}

template <class Sql, class Bulkhead>
void show_what_is_not_committed(Bulkhead& bulkhead) {
  using Reason = db_bulkhead::TransactionRolledBack::Reason;

  auto const failed = swallowed<Sql>(bulkhead, "SELECT no_such_column");
  require(failed.reason() == Reason::server_refused, "a swallowed error has another reason");
  std::cout << "swallowed=rolled back\n";

  auto const lost = swallowed<Sql>(bulkhead, "SELECT pg_terminate_backend(pg_backend_pid(), 10000)");
  require(lost.reason() == Reason::connection_lost, "a lost connection has another reason");
  std::cout << "lost=rolled back\n";

  auto const refused = caught<db_bulkhead::TransactionRolledBack>(bulkhead, [](auto& transaction) {
    Sql::run(transaction, "INSERT INTO db_bulkhead_example VALUES (42)");
  });
  require(refused.sqlstate() == "23505", "a constraint that fails at COMMIT has another SQLSTATE");
  std::cout << "constraint=rolled back\n";
}

// A callback that ends the transaction leaves a session of which nobody knows what it holds: it is not lent
// again.
template <class Sql, class Bulkhead>
void show_boundary(Bulkhead& bulkhead) {
  int soiled = 0;
  caught<db_bulkhead::BoundaryViolated>(bulkhead, [&](auto& transaction) {
    soiled = backend_pid<Sql>(transaction);
    Sql::run(transaction, "INSERT INTO db_bulkhead_example VALUES (2)");
    Sql::run(transaction, "ROLLBACK");
  });
  int const next = bulkhead.transaction(std::chrono::seconds{0}, backend_pid<Sql>);
  require(next != soiled, "the session was lent again");
  std::cout << "ended by the callback=noticed\n";
}

// A session that died while it was idle costs one caller at most; then the pool has another.
template <class Sql, class Bulkhead, class Pool>
void show_that_it_heals(Bulkhead& bulkhead, Pool& pool) {
  using namespace std::chrono_literals;
  db_bulkhead::DbBulkhead other{pool, {.concurrent = 1}};
  // The outer transaction holds one session, so that the inner ones get the other.
  bulkhead.transaction(0s, [&](auto& transaction) {
    int const victim = other.transaction(0s, backend_pid<Sql>);
    Sql::run(transaction, "SELECT pg_terminate_backend(" + std::to_string(victim) + ", 10000)");
    try {
      other.transaction(0s, backend_pid<Sql>);
    } catch (db_bulkhead::ConnectionUnavailable const&) {
    }
    require(other.transaction(0s, backend_pid<Sql>) != victim, "the dead are alive");
  });
  std::cout << "died idle=replaced\n";
}

// The pool has two sessions; the bulkhead lets one operation run and none wait.
template <class Sql, class Pool>
void show(Pool& pool) {
  using namespace std::chrono_literals;
  db_bulkhead::DbBulkhead bulkhead{pool, {.concurrent = 1}};
  show_commit<Sql>(bulkhead);
  show_what_is_not_committed<Sql>(bulkhead);
  show_boundary<Sql>(bulkhead);
  show_that_it_heals<Sql>(bulkhead, pool);

  int const rows = bulkhead.transaction(0s, [](auto& transaction) {
    return Sql::ask(transaction, "SELECT count(*)::int FROM db_bulkhead_example");
  });
  require(rows == 1, "the table holds something else than what was committed");
  bulkhead.transaction(0s,
                       [](auto& transaction) { Sql::run(transaction, "DROP TABLE db_bulkhead_example"); });
  require(bulkhead.available() == 1, "a permit was lost");
  std::cout << "rows=" << rows << "\navailable=" << bulkhead.available() << '\n';
}

// Runs `example(DB_URL)`; what main returns.
template <class Example>
int run_with_url(char const* name, Example example) {
  char const* const url = std::getenv("DB_URL");
  if (url == nullptr || *url == '\0') {
    std::cerr
        << name
        << ": set DB_URL to a PostgreSQL server: postgresql://user@host/database, or host=... dbname=...\n";
    return EXIT_FAILURE;
  }
  try {
    example(std::string{url});
    return EXIT_SUCCESS;
  } catch (std::exception const& error) {
    std::cerr << name << ": " << error.what() << '\n';
    return EXIT_FAILURE;
  }
}

#endif
