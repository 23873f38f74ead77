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

#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>

#include "db_bulkhead/connector.hpp"
#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/error.hpp"
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
        reset_{options.reset},
        greeting_{greeting_for(options)},
        script_{script_for(options)} {
    if (!provider_) throw std::invalid_argument{"db_bulkhead: the provider of connection strings is empty"};
  }

  std::unique_ptr<PqxxConnection> connect(Deadline deadline, std::stop_token const& stop) {
    detail::SocketWait wait{deadline, stop};
    auto connection = std::make_unique<PqxxConnection>(detail::connect_raw(conninfo(), wait));
    if (!greeting_.empty()) initialise(*connection, wait);
    if (!connection->learn_statement_timeout(wait)) give_up(wait);
    return connection;
  }

  bool alive(PqxxConnection& connection) noexcept { return connection.is_alive(); }

  ResetProgress begin_reset(PqxxConnection& connection, Deadline deadline) noexcept try {
    detail::SocketWait wait{deadline};
    if (!connection.end_transaction(wait)) return ResetProgress::failed;
    if (!connection.forget_borrower(reset_ == SessionReset::discard_all)) return ResetProgress::failed;
    return connection.send_reset(script_);
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
  using Reason = ConnectionUnavailable::Reason;

  // DISCARD ALL in the parts that PostgreSQL's manual lists, of which `clean` leaves out two. It may itself
  // not be in a query with other commands, and needs company: a borrower that made SERIALIZABLE, READ ONLY,
  // DEFERRABLE its session's default would let the reset wait for the transactions of others.
  static std::string script_for(PoolOptions const& options) {
    if (options.reset == SessionReset::none) return {};
    std::string sql =
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; "
        "RESET ALL; UNLISTEN *; SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES";
    if (options.reset == SessionReset::discard_all) sql += "; DEALLOCATE ALL; DISCARD PLANS";
    return sql + "; " + options.init_sql;
  }

  // With the reset, so that an init_sql which is not possible there is refused now, and not at each return.
  static std::string greeting_for(PoolOptions const& options) {
    return options.init_sql.empty() || options.reset == SessionReset::none ? options.init_sql
                                                                           : script_for(options);
  }

  // User code, under no lock. What it throws is nested, what it returns is never shown.
  detail::Conninfo conninfo() {
    try {
      return detail::Conninfo{provider_()};
    } catch (...) {
      std::throw_with_nested(
          ConnectionUnavailable{Reason::connect_failed, "there is no connection string (cause nested)"});
    }
  }

  void initialise(PqxxConnection& connection, detail::SocketWait& wait) {
    detail::Reply const reply = detail::run_query(connection.raw(), greeting_.c_str(), wait);
    if (reply.waited == detail::Waited::timed_out) {
      throw ConnectionUnavailable{Reason::timed_out, "no time left while init_sql was running"};
    }
    if (reply.waited == detail::Waited::cancelled) {
      throw ConnectionUnavailable{Reason::cancelled, "stopped while init_sql was running"};
    }
    if (!reply.failed && connection.is_idle()) return;
    throw ConnectionUnavailable{
        Reason::connect_failed,
        reply.failed
            ? "init_sql failed" + (reply.sqlstate.empty() ? "" : " (SQLSTATE " + reply.sqlstate + ")")
            : std::string{"init_sql left a transaction open"}};
  }

  [[noreturn]] static void give_up(detail::SocketWait const& wait) {
    if (wait.deadline().passed()) {
      throw ConnectionUnavailable{Reason::timed_out, "no time left after connecting"};
    }
    throw ConnectionUnavailable{Reason::connect_failed, "the new session does not answer"};
  }

  std::function<std::string()> provider_;
  SessionReset reset_;
  std::string greeting_;  // what a new session is sent
  std::string script_;    // what resets one
};

}  // namespace db_bulkhead

#endif
