// SPDX-License-Identifier: MIT
//
// A pooled libpqxx connection. It converts to what libpqxx calls a connection, so that
// `pqxx::work tx{*lease};` and everything else that takes one works on it.
//
// Underneath is a handle that was opened here and handed to libpqxx, so that its
// state can be asked without a round trip: transaction status, socket, the tags of all
// commands. Whoever closes the connection through libpqxx (or moves it away) loses
// nothing but the connection: the pool sees it and opens another one.
//
// Lifetime: objects made on the connection (transactions, streams, receivers, error
// handlers) must be gone before the lease ends, as libpqxx asks for the connection
// itself. Thread safety: one thread at a time.
#ifndef DB_BULKHEAD_PQXX_CONNECTION_HPP
#define DB_BULKHEAD_PQXX_CONNECTION_HPP

#include <fcntl.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "db_bulkhead/connector.hpp"
#include "db_bulkhead/pqxx/driver.hpp"
#include "db_bulkhead/pqxx/libpq.hpp"
#include "db_bulkhead/pqxx/query.hpp"
#include "db_bulkhead/pqxx/socket.hpp"
#include "db_bulkhead/pqxx/watch.hpp"

namespace db_bulkhead {

class PqxxConnector;

namespace detail {
class PqxxTransaction;
}

class PqxxConnection {
 public:
  /// What libpqxx calls a connection: pqxx::connection_base in 6.4, pqxx::connection from 7 on.
  using driver_type = detail::DriverConnection;

  /// Takes over a handle that is connected. Throws what libpqxx throws.
  explicit PqxxConnection(detail::RawConnection raw) : watch_{detail::SessionWatch::attach(raw.get())} {
    try {
      driver_ = detail::adopt(raw.get());
      raw.release();
    } catch (...) {
      // 6.4 closes the handle where it does not like it.
      if (watch_->raw() == nullptr) raw.release();
      throw;
    }
  }
  PqxxConnection(PqxxConnection const&) = delete;
  PqxxConnection& operator=(PqxxConnection const&) = delete;

  // Not explicit: the point is to be usable wherever libpqxx asks for its connection.
  operator driver_type&() noexcept { return *driver_; }
  driver_type* operator->() noexcept { return driver_.get(); }

 private:
  friend class PqxxConnector;
  friend class detail::PqxxTransaction;

  PGconn* raw() const noexcept { return watch_->raw(); }
  detail::SessionWatch& watch() noexcept { return *watch_; }

  bool is_connected() const noexcept { return PQstatus(raw()) == CONNECTION_OK; }
  // libpqxx 6.4 ends a COPY without reading the server's last words on it, so that libpq calls the session
  // active until somebody does. They have arrived; what has not is a command under way.
  PGTransactionStatusType transaction_status() const noexcept {
    while (PQtransactionStatus(raw()) == PQTRANS_ACTIVE && PQisBusy(raw()) == 0) {
      detail::RawResult const last{PQgetResult(raw())};
      auto const status = PQresultStatus(last.get());
      // A COPY that nobody has ended gives the same answer for ever.
      if (!last || status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH) break;
    }
    return PQtransactionStatus(raw());
  }
  bool is_idle() const noexcept { return transaction_status() == PQTRANS_IDLE; }

  /// Waits until a query that has failed has ended too. The server says the one right after the other, but
  /// libpqxx 6.4 goes on after the first where a COPY fails. What takes longer is another query.
  void await_end_of_failed_query() {
    if (transaction_status() != PQTRANS_ACTIVE) return;
    detail::SocketWait wait{Deadline::after(std::chrono::seconds{1})};
    while (transaction_status() == PQTRANS_ACTIVE && watch_->last_result_was_error()) {
      if (wait.until(PQsocket(raw()), POLLIN) != detail::Waited::ready || PQconsumeInput(raw()) == 0) return;
    }
  }

  /// Whether the connection can be lent as it is. No round trip.
  bool is_alive() const noexcept {
    if (!is_connected() || !is_idle() || !detail::peer_is_there(raw())) return false;
    detail::drop_notifications(raw());
    return is_connected() && is_idle();
  }

  /// Ends what the borrower left open: one ROLLBACK at most, and only if nothing else is going on.
  bool end_transaction(QueueWait longest) {
    if (!is_connected() || !detail::owns(*driver_, raw())) return false;
    await_end_of_failed_query();
    auto const status = transaction_status();
    if (status != PQTRANS_IDLE && status != PQTRANS_INTRANS && status != PQTRANS_INERROR) return false;
    if (status == PQTRANS_IDLE) return true;
    detail::SocketWait wait{Deadline::after(longest)};
    return detail::run_query(raw(), "ROLLBACK", wait).succeeded() && is_idle();
  }

  /// Makes libpqxx's object and libpq's handle forget the borrower. The server's session is not touched.
  bool forget_borrower(bool forget_prepared) noexcept {
    PGconn* const handle = raw();
    bool const dropped = watch_->forget_prepared_dropped();
    if (dropped && !forget_prepared && detail::knows_prepared(*driver_)) return false;
    if (!detail::renew(driver_, forget_prepared)) return false;
    watch_->forget_loan();
    PQuntrace(handle);
    PQsetErrorVerbosity(handle, PQERRORS_DEFAULT);
    // libpq's sockets do not block; libpqxx's set_blocking may have changed that.
    int const flags = ::fcntl(PQsocket(handle), F_GETFL, 0);
    return flags != -1 &&
           ((flags & O_NONBLOCK) != 0 || ::fcntl(PQsocket(handle), F_SETFL, flags | O_NONBLOCK) != -1);
  }

  /// Sends what resets the session, if anything does, without waiting for its answers.
  ResetProgress send_reset(std::string const& sql) noexcept {
    if (sql.empty()) return ResetProgress::done;
    return detail::send_query(raw(), sql.c_str()) ? ResetProgress::pending : ResetProgress::failed;
  }

  /// Reads the answers to that.
  ResetProgress await_reset(detail::SocketWait& wait) {
    detail::Reply const reply = detail::read_reply(raw(), wait);
    if (!reply.is_complete()) return ResetProgress::pending;
    if (reply.failed || !is_idle()) return ResetProgress::failed;
    // Whatever arrived for the last borrower arrived before the last answer.
    detail::drop_notifications(raw());
    watch_->forget_loan();
    return ResetProgress::done;
  }

  /// Nothing blocks on this connection any more, and nothing more is sent. Only closing is left.
  void shut() noexcept {
    if (raw() != nullptr) ::shutdown(PQsocket(raw()), SHUT_RDWR);
  }

  /// Asks for a sign of life: the empty query.
  ResetProgress ping(detail::SocketWait& wait) {
    detail::Reply const reply = detail::run_query(raw(), "", wait);
    if (!reply.is_complete()) return ResetProgress::pending;
    return reply.succeeded() && is_idle() ? ResetProgress::done : ResetProgress::failed;
  }

  /// The limit that role, database, server or init_sql set for each statement of a session that is as new;
  /// 0 is none. Known from when it was opened, so that a deadline never puts a longer one in its place.
  std::chrono::milliseconds statement_timeout() const noexcept { return statement_timeout_; }
  /// Whether a session that is as new can write: not on a standby, nor where somebody made that the default.
  bool is_writable() const noexcept { return writable_; }

  bool learn_settings(detail::SocketWait& wait) {
    detail::Reply const reply = detail::run_query(
        raw(),
        "SELECT pg_catalog.left(pg_catalog.current_setting('transaction_read_only'), 2) || setting "
        "FROM pg_catalog.pg_settings WHERE name = 'statement_timeout'",
        wait);
    if (!reply.succeeded() || !reply.value || reply.value->size() < 3) return false;
    writable_ = reply.value->substr(0, 2) != "on";
    statement_timeout_ = std::chrono::milliseconds{std::stoll(reply.value->substr(2))};
    watch_->forget_loan();  // all until now was the pool's own
    return true;
  }

  std::shared_ptr<detail::SessionWatch> watch_;
  detail::OwnedDriver driver_;
  std::chrono::milliseconds statement_timeout_{0};
  bool writable_ = true;
};

}  // namespace db_bulkhead

#endif
