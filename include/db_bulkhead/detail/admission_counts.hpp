// SPDX-License-Identifier: MIT
//
// The word of a gate as it is shared between threads, together with the limits that it
// is counted by. Changes of the word are compare-and-swaps from any thread; which of
// them need the gate's lock is the gate's business. `put_in_force` is called under that
// lock; everything else at any time.
#ifndef DB_BULKHEAD_DETAIL_ADMISSION_COUNTS_HPP
#define DB_BULKHEAD_DETAIL_ADMISSION_COUNTS_HPP

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "db_bulkhead/detail/admission_word.hpp"
#include "db_bulkhead/limits.hpp"

namespace db_bulkhead::detail {

template <class Platform>
class AdmissionCounts {
 public:
  using Word = AdmissionWord;

  explicit AdmissionCounts(Limits const& limits) noexcept
      : word_{Word{limits}.bits()}, limits_{CompactLimits{limits}} {}

  Word load(std::memory_order order = std::memory_order_relaxed) const noexcept {
    return Word{word_.load(order)};
  }

  Limits limits() const noexcept { return limits_.load(std::memory_order_acquire).wide(); }

  /// Replaces `word` by `desired`, if it is still what is there; otherwise `word` becomes what is there.
  // acq_rel: what was done before a permit came back is visible to whoever takes it, since every change of
  // the word is a read-modify-write and so continues the release sequence.
  bool replace(Word& word, Word desired) noexcept {
    auto bits = word.bits();
    bool const done = word_.compare_exchange_weak(bits, desired.bits(), std::memory_order_acq_rel,
                                                  std::memory_order_relaxed);
    word = Word{bits};
    return done;
  }

  template <class Change>
  void update(Change change) noexcept {
    Word word = load();
    while (!replace(word, change(word))) {
    }
  }

  /// The version is odd while limits and word disagree.
  void put_in_force(Limits const& limits) noexcept {
    Limits const before = this->limits();
    auto const version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    limits_.store(CompactLimits{limits}, std::memory_order_release);  // pairs with the load in state()
    update([&](Word word) { return word.with_limits(before, limits); });
    version_.store(version + 2, std::memory_order_release);  // pairs with the first load in state()
  }

  GateState state() const noexcept {
    for (;;) {
      // A picture is the word between two equal, even versions of the limits that it is counted by.
      // Acquire keeps the loads in this order; the releases in `put_in_force` see to it that whoever
      // meets a changed limit or word meets the changed version as well.
      auto const version = version_.load(std::memory_order_acquire);
      Limits const limits = this->limits();
      Word const word = load(std::memory_order_acquire);
      if (version % 2 == 0 && version_.load(std::memory_order_relaxed) == version)
        return counted(word, limits);
      Platform::pause();
    }
  }

 private:
  template <class T>
  using Atomic = typename Platform::template atomic<T>;

  // Both limits in what one atomic load can read, aligned so that it needs no library call; they fit by the
  // definition of Limits::max_total.
  struct alignas(8) CompactLimits {
    std::uint32_t concurrent;
    std::uint32_t extra_slots;

    explicit CompactLimits(Limits const& limits) noexcept
        : concurrent{static_cast<std::uint32_t>(limits.concurrent)},
          extra_slots{static_cast<std::uint32_t>(limits.extra_slots)} {}
    Limits wide() const noexcept { return {concurrent, extra_slots}; }
  };

  static GateState counted(Word word, Limits const& limits) noexcept {
    auto const running = static_cast<std::int64_t>(limits.concurrent) - word.free_permits();
    auto const inside = static_cast<std::int64_t>(limits.total()) - word.free_places();
    return {static_cast<std::size_t>(running), static_cast<std::size_t>(inside - running), limits,
            word.is_closed()};
  }

  // On a line of its own: all that the fast path touches, away from what a resize writes.
  alignas(64) Atomic<std::uint64_t> word_;
  alignas(64) Atomic<CompactLimits> limits_;
  Atomic<std::uint64_t> version_{0};
};

}  // namespace db_bulkhead::detail

#endif
