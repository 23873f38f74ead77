// SPDX-License-Identifier: MIT
//
// One case a compilation, chosen by CASE. Case 0 is the control and compiles; each other
// one must be refused, with the sentence that says why.
#include <future>
#include <optional>
#include <string>
#include <string_view>

#include "db_bulkhead/db_bulkhead.hpp"
#include "support/fake_driver.hpp"

int main() {
  fake::Pool pool;
  db_bulkhead::DbBulkhead bulkhead{pool, {.concurrent = 1}};
  static std::string text = "text";
#if CASE == 0
  return bulkhead.transaction(std::chrono::seconds{1}, [](fake::Transaction&) { return 0; });
#elif CASE == 1
  bulkhead.transaction(std::chrono::seconds{1}, [](fake::Transaction&) -> std::string& { return text; });
#elif CASE == 2
  bulkhead.transaction(std::chrono::seconds{1}, [](fake::Transaction& tx) { return &tx; });
#elif CASE == 3
  bulkhead.transaction(std::chrono::seconds{1}, [](fake::Transaction&) { return std::string_view{text}; });
#elif CASE == 4
  bulkhead.transaction(std::chrono::seconds{1},
                       [](fake::Transaction&) { return std::optional{text.c_str()}; });
#elif CASE == 5
  bulkhead.transaction(std::chrono::seconds{1},
                       [](fake::Transaction&) { return std::async([] { return 1; }); });
#elif CASE == 6
  bulkhead.transaction(std::chrono::seconds{1}, [] { return 1; });
#elif CASE == 7
  struct Immovable {
    Immovable() = default;
    Immovable(Immovable const&) = delete;
  };
  bulkhead.transaction(std::chrono::seconds{1}, [](fake::Transaction&) { return Immovable{}; });
#endif
}
