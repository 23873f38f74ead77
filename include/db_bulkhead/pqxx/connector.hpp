// SPDX-License-Identifier: MIT
//
// How a pool opens, checks and resets libpqxx connections.
//
// The reset is one query. It is sent when the connection comes back, so that the
// returning caller waits for no round trip; its answers are read by the next borrower,
// and checked: every command must have succeeded and the session be idle, else the
// connection is closed. libpqxx never meets an answer that is still to be read, which
// it would drop in silence, errors included.
#ifndef DB_BULKHEAD_PQXX_CONNECTOR_HPP
#define DB_BULKHEAD_PQXX_CONNECTOR_HPP

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "db_bulkhead/connector.hpp"
#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/pool_options.hpp"
#include "db_bulkhead/pqxx/connect.hpp"
#include "db_bulkhead/pqxx/connection.hpp"
#include "db_bulkhead/pqxx/conninfo.hpp"

namespace db_bulkhead {

class PqxxConnector {
 public:
  using connection_type = PqxxConnection;

  /// Asks `provider` for a connection string at every connect. std::invalid_argument if it is empty.
  PqxxConnector(std::function<std::string()> provider, PoolOptions const& options)
      : provider_{std::move(provider)},
        eviction_{options.eviction},
        require_tls_{options.require_tls},
        lazy_{options.lazy_reset},
        forgets_prepared_{reset_of(options) == SessionReset::discard_all},
        greeting_{greeting_for(options)},
        script_{script_for(options)} {
    if (!provider_) throw std::invalid_argument{"db_bulkhead: the provider of connection strings is empty"};
  }

  std::unique_ptr<PqxxConnection> connect(Deadline deadline, std::stop_token const& stop) {
    detail::SocketWait wait{deadline, stop};
    detail::RawConnection raw = detail::connect_raw(conninfo(), wait);
    if (require_tls_ && PQsslInUse(raw.get()) == 0) {
      throw ConnectError{ConnectFailure::refused, "the connection is not encrypted, and require_tls is set"};
    }
    auto connection = std::make_unique<PqxxConnection>(std::move(raw));
    if (!greeting_.empty()) initialise(*connection, wait);
    if (!connection->learn_settings(wait)) {
      throw ConnectError{ConnectFailure::unreachable, "the new session does not answer"};
    }
    return connection;
  }

  bool alive(PqxxConnection& connection) noexcept { return connection.is_alive(); }

  ResetProgress ping(PqxxConnection& connection, Deadline deadline, std::stop_token const& stop) noexcept
      try {
    detail::SocketWait wait{deadline, stop};
    return connection.ping(wait);
  } catch (...) {
    return ResetProgress::failed;
  }

  Verdict judge(PqxxConnection& connection) noexcept {
    auto verdict = Verdict::keep;
    connection.watch().for_each_error(
        [&](std::string_view code) { verdict = std::max(verdict, judge(code, connection.is_writable())); });
    return verdict;
  }

  int backend_pid(PqxxConnection& connection) noexcept { return PQbackendPID(connection.raw()); }

  ResetProgress begin_reset(PqxxConnection& connection, QueueWait longest) noexcept try {
    bool const needs_reset = !lazy_ || connection.watch().touched();
    if (!connection.end_transaction(longest)) return ResetProgress::failed;
    if (!connection.forget_borrower(forgets_prepared_)) return ResetProgress::failed;
    return needs_reset ? connection.send_reset(script_) : ResetProgress::done;
  } catch (...) {
    return ResetProgress::failed;
  }

  ResetProgress finish_reset(PqxxConnection& connection, Deadline deadline,
                             std::stop_token const& stop) noexcept try {
    detail::SocketWait wait{deadline, stop};
    return connection.await_reset(wait);
  } catch (...) {
    return ResetProgress::failed;
  }

 private:
  static SessionReset reset_of(PoolOptions const& options) noexcept {
    return options.pooler_mode ? SessionReset::none : options.reset;
  }

  // DISCARD ALL in the parts that PostgreSQL's manual lists, of which `clean` leaves out two. It may itself
  // not be in a query with other commands, and needs company: a borrower that made SERIALIZABLE, READ ONLY,
  // DEFERRABLE its session's default would let the reset wait for the transactions of others.
  static std::string script_for(PoolOptions const& options) {
    if (reset_of(options) == SessionReset::none) return {};
    std::string sql =
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; "
        "RESET ALL; UNLISTEN *; SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES";
    if (reset_of(options) == SessionReset::discard_all) sql += "; DEALLOCATE ALL; DISCARD PLANS";
    return sql + "; " + options.init_sql;
  }

  // With the reset, so that an init_sql which is not possible there is refused now, and not at each return.
  static std::string greeting_for(PoolOptions const& options) {
    return options.init_sql.empty() || reset_of(options) == SessionReset::none ? options.init_sql
                                                                               : script_for(options);
  }

  // What an error says about the connection that it came on. 57P01 to 57P05 and 08: it is gone or going.
  // 25P03: the server ended it. 0A000: a prepared statement's result has changed its type, and will each
  // time. 25006, where a session that could write cannot any more: the server was demoted, and so were all
  // older ones.
  Verdict judge(std::string_view code, bool writable) noexcept {
    bool const demoted = code == "25006" && writable;
    bool const gone = code.substr(0, 2) == "08" || (code >= "57P01" && code <= "57P05") || code == "25P03" ||
                      code == "0A000";
    bool evict = demoted || gone;
    try {
      if (eviction_) evict = eviction_(code, evict);
    } catch (...) {  // a rule that fails changes nothing
    }
    if (!evict) return Verdict::keep;
    return demoted ? Verdict::evict_older : Verdict::evict;
  }

  // User code, under no lock. What it throws is nested, what it returns is never shown.
  detail::Conninfo conninfo() {
    try {
      return detail::Conninfo{provider_()};
    } catch (...) {
      std::throw_with_nested(
          ConnectError{ConnectFailure::unreachable, "there is no connection string (cause nested)"});
    }
  }

  void initialise(PqxxConnection& connection, detail::SocketWait& wait) {
    detail::Reply const reply = detail::run_query(connection.raw(), greeting_.c_str(), wait);
    if (!reply.is_complete()) {
      throw ConnectError{ConnectFailure::unreachable, "no time left while init_sql was running"};
    }
    if (!reply.failed && connection.is_idle()) return;
    throw ConnectError{ConnectFailure::unreachable,
                       reply.failed ? "init_sql failed" +
                                          (reply.sqlstate.empty() ? "" : " (SQLSTATE " + reply.sqlstate + ")")
                                    : std::string{"init_sql left a transaction open"}};
  }

  std::function<std::string()> provider_;
  EvictionRule eviction_;
  bool require_tls_;
  bool lazy_;
  bool forgets_prepared_;
  std::string greeting_;  // what a new session is sent
  std::string script_;    // what resets one
};

}  // namespace db_bulkhead

#endif
