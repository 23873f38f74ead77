// SPDX-License-Identifier: MIT
//
// The ways to choose: all of them one after the other, some by a seed, always the
// first, or those of an earlier run.
#ifndef DB_BULKHEAD_TESTS_INTERLEAVINGS_CHOICES_HPP
#define DB_BULKHEAD_TESTS_INTERLEAVINGS_CHOICES_HPP

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <unordered_set>
#include <utility>
#include <vector>

#include "scheduler.hpp"

namespace interleavings {

/// Depth first through every choice in every state.
class AllChoices : public Choices {
 public:
  std::optional<unsigned> choose(unsigned count, Scheduler const& at) override {
    if (depth_ == path_.size()) {
      if (!states_.insert(at.state()).second) return std::nullopt;
      path_.push_back({0, count});
    }
    Branch const& branch = path_[depth_++];
    if (branch.count != count) throw std::logic_error("the same choices led to another state");
    return branch.choice;
  }

  /// Turns to the next run; false once there is none.
  bool next() {
    depth_ = 0;
    while (!path_.empty() && ++path_.back().choice == path_.back().count) path_.pop_back();
    return !path_.empty();
  }

  std::vector<unsigned> path() const {
    std::vector<unsigned> taken;
    for (std::size_t i = 0; i < depth_; ++i) taken.push_back(path_[i].choice);
    return taken;
  }
  std::size_t states() const noexcept { return states_.size(); }

 private:
  struct Branch {
    unsigned choice;
    unsigned count;
  };
  std::vector<Branch> path_;
  std::size_t depth_ = 0;
  std::unordered_set<std::uint64_t> states_;
};

/// Numbers that follow from a seed, the same everywhere.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_{seed} {}
  unsigned below(std::size_t count) { return static_cast<unsigned>((state_ = mix(state_, 0)) % count); }

 private:
  std::uint64_t state_;
};

/// By a seed, which also says how likely the first choice (to go on as before) is: faults that need long
/// undisturbed stretches are as common as those that need many changes.
class SeededChoices : public Choices {
 public:
  explicit SeededChoices(std::uint64_t seed) : dice_{seed} {
    constexpr unsigned stay[] = {0, 50, 80, 95};
    stay_percent_ = stay[dice_.below(4)];
  }
  std::optional<unsigned> choose(unsigned count, Scheduler const&) override {
    return dice_.below(100) < stay_percent_ ? 0 : dice_.below(count);
  }

 private:
  Dice dice_;
  unsigned stay_percent_;
};

/// Those of a given list, and then the first.
class GivenChoices : public Choices {
 public:
  explicit GivenChoices(std::vector<unsigned> path = {}) : path_{std::move(path)} {}
  std::optional<unsigned> choose(unsigned count, Scheduler const&) override {
    unsigned const choice = next_ < path_.size() ? path_[next_++] : 0;
    return choice < count ? choice : 0;
  }

 private:
  std::vector<unsigned> path_;
  std::size_t next_ = 0;
};

}  // namespace interleavings

#endif
