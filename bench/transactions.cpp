// SPDX-License-Identifier: MIT
//
// bench_transactions [--quick]: transactions on the PostgreSQL server that DB_URL names, through the
// bulkhead and the pool, beside bare libpqxx on as many connections of its own. Samples
// are taken in turns, in random order; what counts are ratios of their medians. No target
// changes the exit code.
//
// On several processors a round trip takes two or three times as long where the system
// has put client and session apart, and the ratios of one thread are as unsteady: look
// at them on one processor, server and all (`taskset -c 0 ./run bench`).
#include <pqxx/pqxx>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "db_bulkhead/db_bulkhead.hpp"
#include "db_bulkhead/pqxx.hpp"
#include "support/fault_proxy.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using db_bulkhead::Deadline;
using db_bulkhead::SessionReset;
using namespace std::chrono_literals;

constexpr char const* table = "db_bulkhead_bench";

struct Statement {
  char const* name;
  std::string (*text)(std::size_t row);
};
constexpr std::array statements{
    Statement{"SELECT of one row",
              [](std::size_t row) {
                return "SELECT n FROM " + std::string{table} + " WHERE id = " + std::to_string(row);
              }},
    Statement{"UPDATE of one row", [](std::size_t row) {
                return "UPDATE " + std::string{table} + " SET n = n + 1 WHERE id = " + std::to_string(row);
              }}};

// ---- what is compared ----

// Runs `sql` as one transaction of the thread's; may be called by as many threads as it was made for.
struct Runner {
  virtual ~Runner() = default;
  virtual void run(std::size_t thread, std::string const& sql) = 0;
};

class Bare : public Runner {
 public:
  Bare(std::string const& url, std::size_t threads) {
    for (std::size_t i = 0; i < threads; ++i) connections_.push_back(std::make_unique<pqxx::connection>(url));
  }
  void run(std::size_t thread, std::string const& sql) override {
    pqxx::work work{*connections_[thread]};
    work.exec(sql);
    work.commit();
  }

 private:
  std::vector<std::unique_ptr<pqxx::connection>> connections_;
};

class Bulkhead : public Runner {
 public:
  Bulkhead(std::string const& url, std::size_t threads, SessionReset reset, bool lazy = false)
      : pool_{url, {.max_size = threads, .reset = reset, .lazy_reset = lazy}},
        bulkhead_{pool_, {.concurrent = threads}} {}
  void run(std::size_t, std::string const& sql) override {
    bulkhead_.transaction(0ns, [&](pqxx::dbtransaction& tx) { tx.exec(sql); });
  }

 private:
  db_bulkhead::PqxxPool pool_;
  db_bulkhead::DbBulkhead<db_bulkhead::PqxxPool> bulkhead_;
};

struct Way {
  char const* name;
  std::function<std::unique_ptr<Runner>(std::string const& url, std::size_t threads)> make;
};

std::vector<Way> ways() {
  auto const with = [](SessionReset reset) {
    return [reset](std::string const& url, std::size_t threads) {
      return std::make_unique<Bulkhead>(url, threads, reset);
    };
  };
  return {{"bare libpqxx",
           [](std::string const& url, std::size_t threads) { return std::make_unique<Bare>(url, threads); }},
          {"bulkhead + pool, reset none", with(SessionReset::none)},
          {"bulkhead + pool, reset clean", with(SessionReset::clean)},
          {"bulkhead + pool, discard_all", with(SessionReset::discard_all)},
          {"bulkhead + pool, clean, lazy", [](std::string const& url, std::size_t threads) {
             return std::make_unique<Bulkhead>(url, threads, SessionReset::clean, true);
           }}};
}

// ---- measuring ----

struct Sample {
  double rate, p50, p99;  // a second, microseconds
};

double quantile(std::vector<double>& values, double part) {
  auto const index = static_cast<std::size_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index), values.end());
  return values[index];
}

Sample measure(Runner& runner, std::size_t threads, Statement const& statement, Clock::duration length) {
  std::vector<std::vector<double>> times(threads);
  auto const start = Clock::now();
  {
    std::vector<std::jthread> workers;
    for (std::size_t thread = 0; thread < threads; ++thread) {
      workers.emplace_back([&, thread] {
        std::string const sql = statement.text(thread);
        for (auto before = Clock::now(); before < start + length;) {
          runner.run(thread, sql);
          auto const after = Clock::now();
          times[thread].push_back(std::chrono::duration<double, std::micro>(after - before).count());
          before = after;
        }
      });
    }
  }
  double const seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::vector<double> all;
  for (auto const& of_thread : times) all.insert(all.end(), of_thread.begin(), of_thread.end());
  return {static_cast<double>(all.size()) / seconds, quantile(all, 0.5), quantile(all, 0.99)};
}

double median(std::vector<Sample> const& samples, double Sample::*figure) {
  std::vector<double> values;
  for (Sample const& sample : samples) values.push_back(sample.*figure);
  return quantile(values, 0.5);
}

using Runners = std::vector<std::unique_ptr<Runner>>;

Runners make_runners(std::vector<Way> const& all, std::string const& url, std::size_t threads) {
  Runners runners;
  for (Way const& way : all) runners.push_back(way.make(url, threads));
  return runners;
}

// Who goes first, second ... is drawn anew for each round: in a fixed order whoever was third took twice as
// long, whatever it was.
class Turns {
 public:
  explicit Turns(std::size_t count) : order_(count) { std::iota(order_.begin(), order_.end(), 0); }
  std::vector<std::size_t> const& draw() {
    std::shuffle(order_.begin(), order_.end(), random_);
    return order_;
  }

 private:
  std::vector<std::size_t> order_;
  std::minstd_rand random_{std::random_device{}()};
};

// Each set has sessions of its own: which processor the system gives a session, and so how far it is from its
// client, stays the same for long, and makes more of a difference than what is compared.
constexpr int rounds_of_a_set = 3;

void compare(std::string const& url, Statement const& statement, std::size_t threads, int sets,
             Clock::duration length) {
  auto const all = ways();
  std::vector<std::vector<Sample>> samples(all.size());
  Turns turns{all.size()};
  for (int set = 0; set < sets; ++set) {
    Runners const runners = make_runners(all, url, threads);
    for (auto const& runner : runners) measure(*runner, threads, statement, length / 5);  // opens connections
    for (int round = 0; round < rounds_of_a_set; ++round) {
      for (std::size_t const way : turns.draw()) {
        samples[way].push_back(measure(*runners[way], threads, statement, length));
      }
    }
  }
  std::printf("\n%s, %zu thread%s, %zu connection%s\n", statement.name, threads, threads == 1 ? "" : "s",
              threads, threads == 1 ? "" : "s");
  std::printf("%-34s%10s%10s%10s%10s\n", "", "a second", "p50 us", "p99 us", "to bare");
  double const bare = median(samples[0], &Sample::rate);
  for (std::size_t way = 0; way < all.size(); ++way) {
    double const rate = median(samples[way], &Sample::rate);
    std::printf("%-34s%10.0f%10.0f%10.0f%10.2f", all[way].name, rate, median(samples[way], &Sample::p50),
                median(samples[way], &Sample::p99), rate / bare);
    if (way == 1) std::printf(" (target >= 0.97: %s)", rate / bare >= 0.97 ? "met" : "NOT MET");
    std::printf("\n");
  }
}

// ---- round trips, and the price of a reset ----

// A transaction that asks for all that BEGIN can be told.
class WithSettings : public Runner {
 public:
  explicit WithSettings(std::string const& url)
      : pool_{url, {.max_size = 1, .reset = SessionReset::none}}, bulkhead_{pool_, {.concurrent = 1}} {}
  void run(std::size_t, std::string const& sql) override {
    bulkhead_.transaction({.deadline = Deadline::after(1min),
                           .statement_timeout = 10s,
                           .lock_timeout = 10s,
                           .isolation = db_bulkhead::Isolation::repeatable_read,
                           .access = db_bulkhead::Access::read_only},
                          [&](pqxx::dbtransaction& tx) { tx.exec(sql); });
  }

 private:
  db_bulkhead::PqxxPool pool_;
  db_bulkhead::DbBulkhead<db_bulkhead::PqxxPool> bulkhead_;
};

// Messages for each transaction. What a reset sends is under way still when its transaction is over.
double sent_by(Runner& runner, support::FaultProxy const& proxy) {
  constexpr int count = 100;
  auto const sent_so_far = [&] {
    std::this_thread::sleep_for(50ms);
    return proxy.sent();
  };
  std::string const sql = statements[0].text(0);
  runner.run(0, sql);
  int const before = sent_so_far();
  for (int i = 0; i < count; ++i) runner.run(0, sql);
  return static_cast<double>(sent_so_far() - before) / count;
}

void count_round_trips(std::string const& url) {
  support::FaultProxy const proxy{url};
  std::string const& by_proxy = proxy.dsn();
  std::printf(
      "\nMessages that the client sends for a transaction of one SELECT, counted by a proxy before the "
      "server.\n"
      "BEGIN, SELECT and COMMIT are waited for; a reset, the fourth, only by a borrower who comes before its "
      "answer\n");
  auto const print = [&](char const* name, Runner& runner, double target) {
    double const sent = sent_by(runner, proxy);
    std::printf("%-34s%10.2f", name, sent);
    if (target > 0) std::printf(" (target <= %g: %s)", target, sent <= target ? "met" : "NOT MET");
    std::printf("\n");
  };
  auto const all = ways();
  for (std::size_t way = 0; way < all.size(); ++way) {
    print(all[way].name, *all[way].make(by_proxy, 1), way == 1 ? 3 : 0);
  }
  WithSettings with_settings{by_proxy};
  print("reset none, BEGIN told everything", with_settings, 3);
}

// Bursts, in turns: within one, a transaction begins as soon as the one before has returned, or after a pause
// in which the server answers the reset.
std::vector<double> medians_in_turns(std::vector<Way> const& all, std::string const& url, int sets,
                                     int bursts, Clock::duration pause) {
  constexpr int length = 20;
  std::vector<std::vector<double>> times(all.size());
  std::string const sql = statements[0].text(0);
  Runners runners;
  Turns turns{all.size()};
  for (int burst = 0; burst < sets * bursts; ++burst) {
    if (burst % bursts == 0) runners = make_runners(all, url, 1);
    for (std::size_t const way : turns.draw()) {
      for (int i = 0; i < length; ++i) {
        if (pause.count() > 0) std::this_thread::sleep_for(pause);
        auto const before = Clock::now();
        runners[way]->run(0, sql);
        std::chrono::duration<double, std::micro> const time = Clock::now() - before;
        if (i > 0) times[way].push_back(time.count());  // the first finds its reset done, or has to connect
      }
    }
  }
  std::vector<double> medians;
  for (auto& of_way : times) medians.push_back(quantile(of_way, 0.5));
  return medians;
}

void price_transactions(std::string const& url, int sets) {
  auto const all = ways();
  auto const at_once = medians_in_turns(all, url, 4 * sets, 10, 0ns);
  auto const later = medians_in_turns(all, url, 4 * sets, 4, 1ms);
  std::printf(
      "\nA transaction of one SELECT, one thread, median, and what it takes more than with reset none:\n"
      "the next one comes at once, or after 1 ms\n");
  std::printf("%-34s%10s%10s%10s%10s\n", "", "us at once", "more", "us later", "more");
  for (std::size_t way = 0; way < all.size(); ++way) {
    std::printf("%-34s%10.1f%10.1f%10.1f%10.1f\n", all[way].name, at_once[way], at_once[way] - at_once[1],
                later[way], later[way] - later[1]);
  }
}

// What the pool sends for `reset`: the last query of a session that came back, as the server saw it.
std::string sent_for(std::string const& url, SessionReset reset) {
  db_bulkhead::PqxxPool pool{url, {.max_size = 1, .reset = reset}};
  int backend = 0;
  {
    auto lease = pool.acquire(Deadline::after(10s));
    backend = lease->backendpid();
  }
  std::this_thread::sleep_for(50ms);
  pqxx::connection connection{url};
  pqxx::nontransaction tx{connection};
  return tx.exec("SELECT query FROM pg_stat_activity WHERE pid = " + std::to_string(backend))[0][0]
      .as<std::string>();
}

void price_resets(std::string const& url, int sets) {
  pqxx::connection connection{url};
  pqxx::nontransaction tx{connection};
  struct Text {
    char const* name;
    std::string sql;
  };
  std::array const texts{Text{"an empty query", ""},
                         Text{"what clean sends", sent_for(url, SessionReset::clean)},
                         Text{"what discard_all sends", sent_for(url, SessionReset::discard_all)},
                         Text{"DISCARD ALL", "DISCARD ALL"}};
  std::array<std::vector<double>, texts.size()> times;
  for (int i = 0; i < 1500 * sets; ++i) {
    for (std::size_t text = 0; text < texts.size(); ++text) {
      auto const before = Clock::now();
      tx.exec(texts[text].sql);
      times[text].push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
    }
  }
  std::printf("\nA round trip of a reset alone, median, and what it takes more than an empty query\n");
  double const floor = quantile(times[0], 0.5);
  for (std::size_t text = 0; text < texts.size(); ++text) {
    double const time = quantile(times[text], 0.5);
    std::printf("%-34s%10.1f us%10.1f\n", texts[text].name, time, time - floor);
  }
}

void run(std::string const& url, bool quick) {
  pqxx::connection connection{url};
  pqxx::nontransaction setup{connection};
  setup.exec(std::string{"DROP TABLE IF EXISTS "} + table);
  setup.exec(std::string{"CREATE TABLE "} + table + " (id int PRIMARY KEY, n int) WITH (fillfactor = 50)");
  setup.exec(std::string{"INSERT INTO "} + table + " SELECT i, 0 FROM generate_series(0, 63) i");
  int const sets = quick ? 1 : 4;
  std::printf(
      "\nTransactions on a server, %u processors. Where the system puts a session makes more of a difference "
      "than "
      "what is\ncompared: ratios are steady under `taskset -c 0 ./run bench`, which starts the server there "
      "too.\n",
      std::thread::hardware_concurrency());
  for (Statement const& statement : statements) {
    for (std::size_t const threads : {1U, 8U}) compare(url, statement, threads, sets, quick ? 100ms : 250ms);
  }
  count_round_trips(url);
  price_transactions(url, sets);
  price_resets(url, sets);
  setup.exec(std::string{"DROP TABLE "} + table);
}

}  // namespace

int main(int argc, char** argv) {
  char const* const url = std::getenv("DB_URL");
  if (url == nullptr || *url == '\0') {
    std::fprintf(stderr, "bench_transactions: set DB_URL to a PostgreSQL server; ./run bench starts one\n");
    return 2;
  }
  try {
    run(url, argc > 1 && std::string_view{argv[1]} == "--quick");
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "bench_transactions: %s\n", error.what());
    return 1;
  }
}
