// SPDX-License-Identifier: MIT
//
// The two bounds of a bulkhead: how many operations may run (B) and how many
// more may wait for their turn (Q). A value type; checked where it is used, by
// `require_valid`, so that a wrong limit is refused before anything changes. And what
// a gate shows of itself against them.
#ifndef DB_BULKHEAD_LIMITS_HPP
#define DB_BULKHEAD_LIMITS_HPP

#include <cstddef>
#include <stdexcept>
#include <string>

namespace db_bulkhead {

struct Limits {
  /// B: operations that may run at the same time. Must be given: the initial 0 is refused.
  std::size_t concurrent = 0;
  /// Q: operations that may wait besides. 0 means that whoever cannot run at once is refused.
  std::size_t extra_slots = 0;

  /// The largest B + Q: both counts and their debts after a shrink fit into one 64-bit word.
  static constexpr std::size_t max_total = (std::size_t{1} << 30) - 1;

  /// B + Q, for limits that are valid.
  constexpr std::size_t total() const noexcept { return concurrent + extra_slots; }

  friend constexpr bool operator==(Limits const&, Limits const&) = default;
};

/// Throws std::invalid_argument, naming field, value and range, unless 1 <= concurrent and
/// concurrent + extra_slots <= Limits::max_total. A negative number that was converted to
/// std::size_t is far above the maximum and so is refused as well.
inline void require_valid(Limits const& limits) {
  if (limits.concurrent == 0 || limits.concurrent > Limits::max_total) {
    throw std::invalid_argument("db_bulkhead: Limits::concurrent is " + std::to_string(limits.concurrent) +
                                "; allowed is 1 to " + std::to_string(Limits::max_total));
  }
  if (limits.extra_slots > Limits::max_total - limits.concurrent) {
    throw std::invalid_argument("db_bulkhead: Limits::extra_slots is " + std::to_string(limits.extra_slots) +
                                "; with concurrent = " + std::to_string(limits.concurrent) +
                                " allowed is 0 to " + std::to_string(Limits::max_total - limits.concurrent));
  }
}

/// One consistent picture of a gate. After a shrink, `running` may be above `limits.concurrent` and `waiting`
/// above `limits.extra_slots` until what is over the new limits has drained.
struct GateState {
  std::size_t running = 0;
  std::size_t waiting = 0;
  Limits limits{};
  bool closed = false;

  friend constexpr bool operator==(GateState const&, GateState const&) = default;
};

}  // namespace db_bulkhead

#endif
