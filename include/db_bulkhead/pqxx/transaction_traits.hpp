// SPDX-License-Identifier: MIT
//
// What a bulkhead needs to know to run transactions on libpqxx connections; the
// contract is in pool_concept.hpp. A callback gets a `pqxx::dbtransaction&`.
#ifndef DB_BULKHEAD_PQXX_TRANSACTION_TRAITS_HPP
#define DB_BULKHEAD_PQXX_TRANSACTION_TRAITS_HPP

#include "db_bulkhead/pool_concept.hpp"
#include "db_bulkhead/pqxx/connection.hpp"
#include "db_bulkhead/pqxx/driver.hpp"
#include "db_bulkhead/pqxx/transaction.hpp"
#include "db_bulkhead/transaction_options.hpp"

namespace db_bulkhead {

template <>
struct TransactionTraits<PqxxConnection> {
  using transaction_type = detail::PqxxTransaction;
  using callback_type = pqxx::dbtransaction;

  /// Begins, in one round trip, with isolation, access mode and time limits in it.
  static transaction_type begin(PqxxConnection& connection, TransactionOptions const& options) {
    return transaction_type{connection, options};
  }
  /// Throws BoundaryViolated where the callback ended or began a transaction itself.
  static void check(transaction_type& transaction) { transaction.require_intact(); }
  /// Returns only if the server acknowledged the commit.
  static void commit(transaction_type& transaction) { transaction.finish(); }
  /// Returns only if the server acknowledged the rollback, or had done it already.
  static void rollback(transaction_type& transaction) { transaction.roll_back(); }
  /// Shuts the socket: nothing blocks after it, and destroying the transaction sends nothing.
  static void abandon(PqxxConnection& /*connection*/, transaction_type& transaction) noexcept {
    transaction.abandon();
  }
};

}  // namespace db_bulkhead

#endif
