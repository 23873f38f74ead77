// SPDX-License-Identifier: MIT
#include "db_bulkhead/pool_options.hpp"

#include <chrono>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "catch.hpp"

using db_bulkhead::Limits;
using db_bulkhead::PoolOptions;
using db_bulkhead::require_valid;
using db_bulkhead::SessionReset;
using namespace std::chrono_literals;

namespace {

std::string refusal_of(PoolOptions const& options) {
  try {
    require_valid(options);
  } catch (std::invalid_argument const& refused) {
    return refused.what();
  }
  return {};
}

bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("pool options are valid as they come, and at the ends of their ranges") {
  CHECK(refusal_of({}).empty());
  CHECK(refusal_of({.max_size = 1, .max_waiting = 0, .connection_timeout = 1ns}).empty());
  CHECK(refusal_of({.max_size = Limits::max_total - 1, .max_waiting = 1}).empty());
  CHECK(refusal_of({.connection_timeout = std::chrono::hours::max()}).empty());
  CHECK(refusal_of({.name = std::string(64, 'x')}).empty());
}

TEST_CASE("a pool option out of range is refused with its name, its value and the range") {
  auto const refused = [](PoolOptions const& options, std::string const& field, std::string const& value) {
    std::string const message = refusal_of(options);
    INFO(message);
    return contains(message, field) && contains(message, value) && contains(message, "allowed");
  };
  constexpr auto negative = static_cast<std::size_t>(-1);
  CHECK(refused({.max_size = 0}, "max_size", " 0;"));
  CHECK(refused({.max_size = negative}, "max_size", std::to_string(negative)));
  CHECK(refused({.max_size = 2, .max_waiting = Limits::max_total - 1}, "max_waiting",
                std::to_string(Limits::max_total - 1)));
  CHECK(refused({.connection_timeout = 0ns}, "connection_timeout", " 0 ns"));
  CHECK(refused({.connection_timeout = -1ms}, "connection_timeout", " -1000000 ns"));
  CHECK(refused({.reset = static_cast<SessionReset>(7)}, "reset", " 7;"));
  CHECK(refused({.init_sql = std::string{"SET a.b = 1\0; x", 15}}, "init_sql", " 11;"));
  CHECK(refused({.name = ""}, "name", "''"));
  CHECK(refused({.name = std::string(65, 'x')}, "name", "65 characters"));
}

TEST_CASE("a refused pool name is shown without control characters") {
  std::string const message = refusal_of({.name = "a\nb c\x1b[31m"});
  CHECK(contains(message, "'a?b?c??31m'"));
}
