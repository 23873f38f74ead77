// SPDX-License-Identifier: MIT
#include "db_bulkhead/detail/reconnect_pace.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "catch.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;
using detail::ConnectTrouble;
using detail::ReconnectPace;

namespace {

constexpr ReconnectBackoff backoff{.first = 100ms, .longest = 1s, .refused = 30s};
constexpr ReconnectPace::Time start{1h};

ConnectTrouble trouble(ConnectFailure kind = ConnectFailure::unreachable) {
  return {.kind = kind, .what = "down"};
}

// The waits after so many failures in a row.
std::chrono::nanoseconds wait_after(unsigned failures, ConnectFailure kind, std::uint_fast32_t seed) {
  ReconnectPace pace{backoff, 4, seed};
  auto now = start;
  for (unsigned i = 0; i < failures; ++i) pace.failed(trouble(kind), now, now), now += 1min;
  return pace.outage().next - pace.outage().last;
}

}  // namespace

TEST_CASE("connects ramp up from one, and never beyond the connectors", "[row-37]") {
  ReconnectPace pace{backoff, 3, 1};
  CHECK(pace.allowed(start) == 1);
  for (std::size_t const allowed : {2U, 3U, 3U}) {
    pace.succeeded();
    CHECK(pace.allowed(start) == allowed);
  }
}

TEST_CASE("while connecting fails there is one probe at a time, when it is due, and then the ramp",
          "[row-37]") {
  ReconnectPace pace{backoff, 4, 1};
  for (int i = 0; i < 3; ++i) pace.succeeded();
  pace.failed(trouble(), start, start);
  CHECK(pace.is_failing());
  CHECK(pace.allowed(start) == 0);
  CHECK(pace.allowed(pace.outage().next - 1ns) == 0);
  CHECK(pace.allowed(pace.outage().next) == 1);
  pace.succeeded();
  CHECK_FALSE(pace.is_failing());
  CHECK(pace.allowed(start) == 1);
  pace.succeeded();
  CHECK(pace.allowed(start) == 2);
}

TEST_CASE("the backoff doubles up to its longest, and is drawn from all of its range", "[row-36]") {
  struct Bound {
    unsigned failures;
    std::chrono::nanoseconds most;
  };
  for (auto const [failures, most] :
       {Bound{1, 100ms}, {2, 200ms}, {3, 400ms}, {4, 800ms}, {5, 1s}, {50, 1s}}) {
    auto least_seen = std::chrono::nanoseconds::max(), most_seen = std::chrono::nanoseconds::zero();
    for (std::uint_fast32_t seed = 1; seed <= 2000; ++seed) {
      auto const wait = wait_after(failures, ConnectFailure::unreachable, seed);
      least_seen = std::min(least_seen, wait);
      most_seen = std::max(most_seen, wait);
    }
    CAPTURE(failures);
    CHECK(least_seen >= most / 4);
    CHECK(most_seen <= most);
    CHECK(least_seen < most * 3 / 10);
    CHECK(most_seen > most * 19 / 20);
  }
}

TEST_CASE("a refusal that will not pass waits for long from the first", "[row-39]") {
  for (unsigned failures : {1U, 7U}) {
    for (std::uint_fast32_t seed = 1; seed <= 200; ++seed) {
      auto const wait = wait_after(failures, ConnectFailure::refused, seed);
      CHECK(wait >= 7500ms);
      CHECK(wait <= 30s);
    }
  }
}

TEST_CASE("ten seconds of an outage see fewer than twenty connects", "[row-36]") {
  int most = 0;
  for (std::uint_fast32_t seed = 1; seed <= 10'000; ++seed) {
    ReconnectPace pace{ReconnectBackoff{}, 4, seed};
    int attempts = 0;
    for (auto now = start; now < start + 10s; now = pace.outage().next, ++attempts)
      pace.failed(trouble(), now, now);
    most = std::max(most, attempts);
  }
  CHECK(most < 20);
}

TEST_CASE("connects that were under way together count as one failure") {
  ReconnectPace pace{backoff, 4, 1};
  pace.failed(trouble(), start, start + 1s);
  auto const next = pace.outage().next;
  for (int i = 0; i < 3; ++i) pace.failed(trouble(), start, start + 2s);
  CHECK(pace.outage().next == next);
  CHECK(pace.outage().since == start + 1s);
  CHECK_FALSE(pace.is_down(true));
}

TEST_CASE("it is no use to wait where nothing works; one failure proves nothing where others work") {
  ReconnectPace pace{backoff, 4, 1};
  CHECK_FALSE(pace.is_down(false));
  pace.failed(trouble(), start, start);
  CHECK(pace.is_down(false));
  CHECK_FALSE(pace.is_down(true));
  pace.failed(trouble(), start + 1s, start + 1s);
  CHECK(pace.is_down(true));
  pace.others_work();
  CHECK_FALSE(pace.is_down(true));
  CHECK(pace.is_down(false));
  pace.retry_now();
  CHECK_FALSE(pace.is_down(false));
  CHECK(pace.allowed(start) == 1);
  pace.failed(trouble(), start + 2s, start + 2s);
  CHECK(pace.is_down(false));
}

TEST_CASE("a server that is starting or full is worth waiting for, one that refuses is not") {
  ReconnectPace pace{backoff, 4, 1};
  for (int i = 0; i < 9; ++i) pace.failed(trouble(ConnectFailure::busy), start + i * 1s, start + i * 1s);
  CHECK_FALSE(pace.is_down(false));
  pace.failed(trouble(ConnectFailure::refused), start + 1min, start + 1min);
  CHECK(pace.is_down(true));
}

TEST_CASE("an outage is told from its first failure to its last, and forgotten when it is over", "[row-54]") {
  ReconnectPace pace{backoff, 4, 1};
  pace.failed(trouble(), start, start);
  pace.failed({.what = "still down"}, start + 5s, start + 6s);
  CHECK(pace.outage().since == start);
  CHECK(pace.outage().last == start + 6s);
  CHECK(pace.outage().trouble.what == "still down");
  pace.succeeded();
  pace.failed(trouble(), start + 1h, start + 1h);
  CHECK(pace.outage().since == start + 1h);
}

TEST_CASE("the backoff grows while other connections do their work", "[row-36]") {
  ReconnectPace pace{backoff, 4, 1};
  auto now = start;
  for (int i = 0; i < 8; ++i, now += 1min) {
    pace.failed(trouble(ConnectFailure::busy), now, now);
    pace.others_work();
  }
  CHECK(pace.outage().next - pace.outage().last >= backoff.longest / 4);
}

TEST_CASE("no wait is shorter than the clock can tell") {
  for (std::uint_fast32_t seed = 1; seed <= 100; ++seed) {
    ReconnectPace pace{{.first = 2ns, .longest = 2ns, .refused = 1ns}, 4, seed};
    pace.failed(trouble(), start, start);
    CHECK(pace.allowed(start) == 0);
    pace.failed(trouble(ConnectFailure::refused), start, start);
    CHECK(pace.allowed(start) == 0);
  }
}
