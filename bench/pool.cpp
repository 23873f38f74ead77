// SPDX-License-Identifier: MIT
//
// What it costs to borrow and give back where connections cost nothing: the pool alone,
// beside a vector under a mutex with a condition variable, and SOCI's pool. The look at
// the socket that a real connection takes is measured apart.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
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

// The headers alone are not enough: BENCH_LINKS_SOCI is set where the library was found too.
#if defined(BENCH_LINKS_SOCI) && __has_include(<soci/connection-pool.h>)
#include <soci/connection-pool.h>
#define BENCH_HAS_SOCI 1
#endif

namespace {

using namespace std::chrono_literals;
using db_bulkhead::Deadline;
using db_bulkhead::ResetProgress;

struct Connection {};

// Everything succeeds at once; no poll of a socket either, which costs more than all the rest.
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

struct Case {
  std::size_t threads;
  std::size_t size;

  std::string name() const {
    auto const some = [](std::size_t count, char const* what) {
      return std::to_string(count) + what + (count == 1 ? "" : "s");
    };
    return some(threads, " thread") + ", " + some(size, " connection");
  }
  /// Times the vector; zero where none is set.
  double target() const {
    if (size != 8) return 0;
    return threads == 1 ? 1 : threads == 16 ? 3 : 0;
  }
};
constexpr Case cases[] = {{1, 1}, {1, 8}, {4, 8}, {16, 8}, {64, 8}};

std::string full_name(Case const& one, char const* peer) {
  return "pool/" + one.name() + "/" + peer;
}

template <class Peer>
void add(Case const& one, bench::Effort const& effort) {
  bench::add_sampled(full_name(one, Peer::name), effort, [one, effort](benchmark::State& state) {
    Peer peer{one.size};
    for (auto _ : state) {
      auto const traffic = bench::run_traffic(peer, one.threads, bench::milliseconds(10 * effort.length),
                                              bench::milliseconds(60 * effort.length),
                                              [&](std::size_t, bool) { peer.turn(); });
      state.SetIterationTime(traffic.seconds);
      state.counters["rate"] = static_cast<double>(traffic.total()) / traffic.seconds;
    }
  });
}

// What PqxxPool asks of a connection at each borrow, of a socket on which nothing has come.
char const* const look = "pool/poll of a quiet socket";
void look_at_socket(benchmark::State& state) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) return state.SkipWithError("socketpair");
  for (auto _ : state) {
    pollfd fd{ends[0], POLLIN, 0};
    benchmark::DoNotOptimize(::poll(&fd, 1, 0));
  }
  for (int const end : ends) ::close(end);
}

void ask(bench::Effort const& effort) {
  for (Case const& one : cases) {
    add<Ours>(one, effort);
    add<Vector>(one, effort);
#ifdef BENCH_HAS_SOCI
    add<Soci>(one, effort);
#endif
  }
  benchmark::RegisterBenchmark(look, look_at_socket)
      ->Repetitions(effort.samples)
      ->MinTime(0.01 * effort.length);
}

void answer(bench::Results const& results, bench::Effort const&) {
  bench::Row{"ns for each, over all threads"}.text("pool").text("vector").text("SOCI").text(
      "   vector / pool");
  for (Case const& one : cases) {
    auto const cost = [&](char const* peer) { return 1e9 / results.median(full_name(one, peer), "rate"); };
    double const ours = cost(Ours::name);
    double const vector = cost(Vector::name);
    bench::Row row{one.name()};
    row.number(ours, 1).number(vector, 1).number(cost("SOCI connection_pool"), 1);
    one.target() > 0 ? row.at_least(vector / ours, one.target()) : row.number(vector / ours, 2);
  }
  bench::Row{"poll of a quiet socket, not in it"}.number(results.median(look, "cpu_ns"), 1);
}

}  // namespace

bench::Question const bench::pool{
    "A warm pool: acquire and return, no connection behind it, wall time. The pool keeps the order of "
    "arrival;\n"
    "a vector under a mutex with a condition variable, and SOCI's pool, do not",
    ask, answer};
