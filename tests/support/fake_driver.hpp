// SPDX-License-Identifier: MIT
//
// A pool and a driver without a database, for what no server does on command: an
// exception, a stop or a pause at exactly one step. Every step is recorded, and runs a
// hook that a test may put there.
#ifndef DB_BULKHEAD_TESTS_FAKE_DRIVER_HPP
#define DB_BULKHEAD_TESTS_FAKE_DRIVER_HPP

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "db_bulkhead/db_bulkhead.hpp"

namespace fake {

enum class Step {
  acquire,
  begin,
  check,
  commit,
  rollback,
  abandon,
  transaction_destroyed,
  discard,
  give_back
};
inline constexpr std::array throwing_steps{Step::acquire, Step::begin, Step::check, Step::commit,
                                           Step::rollback};

struct Pool;

struct Connection {
  Pool* pool;
};

// Counts leases and records the steps. Hooks are set before threads start and run outside the lock.
struct Pool {
  std::function<void(Step)> hook = [](Step) {};
  std::atomic<int> leased{0};
  std::atomic<int> most_leased{0};
  std::atomic<int> acquired{0};
  std::atomic<int> discarded{0};

  void reached(Step step) {
    {
      std::lock_guard const lock{mutex};
      steps.push_back(step);
    }
    hook(step);
  }

  std::vector<Step> trace() {
    std::lock_guard const lock{mutex};
    return std::exchange(steps, {});
  }

  struct Lease {
    explicit Lease(Pool& owner) : connection{&owner} {
      int const now = ++owner.leased;
      int most = owner.most_leased;
      while (now > most && !owner.most_leased.compare_exchange_weak(most, now)) {
      }
    }
    Lease(Lease&& other) noexcept
        : connection{std::exchange(other.connection.pool, nullptr)}, discarded{other.discarded} {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (connection.pool == nullptr) return;
      connection.pool->reached(Step::give_back);
      if (discarded) ++connection.pool->discarded;
      --connection.pool->leased;
    }
    Connection& operator*() noexcept { return connection; }
    void discard() noexcept {
      connection.pool->reached(Step::discard);
      discarded = true;
    }

    Connection connection;
    bool discarded = false;
  };

  Lease acquire(db_bulkhead::Deadline) {
    ++acquired;
    reached(Step::acquire);
    return Lease{*this};
  }

  std::mutex mutex;  // guards steps
  std::vector<Step> steps;
};

// Neither copied nor moved, as a driver's transaction may well be.
class Transaction {
 public:
  explicit Transaction(Connection& connection) : pool{*connection.pool} {}
  Transaction(Transaction const&) = delete;
  Transaction& operator=(Transaction const&) = delete;
  ~Transaction() { pool.reached(Step::transaction_destroyed); }

  Pool& pool;
};

}  // namespace fake

template <>
struct db_bulkhead::TransactionTraits<fake::Connection> {
  using transaction_type = fake::Transaction;
  static fake::Transaction begin(fake::Connection& connection, TransactionOptions const&) {
    connection.pool->reached(fake::Step::begin);
    return fake::Transaction{connection};
  }
  static void check(fake::Transaction& transaction) { transaction.pool.reached(fake::Step::check); }
  static void commit(fake::Transaction& transaction) { transaction.pool.reached(fake::Step::commit); }
  static void rollback(fake::Transaction& transaction) { transaction.pool.reached(fake::Step::rollback); }
  static void abandon(fake::Connection&, fake::Transaction& transaction) noexcept {
    transaction.pool.reached(fake::Step::abandon);
  }
};

#endif
