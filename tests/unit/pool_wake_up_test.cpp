// SPDX-License-Identifier: MIT
//
// The decisions of a pool with threads that sleep: here connectors and housekeeper look
// only when they are woken or their time has come, as those of the real shell do. What
// is wanted and wakes nobody is lost, which a model that asks all the time cannot see.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "support/pool_books.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;
using detail::Phase;
using detail::PoolRefusal;
using Entry = PoolBooks::Entry;
using Taker = PoolBooks::Taker;

namespace {

// A thread of the shell.
struct Sleeper {
  bool is_rung = true;
  Deadline until = Deadline::never();
  Entry* busy_with = nullptr;

  bool is_awake(detail::PoolTime now) const { return busy_with == nullptr && (is_rung || until.passed(now)); }
};

class Shell {
 public:
  explicit Shell(std::uint_fast32_t seed)
      : random_{seed}, books_{random_options(), seed}, connectors_(books_.options.connectors) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      move();
      check();
    }
    heal();
    end();
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  bool one_in(std::size_t n) { return below(n) == 0; }

  template <class T>
  T take_any(std::vector<T>& all) {
    std::swap(all[below(all.size())], all.back());
    T const taken = all.back();
    all.pop_back();
    return taken;
  }

  PoolOptions random_options() {
    PoolOptions options{.max_size = 1 + below(one_in(2) ? 2 : 8), .connectors = 1 + below(4)};
    options.min_idle = one_in(2) ? 0 : below(options.max_size + 1);
    auto const time = [&]() -> QueueWait {
      if (one_in(3)) return std::chrono::nanoseconds::max();
      return std::chrono::milliseconds{1 + below(one_in(2) ? 50 : 20'000)};
    };
    options.idle_timeout = time();
    options.max_lifetime = time();
    options.keepalive = time();
    if (one_in(2)) options.lifetime_jitter = QueueWait{};
    return options;
  }

  // ---- the shell ----

  void carry_out() {
    for (Taker* const taker : books_.settled()) {
      REQUIRE_FALSE(takers_.empty());
      REQUIRE(takers_.front() == taker);
      takers_.pop_front();
      if (taker->entry != nullptr) lent_.push_back(taker->entry);
      if (taker->refusal == PoolRefusal::down) is_missed_ = true;
    }
    if (takers_.empty()) books_.takers.clear();
    auto const orders = books_.core.take_orders();
    for (Sleeper& connector : connectors_) connector.is_rung = connector.is_rung || orders.connect;
    housekeeper_.is_rung = housekeeper_.is_rung || orders.housekeep;
  }

  void run_connector(Sleeper& self) {
    self.is_rung = false;
    if (books_.core.may_connect(books_.now)) {
      is_missed_ = false;
      self.busy_with = &books_.begin_connecting();
      carry_out();
    } else {
      self.until = books_.core.next_connect();
    }
  }

  void end_connect(Sleeper& self, bool works) {
    constexpr ConnectFailure kinds[] = {ConnectFailure::unreachable, ConnectFailure::busy,
                                        ConnectFailure::refused};
    Entry& entry = *std::exchange(self.busy_with, nullptr);
    if (works) {
      is_missed_ = false;
      books_.core.connected(entry, books_.now);
    } else {
      books_.fail(entry, kinds[below(3)]);
    }
    self.is_rung = true;
    carry_out();
  }

  void run_housekeeper() {
    housekeeper_.is_rung = false;
    housekeeper_.busy_with = books_.core.next_to_close();
    if (housekeeper_.busy_with != nullptr) return;
    books_.core.make_round(books_.now);
    while (books_.core.next_leak(books_.now) != nullptr) {
    }
    housekeeper_.busy_with = books_.core.next_to_prove(books_.now);
    carry_out();
    if (housekeeper_.busy_with == nullptr) housekeeper_.until = books_.core.next_round(books_.now);
  }

  void end_housekeeping(bool works) {
    Entry& entry = *std::exchange(housekeeper_.busy_with, nullptr);
    if (entry.phase == Phase::closing) {
      books_.core.closed(entry);
      books_.forget(entry);
    } else {
      books_.core.proven(entry, works, books_.now);
    }
    housekeeper_.is_rung = true;
    carry_out();
  }

  // A borrower's clock is late by a tick.
  detail::PoolTime tick() { return books_.now - std::chrono::microseconds{below(4000)}; }

  void take() {
    if (takers_.size() + lent_.size() >= books_.core.max_size()) return;
    books_.takers.push_back(std::make_unique<Taker>());
    Taker& taker = *books_.takers.back();
    switch (books_.core.take(taker, tick())) {
      case PoolBooks::Core::Taken::lent: lent_.push_back(taker.entry); break;
      case PoolBooks::Core::Taken::waiting: takers_.push_back(&taker); break;
      case PoolBooks::Core::Taken::refused:
        is_missed_ = is_missed_ || taker.refusal == PoolRefusal::down;
        break;
    }
    if (!lent_.empty() && one_in(8)) books_.core.watch_loan(*lent_.back(), books_.now + 1s);
    carry_out();
  }

  void leave() {
    if (takers_.empty()) return;
    auto const leaver = takers_.begin() + static_cast<std::ptrdiff_t>(below(takers_.size()));
    REQUIRE(books_.core.leave(**leaver));
    takers_.erase(leaver);
  }

  void come_back() {
    if (lent_.empty()) return;
    Entry& entry = *take_any(lent_);
    switch (below(10)) {
      case 0: books_.core.discard(entry); break;
      case 1:
      case 2:
        entry.resetting = true;
        books_.core.set_aside(entry, tick());
        break;
      case 3:
        if (one_in(3)) books_.core.evict_older(entry);
        books_.core.discard(entry);
        break;
      default: books_.core.give_back(entry, one_in(2), tick());
    }
    carry_out();
  }

  void change_the_whole() {
    switch (below(12)) {
      case 0:
      case 1: books_.core.resize(1 + below(8), books_.now); break;
      case 2: books_.core.evict_all(); break;
      case 3:
        is_suspended_ = true;
        books_.core.suspend();
        break;
      default:
        if (!is_suspended_) return;  // a resume wakes everybody
        is_suspended_ = false;
        books_.core.resume();
    }
    carry_out();
  }

  void move() {
    Sleeper& connector = connectors_[below(connectors_.size())];
    switch (below(16)) {
      case 0:
      case 1:
      case 2: return take();
      case 3: return one_in(2) ? leave() : void();
      case 4:
      case 5: return come_back();
      case 6: return one_in(3) ? change_the_whole() : void();
      case 7:
        if (one_in(200)) books_.now += 1h;
        books_.now += std::chrono::milliseconds{below(one_in(2) ? 20 : 2000)};
        return;
      case 8:
      case 9:
        if (connector.busy_with != nullptr) end_connect(connector, !one_in(3));
        return;
      case 10:
      case 11:
      case 12:
        if (connector.is_awake(books_.now)) run_connector(connector);
        return;
      default:
        if (housekeeper_.busy_with != nullptr) return end_housekeeping(!one_in(4));
        if (housekeeper_.is_awake(books_.now)) run_housekeeper();
    }
  }

  // ---- what holds ----

  static bool is_parked(Entry const& entry) {
    return entry.phase == Phase::idle || entry.phase == Phase::resetting;
  }

  void check() {
    auto const& core = books_.core;
    std::size_t const total = core.counts().total();
    std::size_t const connecting = core.counts().in(Phase::connecting);
    REQUIRE(total == books_.entries.size());
    REQUIRE(total <= std::max(core.max_size(), last_total_));
    last_total_ = total;
    REQUIRE(core.counts().in(Phase::leased) == lent_.size());
    REQUIRE(core.waiting() == takers_.size());
    if (is_suspended_) REQUIRE(takers_.empty());
    // Whatever is wanted, there is somebody who will see to it.
    bool const is_wanted = takers_.size() > connecting || is_missed_;
    if (is_wanted && !is_suspended_ && !core.is_closed() && total < core.max_size()) {
      REQUIRE(std::any_of(connectors_.begin(), connectors_.end(), [](Sleeper const& each) {
        return each.busy_with != nullptr || each.is_rung || !each.until.is_never();
      }));
    }
    bool const is_idle = housekeeper_.busy_with == nullptr && !housekeeper_.is_rung;
    if (is_idle) REQUIRE(core.counts().in(Phase::closing) == 0);
    bool const is_kept = std::any_of(books_.entries.begin(), books_.entries.end(),
                                     [](auto const& entry) { return is_parked(*entry); });
    if (is_kept && is_idle) {
      REQUIRE(housekeeper_.until <= Deadline::at(books_.now + 1s));
    }
  }

  // Everything works from now on. Nothing moves but what the core has asked for, and time.
  void pass(std::chrono::nanoseconds time) {
    auto const end = books_.now + time;
    while (books_.now < end) {
      auto next = Deadline::at(end);
      bool is_still = true;
      for (Sleeper& connector : connectors_) {
        if (connector.busy_with != nullptr) {
          end_connect(connector, true);
        } else if (connector.is_awake(books_.now)) {
          run_connector(connector);
        } else {
          next = std::min(next, connector.until);
          continue;
        }
        is_still = false;
      }
      if (housekeeper_.busy_with != nullptr) {
        end_housekeeping(true);
        is_still = false;
      } else if (housekeeper_.is_awake(books_.now)) {
        run_housekeeper();
        is_still = false;
      }
      next = std::min(next, housekeeper_.until);
      check();
      // A keepalive that is shorter than a tick would prove for ever.
      books_.now = is_still ? std::max(books_.now, next.time_point()) : books_.now + 100us;
    }
  }

  void heal() {
    auto& core = books_.core;
    if (is_suspended_) {
      is_suspended_ = false;
      core.resume();
      carry_out();
    }
    // After a shrink some have to come back first.
    while (takers_.size() + lent_.size() > core.max_size() && !lent_.empty()) {
      core.give_back(*take_any(lent_), false, books_.now);
      carry_out();
    }
    while (takers_.size() > core.max_size()) {
      REQUIRE(core.leave(*takers_.back()));
      takers_.pop_back();
    }
    bool const probes = is_missed_;
    // Nobody gives anything back: what waits is served by what can be opened.
    pass(books_.options.reconnect_backoff.refused + 2s);
    REQUIRE(takers_.empty());
    if (probes && books_.total() < core.max_size()) REQUIRE(core.outage() == nullptr);
    // It may have slept an hour, and it does everything gradually.
    constexpr auto patience = 12s;
    pass(patience);
    if (core.outage() != nullptr) return;
    std::size_t parked = 0, beyond = 0;
    for (auto const& entry : books_.entries) {
      if (!is_parked(*entry)) continue;
      auto const is_late = [&](PoolBooks::Time due) {
        return Deadline::at(due).passed(books_.now - patience);
      };
      // Rounds are not made as often as the shortest lives would need.
      REQUIRE_FALSE((books_.options.max_lifetime >= 1s && is_late(entry->expires)));
      ++parked;
      beyond += is_late(Deadline::after(books_.options.idle_timeout, entry->since).time_point()) ? 1U : 0U;
    }
    if (parked > books_.options.min_idle) REQUIRE(beyond <= books_.options.min_idle);
    if (books_.options.max_lifetime > 5s && books_.total() < core.max_size()) {
      REQUIRE(parked + core.counts().in(Phase::validating) + core.counts().in(Phase::connecting) +
                  core.counts().in(Phase::closing) >=
              books_.options.min_idle);
    }
  }

  void end() {
    books_.core.close();
    carry_out();
    while (!lent_.empty()) {
      books_.core.give_back(*take_any(lent_), false, books_.now);
      carry_out();
    }
    pass(1s);
    REQUIRE(books_.total() == 0);
    PoolStats stats;
    books_.core.counts().fill_in(stats);
    REQUIRE(stats.created == stats.closed);
  }

  std::mt19937 random_;
  PoolBooks books_;
  std::vector<Sleeper> connectors_;
  Sleeper housekeeper_;
  std::deque<Taker*> takers_;  // who waits, in the order of arrival
  std::vector<Entry*> lent_;
  std::size_t last_total_ = 0;
  bool is_missed_ = false;  // somebody was turned away, and no connect has begun since
  bool is_suspended_ = false;
};

}  // namespace

TEST_CASE("core: no random course of things lets anybody sleep over what is wanted",
          "[row-15][row-17][row-36]") {
  for (std::uint_fast32_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    Shell{seed}.run(500);
  }
}
