// SPDX-License-Identifier: MIT
//
// Where in a program a call is: std::source_location, or its like where the compiler
// has none (clang before 16 with libstdc++).
#ifndef DB_BULKHEAD_SOURCE_LOCATION_HPP
#define DB_BULKHEAD_SOURCE_LOCATION_HPP

#include <cstdint>
#include <version>

#if defined(__cpp_lib_source_location)
#include <source_location>
#endif

namespace db_bulkhead {

#if defined(__cpp_lib_source_location)

using SourceLocation = std::source_location;

#else

class SourceLocation {
 public:
  constexpr SourceLocation() noexcept = default;

  // Default arguments are evaluated where the call is, of this function or of one that has it as its default.
  static constexpr SourceLocation current(char const* file = __builtin_FILE(),
                                          std::uint_least32_t line = __builtin_LINE(),
                                          char const* function = __builtin_FUNCTION()) noexcept {
    SourceLocation here;
    here.file_ = file;
    here.line_ = line;
    here.function_ = function;
    return here;
  }

  constexpr std::uint_least32_t line() const noexcept { return line_; }
  constexpr std::uint_least32_t column() const noexcept { return 0; }
  constexpr char const* file_name() const noexcept { return file_; }
  constexpr char const* function_name() const noexcept { return function_; }

 private:
  char const* file_ = "";
  char const* function_ = "";
  std::uint_least32_t line_ = 0;
};

#endif

}  // namespace db_bulkhead

#endif
