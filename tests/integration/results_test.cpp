// SPDX-License-Identifier: MIT
//
// What libpqxx's types may do is settled at compile time; that this file compiles is the test.
#include "db_bulkhead/pqxx/results.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "db_bulkhead/pqxx.hpp"

using db_bulkhead::outlives_transaction;

TEST_CASE("libpqxx's results that share ownership of their data may leave a transaction") {
  STATIC_REQUIRE(outlives_transaction<pqxx::result>);
  STATIC_REQUIRE(outlives_transaction<pqxx::row>);
  STATIC_REQUIRE(outlives_transaction<pqxx::field>);
  STATIC_REQUIRE(outlives_transaction<std::vector<pqxx::row>>);
  STATIC_REQUIRE(outlives_transaction<std::optional<pqxx::result>>);
  STATIC_REQUIRE(outlives_transaction<std::pair<pqxx::result, std::string>>);
}

TEST_CASE("libpqxx's objects that are bound to a transaction or connection may not leave it") {
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::work>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::nontransaction>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::subtransaction>);
  STATIC_REQUIRE_FALSE(outlives_transaction<db_bulkhead::detail::PqxxTransaction>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::stream_from>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::stream_to>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::pipeline>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::icursorstream>);
  STATIC_REQUIRE_FALSE(
      outlives_transaction<pqxx::stateless_cursor<pqxx::cursor_base::read_only, pqxx::cursor_base::owned>>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::largeobjectaccess>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::notification_receiver>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::connection>);
  STATIC_REQUIRE_FALSE(outlives_transaction<std::unique_ptr<pqxx::work>>);
  STATIC_REQUIRE_FALSE(outlives_transaction<std::shared_ptr<pqxx::pipeline>>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::result::const_iterator>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::row::const_iterator>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::array_parser>);
}

#if PQXX_VERSION_MAJOR == 6
TEST_CASE("what executes a statement of libpqxx 6 later may not leave a transaction") {
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::prepare::invocation>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::internal::parameterized_invocation>);
}
#endif

#if PQXX_VERSION_MAJOR >= 7
TEST_CASE("libpqxx's views may not leave a transaction") {
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::zview>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::blob>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::params>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::range<std::string_view>>);
  STATIC_REQUIRE(outlives_transaction<pqxx::range<int>>);
}

TEST_CASE("rows that are read from the server as they are asked for may not leave a transaction") {
  using Rows = decltype(std::declval<pqxx::work&>().stream<int>(""));
  STATIC_REQUIRE_FALSE(outlives_transaction<Rows>);
}
#endif

#if PQXX_VERSION_MAJOR == 7 && PQXX_VERSION_MINOR >= 8
TEST_CASE("an array may leave a transaction if its elements may") {
  STATIC_REQUIRE(outlives_transaction<pqxx::array<std::string>>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::array<std::string_view>>);
}
#endif

#if PQXX_VERSION_MAJOR > 7 || (PQXX_VERSION_MAJOR == 7 && PQXX_VERSION_MINOR >= 10)
TEST_CASE("the name of a prepared statement may not leave a transaction") {
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::prepped>);
}
#endif

#if PQXX_VERSION_MAJOR >= 8
TEST_CASE("libpqxx's non-owning refs may not leave a transaction") {
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::row_ref>);
  STATIC_REQUIRE_FALSE(outlives_transaction<pqxx::field_ref>);
  STATIC_REQUIRE_FALSE(outlives_transaction<std::vector<pqxx::row_ref>>);
}
#endif
