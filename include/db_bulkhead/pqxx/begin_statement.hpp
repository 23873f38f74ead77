// SPDX-License-Identifier: MIT
//
// The text that begins a transaction, in one query: BEGIN with isolation level and
// access mode, the server's time limits, and a marker that tells this transaction from
// any other. Fixed words and numbers only, so that nothing can be injected.
#ifndef DB_BULKHEAD_PQXX_BEGIN_STATEMENT_HPP
#define DB_BULKHEAD_PQXX_BEGIN_STATEMENT_HPP

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/transaction_options.hpp"

namespace db_bulkhead::detail {

/// A text that no other transaction of this process has.
inline std::string next_marker() {
  static std::atomic<std::uint64_t> last{0};
  // Relaxed: unique numbers are all that is asked for.
  return std::to_string(last.fetch_add(1, std::memory_order_relaxed) + 1);
}

/// The statement_timeout for a transaction: what was asked for, else the session's own (0: none), and never
/// more than is left until the deadline. Nothing where the session's own is right as it is.
inline std::optional<std::chrono::milliseconds> statement_limit(TransactionOptions const& options,
                                                                std::chrono::milliseconds of_session) {
  using std::chrono::milliseconds;
  auto const left = std::chrono::ceil<milliseconds>(options.deadline.remaining());
  // Further away than PostgreSQL (32-bit milliseconds) can say.
  if (left.count() > std::numeric_limits<int>::max()) return options.statement_timeout;
  // 0 would mean no limit at all.
  milliseconds const limit = std::max(left, milliseconds{1});
  if (options.statement_timeout) return std::min(*options.statement_timeout, limit);
  if (of_session.count() > 0 && of_session <= limit) return std::nullopt;
  return limit;
}

inline std::string_view isolation_clause(Isolation isolation) noexcept {
  switch (isolation) {
    case Isolation::read_committed: return " ISOLATION LEVEL READ COMMITTED";
    case Isolation::repeatable_read: return " ISOLATION LEVEL REPEATABLE READ";
    case Isolation::serializable: return " ISOLATION LEVEL SERIALIZABLE";
    case Isolation::server_default: break;
  }
  return "";
}

inline std::string begin_statement(TransactionOptions const& options, std::chrono::milliseconds of_session,
                                   std::string const& marker) {
  std::string sql = "BEGIN";
  sql += isolation_clause(options.isolation);
  if (options.access == Access::read_only) sql += " READ ONLY";
  if (auto const limit = statement_limit(options, of_session)) {
    sql += "; SET LOCAL statement_timeout = " + std::to_string(limit->count());
  }
  if (options.lock_timeout) {
    sql += "; SET LOCAL lock_timeout = " + std::to_string(options.lock_timeout->count());
  }
  return sql + "; SET LOCAL db_bulkhead.transaction = '" + marker + "'";
}

}  // namespace db_bulkhead::detail

#endif
