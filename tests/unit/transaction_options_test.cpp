// SPDX-License-Identifier: MIT
#include "db_bulkhead/transaction_options.hpp"

#include <chrono>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>

#include "catch.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;

namespace {

std::string refusal_of(TransactionOptions const& options) {
  try {
    require_valid(options);
  } catch (std::invalid_argument const& refused) {
    return refused.what();
  }
  return {};
}

bool names(std::string const& message, std::string const& part) {
  return message.find(part) != std::string::npos;
}

constexpr auto longest = std::chrono::milliseconds{std::numeric_limits<int>::max()};

}  // namespace

TEST_CASE("a transaction that is told nothing waits for nothing and asks the server for nothing") {
  TransactionOptions const options;
  CHECK(options.queue_wait == 0ns);
  CHECK(options.deadline.is_never());
  CHECK_FALSE(options.statement_timeout);
  CHECK_FALSE(options.lock_timeout);
  CHECK(options.isolation == Isolation::server_default);
  CHECK(options.access == Access::read_write);
  CHECK_FALSE(options.stop.stop_possible());
  CHECK(options.label.empty());
  CHECK_NOTHROW(require_valid(options));
}

TEST_CASE("options are set by their names, in any number") {
  TransactionOptions const options{.queue_wait = 20ms, .access = Access::read_only};
  CHECK(options.queue_wait == 20ms);
  CHECK(options.access == Access::read_only);
  CHECK_NOTHROW(require_valid(options));
}

TEST_CASE("a negative wait is refused by its value, and one without end is not", "[row-25]") {
  CHECK(names(refusal_of({.queue_wait = -1ms}), "queue_wait is -1000000 ns"));
  CHECK(names(refusal_of({.queue_wait = std::chrono::nanoseconds::min()}), "queue_wait is -"));
  CHECK(names(refusal_of({.queue_wait = std::chrono::hours::min()}), "queue_wait is -"));
  CHECK(refusal_of({.queue_wait = std::chrono::nanoseconds::max()}).empty());
  CHECK(refusal_of({.queue_wait = std::chrono::hours::max()}).empty());
}

TEST_CASE("a timeout of the server's is a whole number of milliseconds in PostgreSQL's range") {
  CHECK(refusal_of({.statement_timeout = 1ms, .lock_timeout = longest}).empty());
  CHECK(
      names(refusal_of({.statement_timeout = 0ms}), "statement_timeout is 0 ms; allowed is 1 to 2147483647"));
  CHECK(names(refusal_of({.statement_timeout = longest + 1ms}), "statement_timeout is 2147483648 ms"));
  CHECK(names(refusal_of({.lock_timeout = -5ms}), "lock_timeout is -5 ms"));
  CHECK(names(refusal_of({.lock_timeout = std::chrono::milliseconds::max()}), "lock_timeout is "));
}

TEST_CASE("an isolation or access that is none of the enumerators is refused") {
  CHECK(names(refusal_of({.isolation = static_cast<Isolation>(4)}), "isolation is 4"));
  CHECK(names(refusal_of({.isolation = static_cast<Isolation>(-1)}), "isolation is -1"));
  CHECK(names(refusal_of({.access = static_cast<Access>(2)}), "access is 2"));
  for (auto const isolation : {Isolation::server_default, Isolation::read_committed,
                               Isolation::repeatable_read, Isolation::serializable}) {
    CHECK(refusal_of({.isolation = isolation}).empty());
  }
}
