// SPDX-License-Identifier: MIT
//
// The two semaphores of a gate in one 64-bit word, as a value without behaviour:
//
//   63            33 32             2     1        0
//   [ free permits ][ free places    ][closed][waiters]
//
// "Permits" bound what runs (B), "places" bound what is in the gate at all (B + Q).
// Both counts are what is *free*, so that one load tells an arrival all it has to
// know, and a change of the limits is an addition that nobody can overlook. Both may
// be negative: after a shrink more may be running than the new limit allows. Free
// permits stand in the top bits in two's complement; free places are stored with a
// bias, so that no borrow ever reaches the permits.
#ifndef DB_BULKHEAD_DETAIL_ADMISSION_WORD_HPP
#define DB_BULKHEAD_DETAIL_ADMISSION_WORD_HPP

#include <cstdint>

#include "db_bulkhead/limits.hpp"

namespace db_bulkhead::detail {

class AdmissionWord {
 public:
  explicit constexpr AdmissionWord(std::uint64_t bits) noexcept : bits_{bits} {}

  explicit constexpr AdmissionWord(Limits const& limits) noexcept
      : bits_{limits.concurrent * permit + (limits.total() + bias) * place} {}

  constexpr std::uint64_t bits() const noexcept { return bits_; }

  constexpr std::int64_t free_permits() const noexcept {
    return static_cast<std::int64_t>(bits_) >> permit_shift;
  }
  constexpr std::int64_t free_places() const noexcept {
    return static_cast<std::int64_t>((bits_ / place) & place_mask) - static_cast<std::int64_t>(bias);
  }
  constexpr bool has_waiters() const noexcept { return (bits_ & waiters) != 0; }
  constexpr bool is_closed() const noexcept { return (bits_ & closed) != 0; }

  /// A permit is free, nobody waits for it, and the gate is open: whoever arrives may run at once.
  /// Where nobody waits, everyone inside runs, so a free permit implies a free place.
  constexpr bool admits_at_once() const noexcept {
    return (bits_ & (waiters | closed)) == 0 && free_permits() > 0;
  }
  constexpr bool is_full() const noexcept { return free_places() <= 0; }
  /// One who leaves may pass the permit on: no more are running than the limit allows.
  constexpr bool within_limit() const noexcept { return free_permits() >= 0; }

  constexpr AdmissionWord with_one_running() const noexcept { return AdmissionWord{bits_ - permit - place}; }
  constexpr AdmissionWord with_one_finished() const noexcept { return AdmissionWord{bits_ + permit + place}; }
  constexpr AdmissionWord with_one_waiting() const noexcept {
    return AdmissionWord{(bits_ - place) | waiters};
  }
  /// Somebody left a place behind, and no permit. `more_wait`: whether anybody still waits.
  constexpr AdmissionWord with_one_place_freed(bool more_wait) const noexcept {
    return AdmissionWord{((bits_ + place) & ~waiters) | (more_wait ? waiters : 0)};
  }
  /// The first waiter runs with a permit that was free.
  constexpr AdmissionWord with_first_running(bool more_wait) const noexcept {
    return AdmissionWord{((bits_ - permit) & ~waiters) | (more_wait ? waiters : 0)};
  }
  constexpr AdmissionWord with_closed() const noexcept { return AdmissionWord{bits_ | closed}; }
  /// The same counts of running and waiting under other limits.
  constexpr AdmissionWord with_limits(Limits const& from, Limits const& to) const noexcept {
    return AdmissionWord{bits_ + (to.concurrent - from.concurrent) * permit +
                         (to.total() - from.total()) * place};
  }

 private:
  static constexpr int place_shift = 2;
  static constexpr int permit_shift = 33;
  static constexpr std::uint64_t waiters = 1;
  static constexpr std::uint64_t closed = 2;
  static constexpr std::uint64_t place = std::uint64_t{1} << place_shift;
  static constexpr std::uint64_t permit = std::uint64_t{1} << permit_shift;
  static constexpr std::uint64_t place_mask = (std::uint64_t{1} << (permit_shift - place_shift)) - 1;
  static constexpr std::uint64_t bias = std::uint64_t{1} << 30;

  std::uint64_t bits_;
};

// Free places range from -max_total (all taken, limits shrunk to nothing) to +max_total.
static_assert(Limits::max_total < (std::uint64_t{1} << 30));

}  // namespace db_bulkhead::detail

#endif
