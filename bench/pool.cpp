// SPDX-License-Identifier: MIT
//
// What it costs to borrow and give back where connections cost nothing: the pool alone,
// beside a vector under a mutex with a condition variable, and SOCI's pool.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "db_bulkhead/connection_pool.hpp"
#include "question.hpp"
#include "traffic.hpp"

#if __has_include(<soci/connection-pool.h>)
#include <soci/connection-pool.h>
#define BENCH_HAS_SOCI 1
#endif

namespace {

using namespace std::chrono_literals;
using db_bulkhead::Deadline;
using db_bulkhead::ResetProgress;

struct Connection {};

// Everything succeeds at once; no poll of a socket either, which is 450 ns.
struct Connector {
  using connection_type = Connection;
  std::unique_ptr<Connection> connect(Deadline, std::stop_token const&) {
    return std::make_unique<Connection>();
  }
  bool alive(Connection&) noexcept { return true; }
  ResetProgress ping(Connection&, Deadline, std::stop_token const&) noexcept { return ResetProgress::done; }
  db_bulkhead::Verdict judge(Connection&) noexcept { return db_bulkhead::Verdict::keep; }
  ResetProgress begin_reset(Connection&, db_bulkhead::QueueWait) noexcept { return ResetProgress::done; }
  ResetProgress finish_reset(Connection&, Deadline, std::stop_token const&) noexcept {
    return ResetProgress::done;
  }
};

struct Ours {
  static constexpr char const* name = "ConnectionPool";
  explicit Ours(std::size_t size) : pool{{}, {.max_size = size, .min_idle = size, .max_waiting = 4096}} {
    while (pool.stats().idle != size) std::this_thread::yield();
  }
  void turn() { static_cast<void>(pool.acquire(Deadline::never())); }
  db_bulkhead::ConnectionPool<Connector> pool;
};

// What people write: it waits until a time, and for that has to know what time it is.
struct Vector {
  static constexpr char const* name = "mutex, condvar, vector";
  explicit Vector(std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) idle.push_back(std::make_unique<Connection>());
  }
  void turn() {
    std::unique_ptr<Connection> connection;
    {
      std::unique_lock lock{mutex};
      returned.wait_until(lock, bench::Clock::now() + 30s, [this] { return !idle.empty(); });
      connection = std::move(idle.back());
      idle.pop_back();
    }
    benchmark::DoNotOptimize(connection);
    {
      std::lock_guard const lock{mutex};
      idle.push_back(std::move(connection));
    }
    returned.notify_one();
  }
  std::mutex mutex;
  std::condition_variable returned;
  std::vector<std::unique_ptr<Connection>> idle;
};

#ifdef BENCH_HAS_SOCI
struct Soci {
  static constexpr char const* name = "SOCI connection_pool";
  explicit Soci(std::size_t size) : pool{size} {}
  void turn() {
    std::size_t position = 0;
    if (pool.try_lease(position, 30'000)) pool.give_back(position);
  }
  soci::connection_pool pool;
};
#endif

constexpr std::size_t size = 8;
constexpr std::size_t crowds[] = {1, 4, 16, 64};

std::string case_of(char const* peer, std::size_t threads) {
  return std::string{"pool/"} + peer + "/" + std::to_string(threads);
}

template <class Peer>
void ask_peer(std::size_t threads, bench::Effort const& effort) {
  bench::add_sampled(case_of(Peer::name, threads), effort, [threads, effort](benchmark::State& state) {
    Peer peer{size};
    for (auto _ : state) {
      auto const traffic = bench::run_traffic(peer, threads, bench::milliseconds(10 * effort.length),
                                              bench::milliseconds(60 * effort.length),
                                              [&](std::size_t, bool) { peer.turn(); });
      state.SetIterationTime(traffic.seconds);
      state.counters["rate"] = static_cast<double>(traffic.total()) / traffic.seconds;
    }
  });
}

void ask(bench::Effort const& effort) {
  for (std::size_t const threads : crowds) {
    ask_peer<Ours>(threads, effort);
    ask_peer<Vector>(threads, effort);
#ifdef BENCH_HAS_SOCI
    ask_peer<Soci>(threads, effort);
#endif
  }
}

double nanoseconds(bench::Results const& results, char const* peer, std::size_t threads) {
  return 1e9 / results.median(case_of(peer, threads), "rate");
}

void answer(bench::Results const& results, bench::Effort const&) {
  bench::Row{"ns for each, over all threads"}.text("pool").text("vector").text("SOCI").text(
      "   vector / pool");
  for (std::size_t const threads : crowds) {
    double const ours = nanoseconds(results, Ours::name, threads);
    double const vector = nanoseconds(results, Vector::name, threads);
    bench::Row row{std::to_string(threads) + (threads == 1 ? " thread" : " threads") + ", 8 connections"};
    row.number(ours, 1).number(vector, 1).number(nanoseconds(results, "SOCI connection_pool", threads), 1);
    if (threads == 1) {
      row.at_least(vector / ours, 1);
    } else if (threads == 16) {
      row.at_least(vector / ours, 3);
    } else {
      row.number(vector / ours, 2);
    }
  }
}

}  // namespace

bench::Question const bench::pool{"A warm pool: acquire and return, no connection behind it, wall time", ask,
                                  answer};
