// SPDX-License-Identifier: MIT
//
// A user of the pool for libpqxx: there is no server, which has to be told and to cost no permit.
#include <chrono>
#include <pqxx/pqxx>

#include "db_bulkhead/db_bulkhead.hpp"
#include "db_bulkhead/pqxx.hpp"

int main() {
  db_bulkhead::PqxxPool pool{"host=/nowhere user=nobody", {.max_size = 1}};
  db_bulkhead::DbBulkhead bulkhead{pool, {.concurrent = 1}};
  try {
    bulkhead.transaction(std::chrono::nanoseconds{0}, [](pqxx::dbtransaction& tx) { tx.exec("SELECT 1"); });
  } catch (db_bulkhead::ConnectionUnavailable const&) {
    return bulkhead.available() == 1 ? 0 : 1;
  }
  return 1;
}
