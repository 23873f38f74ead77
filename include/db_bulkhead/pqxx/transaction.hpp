// SPDX-License-Identifier: MIT
//
// A transaction on a pooled connection, whose end is in the library's hands. BEGIN,
// COMMIT and ROLLBACK are sent on the raw handle and every answer is checked; libpqxx
// gets an object that it takes for an open transaction and that everything which
// takes a `pqxx::dbtransaction&` works on.
//
// Who may end it: `finish` and `roll_back`, which the bulkhead calls. What a callback
// does to the same end is noticed, and refused where it can be: its tx.commit() sends
// nothing and throws BoundaryViolated; its tx.abort() rolls back; and text that begins
// or ends a transaction is known by the command tags of its answers. All of that ends
// as BoundaryViolated.
//
// The destructor sends nothing and waits for nothing: what is still open then is
// rolled back, within a time limit, when the connection goes back to the pool.
#ifndef DB_BULKHEAD_PQXX_TRANSACTION_HPP
#define DB_BULKHEAD_PQXX_TRANSACTION_HPP

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/error.hpp"
#include "db_bulkhead/pqxx/begin_statement.hpp"
#include "db_bulkhead/pqxx/connection.hpp"
#include "db_bulkhead/pqxx/driver.hpp"
#include "db_bulkhead/pqxx/query.hpp"
#include "db_bulkhead/pqxx/socket.hpp"
#include "db_bulkhead/transaction_options.hpp"

namespace db_bulkhead::detail {

class PqxxTransaction final : public DriverTransaction {
 public:
  /// Begins, in one round trip. Throws ConnectionUnavailable: timed_out, begin_failed.
  PqxxTransaction(PqxxConnection& connection, TransactionOptions const& options)
      : PqxxTransaction{connection, send_begin(connection, options)} {}

  ~PqxxTransaction() final {
    over_ = true;
    leave();
  }

  /// Throws BoundaryViolated where the callback ended or began a transaction itself.
  void require_intact() {
    if (ended_by_callback_) violated("libpqxx's commit() or abort()");
    if (connection_.watch().boundary_crossed()) violated("BEGIN, COMMIT or PREPARE TRANSACTION as text");
    if (connection_.is_idle()) violated("ROLLBACK, or a PREPARE TRANSACTION that failed, as text");
    if (connection_.transaction_status() == PQTRANS_INTRANS && connection_.watch().rolled_back()) {
      require_marker();
    }
  }

  /// Commits, and returns only if the server said so. Throws TransactionRolledBack, BoundaryViolated or
  /// CommitOutcomeUnknown.
  void finish() {
    require_intact();
    require_committable();
    committing_ = true;
    try {
      commit();
    } catch (Error const&) {
      throw;
    } catch (std::exception const&) {
      // Once COMMIT is sent, whatever goes wrong in reading the answer (no memory, no descriptors) is doubt.
      if (commit_sent_) {
        std::throw_with_nested(CommitOutcomeUnknown{"COMMIT was sent, but reading its answer failed"});
      }
      // libpqxx itself objects, before on_commit: nothing was sent.
      std::throw_with_nested(TransactionRolledBack{
          Reason::server_refused,
          "not committed: a stream, pipeline or subtransaction is still open or has failed"});
    }
    over_ = true;
  }

  /// Rolls back, unless the server has done so already. Throws if the server does not say so.
  void roll_back() {
    over_ = true;
    bool const rolled_back = connection_.is_idle() || rollback_answered();
    abort();  // for libpqxx's state alone: over_ is set
    if (!rolled_back)
      throw Error{"ROLLBACK failed" + in_brackets(connection_.watch().sqlstate()), Effect::none};
  }

  /// Shuts the socket, so that nothing blocks any more.
  void abandon() noexcept {
    over_ = true;
    connection_.shut();
  }

 private:
  using Reason = TransactionRolledBack::Reason;

  PqxxTransaction(PqxxConnection& connection, std::string marker)
      : DriverTransactionName{"db_bulkhead"},
        DriverTransaction{connection},
        connection_{connection},
        marker_{std::move(marker)} {}

  // ---- begin ----

  static std::string send_begin(PqxxConnection& connection, TransactionOptions const& options) {
    using Unavailable = ConnectionUnavailable::Reason;
    if (options.deadline.passed()) {
      throw ConnectionUnavailable{Unavailable::timed_out, "no time left to begin a transaction"};
    }
    std::string marker = next_marker();
    bool const touched = connection.watch().touched();  // what is set here is gone with the transaction
    SocketWait wait{options.deadline};
    Reply const reply = run_query(
        connection.raw(), begin_statement(options, connection.statement_timeout(), marker).c_str(), wait);
    if (!reply.is_complete()) {
      throw ConnectionUnavailable{Unavailable::timed_out, "no answer to BEGIN in time"};
    }
    if (reply.failed || connection.transaction_status() != PQTRANS_INTRANS) {
      throw ConnectionUnavailable{Unavailable::begin_failed, "BEGIN failed" + in_brackets(reply.sqlstate)};
    }
    connection.watch().arm(options.access != Access::read_only, touched);
    return marker;
  }

  // ---- commit ----

  void on_commit() override {
    if (!committing_) {
      ended_by_callback_ = true;
      violated("libpqxx's commit()");
    }
    if (!peer_is_there(connection_.raw())) {
      lost();
    }
    SocketWait wait{Deadline::never()};
    commit_sent_ = true;
    judge(run_query(connection_.raw(), "COMMIT", wait));
  }

  void require_committable() {
    connection_.await_end_of_failed_query();
    auto const at_server = connection_.transaction_status();
    if (!connection_.is_connected() || at_server == PQTRANS_UNKNOWN) {
      lost();
    }
    if (at_server == PQTRANS_INERROR) {
      refused("the callback went on after an error, which had aborted the transaction",
              connection_.watch().sqlstate());
    }
    if (at_server != PQTRANS_INTRANS) refused("a command, COPY or pipeline is still under way", {});
  }

  // What the answer to COMMIT means. In doubt is all that is not certain.
  void judge(Reply const& reply) {
    bool const settled = connection_.is_connected() && connection_.is_idle();
    if (settled && reply.succeeded()) {
      if (reply.tag == "COMMIT") return;
      if (reply.tag == "ROLLBACK") refused("the server answered COMMIT with ROLLBACK", {});
    }
    // 40003 is the server's own word for not knowing.
    if (settled && reply.failed && !reply.sqlstate.empty() && reply.sqlstate != "40003") {
      refused("COMMIT failed", reply.sqlstate);
    }
    throw CommitOutcomeUnknown{"COMMIT was sent, but its outcome is not known" + in_brackets(reply.sqlstate)};
  }

  // ROLLBACK TO leaves what SET LOCAL set in BEGIN's batch; ROLLBACK AND CHAIN does not. Their tags are the
  // same.
  void require_marker() {
    SocketWait wait{Deadline::never()};
    Reply const reply = run_query(connection_.raw(),
                                  "SELECT pg_catalog.current_setting('db_bulkhead.transaction', true)", wait);
    // Lost: then it is rolled back, whatever it was.
    if (reply.succeeded() && reply.value != marker_) violated("ROLLBACK AND CHAIN as text");
  }

  // ---- roll back ----

  // libpqxx calls it for tx.abort() of the callback, and from the destructor.
  void on_abort() override {
    if (over_) return;
    ended_by_callback_ = true;
    rollback_answered();
  }

  bool rollback_answered() {
    connection_.await_end_of_failed_query();
    auto const at_server = connection_.transaction_status();
    if (at_server != PQTRANS_INTRANS && at_server != PQTRANS_INERROR) return false;
    SocketWait wait{Deadline::never()};
    return run_query(connection_.raw(), "ROLLBACK", wait).succeeded() && connection_.is_idle();
  }

  // ---- words ----

  [[noreturn]] static void violated(char const* how) {
    throw BoundaryViolated{std::string{"the callback ended or began a transaction itself: "} + how};
  }

  [[noreturn]] void lost() {
    // The last error is the cause only if it is of a kind that ends connections.
    std::string cause = connection_.watch().sqlstate();
    if (cause.rfind("57P", 0) != 0 && cause.rfind("25P", 0) != 0 && cause.rfind("08", 0) != 0) cause.clear();
    throw TransactionRolledBack{Reason::connection_lost,
                                "not committed: the connection is lost" + in_brackets(cause), cause};
  }

  [[noreturn]] static void refused(char const* why, std::string const& sqlstate) {
    throw TransactionRolledBack{Reason::server_refused,
                                std::string{"not committed: "} + why + in_brackets(sqlstate), sqlstate};
  }

  static std::string in_brackets(std::string const& sqlstate) {
    return sqlstate.empty() ? "" : " (SQLSTATE " + sqlstate + ")";
  }

  PqxxConnection& connection_;
  std::string marker_;
  bool committing_ = false;         // `finish` has begun
  bool commit_sent_ = false;        // or is about to be
  bool over_ = false;               // nothing is to be sent any more
  bool ended_by_callback_ = false;  // tx.commit() or tx.abort()
};

}  // namespace db_bulkhead::detail

#endif
