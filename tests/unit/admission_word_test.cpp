// SPDX-License-Identifier: MIT
#include "db_bulkhead/detail/admission_word.hpp"

#include <cstdint>

#include "catch.hpp"

using db_bulkhead::Limits;
using Word = db_bulkhead::detail::AdmissionWord;

namespace {

constexpr std::int64_t most = Limits::max_total;

constexpr bool has(Word word, std::int64_t permits, std::int64_t places) {
  return word.free_permits() == permits && word.free_places() == places;
}

}  // namespace

TEST_CASE("a fresh word has B permits and B + Q places free, nobody waiting, and is open") {
  constexpr Word word{Limits{2, 3}};
  STATIC_REQUIRE(has(word, 2, 5));
  STATIC_REQUIRE_FALSE(word.has_waiters());
  STATIC_REQUIRE_FALSE(word.is_closed());
  STATIC_REQUIRE(word.admits_at_once());
  STATIC_REQUIRE_FALSE(word.is_full());
}

TEST_CASE("one who runs takes a permit and a place, and gives back both") {
  constexpr Word word{Limits{2, 3}};
  STATIC_REQUIRE(has(word.with_one_running(), 1, 4));
  STATIC_REQUIRE(word.with_one_running().with_one_finished().bits() == word.bits());
}

TEST_CASE("one who waits takes a place and no permit, and bars the way to newcomers") {
  constexpr Word word = Word{Limits{2, 3}}.with_one_waiting();
  STATIC_REQUIRE(has(word, 2, 4));
  STATIC_REQUIRE(word.has_waiters());
  STATIC_REQUIRE_FALSE(word.admits_at_once());
}

TEST_CASE("the last to leave the queue says so in the word, and no other") {
  constexpr Word word = Word{Limits{2, 3}}.with_one_waiting().with_one_waiting();
  STATIC_REQUIRE(has(word.with_one_place_freed(true), 2, 4));
  STATIC_REQUIRE(word.with_one_place_freed(true).has_waiters());
  STATIC_REQUIRE_FALSE(word.with_one_place_freed(false).has_waiters());
  STATIC_REQUIRE(has(word.with_first_running(true), 1, 3));
  STATIC_REQUIRE(word.with_first_running(true).has_waiters());
  STATIC_REQUIRE_FALSE(word.with_first_running(false).has_waiters());
}

TEST_CASE("a closed word admits nobody and keeps its counts") {
  constexpr Word word = Word{Limits{2, 3}}.with_one_running().with_closed();
  STATIC_REQUIRE(word.is_closed());
  STATIC_REQUIRE_FALSE(word.admits_at_once());
  STATIC_REQUIRE(has(word, 1, 4));
  STATIC_REQUIRE(word.with_one_finished().is_closed());
}

TEST_CASE("a word is full when the last place is taken, and not before") {
  constexpr Word word = Word{Limits{1, 1}}.with_one_running();
  STATIC_REQUIRE_FALSE(word.is_full());
  STATIC_REQUIRE(word.with_one_waiting().is_full());
}

TEST_CASE("other limits leave the numbers of those who run and wait as they are") {
  constexpr Word word = Word{Limits{2, 3}}.with_one_running().with_one_running().with_one_waiting();
  STATIC_REQUIRE(has(word.with_limits({2, 3}, {5, 1}), 3, 3));
  STATIC_REQUIRE(word.with_limits({2, 3}, {5, 1}).with_limits({5, 1}, {2, 3}).bits() == word.bits());
}

TEST_CASE("a shrink below what runs makes the free counts negative, and nobody is let in on credit") {
  constexpr Word word = Word{Limits{3, 0}}.with_one_running().with_one_running().with_one_running();
  constexpr Word shrunk = word.with_limits({3, 0}, {1, 0});
  STATIC_REQUIRE(has(shrunk, -2, -2));
  STATIC_REQUIRE_FALSE(shrunk.within_limit());
  STATIC_REQUIRE_FALSE(shrunk.admits_at_once());
  STATIC_REQUIRE(shrunk.is_full());
  STATIC_REQUIRE(shrunk.with_one_finished().with_one_finished().within_limit());
  STATIC_REQUIRE_FALSE(shrunk.with_one_finished().with_one_finished().admits_at_once());
}

TEST_CASE("the largest limits fit, and so does the largest debt") {
  constexpr Limits largest{Limits::max_total, 0};
  constexpr Limits widest{1, Limits::max_total - 1};
  STATIC_REQUIRE(has(Word{largest}, most, most));
  STATIC_REQUIRE(has(Word{widest}, 1, most));
  STATIC_REQUIRE(has(Word{largest}.with_limits(largest, widest), 1, most));
  // All of the largest limits taken, and then next to nothing allowed.
  constexpr Word taken = Word{Limits{1, 0}}.with_limits(largest, {1, 0});
  STATIC_REQUIRE(has(taken, 2 - most, 2 - most));
  STATIC_REQUIRE(has(taken.with_one_finished(), 3 - most, 3 - most));
  STATIC_REQUIRE(taken.with_limits({1, 0}, largest).bits() == Word{Limits{1, 0}}.bits());
}
