// SPDX-License-Identifier: MIT
#include "db_bulkhead/owning_result.hpp"

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"

using db_bulkhead::outlives_transaction;

namespace {

struct Incomplete;
struct Row {
  int id;
  std::string name;
};

template <class... Ts>
constexpr bool all_owning = (outlives_transaction<Ts> && ...);
template <class... Ts>
constexpr bool all_borrowing = (!outlives_transaction<Ts> && ...);

}  // namespace

// Decided at compile time: a build of this file is the test; it is listed so that the promise can be seen.
TEST_CASE("a result that owns what it holds may leave a transaction") {
  STATIC_REQUIRE(
      all_owning<void, int, double const, bool, Row, std::string, std::vector<Row>, std::optional<Row>>);
  STATIC_REQUIRE(all_owning<std::unique_ptr<Row>, std::shared_ptr<Incomplete>, std::map<int, std::string>,
                            std::tuple<int, std::string>, std::variant<int, Row>, std::filesystem::path>);
  STATIC_REQUIRE(all_owning<std::function<int()>, std::array<int, 3>, std::vector<std::vector<int>>,
                            std::unique_ptr<int[]>>);
}

TEST_CASE("a result that would outlive what it refers to may not") {
  STATIC_REQUIRE(all_borrowing<int&, std::string const&, int*, char const*, void (*)(), std::string_view,
                               std::span<int const>>);
#if !defined(__clang__) || __clang_major__ >= 16  // before, clang cannot compile libstdc++'s views
  STATIC_REQUIRE(all_borrowing<std::ranges::ref_view<std::string>>);
#endif
  STATIC_REQUIRE(
      all_borrowing<std::vector<int>::iterator, std::reference_wrapper<int>, std::future<int>,
                    std::shared_future<void>, std::coroutine_handle<>, std::vector<bool>::reference>);
  STATIC_REQUIRE(all_owning<std::vector<bool>>);
}

TEST_CASE("and neither may what contains one") {
  STATIC_REQUIRE(
      all_borrowing<std::optional<std::string_view>, std::vector<char const*>, std::pair<int, int*>,
                    std::tuple<int, std::span<int>>, std::variant<int, std::string_view>,
                    std::array<std::string_view, 2>, std::unique_ptr<int*>,
                    std::map<std::string, std::string_view>, std::vector<std::optional<int*>>>);
}
