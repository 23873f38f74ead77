// SPDX-License-Identifier: MIT
//
// The decisions of a pool under random moves, checked against a model at every step:
// whatever the shell may report, in whatever order. A failure names the seed.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "catch.hpp"
#include "db_bulkhead/detail/pool_core.hpp"
#include "support/pool_books.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;
using detail::Phase;
using detail::PoolRefusal;
using Entry = PoolBooks::Entry;
using Taker = PoolBooks::Taker;

namespace {

class Model {
 public:
  explicit Model(std::uint_fast32_t seed)
      : random_{seed}, books_{random_options(), seed}, permits_{books_.options.max_size} {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      move();
      collect();
      check();
    }
    heal();
  }

 private:
  std::uint_fast32_t below(std::uint_fast32_t n) { return static_cast<std::uint_fast32_t>(random_() % n); }
  bool one_in(std::uint_fast32_t n) { return below(n) == 0; }
  template <class T>
  T& any_of(std::vector<T>& all) {
    return all[below(static_cast<std::uint_fast32_t>(all.size()))];
  }

  PoolOptions random_options() {
    PoolOptions options{.max_size = 1 + below(6), .connectors = 1 + below(4)};
    options.min_idle = below(static_cast<std::uint_fast32_t>(options.max_size) + 1);
    auto const time = [&]() -> QueueWait {
      if (one_in(4)) return std::chrono::nanoseconds::max();
      return std::chrono::milliseconds{1 + below(5000)};
    };
    options.idle_timeout = time();
    options.max_lifetime = time();
    options.keepalive = time();
    if (one_in(3)) options.lifetime_jitter = QueueWait{};
    return options;
  }

  // ---- moves ----

  void move() {
    switch (below(20)) {
      case 0:
      case 1:
      case 2:
      case 3: return take();
      case 4: return leave();
      case 5:
      case 6:
      case 7: return come_back();
      case 8:
      case 9: return begin_connecting();
      case 10:
      case 11: return end_connecting();
      case 12: return advance();
      case 13: return books_.core.make_round(books_.now);
      case 14: return begin_proof();
      case 15: return end_proof();
      case 16:
      case 17: return close_one();
      case 18: return tell_leak();
      default: return change_the_whole();
    }
  }

  // As the gate does: so many takers and loans at a time.
  void take() {
    if (takers_.size() + lent_.size() >= permits_) return;
    Taker& taker = books_.take();
    switch (books_.last_taken) {
      case PoolBooks::Core::Taken::lent: lent_.push_back(taker.entry); break;
      case PoolBooks::Core::Taken::waiting: takers_.push_back(&taker); break;
      case PoolBooks::Core::Taken::refused: REQUIRE(taker.refusal != PoolRefusal::none);
    }
    if (!lent_.empty() && one_in(4)) books_.core.watch_loan(*lent_.back(), books_.now + 1s);
  }

  void leave() {
    if (takers_.empty()) return;
    auto const leaver =
        takers_.begin() + static_cast<std::ptrdiff_t>(below(static_cast<std::uint_fast32_t>(takers_.size())));
    REQUIRE(books_.core.leave(**leaver));
    takers_.erase(leaver);
  }

  void come_back() {
    if (lent_.empty()) return;
    Entry*& chosen = any_of(lent_);
    Entry& entry = *chosen;
    chosen = lent_.back();
    lent_.pop_back();
    switch (below(8)) {
      case 0: return books_.core.discard(entry);
      case 1: entry.resetting = true; return books_.core.set_aside(entry, books_.now);
      case 2: books_.core.evict_older(entry); return books_.core.discard(entry);
      default: return books_.core.give_back(entry, one_in(2), books_.now);
    }
  }

  void begin_connecting() {
    if (books_.core.may_connect(books_.now)) opening_.push_back(&books_.begin_connecting());
  }

  void end_connecting() {
    if (opening_.empty()) return;
    Entry*& chosen = any_of(opening_);
    Entry& entry = *chosen;
    chosen = opening_.back();
    opening_.pop_back();
    if (one_in(3)) {
      constexpr ConnectFailure kinds[] = {ConnectFailure::unreachable, ConnectFailure::busy,
                                          ConnectFailure::refused};
      books_.fail(entry, kinds[below(3)]);
    } else {
      books_.core.connected(entry, books_.now);
    }
  }

  void advance() {
    books_.now +=
        one_in(30) ? std::chrono::milliseconds{below(3'600'000)} : std::chrono::milliseconds{below(1000)};
  }

  void begin_proof() {
    if (proving_ == nullptr) proving_ = books_.core.next_to_prove(books_.now);
  }
  void end_proof() {
    if (proving_ == nullptr) return;
    books_.core.proven(*std::exchange(proving_, nullptr), !one_in(4), books_.now);
  }

  void close_one() {
    Entry* const entry = books_.core.next_to_close();
    if (entry == nullptr) return;
    REQUIRE(entry->phase == Phase::closing);
    books_.core.closed(*entry);
    books_.forget(*entry);
  }

  void tell_leak() {
    if (Entry const* const entry = books_.core.next_leak(books_.now)) REQUIRE(entry->phase == Phase::leased);
  }

  void change_the_whole() {
    switch (below(8)) {
      case 0: permits_ = 1 + below(6); return books_.core.resize(permits_, books_.now);
      case 1: return books_.core.evict_all();
      case 2: suspended_ = true; return books_.core.suspend();
      default: suspended_ = false; return books_.core.resume();
    }
  }

  // ---- the model ----

  // Those who were served are the first that came, in their order; those who were refused are all.
  void collect() {
    for (Taker* const taker : books_.settled()) {
      REQUIRE_FALSE(takers_.empty());
      REQUIRE(takers_.front() == taker);
      takers_.pop_front();
      if (taker->entry != nullptr) lent_.push_back(taker->entry);
    }
    if (takers_.empty()) books_.takers.clear();
  }

  void check() {
    auto const& core = books_.core;
    std::size_t const total = core.counts().total();
    REQUIRE(total == books_.entries.size());
    REQUIRE(core.counts().in(Phase::leased) == lent_.size());
    REQUIRE(core.counts().in(Phase::connecting) == opening_.size());
    REQUIRE(core.counts().in(Phase::validating) == (proving_ != nullptr ? 1 : 0));
    REQUIRE(core.waiting() == takers_.size());
    for (Entry const* entry : lent_) REQUIRE(entry->phase == Phase::leased);
    std::size_t parked = 0;
    for (auto const& entry : books_.entries) {
      parked += entry->phase == Phase::idle || entry->phase == Phase::resetting ? 1 : 0;
    }
    REQUIRE(parked == core.counts().in(Phase::idle) + core.counts().in(Phase::resetting));
    // No more than there may be; what is over after a shrink only becomes less.
    REQUIRE(total <= std::max(core.max_size(), last_total_));
    last_total_ = total;
    REQUIRE(opening_.size() <= books_.options.connectors);
    PoolStats stats;
    core.counts().fill_in(stats);
    REQUIRE(stats.created - stats.closed == total - opening_.size());
    if (suspended_) {
      REQUIRE(takers_.empty());
    } else if (!takers_.empty()) {
      // Nobody waits beside a connection that could be lent; late ones are, where nothing else is coming.
      bool const nothing_comes = total >= core.max_size() && takers_.size() > opening_.size();
      for (auto const& entry : books_.entries) {
        bool const lendable = (entry->phase == Phase::idle || entry->phase == Phase::resetting) &&
                              (!entry->late || nothing_comes);
        REQUIRE_FALSE(lendable);
      }
    }
  }

  bool is_quiet() const {
    return takers_.empty() && lent_.empty() && opening_.empty() && proving_ == nullptr;
  }

  // The faults are over: whoever waits is served, and the pool is as large as it may be.
  void heal() {
    books_.core.resume();
    suspended_ = false;
    for (int i = 0; i < 1000 && !is_quiet(); ++i) {
      books_.now += 100ms;
      while (books_.core.may_connect(books_.now)) opening_.push_back(&books_.begin_connecting());
      while (!opening_.empty()) {
        Entry& entry = *opening_.back();
        opening_.pop_back();
        books_.core.connected(entry, books_.now);
      }
      if (proving_ != nullptr) books_.core.proven(*std::exchange(proving_, nullptr), true, books_.now);
      collect();
      while (!lent_.empty()) {
        Entry& entry = *lent_.back();
        lent_.pop_back();
        books_.core.give_back(entry, false, books_.now);
        collect();
      }
      while (books_.core.next_leak(books_.now) != nullptr) {
      }
      books_.close_all();
      last_total_ = books_.total();
      check();
    }
    REQUIRE(takers_.empty());
    for (std::size_t i = 0; i < permits_; ++i) {
      Taker& taker = books_.take();
      for (int round = 0; round < 10 && taker.entry == nullptr; ++round) {
        books_.open_all();
        books_.close_all();
      }
      REQUIRE(taker.entry != nullptr);
      books_.settled();
    }
    books_.core.close();
    books_.close_all();
    REQUIRE(books_.total() == permits_);  // the loans
  }

  std::mt19937 random_;
  PoolBooks books_;
  std::size_t permits_;
  std::deque<Taker*> takers_;  // who waits, in the order of arrival
  std::vector<Entry*> lent_, opening_;
  Entry* proving_ = nullptr;
  std::size_t last_total_ = 0;
  bool suspended_ = false;
};

}  // namespace

TEST_CASE("core: no random course of things breaks bounds, books or order", "[row-12][row-53]") {
  for (std::uint_fast32_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    Model{seed}.run(500);
  }
}
