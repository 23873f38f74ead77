// SPDX-License-Identifier: MIT
//
// Everything for libpqxx: the pool (PqxxPool, PqxxLease), and what a bulkhead needs to
// run transactions on its connections. libpqxx 6.4, 7.7.1 to 7.10, and 8.
//
//   db_bulkhead::PqxxPool pool{"host=db dbname=app"};
//   db_bulkhead::DbBulkhead bulkhead{pool, {.concurrent = 8}};       // db_bulkhead.hpp
//   bulkhead.transaction(50ms, [](pqxx::dbtransaction& tx) { ... });
//
// Link with libpqxx and libpq. This is the only part of the library that knows either.
#ifndef DB_BULKHEAD_PQXX_HPP
#define DB_BULKHEAD_PQXX_HPP

#include "db_bulkhead/pqxx/connection.hpp"          // IWYU pragma: export
#include "db_bulkhead/pqxx/pool.hpp"                // IWYU pragma: export
#include "db_bulkhead/pqxx/results.hpp"             // IWYU pragma: export
#include "db_bulkhead/pqxx/transaction_traits.hpp"  // IWYU pragma: export

#endif
