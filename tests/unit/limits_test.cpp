// SPDX-License-Identifier: MIT
#include "db_bulkhead/limits.hpp"

#include <cstddef>
#include <stdexcept>
#include <string>

#include "catch.hpp"

using db_bulkhead::Limits;
using db_bulkhead::require_valid;

namespace {

constexpr std::size_t most = Limits::max_total;

std::string refusal_of(Limits limits) {
  try {
    require_valid(limits);
  } catch (std::invalid_argument const& refused) {
    return refused.what();
  }
  return {};
}

bool names(std::string const& message, std::string const& part) {
  return message.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("limits that say how many may run are valid, with and without waiters") {
  CHECK_NOTHROW(require_valid({.concurrent = 1}));
  CHECK_NOTHROW(require_valid({.concurrent = 8, .extra_slots = 32}));
}

TEST_CASE("limits nobody has set are refused") {
  CHECK_THROWS_AS(require_valid({}), std::invalid_argument);
}

TEST_CASE("B plus Q may reach the maximum and not pass it") {
  CHECK_NOTHROW(require_valid({.concurrent = most}));
  CHECK_NOTHROW(require_valid({.concurrent = 1, .extra_slots = most - 1}));
  CHECK_THROWS_AS(require_valid({.concurrent = most + 1}), std::invalid_argument);
  CHECK_THROWS_AS(require_valid({.concurrent = 1, .extra_slots = most}), std::invalid_argument);
}

TEST_CASE("a sum that wraps round is refused") {
  CHECK_THROWS_AS(require_valid({.concurrent = 2, .extra_slots = static_cast<std::size_t>(-1)}),
                  std::invalid_argument);
}

TEST_CASE("a negative number that became a size is refused") {
  CHECK_THROWS_AS(require_valid({.concurrent = static_cast<std::size_t>(-1)}), std::invalid_argument);
  CHECK_THROWS_AS(require_valid({.concurrent = 1, .extra_slots = static_cast<std::size_t>(-1)}),
                  std::invalid_argument);
}

TEST_CASE("a refused limit is named with its value and the range") {
  auto const concurrent = refusal_of({.concurrent = 0, .extra_slots = 3});
  CHECK(names(concurrent, "Limits::concurrent is 0"));
  CHECK(names(concurrent, "1 to " + std::to_string(most)));

  auto const extra = refusal_of({.concurrent = 4, .extra_slots = most});
  CHECK(names(extra, "Limits::extra_slots is " + std::to_string(most)));
  CHECK(names(extra, "0 to " + std::to_string(most - 4)));
}

TEST_CASE("the total is what may be in at once") {
  STATIC_REQUIRE(Limits{.concurrent = 3, .extra_slots = 5}.total() == 8);
}
