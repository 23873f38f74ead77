// SPDX-License-Identifier: MIT
#include "db_bulkhead/error.hpp"

#include <chrono>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "catch.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;

namespace {

template <class Exception>
Effect effect_of(Exception const& exception) {
  Error const& error = exception;  // every one is an Error
  return error.effect();
}

bool tells(std::exception const& error, std::string const& part) {
  return std::string{error.what()}.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("every exception tells what the database holds") {
  CHECK(effect_of(AdmissionRejected{Rejection::full, {1, 0}, 1, 0, 0ns}) == Effect::none);
  CHECK(effect_of(ConnectionUnavailable{ConnectionUnavailable::Reason::closed, "x"}) == Effect::none);
  CHECK(effect_of(TransactionRolledBack{TransactionRolledBack::Reason::cancelled, "x"}) == Effect::none);
  CHECK(effect_of(BoundaryViolated{"x"}) == Effect::unknown);
  CHECK(effect_of(CommitOutcomeUnknown{"x"}) == Effect::unknown);
  CHECK(effect_of(ResultLost{"x"}) == Effect::committed);
}

TEST_CASE("an exception of the library can be caught as std::runtime_error, and names the library") {
  STATIC_REQUIRE(std::is_base_of_v<std::runtime_error, Error>);
  CHECK(std::string{BoundaryViolated{"the callback sent COMMIT"}.what()} ==
        "db_bulkhead: the callback sent COMMIT");
}

TEST_CASE("a refusal tells its reason, the limits, who was in and how long was waited") {
  AdmissionRejected const refused{Rejection::timed_out, {2, 3}, 2, 1, 20ms};
  CHECK(refused.reason() == Rejection::timed_out);
  CHECK(refused.limits() == Limits{2, 3});
  CHECK(refused.in_flight() == 2);
  CHECK(refused.waiting() == 1);
  CHECK(refused.waited() == 20ms);
  CHECK(tells(refused, "timed_out"));
  CHECK(tells(refused, "2 of 2 running"));
  CHECK(tells(refused, "1 of 3 waiting"));
}

TEST_CASE("a rollback tells its reason, and the server's code where there is one") {
  TransactionRolledBack const refused{TransactionRolledBack::Reason::server_refused, "x", "23505"};
  CHECK(refused.reason() == TransactionRolledBack::Reason::server_refused);
  CHECK(refused.sqlstate() == "23505");
  CHECK(TransactionRolledBack{TransactionRolledBack::Reason::cancelled, "x"}.sqlstate().empty());
  CHECK(ConnectionUnavailable{ConnectionUnavailable::Reason::full, "x"}.reason() ==
        ConnectionUnavailable::Reason::full);
}

TEST_CASE("reasons and effects are written as their enumerators") {
  CHECK(to_string(Rejection::full) == "full");
  CHECK(to_string(Rejection::timed_out) == "timed_out");
  CHECK(to_string(Rejection::cancelled) == "cancelled");
  CHECK(to_string(Rejection::closed) == "closed");
  CHECK(to_string(Rejection::reentrant) == "reentrant");
  CHECK(to_string(Rejection::expired) == "expired");
  CHECK(to_string(Effect::none) == "none");
  CHECK(to_string(Effect::unknown) == "unknown");
  CHECK(to_string(Effect::committed) == "committed");
  CHECK(to_string(static_cast<Rejection>(99)) == "?");
  CHECK(to_string(static_cast<Effect>(99)) == "?");
}
