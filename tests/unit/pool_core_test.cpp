// SPDX-License-Identifier: MIT
//
// The decisions of a pool, move by move. The clock is a number that the test changes.
#include "db_bulkhead/detail/pool_core.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

#include "catch.hpp"
#include "support/pool_books.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;
using detail::Phase;
using detail::PoolRefusal;
using detail::PoolTime;
using Taken = PoolBooks::Core::Taken;
using Entry = PoolBooks::Entry;

namespace {

constexpr auto for_ever = std::chrono::nanoseconds::max();

std::vector<Entry*> lend_all(PoolBooks& books, std::size_t count) {
  std::vector<Entry*> lent;
  for (std::size_t i = 0; i < count; ++i) {
    lent.push_back(books.lend());
    REQUIRE(lent.back() != nullptr);
  }
  return lent;
}

void give_back_all(PoolBooks& books, std::vector<Entry*> const& lent) {
  for (Entry* entry : lent) books.core.give_back(*entry, false, books.now);
}

}  // namespace

TEST_CASE("core: the newest idle connection is lent first") {
  PoolBooks books{{.max_size = 3}};
  auto const lent = lend_all(books, 3);
  give_back_all(books, lent);
  CHECK(books.lend() == lent[2]);
  CHECK(books.lend() == lent[1]);
  CHECK(books.lend() == lent[0]);
}

TEST_CASE("core: takers are served in the order of their arrival", "[row-18]") {
  PoolBooks books{{.max_size = 2}};
  auto const lent = lend_all(books, 2);
  auto &first = books.take(), &second = books.take(), &third = books.take();
  CHECK(books.core.waiting() == 3);
  books.core.give_back(*lent[0], false, books.now);
  CHECK(books.settled() == std::vector<PoolBooks::Taker*>{&first});
  CHECK(first.entry == lent[0]);
  CHECK(books.core.leave(second));
  books.core.give_back(*lent[1], false, books.now);
  CHECK(third.entry == lent[1]);
  CHECK_FALSE(books.core.leave(third));  // it is granted: used, or given back
}

TEST_CASE("core: takers open what they need, no more than there may be, and no faster than the ramp",
          "[row-36]") {
  PoolBooks books{{.max_size = 5, .connectors = 4}};
  for (int i = 0; i < 9; ++i) books.take();
  for (std::size_t const at_once : {1U, 2U, 2U, 0U}) {
    std::vector<Entry*> opening;
    while (books.core.may_connect(books.now)) opening.push_back(&books.begin_connecting());
    CHECK(opening.size() == at_once);
    for (Entry* entry : opening) books.core.connected(*entry, books.now);
  }
  CHECK(books.settled().size() == 5);
  CHECK(books.core.waiting() == 4);
}

TEST_CASE("core: a connect that comes too late for its taker is idle for the next", "[row-23]") {
  PoolBooks books;
  auto& taker = books.take();
  Entry& opening = books.begin_connecting();
  CHECK(books.core.leave(taker));
  books.core.connected(opening, books.now);
  CHECK(books.in(Phase::idle) == 1);
  CHECK(books.lend() == &opening);
}

TEST_CASE("core: a closed connection makes room for another one, and whoever waits gets it", "[row-15]") {
  PoolBooks books{{.max_size = 1}};
  Entry* const broken = books.lend();
  auto& taker = books.take();
  books.core.discard(*broken);
  CHECK_FALSE(books.core.may_connect(books.now));  // it still counts
  CHECK(books.close_all() == 1);
  books.open_all();
  CHECK(taker.entry != nullptr);
}

TEST_CASE("core: expiry is fixed at birth, within the jitter", "[row-33]") {
  PoolTime earliest = PoolTime::max(), latest = PoolTime::min();
  for (std::uint_fast32_t seed = 1; seed <= 500; ++seed) {
    PoolBooks books{{.max_lifetime = 100s, .lifetime_jitter = 500ms}, seed};
    Entry* const entry = books.lend();
    PoolTime const expires = entry->expires;
    earliest = std::min(earliest, expires);
    latest = std::max(latest, expires);
    books.core.give_back(*entry, false, books.now + 1s);
    books.core.make_round(books.now + 2s);
    CHECK(entry->expires == expires);
  }
  PoolBooks const reference;
  CHECK(earliest >= reference.now + 99500ms);
  CHECK(earliest < reference.now + 99600ms);
  CHECK(latest <= reference.now + 100s);
  CHECK(latest > reference.now + 99900ms);
}

TEST_CASE("core: connections that were born together do not end together", "[row-33]") {
  bool const borrowed = GENERATE(false, true);
  for (std::uint_fast32_t seed = 1; seed <= 100; ++seed) {
    PoolBooks books{{.max_size = 10, .min_idle = 10, .max_lifetime = 100s, .lifetime_jitter = 20s}, seed};
    books.open_all();
    REQUIRE(books.total() == 10);
    PoolTime const born = books.now;
    std::map<std::int64_t, std::size_t> closed_in_second;
    while (books.now < born + 115s) {
      books.now += 100ms;
      books.core.make_round(books.now);
      if (borrowed) {
        for (int i = 0; i < 5; ++i) {
          if (Entry* const entry = books.lend()) books.core.give_back(*entry, false, books.now);
        }
      }
      closed_in_second[(books.now - born) / 1s] += books.close_all();
      books.open_all();
      CHECK(books.total() >= 9);
    }
    std::size_t closed = 0;
    for (auto const& [second, count] : closed_in_second) {
      CHECK(count <= 3);
      closed += count;
    }
    CHECK(closed == 10);
  }
}

TEST_CASE("core: the replacement comes first where there is room for it", "[row-33]") {
  PoolBooks books{{.max_size = 2, .min_idle = 1, .max_lifetime = 100s, .lifetime_jitter = 0ns}};
  books.open_all();
  Entry* const old = books.entries[0].get();
  books.now += 100s;
  books.core.make_round(books.now);
  CHECK(old->phase == Phase::idle);
  REQUIRE(books.core.may_connect(books.now));
  Entry& replacement = books.begin_connecting();
  CHECK(old->phase == Phase::idle);
  books.core.connected(replacement, books.now);
  CHECK(old->phase == Phase::closing);
  CHECK(replacement.phase == Phase::idle);
}

TEST_CASE("core: where there is no room the old one goes first") {
  PoolBooks books{{.max_size = 1, .min_idle = 1, .max_lifetime = 100s, .lifetime_jitter = 0ns}};
  books.open_all();
  books.now += 100s;
  books.core.make_round(books.now);
  CHECK(books.close_all() == 1);
  books.open_all();
  CHECK(books.in(Phase::idle) == 1);
}

TEST_CASE("core: what is too old is not lent, and not kept when it comes back") {
  PoolBooks books{{.max_size = 1, .max_lifetime = 100s, .lifetime_jitter = 0ns}};
  Entry* const entry = books.lend();
  books.now += 101s;
  books.core.give_back(*entry, false, books.now);
  CHECK(entry->phase == Phase::closing);
}

TEST_CASE("core: age is no reason to give up what works while nothing else can be had") {
  PoolBooks books{{.max_size = 2, .max_lifetime = 100s, .lifetime_jitter = 0ns}};
  Entry* const entry = books.lend();
  books.take();
  books.fail(books.begin_connecting());
  books.now += 101s;
  books.core.give_back(*entry, false, books.now);
  CHECK(entry->phase == Phase::leased);  // the taker's
  books.core.give_back(*entry, false, books.now);
  books.core.make_round(books.now);
  CHECK(entry->phase == Phase::idle);
}

TEST_CASE("core: what is idle for too long goes, but min_idle stay, and not all at once", "[row-52]") {
  PoolBooks books{
      {.max_size = 12, .min_idle = 2, .idle_timeout = 10s, .max_lifetime = for_ever, .keepalive = for_ever}};
  give_back_all(books, lend_all(books, 10));
  books.open_all();
  auto const before = books.total();
  books.now += 9s;
  books.core.make_round(books.now);
  CHECK(books.close_all() == 0);
  books.now += 5h;  // a housekeeper that was late
  std::size_t seconds = 0;
  while (books.total() > 2) {
    std::size_t closed = 0;
    for (int i = 0; i < 10; ++i) {  // the shell makes another round after each that closed something
      books.core.make_round(books.now);
      closed += books.close_all();
    }
    CHECK(closed <= std::max<std::size_t>(1, before / 4));
    books.now = books.core.next_round(books.now).time_point();
    ++seconds;
    REQUIRE(seconds < 20);
  }
  CHECK(seconds > 3);
  books.core.make_round(books.now + 1h);
  CHECK(books.close_all() == 0);
}

TEST_CASE("core: keepalive asks for what was not proven for too long, oldest first") {
  PoolBooks books{{.max_size = 2, .keepalive = 10s}};
  auto const lent = lend_all(books, 2);
  give_back_all(books, lent);
  CHECK(books.core.next_to_prove(books.now + 9s) == nullptr);
  books.now += 10s;
  CHECK(books.core.next_to_prove(books.now) == lent[0]);
  CHECK(lent[0]->phase == Phase::validating);
  CHECK(books.core.next_to_prove(books.now) == lent[1]);
  CHECK(books.core.next_to_prove(books.now) == nullptr);
  books.core.proven(*lent[0], false, books.now);
  CHECK(lent[0]->phase == Phase::closing);
  auto& taker = books.take();
  CHECK(books.last_taken == Taken::waiting);
  books.core.proven(*lent[1], true, books.now);
  CHECK(taker.entry == lent[1]);
}

TEST_CASE("core: what was proven stays where it was among the idle, and as long idle as it was") {
  PoolBooks books{{.max_size = 2, .idle_timeout = 30s, .keepalive = 10s}};
  auto const lent = lend_all(books, 2);
  give_back_all(books, lent);
  PoolTime const since = lent[0]->since;
  books.now += 10s;
  while (Entry* const entry = books.core.next_to_prove(books.now)) books.core.proven(*entry, true, books.now);
  CHECK(lent[0]->since == since);
  CHECK(lent[0]->proven == books.now);
}

TEST_CASE("core: a failed connect turns away those who wait if nothing else works", "[row-54]") {
  PoolBooks books{{.max_size = 2}};
  auto &first = books.take(), &second = books.take();
  books.fail(books.begin_connecting());
  CHECK(first.refusal == PoolRefusal::down);
  CHECK(second.refusal == PoolRefusal::down);
  CHECK(books.settled().size() == 2);
  REQUIRE(books.core.outage() != nullptr);
  books.take();
  CHECK(books.last_taken == Taken::refused);
}

TEST_CASE("core: while others work, one failed connect turns away nobody, and a second one does") {
  PoolBooks books{{.max_size = 3}};
  Entry* const working = books.lend();
  auto& taker = books.take();
  books.fail(books.begin_connecting());
  CHECK(taker.refusal == PoolRefusal::none);
  SECTION("a return serves") {
    books.core.give_back(*working, false, books.now);
    CHECK(taker.entry == working);
  }
  SECTION("another failure, and not one return meanwhile") {
    books.now = books.core.outage()->next;
    REQUIRE(books.core.may_connect(books.now));
    books.fail(books.begin_connecting());
    CHECK(taker.refusal == PoolRefusal::down);
  }
}

TEST_CASE("core: a server that is starting is waited for, and one that refuses is not", "[row-39]") {
  PoolBooks books;
  auto& taker = books.take();
  books.fail(books.begin_connecting(), ConnectFailure::busy);
  CHECK(taker.refusal == PoolRefusal::none);
  CHECK_FALSE(books.core.may_connect(books.now));
  books.now = books.core.next_connect().time_point();
  REQUIRE(books.core.may_connect(books.now));
  books.fail(books.begin_connecting(), ConnectFailure::refused);
  CHECK(taker.refusal == PoolRefusal::down);
}

TEST_CASE("core: when a connect is due again there is one probe, however many ask", "[row-37]") {
  PoolBooks books{{.max_size = 50, .connectors = 8}};
  books.take();
  books.fail(books.begin_connecting());
  books.now = books.core.outage()->next;
  for (int i = 0; i < 100; ++i) books.take();  // the gate admits fewer
  Entry& probe = books.begin_connecting();
  CHECK_FALSE(books.core.may_connect(books.now));
  books.take();
  CHECK(books.last_taken == Taken::refused);
  books.core.connected(probe, books.now);
  books.begin_connecting();
  CHECK_FALSE(books.core.may_connect(books.now));  // the ramp begins anew
}

TEST_CASE("core: it probes by itself while it turns callers away, and stops when nobody asks") {
  PoolBooks books;
  books.take();
  books.fail(books.begin_connecting());
  books.now = books.core.next_connect().time_point();
  REQUIRE(books.core.may_connect(books.now));  // for the one that was turned away
  books.fail(books.begin_connecting());
  CHECK(books.core.next_connect().is_never());
  books.take();
  CHECK(books.last_taken == Taken::refused);
  CHECK_FALSE(books.core.next_connect().is_never());
}

TEST_CASE(
    "core: a session that somebody waited for in vain is lent last, and only without room for another") {
  PoolBooks books{{.max_size = 2}};
  Entry* const slow = books.lend();
  books.core.give_back(*slow, true, books.now);
  CHECK(books.in(Phase::resetting) == 1);
  CHECK(books.lend() == slow);
  books.core.set_aside(*slow, books.now);
  Entry* const other = books.lend();
  CHECK(other != slow);
  CHECK(books.lend() == slow);
}

TEST_CASE("core: nobody waits beside a late session when nothing else is coming") {
  PoolBooks books{{.max_size = 2}};
  auto const lent = lend_all(books, 2);
  auto& taker = books.take();
  SECTION("there is no room when it is set aside") {
    books.core.set_aside(*lent[0], books.now);
  }
  SECTION("there is no room any more") {
    books.core.resize(3, books.now);
    books.core.set_aside(*lent[0], books.now);
    CHECK(taker.entry == nullptr);
    books.core.resize(2, books.now);
  }
  CHECK(taker.entry == lent[0]);
  CHECK(books.settled().size() == 1);
}

TEST_CASE("core: a loan is told once when it is suspicious") {
  PoolBooks books;
  Entry* const entry = books.lend();
  books.core.watch_loan(*entry, books.now + 10s);
  CHECK(books.core.next_leak(books.now + 9s) == nullptr);
  CHECK(books.core.next_round(books.now).time_point() <= books.now + 1s);
  CHECK(books.core.next_leak(books.now + 10s) == entry);
  CHECK(books.core.next_leak(books.now + 11s) == nullptr);
  books.core.give_back(*entry, false, books.now);
  CHECK(books.lend() == entry);
  CHECK(books.core.next_leak(books.now + 20s) == nullptr);  // another loan, which nobody watches
}

TEST_CASE("core: evicting all takes the idle now and the lent when they come back", "[row-46]") {
  PoolBooks books{{.max_size = 3}};
  auto const lent = lend_all(books, 2);
  books.core.give_back(*lent[1], false, books.now);
  auto& waiting = books.take();  // gets the idle one
  CHECK(waiting.entry == lent[1]);
  Entry* const opening = [&] {
    books.take();
    return &books.begin_connecting();
  }();
  books.core.evict_all();
  books.core.give_back(*lent[0], false, books.now);
  CHECK(lent[0]->phase == Phase::closing);
  books.core.connected(*opening, books.now);  // begun before
  CHECK(opening->phase == Phase::closing);
  books.close_all();
  books.open_all();
  CHECK(books.settled().size() == 1);
}

TEST_CASE("core: a shrink closes idle ones now, lent ones as they come back, and opens none", "[row-14]") {
  PoolBooks books{{.max_size = 4}};
  auto const lent = lend_all(books, 4);
  books.core.give_back(*lent[0], false, books.now);
  books.core.resize(2, books.now);
  CHECK(lent[0]->phase == Phase::closing);
  books.core.give_back(*lent[1], false, books.now);
  CHECK(lent[1]->phase == Phase::closing);
  books.close_all();
  books.core.give_back(*lent[2], false, books.now);
  CHECK(lent[2]->phase == Phase::idle);
  books.core.resize(3, books.now);
  CHECK(lend_all(books, 2).size() == 2);
}

TEST_CASE("core: suspended, it lends and opens nothing; resumed, it goes on", "[row-51]") {
  PoolBooks books{{.max_size = 1, .min_idle = 1}};
  books.open_all();
  Entry* const lent = books.lend();
  auto& waiting = books.take();
  books.core.suspend();
  CHECK(waiting.refusal == PoolRefusal::suspended);
  CHECK(books.settled().size() == 1);
  books.core.give_back(*lent, false, books.now);
  books.take();
  CHECK(books.last_taken == Taken::refused);
  CHECK_FALSE(books.core.may_connect(books.now));
  books.core.resume();
  CHECK(books.lend() == lent);
}

TEST_CASE("core: closed, it turns everybody away and keeps nothing") {
  PoolBooks books{{.max_size = 3}};
  auto const lent = lend_all(books, 2);
  books.core.give_back(*lent[0], false, books.now);
  books.take();
  auto& waiting = books.take();
  Entry& opening = books.begin_connecting();
  books.core.close();
  CHECK(waiting.refusal == PoolRefusal::closed);
  books.core.connected(opening, books.now);
  books.core.discard(*lent[1]);
  books.core.give_back(*books.takers[2]->entry, false, books.now);
  books.close_all();
  CHECK(books.total() == 0);
  books.take();
  CHECK(books.last_taken == Taken::refused);
}

TEST_CASE("core: a caller that is turned away wakes the connectors, which sleep when nobody asks",
          "[row-36]") {
  PoolBooks books;
  books.take();
  books.fail(books.begin_connecting());
  books.now = books.core.next_connect().time_point();
  books.fail(books.begin_connecting());
  REQUIRE(books.core.next_connect().is_never());  // so long do they sleep
  books.core.take_orders();
  books.take();
  CHECK(books.last_taken == Taken::refused);
  CHECK(books.core.take_orders().connect);
}

TEST_CASE("core: what is to be replaced goes, whoever takes its place", "[row-33]") {
  // Ten seconds of a housekeeper, with everything opened and closed that is asked for.
  auto const keep_house = [](PoolBooks& books) {
    for (int i = 0; i < 100; ++i) {
      books.now += 100ms;
      books.core.make_round(books.now);
      books.open_all();
      books.close_all();
    }
  };
  auto const idle_old_ones = [](PoolBooks const& books) {
    return std::count_if(books.entries.begin(), books.entries.end(), [&](auto const& entry) {
      return entry->phase == Phase::idle && entry->expires <= books.now;
    });
  };
  SECTION("one that comes back, and not the one that was asked for") {
    PoolBooks books{{.max_size = 3, .min_idle = 1, .max_lifetime = 100s, .lifetime_jitter = 0ns}};
    Entry* const lent = books.lend();
    books.open_all();
    REQUIRE(books.in(Phase::idle) == 1);
    Entry* const old = books.entries[1].get();
    books.now += 100s;
    books.core.make_round(books.now);
    REQUIRE(old->retiring);
    books.core.give_back(*lent, false, books.now);
    REQUIRE_FALSE(books.core.may_connect(books.now));
    keep_house(books);
    CHECK(idle_old_ones(books) == 0);
    CHECK(books.in(Phase::idle) == 1);
  }
  SECTION("there is no room for another one any more") {
    PoolBooks books{{.max_size = 3, .min_idle = 2, .max_lifetime = 100s, .lifetime_jitter = 0ns}};
    books.open_all();
    Entry* const old = books.entries[0].get();
    books.now += 100s;
    books.core.make_round(books.now);
    REQUIRE(old->retiring);
    auto const lent = lend_all(books, 2);
    REQUIRE(books.total() == 3);
    REQUIRE(old->phase == Phase::idle);
    keep_house(books);
    CHECK(idle_old_ones(books) == 0);
  }
}

TEST_CASE("core: a session that was set aside ends at its age, or after its time idle, as any other") {
  bool const ages = GENERATE(false, true);
  PoolBooks books{{.max_size = 2,
                   .min_idle = ages ? 0U : 2U,
                   .idle_timeout = ages ? for_ever : 100s,
                   .max_lifetime = ages ? 100s : for_ever,
                   .lifetime_jitter = 0ns,
                   .keepalive = for_ever}};
  Entry* const slow = books.lend();
  books.core.set_aside(*slow, books.now);
  books.now += 99s;
  books.core.make_round(books.now);
  CHECK(slow->phase == Phase::idle);
  books.now += 1s;
  books.core.make_round(books.now);
  CHECK(slow->phase == Phase::closing);
}

TEST_CASE("core: the housekeeper sleeps while what is old has to stay", "[row-31]") {
  PoolBooks books{{.max_size = 2, .min_idle = 1, .max_lifetime = 100s, .lifetime_jitter = 0ns}};
  books.open_all();
  SECTION("because nothing can be opened") {
    Entry* const lent = books.lend();
    books.open_all();
    books.core.discard(*lent);
    books.close_all();
    auto& taker = books.take();  // the idle one
    books.fail(books.begin_connecting());
    books.core.give_back(*taker.entry, false, books.now);
  }
  SECTION("because its replacement is not there yet") {}
  books.now += 100s;
  books.core.make_round(books.now);
  REQUIRE(books.in(Phase::idle) == 1);
  CHECK(books.core.next_round(books.now).time_point() == books.now + 1s);
}

TEST_CASE("core: no more is opened after an outage than is asked for") {
  PoolBooks books{{.max_size = 4}};
  books.take();
  books.fail(books.begin_connecting());
  books.now = books.core.next_connect().time_point();
  Entry& probe = books.begin_connecting();
  books.take();
  REQUIRE(books.last_taken == Taken::refused);
  books.core.connected(probe, books.now);
  CHECK_FALSE(books.core.may_connect(books.now));
}

TEST_CASE("core: what was opened since a failover stays when others of before come back", "[row-40]") {
  PoolBooks books{{.max_size = 3}};
  auto const lent = lend_all(books, 2);
  books.core.evict_older(*lent[0]);
  books.core.discard(*lent[0]);
  books.close_all();
  Entry* const young = books.lend();
  books.core.give_back(*young, false, books.now);
  REQUIRE(young->phase == Phase::idle);
  books.core.evict_older(*lent[1]);
  CHECK(young->phase == Phase::idle);
  CHECK(books.lend() == young);
  books.core.evict_older(*young);  // another failover
  books.core.give_back(*lent[1], false, books.now);
  CHECK(lent[1]->phase == Phase::closing);
  CHECK(books.total() == 2);
}

TEST_CASE("core: no keepalive saves what is to be replaced", "[row-33]") {
  PoolBooks books{
      {.max_size = 2, .min_idle = 1, .max_lifetime = 100s, .lifetime_jitter = 0ns, .keepalive = 10ms}};
  books.open_all();
  Entry* const old = books.entries[0].get();
  books.now += 100s;
  books.core.make_round(books.now);
  CHECK(books.core.next_to_prove(books.now) == nullptr);
  REQUIRE(books.core.may_connect(books.now));
  books.core.connected(books.begin_connecting(), books.now);
  CHECK(old->phase == Phase::closing);
}

TEST_CASE("core: however often it is looked at, nothing ends before its time", "[row-33]") {
  for (std::uint_fast32_t seed = 1; seed <= 50; ++seed) {
    PoolBooks books{{.max_size = 1, .max_lifetime = 100s, .lifetime_jitter = 90s}, seed};
    Entry* const entry = books.lend();
    PoolTime const expires = entry->expires;
    books.core.give_back(*entry, false, books.now);
    while (entry->phase == Phase::idle) {
      books.now += 100ms;
      books.core.make_round(books.now);
    }
    CHECK(books.now >= expires);
    CHECK(books.now < expires + 100ms);
  }
}
