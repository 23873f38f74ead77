// SPDX-License-Identifier: MIT
//
// What a single transaction may be told: how long it may wait, when all of it has
// to be over, what the server should enforce, and under which name it is seen.
// An aggregate: write `{.queue_wait = 20ms, .access = Access::read_only}`.
#ifndef DB_BULKHEAD_TRANSACTION_OPTIONS_HPP
#define DB_BULKHEAD_TRANSACTION_OPTIONS_HPP

#include <chrono>
#include <limits>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>

#include "db_bulkhead/deadline.hpp"

namespace db_bulkhead {

/// The isolation level BEGIN asks for; `server_default` asks for none.
enum class Isolation { server_default, read_committed, repeatable_read, serializable };

/// `read_only` asks the server to refuse writes. `read_write` asks for nothing, so that a server,
/// database or role that is read-only by default stays so.
enum class Access { read_write, read_only };

struct TransactionOptions {
  /// The longest wait for a permit. Zero takes a free permit or is refused; a negative wait is
  /// std::invalid_argument; nanoseconds::max(), or anything larger, means no limit.
  QueueWait queue_wait{};
  /// Bounds every stage, the wait for a permit and for a connection included.
  Deadline deadline = Deadline::never();
  /// The server's limits for each statement and for each wait for a lock, in whole milliseconds,
  /// 1 to 2147483647 (PostgreSQL's range; its 0, "no limit", is spelt by leaving this empty).
  std::optional<std::chrono::milliseconds> statement_timeout = std::nullopt;
  std::optional<std::chrono::milliseconds> lock_timeout = std::nullopt;
  Isolation isolation = Isolation::server_default;
  Access access = Access::read_write;
  /// A stop leaves the queue for a permit or a connection, and rolls back instead of committing.
  std::stop_token stop{};
  /// Names the workload in metrics and reports. Not to be made from user data.
  std::string label{};
};

/// Throws std::invalid_argument for a negative wait, naming the value.
inline void require_valid(QueueWait queue_wait) {
  if (queue_wait.count() < 0) {
    throw std::invalid_argument("db_bulkhead: queue_wait is " + std::to_string(queue_wait.count()) +
                                " ns; allowed is 0 or more (nanoseconds::max() is no limit)");
  }
}

namespace detail {

inline void require_server_timeout(char const* field, std::optional<std::chrono::milliseconds> value) {
  // statement_timeout and lock_timeout are 32-bit milliseconds in PostgreSQL.
  constexpr auto longest = std::numeric_limits<int>::max();
  if (value && (value->count() < 1 || value->count() > longest)) {
    throw std::invalid_argument("db_bulkhead: " + std::string{field} + " is " +
                                std::to_string(value->count()) + " ms; allowed is 1 to " +
                                std::to_string(longest) + " (leave it empty for the server's own)");
  }
}

}  // namespace detail

/// Throws std::invalid_argument, naming field, value and range, for options out of range.
inline void require_valid(TransactionOptions const& options) {
  require_valid(options.queue_wait);
  detail::require_server_timeout("statement_timeout", options.statement_timeout);
  detail::require_server_timeout("lock_timeout", options.lock_timeout);
  if (options.isolation < Isolation::server_default || options.isolation > Isolation::serializable) {
    throw std::invalid_argument("db_bulkhead: isolation is " +
                                std::to_string(static_cast<int>(options.isolation)) +
                                "; allowed are the enumerators of Isolation");
  }
  if (options.access != Access::read_write && options.access != Access::read_only) {
    throw std::invalid_argument("db_bulkhead: access is " + std::to_string(static_cast<int>(options.access)) +
                                "; allowed are the enumerators of Access");
  }
}

}  // namespace db_bulkhead

#endif
