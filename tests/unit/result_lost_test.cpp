// SPDX-License-Identifier: MIT
//
// Compiled without the elision of named results, so that a result is really moved on
// its way out and the move can throw after the commit.
#include <stdexcept>

#include "catch.hpp"
#include "db_bulkhead/db_bulkhead.hpp"
#include "support/fake_driver.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;
using fake::Step;

namespace {

struct BadMove : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws when it is moved once the pool has seen a commit.
struct Fragile {
  explicit Fragile(bool const& is_committed) : committed{&is_committed} {}
  Fragile(Fragile&& other) : committed{other.committed} {
    if (*committed) throw BadMove{"moved after the commit"};
  }
  bool const* committed;
};

}  // namespace

template <>
struct db_bulkhead::OutlivesTransaction<Fragile> : std::true_type {};

TEST_CASE("a result whose move throws after the commit is reported as committed, after everything is back") {
  fake::Pool pool;
  DbBulkhead bulkhead{pool, {.concurrent = 1}};
  bool committed = false;
  pool.hook = [&](Step step) {
    if (step == Step::commit) committed = true;
  };
  try {
    bulkhead.transaction(0ns, [&](fake::Transaction&) { return Fragile{committed}; });
    FAIL("the result was not moved: this file is to be compiled with -fno-elide-constructors");
  } catch (ResultLost const& lost) {
    REQUIRE(lost.effect() == Effect::committed);
    REQUIRE_THROWS_AS(std::rethrow_if_nested(lost), BadMove);
  }
  REQUIRE(bulkhead.available() == 1);
  REQUIRE(pool.leased == 0);
  REQUIRE(pool.discarded == 0);
}
