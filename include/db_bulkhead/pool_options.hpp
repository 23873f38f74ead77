// SPDX-License-Identifier: MIT
//
// What a pool may be told, and what it tells about itself.
//
// `PoolOptions` is an aggregate: write `{.max_size = 20, .name = "orders"}`. It is
// checked once, when a pool is made; a value out of range is std::invalid_argument
// there, naming field, value and range. Nothing is adjusted in silence.
// `PoolStats` is a snapshot taken under one lock: its parts add up in every one.
// Both are value types without thread safety of their own.
#ifndef DB_BULKHEAD_POOL_OPTIONS_HPP
#define DB_BULKHEAD_POOL_OPTIONS_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/limits.hpp"

namespace db_bulkhead {

/// What is done to a session between two borrowers.
enum class SessionReset {
  /// Nothing, `init_sql` included; only the transaction status is checked. For callers who leave no state.
  none,
  /// All that DISCARD ALL does, but prepared statements and plans stay; then `init_sql`. What one borrower
  /// prepared the next one may execute, but not prepare under the same name (42P05).
  clean,
  /// All that DISCARD ALL does; then `init_sql`. Every borrower prepares its statements anew.
  discard_all,
};

struct PoolOptions {
  /// The most connections at a time, those being opened and closed included; 1 to Limits::max_total.
  /// 10 is what HikariCP starts from. Multiply by the number of processes before raising it.
  std::size_t max_size = 10;
  /// The most callers that wait for a connection at a time; one more is refused at once. 100 is ten turns
  /// for each connection of the default size: who is behind that is better told so immediately.
  std::size_t max_waiting = 100;
  /// The longest an `acquire` takes, all included; more than zero. It also bounds what is done to a
  /// connection on its way back. 30 s is HikariCP's connectionTimeout.
  QueueWait connection_timeout = std::chrono::seconds{30};
  /// How the session is reset on return.
  SessionReset reset = SessionReset::clean;
  /// Run on a new connection and with each reset, in the same query. So it must be repeatable (with `clean`,
  /// PREPARE is not), possible in a transaction (VACUUM is not), and leave none open.
  std::string init_sql{};
  /// Names the pool in messages: 1 to 64 characters of A-Z a-z 0-9 _ . -
  std::string name = "default";
};

/// Counts of connections and callers at one instant, and running totals since the pool was made.
struct PoolStats {
  std::size_t max = 0;
  /// connecting + idle + leased + resetting + closing; never more than `max`.
  std::size_t total = 0;
  std::size_t connecting = 0;
  std::size_t idle = 0;
  std::size_t leased = 0;
  std::size_t resetting = 0;  ///< returned; the reset was sent and its answers are not yet read
  std::size_t closing = 0;
  std::size_t waiting = 0;  ///< callers in the queue

  std::uint64_t created = 0;              ///< connections opened
  std::uint64_t closed = 0;               ///< of those, closed again: created - closed are alive
  std::uint64_t timeouts = 0;             ///< acquires that ran out of time
  std::uint64_t validation_failures = 0;  ///< connections found dead when they were to be lent
  std::uint64_t connect_failures = 0;     ///< connects that failed, timeouts and stops not counted
  std::uint64_t reset_failures = 0;       ///< connections closed because their session could not be reset
};

namespace detail {

inline bool is_pool_name(std::string_view name) noexcept {
  constexpr std::string_view allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
  return !name.empty() && name.size() <= 64 && name.find_first_not_of(allowed) == std::string_view::npos;
}

// What is refused as a name may hold anything: it is shown with every other character replaced.
inline std::string shown_name(std::string_view name) {
  std::string shown{name.substr(0, 64)};
  std::replace_if(
      shown.begin(), shown.end(),
      [](char c) {
        return !is_pool_name({&c, 1});
      },
      '?');
  return shown;
}

}  // namespace detail

/// Throws std::invalid_argument, naming field, value and range, for options out of range.
inline void require_valid(PoolOptions const& options) {
  auto const refuse = [](std::string const& what) { throw std::invalid_argument("db_bulkhead: " + what); };
  if (options.max_size == 0 || options.max_size > Limits::max_total) {
    refuse("PoolOptions::max_size is " + std::to_string(options.max_size) + "; allowed is 1 to " +
           std::to_string(Limits::max_total));
  }
  if (options.max_waiting > Limits::max_total - options.max_size) {
    refuse("PoolOptions::max_waiting is " + std::to_string(options.max_waiting) +
           "; with max_size = " + std::to_string(options.max_size) + " allowed is 0 to " +
           std::to_string(Limits::max_total - options.max_size));
  }
  if (options.connection_timeout.count() <= 0) {
    refuse("PoolOptions::connection_timeout is " + std::to_string(options.connection_timeout.count()) +
           " ns; allowed is more than 0");
  }
  if (options.reset < SessionReset::none || options.reset > SessionReset::discard_all) {
    refuse("PoolOptions::reset is " + std::to_string(static_cast<int>(options.reset)) +
           "; allowed are the enumerators of SessionReset");
  }
  if (options.init_sql.find('\0') != std::string::npos) {
    refuse("PoolOptions::init_sql has a NUL character at " + std::to_string(options.init_sql.find('\0')) +
           "; allowed is any text without one");
  }
  if (!detail::is_pool_name(options.name)) {
    refuse("PoolOptions::name is '" + detail::shown_name(options.name) + "' (" +
           std::to_string(options.name.size()) +
           " characters); allowed are 1 to 64 characters of A-Z a-z 0-9 _ . -");
  }
}

}  // namespace db_bulkhead

#endif
