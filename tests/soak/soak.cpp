// SPDX-License-Identifier: MIT
//
// soak SECONDS [SEED]: borrowers that leave their sessions in every state there is, on a server
// whose backends are killed and which is restarted now and then; each looks first whether
// anything of the last borrower is left. Ends with 1, and what was found, if anything was.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "db_bulkhead/db_bulkhead.hpp"
#include "db_bulkhead/pqxx.hpp"
#include "integration/server.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;

namespace {

// One line that says everything of a session that a borrower could have left; this is what it says of a new
// one.
constexpr char const* probe =
    "SELECT concat_ws(' ', current_user = session_user, current_setting('search_path'), "
    "current_setting('role'),"
    " coalesce(current_setting('app.tenant', true), ''), current_setting('statement_timeout'),"
    " current_setting('default_transaction_read_only'), current_setting('default_transaction_isolation'),"
    " (SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND pg_table_is_visible(oid)),"
    " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),"
    " (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_cursors WHERE is_holdable))";

constexpr char const* dirt[] = {
    "SET ROLE pg_monitor",
    "SET search_path = pg_temp, pg_catalog",
    "SET app.tenant = 'other'",
    "SET statement_timeout = 54321",
    "SET default_transaction_read_only = on",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE",
    "CREATE TEMP TABLE left_behind (i int)",
    "SELECT pg_advisory_lock_shared(42)",
    "LISTEN left_behind",
    "NOTIFY left_behind",
    "DECLARE left_behind CURSOR WITH HOLD FOR SELECT 1",
    "SET SESSION AUTHORIZATION pg_monitor",
    "BEGIN",
    "SELECT no_such_column",
    "SELECT 1/0",
    "SELECT pg_terminate_backend(pg_backend_pid())",
};

class Soak {
 public:
  explicit Soak(std::uint_fast32_t seed) : seed_{seed} {
    PqxxLease lease = pool_.acquire(Deadline::after(30s));
    clean_ = look(lease);
  }

  void run(std::chrono::seconds length) {
    auto const end = Deadline::after(length);
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < 8; ++i) threads.emplace_back([this, i, end] { borrow_until(end, seed_ + i); });
    threads.emplace_back([this, end] { disturb_until(end, seed_ + 100); });
  }

  int report() {
    pool_.resume();  // tries at once, if it was just cut off
    auto const stats = settled(pool_);
    std::vector<PqxxLease> all;
    for (std::size_t i = 0; i < stats.max; ++i) all.push_back(pool_.acquire(Deadline::after(30s)));
    std::cout << borrows_ << " borrows, " << refused_ << " refused in outages, " << stats.created
              << " connections opened, " << stats.reset_failures << " resets failed, "
              << stats.validation_failures << " found dead, " << left_ << " sessions that were not clean\n";
    return left_ == 0 && stats.leased == 0 && stats.created - stats.closed == stats.total ? EXIT_SUCCESS
                                                                                          : EXIT_FAILURE;
  }

 private:
  static std::string look(PqxxLease& lease) {
    pqxx::nontransaction tx{*lease};
    return tx.exec(probe)[0][0].as<std::string>();
  }

  void borrow_until(Deadline end, std::uint_fast32_t seed) {
    std::mt19937 random{seed};
    while (!end.passed()) {
      try {
        PqxxLease lease = pool_.acquire(Deadline::after(5s));
        std::string const found = look(lease);
        ++borrows_;
        if (found != clean_) tell(found);
        for (auto n = random() % 4; n > 0; --n) soil(lease, dirt[random() % std::size(dirt)]);
        if (random() % 50 == 0) lease.discard();
      } catch (ConnectionUnavailable const&) {
        ++refused_;
        std::this_thread::sleep_for(1ms);
      } catch (pqxx::failure const&) {  // killed in the middle
      }
    }
  }

  static void soil(PqxxLease& lease, char const* sql) {
    try {
      pqxx::nontransaction tx{*lease};
      tx.exec(sql);
    } catch (std::exception const&) {  // what follows an error is dirt as well
    }
  }

  void disturb_until(Deadline end, std::uint_fast32_t seed) {
    std::mt19937 random{seed};
    while (!end.passed()) {
      std::this_thread::sleep_for(20ms);
      try {
        switch (random() % 400) {
          case 0: restart(); break;
          case 1: pool_.evict_all(); break;
          case 2: pool_.resize(2 + random() % 6); break;
          default:
            Admin{}.exec(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = "
                "'db_bulkhead' ORDER BY random() LIMIT 1");
        }
      } catch (std::exception const&) {  // the server is away
      }
    }
  }

  static void restart() {
    char const* const control = std::getenv("DB_BULKHEAD_TEST_SERVER_CONTROL");
    if (control != nullptr && std::system((std::string{control} + " restart -m immediate").c_str()) != 0) {
      throw std::runtime_error{"the server did not restart"};
    }
  }

  void tell(std::string const& found) {
    std::lock_guard const lock{mutex_};
    if (++left_ <= 10) std::cout << "not clean: " << found << "\n     clean: " << clean_ << '\n';
  }

  std::uint_fast32_t seed_;
  PqxxPool pool_{test_dsn(),
                 {.max_size = 6,
                  .max_waiting = 16,
                  .max_lifetime = 2s,
                  .keepalive = 500ms,
                  .validate_after_idle = 100ms}};
  std::string clean_;
  std::atomic<std::uint64_t> borrows_{0}, refused_{0};
  std::mutex mutex_;
  std::uint64_t left_ = 0;  // guarded by mutex_ while threads run
};

}  // namespace

int main(int argc, char** argv) {
  try {
    int const seconds = argc > 1 ? std::stoi(argv[1]) : 120;
    auto const seed =
        argc > 2 ? static_cast<std::uint_fast32_t>(std::stoul(argv[2])) : std::random_device{}();
    std::cout << "soak: " << seconds << " s, seed " << seed << std::endl;
    Soak soak{seed};
    soak.run(std::chrono::seconds{seconds});
    return soak.report();
  } catch (std::exception const& error) {
    std::cerr << "soak: " << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
