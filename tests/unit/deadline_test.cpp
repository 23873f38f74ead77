// SPDX-License-Identifier: MIT
#include "db_bulkhead/deadline.hpp"

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>

#include "catch.hpp"

using db_bulkhead::Deadline;
using db_bulkhead::QueueWait;
using namespace std::chrono_literals;

namespace {

using std::chrono::nanoseconds;
using TimePoint = Deadline::clock::time_point;

constexpr TimePoint noon{1h};

}  // namespace

TEST_CASE("the deadline that never passes has all the time left") {
  CHECK(Deadline::never().is_never());
  CHECK_FALSE(Deadline::never().passed());
  CHECK_FALSE(Deadline::never().passed(TimePoint::max()));
  CHECK(Deadline::never().remaining() == nanoseconds::max());
}

TEST_CASE("a deadline is reached at its moment, not after it") {
  auto const deadline = Deadline::after(20ms, noon);
  CHECK_FALSE(deadline.passed(noon + 20ms - 1ns));
  CHECK(deadline.passed(noon + 20ms));
}

TEST_CASE("the time left counts down to zero and stays there") {
  auto const deadline = Deadline::after(20ms, noon);
  CHECK(deadline.remaining(noon + 15ms) == 5ms);
  CHECK(deadline.remaining(noon + 20ms) == 0ns);
  CHECK(deadline.remaining(noon + 1h) == 0ns);
}

TEST_CASE("a negative wait gives a deadline that has passed") {
  CHECK(Deadline::after(-1ns).passed());
  CHECK(Deadline::after(-1ns, noon).passed(noon));
  CHECK(Deadline::after(nanoseconds::min(), TimePoint::min() + 1ns).passed(noon));
}

TEST_CASE("a wait too long for the clock is a wait without end") {
  CHECK(Deadline::after(nanoseconds::max()).is_never());
  CHECK(Deadline::after(std::chrono::hours::max()).is_never());
  CHECK(Deadline::after(std::chrono::years::max()).is_never());
  CHECK(Deadline::after(nanoseconds::max() - 1ns, noon).is_never());
  CHECK(Deadline::after(std::chrono::milliseconds::max()).remaining() == nanoseconds::max());
}

TEST_CASE("a wait keeps the longest length that still ends") {
  STATIC_REQUIRE(QueueWait{std::chrono::hours::max()}.unlimited());
  STATIC_REQUIRE(QueueWait{std::chrono::seconds::max()}.unlimited());
  STATIC_REQUIRE_FALSE(QueueWait{nanoseconds::max() - 1ns}.unlimited());
  STATIC_REQUIRE(QueueWait{std::chrono::hours::min()} == nanoseconds::min());
}

TEST_CASE("a wait is never rounded to less than was asked for") {
  using Picoseconds = std::chrono::duration<std::int64_t, std::pico>;
  STATIC_REQUIRE(QueueWait{Picoseconds{1}} == 1ns);
  STATIC_REQUIRE(QueueWait{Picoseconds{1001}} == 2ns);
  CHECK(QueueWait{std::chrono::duration<double>{0.25}} == 250ms);
}

TEST_CASE("a wait that is not a number is no wait") {
  CHECK(QueueWait{std::chrono::duration<double>{std::numeric_limits<double>::quiet_NaN()}} == 0ns);
  CHECK(QueueWait{std::chrono::duration<double>{std::numeric_limits<double>::infinity()}}.unlimited());
}

TEST_CASE("an unsigned wait beyond the range does not turn negative") {
  using Unsigned = std::chrono::duration<std::uint64_t, std::nano>;
  STATIC_REQUIRE(QueueWait{Unsigned::max()}.unlimited());
}

TEST_CASE("of two deadlines the earlier is the smaller") {
  CHECK(Deadline::at(noon) < Deadline::at(noon + 1ns));
  CHECK(Deadline::at(noon) < Deadline::never());
  CHECK(Deadline::at(noon) == Deadline::after(0ns, noon));
}
