// SPDX-License-Identifier: MIT
//
// What the examples over pools of others show, whatever the pool: an operation that runs,
// one that is refused meanwhile, and one whose swallowed error is not reported as success.
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

// The bulkhead lets one operation run and none wait. `answer(transaction)` asks the database for 42,
// `swallow(transaction)` runs a statement that fails and hides that.
template <class Bulkhead, class Answer, class Swallow>
void show(Bulkhead& bulkhead, Answer answer, Swallow swallow) {
  using namespace std::chrono_literals;

  int const value = bulkhead.transaction(0ns, [&](auto& transaction) {
    // On a thread of its own: on this one it would be a call inside a call.
    std::async(std::launch::async, [&] {
      try {
        bulkhead.transaction(0ns, [](auto&) {});
        throw std::logic_error{"the second operation was admitted"};
      } catch (db_bulkhead::AdmissionRejected const&) {
        std::cout << "overload=rejected\n";
      }
    }).get();
    return answer(transaction);
  });
  if (value != 42) throw std::logic_error{"the database does not know the answer"};
  std::cout << "query=" << value << '\n';

  try {
    bulkhead.transaction(0ns, [&](auto& transaction) { swallow(transaction); });
    throw std::logic_error{"a transaction that failed was reported as committed"};
  } catch (db_bulkhead::TransactionRolledBack const&) {
    std::cout << "swallowed=rolled back\n";
  }
  if (bulkhead.available() != 1) throw std::logic_error{"a permit was lost"};
  std::cout << "available=" << bulkhead.available() << '\n';
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
