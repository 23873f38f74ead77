// SPDX-License-Identifier: MIT
//
// A bulkhead over a pool such as many services have: shared pointers to libpqxx connections in a vector, a
// mutex and a condition variable. Twenty lines adapt it; the pool itself stays as it is.
//
// What such a pool cannot tell, the traits find out: libpqxx reports success where the server answered COMMIT
// with ROLLBACK, so a statement in front of COMMIT has to show that the transaction is alive.
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <pqxx/pqxx>
#include <string>
#include <utility>
#include <vector>

#include "db_bulkhead/db_bulkhead.hpp"
#include "foreign_pool.hpp"

namespace {

// ---- what is there already ----

class VectorPool {
 public:
  VectorPool(std::string url, std::size_t size) : url_{std::move(url)} {
    for (std::size_t i = 0; i < size; ++i) idle_.push_back(std::make_shared<pqxx::connection>(url_));
  }

  // Null if none came free in time.
  std::shared_ptr<pqxx::connection> get(std::chrono::steady_clock::time_point until) {
    std::unique_lock lock{mutex_};
    if (!returned_.wait_until(lock, until, [this] { return !idle_.empty(); })) return nullptr;
    auto connection = std::move(idle_.back());
    idle_.pop_back();
    return connection;
  }

  void put(std::shared_ptr<pqxx::connection> connection) {
    {
      std::lock_guard const lock{mutex_};
      idle_.push_back(std::move(connection));
    }
    returned_.notify_one();
  }

  std::shared_ptr<pqxx::connection> replacement() const { return std::make_shared<pqxx::connection>(url_); }

 private:
  std::string url_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<std::shared_ptr<pqxx::connection>> idle_;
};

// ---- what adapts it ----

class VectorLease {
 public:
  VectorLease(VectorPool& pool, std::shared_ptr<pqxx::connection> connection)
      : pool_{&pool}, connection_{std::move(connection)} {}
  VectorLease(VectorLease&&) noexcept = default;
  VectorLease& operator=(VectorLease&&) = delete;
  ~VectorLease() {
    if (connection_) pool_->put(discard_ ? replaced() : std::move(connection_));
  }

  pqxx::connection& operator*() const noexcept { return *connection_; }
  void discard() noexcept { discard_ = true; }

 private:
  // A pool that counts on all its connections gets the broken one back where no other is to be had.
  std::shared_ptr<pqxx::connection> replaced() noexcept {
    try {
      return pool_->replacement();
    } catch (std::exception const&) {
      return std::move(connection_);
    }
  }

  VectorPool* pool_;
  std::shared_ptr<pqxx::connection> connection_;
  bool discard_ = false;
};

class AdaptedPool {
 public:
  AdaptedPool(std::string url, std::size_t size) : pool_{std::move(url), size} {}

  VectorLease acquire(db_bulkhead::Deadline deadline) {
    // A day is the clock's "for ever" here: a condition variable overflows at time_point::max().
    auto const until = std::min(deadline, db_bulkhead::Deadline::after(std::chrono::hours{24})).time_point();
    auto connection = pool_.get(until);
    if (!connection) {
      throw db_bulkhead::ConnectionUnavailable{db_bulkhead::ConnectionUnavailable::Reason::timed_out,
                                               "no connection came free in time"};
    }
    return {pool_, std::move(connection)};
  }

 private:
  VectorPool pool_;
};

}  // namespace

template <>
struct db_bulkhead::TransactionTraits<pqxx::connection> {
  using transaction_type = pqxx::work;
  using Reason = TransactionRolledBack::Reason;

  static pqxx::work begin(pqxx::connection& connection, TransactionOptions const& options) {
    if (options.isolation != Isolation::server_default || options.access != Access::read_write ||
        options.statement_timeout || options.lock_timeout) {
      throw std::invalid_argument{"this adaptor begins plain transactions only"};
    }
    return pqxx::work{connection};
  }

  static void commit(pqxx::work& work) {
    require_alive(work);
    try {
      work.commit();
    } catch (pqxx::sql_error const& error) {  // a deferred constraint: the server said so
      throw TransactionRolledBack{Reason::server_refused, "COMMIT failed", std::string{error.sqlstate()}};
    } catch (std::exception const&) {  // in doubt, or the connection was lost
      std::throw_with_nested(CommitOutcomeUnknown{"COMMIT was sent, but its outcome is not known"});
    }
  }

  static void rollback(pqxx::work& work) { work.abort(); }

 private:
  // One round trip more for each transaction. PqxxPool needs none: it sees the server's status.
  static void require_alive(pqxx::work& work) {
    try {
      work.exec("SELECT 1");
    } catch (std::exception const&) {
      std::throw_with_nested(
          TransactionRolledBack{Reason::server_refused, "the callback went on after an error"});
    }
  }
};

int main() {
  return run_with_url("shared_ptr_pool", [](std::string const& url) {
    AdaptedPool pool{url, 2};
    db_bulkhead::DbBulkhead bulkhead{pool, {.concurrent = 1}};
    show(
        bulkhead, [](pqxx::work& work) { return work.exec("SELECT 42")[0][0].as<int>(); },
        [](pqxx::work& work) {
          try {
            work.exec("SELECT no_such_column");
          } catch (pqxx::sql_error const&) {
          }
        });
  });
}
