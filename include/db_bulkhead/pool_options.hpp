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
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/limits.hpp"
#include "db_bulkhead/source_location.hpp"

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

/// How long a pool waits between connects once one has failed. Each wait is drawn at random, between a
/// quarter of its bound and the bound.
struct ReconnectBackoff {
  /// The bound of the first wait. It doubles with each failure.
  QueueWait first = std::chrono::milliseconds{100};
  /// The bound of the longest, so also how soon a server is found that is there again.
  QueueWait longest = std::chrono::seconds{2};
  /// The bound after a refusal that will not pass by itself (wrong password, no such database).
  QueueWait refused = std::chrono::seconds{30};
};

/// A lease that has been out for longer than its threshold, and once more when it comes back.
struct LeakReport {
  std::string label;               ///< AcquireOptions::label
  int backend_pid = 0;             ///< the server's process, as in pg_stat_activity; 0 if not known
  std::chrono::nanoseconds age{};  ///< how long it has been out
  SourceLocation site{};           ///< where it was acquired
  bool came_back = false;
};

/// Decides whether a connection is closed on return because of an error it met: `sqlstate` is the error's,
/// `evict` what the pool would do by itself. Called on the returning thread, under no lock.
using EvictionRule = std::function<bool(std::string_view sqlstate, bool evict)>;

struct PoolOptions {
  /// The most connections at a time, those being opened and closed included; 1 to Limits::max_total.
  /// 10 is what HikariCP starts from. Multiply by the number of processes before raising it.
  std::size_t max_size = 10;
  /// How many are kept idle, opened in advance; 0 to max_size.
  std::size_t min_idle = 0;
  /// The most callers that wait for a connection at a time; one more is refused at once. 100 is ten turns
  /// for each connection of the default size: who is behind that is better told so immediately.
  std::size_t max_waiting = 100;
  /// The longest an `acquire` takes, and the longest connect; more than zero. It also bounds what is done to
  /// a connection on its way back. 30 s is HikariCP's connectionTimeout.
  QueueWait connection_timeout = std::chrono::seconds{30};
  /// The longest a validation by a round trip takes; more than zero.
  QueueWait validation_timeout = std::chrono::seconds{1};
  /// How long a connection beyond min_idle stays idle before it is closed; more than zero,
  /// nanoseconds::max() is for ever. 10 min is HikariCP's.
  QueueWait idle_timeout = std::chrono::minutes{10};
  /// How old a connection grows before it is replaced; more than zero, nanoseconds::max() is for ever. Set it
  /// below what firewall, proxy or server allow. 30 min is HikariCP's.
  QueueWait max_lifetime = std::chrono::minutes{30};
  /// By how much less, drawn at random for each connection, so that those opened together do not end
  /// together; less than max_lifetime. Empty is a tenth of max_lifetime.
  std::optional<QueueWait> lifetime_jitter = std::nullopt;
  /// How long an idle connection goes without a round trip, which tells firewalls and proxies that it is in
  /// use; more than zero, nanoseconds::max() is for ever. 2 min is HikariCP's.
  QueueWait keepalive = std::chrono::minutes{2};
  /// A connection that was idle for longer is proven by a round trip before it is lent; 0 is always. A socket
  /// that the server has closed is found without one; this is for a network that swallows everything.
  QueueWait validate_after_idle = std::chrono::seconds{30};
  /// A lease that is out for longer is reported; more than zero, nanoseconds::max() is never.
  QueueWait leak_threshold = std::chrono::nanoseconds::max();
  /// Told of each suspected leak, and of its coming back, on a thread of the pool or on the returning one,
  /// under no lock. Must not throw. Nothing is closed for it.
  std::function<void(LeakReport const&)> on_leak{};
  /// How many connects may be under way at a time; 1 to 64. Each has a thread.
  std::size_t connectors = 4;
  ReconnectBackoff reconnect_backoff{};
  /// Refuses a connection that is not encrypted. libpq's default, sslmode=prefer, falls back to plain text in
  /// silence. The certificate is checked by sslmode=verify-full only.
  bool require_tls = false;
  /// How the session is reset on return.
  SessionReset reset = SessionReset::clean;
  /// Leaves the reset out where the borrower's commands, by their tags, only read and wrote rows, and began
  /// and ended transactions. What a function does to the session cannot be seen (set_config,
  /// pg_advisory_lock, or one of yours), nor SELECT INTO a temporary table: for services that use none of
  /// these.
  bool lazy_reset = false;
  /// Run on a new connection and with each reset, in the same query. So it must be repeatable (with `clean`,
  /// PREPARE is not), possible in a transaction (VACUUM is not), and leave none open.
  std::string init_sql{};
  /// For a pooler that gives each transaction another session (PgBouncer's transaction mode): no reset, no
  /// session state. `reset` is not looked at, and `init_sql` must be empty.
  bool pooler_mode = false;
  /// Overrides what errors cost a connection, both ways. Empty is the pool's own rule, which README lists.
  EvictionRule eviction{};
  /// Names the pool in messages: 1 to 64 characters of A-Z a-z 0-9 _ . -
  std::string name = "default";
};

/// Counts of connections and callers at one instant, and running totals since the pool was made.
struct PoolStats {
  std::size_t max = 0;
  /// connecting + idle + leased + validating + resetting + closing; never more than `max`, but while a shrink
  /// drains.
  std::size_t total = 0;
  std::size_t connecting = 0;
  std::size_t idle = 0;
  std::size_t leased = 0;
  std::size_t validating = 0;
  std::size_t resetting = 0;  ///< returned; the reset was sent and its answers are not yet read
  std::size_t closing = 0;
  std::size_t waiting = 0;  ///< callers that wait for a connection

  std::uint64_t created = 0;              ///< connections opened
  std::uint64_t closed = 0;               ///< of those, closed again: created - closed are alive
  std::uint64_t timeouts = 0;             ///< acquires that ran out of time
  std::uint64_t leaks_suspected = 0;      ///< leases that were out for longer than their threshold
  std::uint64_t validation_failures = 0;  ///< connections found dead when they were to be lent, or idle
  std::uint64_t connect_failures = 0;     ///< connects that failed
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

namespace detail {

[[noreturn]] inline void refuse_option(std::string const& field, std::string const& value,
                                       std::string const& allowed) {
  throw std::invalid_argument("db_bulkhead: PoolOptions::" + field + " is " + value + "; allowed is " +
                              allowed);
}

inline void require_count(char const* field, std::size_t value, std::size_t least, std::size_t most,
                          std::string const& of = "") {
  if (value >= least && value <= most) return;
  refuse_option(field, std::to_string(value) + of, std::to_string(least) + " to " + std::to_string(most));
}

inline void require_positive(char const* field, QueueWait value) {
  if (value.count() <= 0) refuse_option(field, std::to_string(value.count()) + " ns", "more than 0");
}

inline void require_valid_sizes(PoolOptions const& options) {
  require_count("max_size", options.max_size, 1, Limits::max_total);
  auto const of = " with max_size = " + std::to_string(options.max_size);
  require_count("max_waiting", options.max_waiting, 0, Limits::max_total - options.max_size, of);
  require_count("min_idle", options.min_idle, 0, options.max_size, of);
  require_count("connectors", options.connectors, 1, 64);
}

inline void require_valid_times(PoolOptions const& options) {
  require_positive("connection_timeout", options.connection_timeout);
  require_positive("validation_timeout", options.validation_timeout);
  require_positive("idle_timeout", options.idle_timeout);
  require_positive("max_lifetime", options.max_lifetime);
  require_positive("keepalive", options.keepalive);
  require_positive("leak_threshold", options.leak_threshold);
  require_positive("reconnect_backoff.first", options.reconnect_backoff.first);
  require_positive("reconnect_backoff.refused", options.reconnect_backoff.refused);
  auto const shown = [](std::chrono::nanoseconds value) { return std::to_string(value.count()) + " ns"; };
  if (options.validate_after_idle.count() < 0) {
    refuse_option("validate_after_idle", shown(options.validate_after_idle), "0 or more");
  }
  if (options.reconnect_backoff.longest < options.reconnect_backoff.first) {
    refuse_option("reconnect_backoff.longest", shown(options.reconnect_backoff.longest),
                  "reconnect_backoff.first (" + shown(options.reconnect_backoff.first) + ") or more");
  }
  if (options.lifetime_jitter &&
      (options.lifetime_jitter->count() < 0 || *options.lifetime_jitter >= options.max_lifetime)) {
    refuse_option("lifetime_jitter", shown(*options.lifetime_jitter),
                  "0 to less than max_lifetime (" + shown(options.max_lifetime) + ")");
  }
}

inline void require_valid_session(PoolOptions const& options) {
  if (options.reset < SessionReset::none || options.reset > SessionReset::discard_all) {
    refuse_option("reset", std::to_string(static_cast<int>(options.reset)),
                  "the enumerators of SessionReset");
  }
  if (auto const nul = options.init_sql.find('\0'); nul != std::string::npos) {
    refuse_option("init_sql", "a text with a NUL character at " + std::to_string(nul),
                  "any text without one");
  }
  if (options.pooler_mode && !options.init_sql.empty()) {
    refuse_option("init_sql", "not empty", "none with pooler_mode, where no session lasts");
  }
}

}  // namespace detail

/// Throws std::invalid_argument, naming field, value and range, for options out of range.
inline void require_valid(PoolOptions const& options) {
  detail::require_valid_sizes(options);
  detail::require_valid_times(options);
  detail::require_valid_session(options);
  if (!detail::is_pool_name(options.name)) {
    detail::refuse_option(
        "name",
        "'" + detail::shown_name(options.name) + "' (" + std::to_string(options.name.size()) + " characters)",
        "1 to 64 characters of A-Z a-z 0-9 _ . -");
  }
}

}  // namespace db_bulkhead

#endif
