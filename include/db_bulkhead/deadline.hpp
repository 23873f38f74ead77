// SPDX-License-Identifier: MIT
//
// When to stop waiting. `Deadline` is a point on the steady clock, `QueueWait` a
// length of time that is not yet running. Both take any std::chrono duration and
// saturate: what is too large to be represented means "no limit", never a moment
// in the past. (A plain `wait_for(milliseconds::max())` overflows and returns at
// once.) Wall-clock changes have no effect. Value types; every member is safe to
// call from any thread on a const object.
#ifndef DB_BULKHEAD_DEADLINE_HPP
#define DB_BULKHEAD_DEADLINE_HPP

#include <chrono>
#include <compare>
#include <cstdint>
#include <ratio>
#include <type_traits>
#include <utility>

namespace db_bulkhead {

namespace detail {

/// `length` in nanoseconds, at the nearest end of the range where it does not fit. Fractions are
/// rounded up, so that a wait is never shorter than asked for; not-a-number counts as zero.
template <class Rep, class Period>
constexpr std::chrono::nanoseconds saturated(std::chrono::duration<Rep, Period> length) noexcept {
  using std::chrono::nanoseconds;
  using Factor = std::ratio_divide<Period, std::nano>;
  if constexpr (std::is_integral_v<Rep> && Factor::den == 1) {
    constexpr std::intmax_t most = nanoseconds::max().count() / Factor::num;
    if (std::cmp_greater(length.count(), most)) return nanoseconds::max();
    if (std::cmp_less(length.count(), -most)) return nanoseconds::min();
    return nanoseconds{static_cast<nanoseconds::rep>(length.count()) * Factor::num};
  } else {
    // Fractions and periods that nanoseconds do not divide: long double holds each of them.
    if (length != length) return nanoseconds::zero();
    std::chrono::duration<long double, std::nano> const wide{length};
    if (wide.count() >= static_cast<long double>(nanoseconds::max().count())) return nanoseconds::max();
    if (wide.count() <= static_cast<long double>(nanoseconds::min().count())) return nanoseconds::min();
    return std::chrono::ceil<nanoseconds>(wide);
  }
}

}  // namespace detail

/// A longest time to wait, in nanoseconds. It is a std::chrono::nanoseconds in every respect but
/// one: it can be made from any duration, hours::max() included, without overflow.
class QueueWait : public std::chrono::nanoseconds {
 public:
  constexpr QueueWait() noexcept : std::chrono::nanoseconds{0} {}

  // Not explicit: a wait is written as a duration wherever one is asked for.
  template <class Rep, class Period>
  constexpr QueueWait(std::chrono::duration<Rep, Period> length) noexcept
      : std::chrono::nanoseconds{detail::saturated(length)} {}

  /// True for nanoseconds::max(), which stands for a wait without end.
  constexpr bool unlimited() const noexcept { return count() == max().count(); }
};

class Deadline {
 public:
  using clock = std::chrono::steady_clock;

  /// The deadline that never passes.
  static constexpr Deadline never() noexcept { return Deadline{clock::time_point::max()}; }

  /// The deadline at `when`; time_point::max() is `never()`.
  static constexpr Deadline at(clock::time_point when) noexcept { return Deadline{when}; }

  /// The deadline `wait` from `start`; `never()` where the sum cannot be represented.
  static constexpr Deadline after(QueueWait wait, clock::time_point start) noexcept {
    if (wait.unlimited() || (wait.count() > 0 && start > clock::time_point::max() - wait)) return never();
    if (wait.count() < 0 && start < clock::time_point::min() - wait)
      return Deadline{clock::time_point::min()};
    return Deadline{start + wait};
  }

  /// The deadline `wait` from now. A negative wait gives one that has passed already.
  static Deadline after(QueueWait wait) noexcept {
    return wait.unlimited() ? never() : after(wait, clock::now());
  }

  constexpr bool is_never() const noexcept { return when_ == clock::time_point::max(); }
  constexpr clock::time_point time_point() const noexcept { return when_; }

  /// Whether the deadline is reached at `now`. A deadline that is `never()` reads no clock.
  bool passed() const noexcept { return !is_never() && passed(clock::now()); }
  constexpr bool passed(clock::time_point now) const noexcept { return !is_never() && now >= when_; }

  /// The time left: zero once it has passed, nanoseconds::max() for `never()`.
  std::chrono::nanoseconds remaining() const noexcept {
    return is_never() ? std::chrono::nanoseconds::max() : remaining(clock::now());
  }
  constexpr std::chrono::nanoseconds remaining(clock::time_point now) const noexcept {
    if (is_never()) return std::chrono::nanoseconds::max();
    if (now >= when_) return std::chrono::nanoseconds::zero();
    return when_ - now;
  }

  /// The earlier of two is the smaller.
  friend constexpr auto operator<=>(Deadline const&, Deadline const&) = default;

 private:
  explicit constexpr Deadline(clock::time_point when) noexcept : when_{when} {}

  clock::time_point when_;
};

}  // namespace db_bulkhead

#endif
