// SPDX-License-Identifier: MIT
//
// A bulkhead over SOCI's connection_pool. SOCI has no time-out but milliseconds, no reset between borrowers,
// and its commit() does not look at what the server answered: the traits send COMMIT themselves and do.
#include <libpq-fe.h>
#include <soci/postgresql/soci-postgresql.h>
#include <soci/soci.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
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
  void discard() noexcept { discard_ = true; }

 private:
  void close() noexcept {
    try {
      pool_->at(position_).close();  // the next borrower opens it anew
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

  SociLease acquire(db_bulkhead::Deadline deadline) {
    using Unavailable = db_bulkhead::ConnectionUnavailable;
    std::size_t position = 0;
    if (!pool_.try_lease(position, milliseconds_to(deadline))) {
      throw Unavailable{Unavailable::Reason::timed_out, "no session came free in time"};
    }
    SociLease lease{pool_, position};
    // SOCI opens sessions one by one, on the caller's thread, in its own time.
    if (!(*lease).is_connected()) (*lease).open(soci::postgresql, url_);
    return lease;
  }

 private:
  static int milliseconds_to(db_bulkhead::Deadline deadline) {
    if (deadline.is_never()) return -1;
    auto const left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
    return static_cast<int>(std::min<std::int64_t>(left, std::numeric_limits<int>::max()));
  }

  std::string url_;
  soci::connection_pool pool_;
};

}  // namespace

template <>
struct db_bulkhead::TransactionTraits<soci::session> {
  using Reason = TransactionRolledBack::Reason;

  // What the callback gets, and uses as SOCI's session.
  struct transaction_type {
    soci::session& session;
  };
  using callback_type = transaction_type;

  static transaction_type begin(soci::session& session, TransactionOptions const& options) {
    if (options.isolation != Isolation::server_default || options.access != Access::read_write ||
        options.statement_timeout || options.lock_timeout) {
      throw std::invalid_argument{"this adaptor begins plain transactions only"};
    }
    session.begin();
    return {session};
  }

  static void check(transaction_type& transaction) {
    if (PQtransactionStatus(raw(transaction)) == PQTRANS_IDLE) {
      throw BoundaryViolated{"the callback ended the transaction itself"};
    }
  }

  static void commit(transaction_type& transaction) {
    check(transaction);
    if (PQtransactionStatus(raw(transaction)) != PQTRANS_INTRANS) {
      throw TransactionRolledBack{Reason::server_refused, "the callback went on after an error"};
    }
    Result const result{PQexec(raw(transaction), "COMMIT")};
    if (std::string_view{PQcmdStatus(result.get())} == "COMMIT") return;
    char const* const sqlstate = PQresultErrorField(result.get(), PG_DIAG_SQLSTATE);
    if (sqlstate != nullptr && PQtransactionStatus(raw(transaction)) == PQTRANS_IDLE) {
      throw TransactionRolledBack{Reason::server_refused, "COMMIT failed", sqlstate};
    }
    throw CommitOutcomeUnknown{"COMMIT was sent, but its outcome is not known"};
  }

  static void rollback(transaction_type& transaction) {
    if (PQtransactionStatus(raw(transaction)) != PQTRANS_IDLE) transaction.session.rollback();
  }

 private:
  struct Clear {
    void operator()(PGresult* result) const noexcept { PQclear(result); }
  };
  using Result = std::unique_ptr<PGresult, Clear>;

  static PGconn* raw(transaction_type& transaction) {
    return static_cast<soci::postgresql_session_backend*>(transaction.session.get_backend())->conn_;
  }
};

int main() {
  return run_with_url("soci_pool", [](std::string const& url) {
    SociPool pool{url, 2};
    db_bulkhead::DbBulkhead bulkhead{pool, {.concurrent = 1}};
    show(
        bulkhead,
        [](auto& transaction) {
          int value = 0;
          transaction.session << "SELECT 42", soci::into(value);
          return value;
        },
        [](auto& transaction) {
          try {
            transaction.session << "SELECT no_such_column";
          } catch (soci::soci_error const&) {
          }
        });
  });
}
