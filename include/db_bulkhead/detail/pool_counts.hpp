// SPDX-License-Identifier: MIT
//
// The books of a pool: how many connections are in which phase of their life. A
// connection is in one phase at a time and changes it by `move` alone, so that the
// phases add up to the total by construction. No thread safety: the pool's lock is held.
#ifndef DB_BULKHEAD_DETAIL_POOL_COUNTS_HPP
#define DB_BULKHEAD_DETAIL_POOL_COUNTS_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "db_bulkhead/pool_options.hpp"

namespace db_bulkhead::detail {

enum class Phase : std::size_t { connecting, idle, leased, validating, resetting, closing };

class PoolCounts {
 public:
  void begin_connecting() noexcept { ++at(Phase::connecting); }
  void connect_failed() noexcept { --at(Phase::connecting); }

  void opened(Phase to) noexcept {
    move(Phase::connecting, to);
    ++created_;
  }

  void move(Phase from, Phase to) noexcept {
    --at(from);
    ++at(to);
  }

  void closed() noexcept {
    --at(Phase::closing);
    ++closed_;
  }

  std::size_t in(Phase phase) const noexcept { return at(phase); }

  std::size_t total() const noexcept {
    return std::accumulate(phases_.begin(), phases_.end(), std::size_t{0});
  }

  /// The books as a snapshot; what they do not hold (max, waiting, failures) is left as it is in `stats`.
  void fill_in(PoolStats& stats) const noexcept {
    stats.connecting = at(Phase::connecting);
    stats.idle = at(Phase::idle);
    stats.leased = at(Phase::leased);
    stats.validating = at(Phase::validating);
    stats.resetting = at(Phase::resetting);
    stats.closing = at(Phase::closing);
    stats.total = total();
    stats.created = created_;
    stats.closed = closed_;
  }

 private:
  std::size_t& at(Phase phase) noexcept { return phases_[static_cast<std::size_t>(phase)]; }
  std::size_t at(Phase phase) const noexcept { return phases_[static_cast<std::size_t>(phase)]; }

  std::array<std::size_t, 6> phases_{};
  std::uint64_t created_ = 0;
  std::uint64_t closed_ = 0;
};

}  // namespace db_bulkhead::detail

#endif
