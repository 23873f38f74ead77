// SPDX-License-Identifier: MIT
//
// A pool of two connections behind a bulkhead that lets one operation run and none
// wait. While the first transaction holds the only permit, a second one is refused
// at once, although a connection is free. The server is the one that DB_URL names.
#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <iostream>
#include <pqxx/pqxx>
#include <stdexcept>

#include "db_bulkhead/db_bulkhead.hpp"
#include "db_bulkhead/pqxx.hpp"

using namespace std::chrono_literals;

namespace {

// Latches that hold a transaction open are there to show the moment of overload, not a pattern to follow.
void show(char const* url) {
  db_bulkhead::PqxxPool pool{url, {.max_size = 2}};
  db_bulkhead::DbBulkhead bulkhead{pool, {.concurrent = 1, .extra_slots = 0}};

  std::promise<void> entered;
  std::promise<void> release;
  auto first = std::async(std::launch::async, [&] {
    return bulkhead.transaction({.statement_timeout = 2s}, [&](pqxx::dbtransaction& tx) {
      int const value = tx.exec("SELECT 42")[0][0].as<int>();
      entered.set_value();
      if (release.get_future().wait_for(5s) != std::future_status::ready)
        throw std::runtime_error{"the second operation did not end in time"};
      return value;
    });
  });

  auto const started = entered.get_future();
  while (started.wait_for(10ms) != std::future_status::ready)
    if (first.wait_for(0s) == std::future_status::ready)
      first.get();  // it failed: throws what it failed with

  try {
    bulkhead.transaction(0ns, [](pqxx::dbtransaction&) {});
    throw std::logic_error{"the second operation was admitted"};
  } catch (db_bulkhead::AdmissionRejected const&) {
    std::cout << "overload=rejected\n";
  }

  release.set_value();
  std::cout << "query=" << first.get() << '\n';
  std::cout << "available=" << bulkhead.available() << '\n';
}

}  // namespace

int main() {
  char const* const url = std::getenv("DB_URL");
  if (url == nullptr || *url == '\0') {
    std::cerr << "demo: set DB_URL to a PostgreSQL server: postgresql://user@host/database, or host=... "
                 "dbname=...\n";
    return 2;
  }
  try {
    show(url);
  } catch (std::exception const& failure) {
    std::cerr << "demo: " << failure.what() << '\n';
    return 1;
  }
  return 0;
}
