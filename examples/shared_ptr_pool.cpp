// SPDX-License-Identifier: MIT
//
// A bulkhead over a pool such as many services have: shared pointers to libpqxx connections in a vector, a
// mutex and a condition variable. Some forty lines adapt it; the pool itself stays as it is.
//
// What libpqxx does not tell, the traits find out. It reports success where the server answered COMMIT with
// ROLLBACK, and where there was no transaction any more, so a statement in front of COMMIT has to show that
// there is one, and alive. PqxxPool needs no such round trip, and notices more. Here, a callback that sends
// COMMIT AND CHAIN, or COMMIT and BEGIN, goes unnoticed; with libpqxx 6.4, which itself sends ROLLBACK after
// an error, COMMIT and then a statement that fails as well.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <pqxx/pqxx>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "db_bulkhead/db_bulkhead.hpp"
#include "foreign_pool.hpp"

namespace {

using Connection = std::shared_ptr<pqxx::connection>;

// ---- what is there already ----

class VectorPool {
 public:
  VectorPool(std::string const& url, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) idle_.push_back(std::make_shared<pqxx::connection>(url));
  }

  // Nothing if none came free in time.
  std::optional<Connection> get(std::chrono::steady_clock::time_point until) {
    std::unique_lock lock{mutex_};
    if (!returned_.wait_until(lock, until, [this] { return !idle_.empty(); })) return std::nullopt;
    auto connection = std::move(idle_.back());
    idle_.pop_back();
    return connection;
  }

  void put(Connection connection) {
    {
      std::lock_guard const lock{mutex_};
      idle_.push_back(std::move(connection));
    }
    returned_.notify_one();
  }

 private:
  std::mutex mutex_;  // guards idle_
  std::condition_variable returned_;
  std::vector<Connection> idle_;
};

// ---- what adapts it ----

class VectorLease {
 public:
  VectorLease(VectorPool& pool, Connection connection) : pool_{&pool}, connection_{std::move(connection)} {}
  VectorLease(VectorLease&& other) noexcept
      : pool_{std::exchange(other.pool_, nullptr)}, connection_{std::move(other.connection_)} {}
  VectorLease& operator=(VectorLease&&) = delete;
  ~VectorLease() {
    if (pool_ != nullptr) pool_->put(std::move(connection_));
  }

  pqxx::connection& operator*() const noexcept { return *connection_; }

  // The place goes back empty, and whoever gets it connects: a destructor could neither wait for a server
  // that is away nor say so.
  void discard() noexcept { connection_.reset(); }
  void open(std::string const& url) {
    if (!connection_ || !connection_->is_open()) connection_ = std::make_shared<pqxx::connection>(url);
  }

 private:
  VectorPool* pool_;
  Connection connection_;
};

class AdaptedPool {
 public:
  AdaptedPool(std::string url, std::size_t size) : url_{std::move(url)}, pool_{url_, size} {}

  // Where it has to connect, the connection string's connect_timeout is the limit, not the deadline.
  VectorLease acquire(db_bulkhead::Deadline deadline) {
    // A day is the clock's "for ever" here: a condition variable overflows at time_point::max().
    auto const until = std::min(deadline, db_bulkhead::Deadline::after(std::chrono::hours{24})).time_point();
    auto connection = pool_.get(until);
    if (!connection) {
      throw db_bulkhead::ConnectionUnavailable{db_bulkhead::ConnectionUnavailable::Reason::timed_out,
                                               "no connection came free in time"};
    }
    VectorLease lease{pool_, std::move(*connection)};
    lease.open(url_);
    return lease;
  }

 private:
  std::string url_;
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

  // A savepoint can be set in a transaction that is alive, and nowhere else: in one that has failed it is
  // refused with 25P02, outside of any with 25P01. SELECT 1 could not tell the last from the first.
  static void check(pqxx::work& work) {
    try {
      work.exec("SAVEPOINT db_bulkhead");
    } catch (pqxx::usage_error const&) {
      if (is_closed_by_commit(work)) std::throw_with_nested(BoundaryViolated{"the callback called commit()"});
      throw;
    } catch (pqxx::sql_error const& error) {
      if (error.sqlstate() != "25P01") throw;
      std::throw_with_nested(BoundaryViolated{"the callback ended the transaction itself"});
    }
  }

  static void commit(pqxx::work& work) {
    require_alive(work);
    try {
      work.commit();
    } catch (pqxx::sql_error const& error) {
      // 40003 is the server's own word for not knowing; a lost connection may have lost the answer.
      if (!is_open(work) || error.sqlstate() == "40003") in_doubt();
      std::throw_with_nested(
          TransactionRolledBack{Reason::server_refused, "COMMIT failed", std::string{error.sqlstate()}});
    } catch (std::exception const&) {  // in_doubt_error, broken_connection
      in_doubt();
    }
  }

  static void rollback(pqxx::work& work) {
    work.abort();  // reports no failure
    if (!is_open(work)) throw pqxx::broken_connection{"the connection was lost before ROLLBACK"};
  }

 private:
  // libpqxx runs nothing in a transaction that has ended for it, and 6.4 ends it at the first error. Which
  // end that was, commit() tells: it passes where there was one already, is in doubt again, or refuses.
  static bool is_closed_by_commit(pqxx::work& work) {
    try {
      work.commit();
      return true;
    } catch (pqxx::in_doubt_error const&) {
      return true;
    } catch (std::exception const&) {
      return false;
    }
  }

  static void require_alive(pqxx::work& work) {
    try {
      check(work);
    } catch (Error const&) {
      throw;
    } catch (std::exception const&) {
      if (!is_open(work)) {
        std::throw_with_nested(TransactionRolledBack{Reason::connection_lost, "the connection is lost"});
      }
      std::throw_with_nested(TransactionRolledBack{Reason::server_refused,
                                                   "the callback went on after an error, or after abort()"});
    }
  }

  // Called where an exception is being handled, which it nests.
  [[noreturn]] static void in_doubt() {
    std::throw_with_nested(CommitOutcomeUnknown{"COMMIT was sent, but its outcome is not known"});
  }

  static bool is_open(pqxx::work& work) { return work.conn().is_open(); }
};

namespace {

struct PqxxSql {
  static void run(pqxx::work& work, std::string const& text) { work.exec(text); }
  static int ask(pqxx::work& work, std::string const& text) { return work.exec(text)[0][0].as<int>(); }
};

}  // namespace

int main() {
  return run_with_url("shared_ptr_pool", [](std::string const& url) {
    AdaptedPool pool{url, 2};
    show<PqxxSql>(pool);
  });
}
