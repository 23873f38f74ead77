// SPDX-License-Identifier: MIT
//
// A bulkhead over SOCI's connection_pool, with SOCI's backend for PostgreSQL.
//
// What SOCI does not tell, the traits read from libpq's handle. SOCI's commit() returns where the server
// answered COMMIT with ROLLBACK, and its exceptions do not say whether the session is lost; so COMMIT is
// sent and judged here. What stays unnoticed is a callback that sends COMMIT AND CHAIN, or COMMIT and BEGIN.
#include <libpq-fe.h>
#include <soci/postgresql/soci-postgresql.h>
#include <soci/soci.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "db_bulkhead/db_bulkhead.hpp"
#include "foreign_pool.hpp"

namespace {

class SociLease {
 public:
  SociLease(soci::connection_pool& pool, std::size_t position) : pool_{&pool}, position_{position} {}
  SociLease(SociLease&& other) noexcept
      : pool_{std::exchange(other.pool_, nullptr)}, position_{other.position_}, discard_{other.discard_} {}
  SociLease& operator=(SociLease&&) = delete;
  ~SociLease() {
    if (pool_ == nullptr) return;
    if (discard_) close();
    pool_->give_back(position_);
  }

  soci::session& operator*() const { return pool_->at(position_); }
  void discard() noexcept { discard_ = true; }  // the next borrower opens it anew

  // is_connected() asks the server: a round trip for each loan, but what died while idle is noticed. It has
  // to be closed then: open() refuses a session that was open before, dead or not, for ever.
  void open(std::string const& url) {
    soci::session& session = pool_->at(position_);
    if (session.is_connected()) return;
    session.close();
    session.open(soci::postgresql, url);
  }

 private:
  void close() noexcept {
    try {
      pool_->at(position_).close();
    } catch (std::exception const&) {
    }
  }

  soci::connection_pool* pool_;
  std::size_t position_;
  bool discard_ = false;
};

class SociPool {
 public:
  SociPool(std::string url, std::size_t size) : url_{std::move(url)}, pool_{size} {}

  // Sessions are opened on the caller's thread; connect_timeout in the connection string is the limit then,
  // not the deadline.
  SociLease acquire(db_bulkhead::Deadline deadline) {
    using Unavailable = db_bulkhead::ConnectionUnavailable;
    std::size_t position = 0;
    // More than once, because SOCI waits by the wall clock, which somebody may set, and for 24 days at most.
    while (!pool_.try_lease(position, milliseconds_to(deadline))) {
      if (deadline.passed()) {
        throw Unavailable{Unavailable::Reason::timed_out, "no session came free in time"};
      }
    }
    SociLease lease{pool_, position};
    lease.open(url_);
    return lease;
  }

 private:
  // As SOCI takes it: a negative number is no limit.
  static int milliseconds_to(db_bulkhead::Deadline deadline) {
    if (deadline.is_never()) return -1;
    auto const left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
    return static_cast<int>(std::min<std::int64_t>(left, std::numeric_limits<int>::max()));
  }

  std::string url_;
  soci::connection_pool pool_;
};

// What a callback gets.
struct SociTransaction {
  soci::session& session;
};

}  // namespace

template <>
struct db_bulkhead::TransactionTraits<soci::session> {
  using transaction_type = SociTransaction;
  using Reason = TransactionRolledBack::Reason;

  static SociTransaction begin(soci::session& session, TransactionOptions const& options) {
    if (options.isolation != Isolation::server_default || options.access != Access::read_write ||
        options.statement_timeout || options.lock_timeout) {
      throw std::invalid_argument{"this adaptor begins plain transactions only"};
    }
    session.begin();
    return {session};
  }

  static void check(SociTransaction& transaction) {
    if (raw(transaction) == nullptr) throw BoundaryViolated{"the callback closed the session"};
    if (status(transaction) == PQTRANS_IDLE) {
      throw BoundaryViolated{"the callback ended the transaction itself"};
    }
  }

  static void commit(SociTransaction& transaction) {
    check(transaction);
    require_committable(transaction);
    Result const result{PQexec(raw(transaction), "COMMIT")};
    // Only a session that is at rest has read the answer to its end. No memory for a result is doubt, too.
    if (result && status(transaction) == PQTRANS_IDLE)
      judge(*result);
    else
      in_doubt();
  }

  static void rollback(SociTransaction& transaction) {
    if (status(transaction) != PQTRANS_IDLE) transaction.session.rollback();
  }

 private:
  struct Clear {
    void operator()(PGresult* result) const noexcept { PQclear(result); }
  };
  using Result = std::unique_ptr<PGresult, Clear>;

  static void require_committable(SociTransaction& transaction) {
    switch (status(transaction)) {
      case PQTRANS_INTRANS: return;
      case PQTRANS_UNKNOWN: throw TransactionRolledBack{Reason::connection_lost, "the connection is lost"};
      case PQTRANS_INERROR:
        throw TransactionRolledBack{Reason::server_refused, "the callback went on after an error"};
      default: throw TransactionRolledBack{Reason::server_refused, "a statement is still under way"};
    }
  }

  static void judge(PGresult& result) {
    std::string_view const tag{PQcmdStatus(&result)};
    if (tag == "COMMIT") return;
    if (tag == "ROLLBACK") {
      throw TransactionRolledBack{Reason::server_refused, "the server answered COMMIT with ROLLBACK"};
    }
    char const* const sqlstate = PQresultErrorField(&result, PG_DIAG_SQLSTATE);
    // 40003 is the server's own word for not knowing.
    if (sqlstate == nullptr || std::string_view{sqlstate} == "40003") in_doubt();
    throw TransactionRolledBack{Reason::server_refused, "COMMIT failed", sqlstate};
  }

  [[noreturn]] static void in_doubt() {
    throw CommitOutcomeUnknown{"COMMIT was sent, but its outcome is not known"};
  }

  // Null where the callback has closed the session, of which libpq says PQTRANS_UNKNOWN.
  static PGconn* raw(SociTransaction& transaction) {
    auto* const backend = transaction.session.get_backend();
    return backend == nullptr ? nullptr : static_cast<soci::postgresql_session_backend*>(backend)->conn_;
  }

  static PGTransactionStatusType status(SociTransaction& transaction) {
    return PQtransactionStatus(raw(transaction));
  }
};

namespace {

struct SociSql {
  static void run(SociTransaction& transaction, std::string const& text) { transaction.session << text; }
  static int ask(SociTransaction& transaction, std::string const& text) {
    int value = 0;
    transaction.session << text, soci::into(value);
    return value;
  }
};

}  // namespace

int main() {
  return run_with_url("soci_pool", [](std::string const& url) {
    SociPool pool{url, 2};
    show<SociSql>(pool);
  });
}
