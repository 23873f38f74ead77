// SPDX-License-Identifier: MIT
#include "db_bulkhead/permit.hpp"

#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "support/gates.hpp"

using namespace db_bulkhead;
using support::endless;
using support::is_whole;
using support::take;

TEST_CASE("a permit is moved, never copied, and moving it cannot fail") {
  STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<Permit>);
  STATIC_REQUIRE_FALSE(std::is_copy_assignable_v<Permit>);
  STATIC_REQUIRE(std::is_nothrow_move_constructible_v<Permit>);
  STATIC_REQUIRE(std::is_nothrow_move_assignable_v<Permit>);
  STATIC_REQUIRE(std::is_nothrow_default_constructible_v<Permit>);
}

TEST_CASE("an empty permit holds nothing and gives nothing back") {
  Permit permit;
  CHECK_FALSE(permit);
  permit = Permit{};
  CHECK_FALSE(permit);
}

TEST_CASE("a permit is given back when it is destroyed") {
  AdmissionGate gate{{1, 0}};
  {
    Permit const permit = take(gate);
    CHECK(permit);
    CHECK(gate.available() == 0);
    CHECK(gate.available_slots() == 0);
  }
  CHECK(is_whole(gate));
}

TEST_CASE("a permit that was moved from is empty, and the permit is given back once", "[row-6]") {
  AdmissionGate gate{{2, 0}};
  {
    Permit first = take(gate);
    Permit second{std::move(first)};
    CHECK_FALSE(first);
    CHECK(second);
    Permit third;
    third = std::move(second);
    CHECK_FALSE(second);
    CHECK(third);
    CHECK(gate.available() == 1);
  }
  CHECK(is_whole(gate));
}

TEST_CASE("a permit assigned to itself is kept", "[row-6]") {
  AdmissionGate gate{{1, 0}};
  Permit permit = take(gate);
  Permit& itself = permit;
  permit = std::move(itself);
  CHECK(permit);
  CHECK(gate.available() == 0);
}

TEST_CASE("a permit assigned over another gives the other back at once", "[row-6]") {
  AdmissionGate gate{{2, 0}};
  Permit one = take(gate);
  Permit two = take(gate);
  CHECK(gate.available() == 0);
  one = std::move(two);
  CHECK(gate.available() == 1);
  one = Permit{};
  CHECK(is_whole(gate));
}

TEST_CASE("permits of two gates that are exchanged go back to where they came from") {
  AdmissionGate left{{1, 0}};
  AdmissionGate right{{2, 0}};
  {
    Permit one = take(left);
    Permit two = take(right);
    std::swap(one, two);
    one = Permit{};
    CHECK(right.available() == 2);
    CHECK(left.available() == 0);
  }
  CHECK(left.available() == 1);
}

TEST_CASE("a permit taken on one thread is given back on another, once", "[row-6]") {
  support::Watchdog const watchdog;
  AdmissionGate gate{{2, 2}};
  for (int round = 0; round < 50; ++round) {
    Permit mine = take(gate);
    std::jthread{[permit = std::move(mine)]() mutable { Permit const last{std::move(permit)}; }}.join();
    CHECK_FALSE(mine);
  }
  CHECK(is_whole(gate));
}

TEST_CASE("a permit given back by an exception on its way out is whole again") {
  AdmissionGate gate{{1, 0}};
  CHECK_THROWS_AS(
      [&] {
        Permit const permit = take(gate);
        throw std::runtime_error{"the caller's own"};
      }(),
      std::runtime_error);
  CHECK(is_whole(gate));
}

TEST_CASE("permits live in containers") {
  AdmissionGate gate{{8, 0}};
  {
    std::vector<Permit> permits;
    for (int i = 0; i < 8; ++i) permits.push_back(take(gate));
    CHECK(gate.available() == 0);
    permits.erase(permits.begin() + 2);
    CHECK(gate.available() == 1);
  }
  CHECK(is_whole(gate));
}
