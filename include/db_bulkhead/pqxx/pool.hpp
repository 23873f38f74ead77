// SPDX-License-Identifier: MIT
//
// The pool of libpqxx connections: a ConnectionPool (its contract is in
// connection_pool.hpp) that opens them with libpq. Usable alone, for any work with
// libpqxx:
//
//   db_bulkhead::PqxxPool pool{"host=db dbname=app", {.max_size = 8}};
//   auto lease = pool.acquire(db_bulkhead::Deadline::after(2s));
//   pqxx::work tx{*lease};
//
// Connection strings are libpq's: keywords or URI, environment, service and password
// files, several hosts. What they do not set is completed: fallback_application_name,
// TCP keepalives and tcp_user_timeout, which a service file cannot set otherwise then.
// No message ever holds the string or a password.
#ifndef DB_BULKHEAD_PQXX_POOL_HPP
#define DB_BULKHEAD_PQXX_POOL_HPP

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "db_bulkhead/connection_lease.hpp"
#include "db_bulkhead/connection_pool.hpp"
#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/pool_concept.hpp"
#include "db_bulkhead/pool_options.hpp"
#include "db_bulkhead/pqxx/connector.hpp"
#include "db_bulkhead/pqxx/conninfo.hpp"
#include "db_bulkhead/source_location.hpp"

namespace db_bulkhead {

/// A connection on loan: `*lease` converts to libpqxx's connection, `lease->` is one of its members.
using PqxxLease = ConnectionLease<PqxxConnector>;

class PqxxPool {
 public:
  /// Waits for nothing. std::invalid_argument for a connection string that does not parse, of which the
  /// message shows nothing, and for options out of range.
  explicit PqxxPool(std::string conninfo, PoolOptions options = {})
      : PqxxPool{always(std::move(conninfo)), std::move(options)} {}

  /// Asks `conninfo_provider` at every connect, possibly from several threads at once; for passwords that
  /// change. Of an exception of its the text is nested, as std::runtime_error, in ConnectionUnavailable
  /// (connect_failed).
  explicit PqxxPool(std::function<std::string()> conninfo_provider, PoolOptions options = {})
      : pool_{PqxxConnector{std::move(conninfo_provider), options}, options} {}

  /// Lends a connection; see ConnectionPool, also for the others. Thread-safe, all of them.
  PqxxLease acquire(Deadline deadline, AcquireOptions const& options = {},
                    SourceLocation const& site = SourceLocation::current()) {
    return pool_.acquire(deadline, options, site);
  }

  void resize(std::size_t max_size) { pool_.resize(max_size); }
  void evict_all() noexcept { pool_.evict_all(); }
  void suspend() noexcept { pool_.suspend(); }
  void resume() noexcept { pool_.resume(); }

  /// A snapshot of one instant.
  PoolStats stats() const { return pool_.stats(); }

  void close(QueueWait grace) noexcept { pool_.close(grace); }

 private:
  static std::function<std::string()> always(std::string conninfo) {
    detail::Conninfo{conninfo};  // throws now, not at the first connect
    return [conninfo = std::move(conninfo)] { return conninfo; };
  }

  ConnectionPool<PqxxConnector> pool_;
};

}  // namespace db_bulkhead

#endif
