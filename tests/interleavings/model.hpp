// SPDX-License-Identifier: MIT
//
// What a gate promises, checked at every change of its word, at every grant and
// whenever its lock is given up. Written from the design's invariants; of the gate it
// knows no more than how the word is to be read.
#ifndef DB_BULKHEAD_TESTS_INTERLEAVINGS_MODEL_HPP
#define DB_BULKHEAD_TESTS_INTERLEAVINGS_MODEL_HPP

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "db_bulkhead/detail/admission_word.hpp"
#include "db_bulkhead/error.hpp"
#include "db_bulkhead/limits.hpp"
#include "fiber_platform.hpp"
#include "scheduler.hpp"

namespace interleavings {

using db_bulkhead::GateState;
using db_bulkhead::Limits;
using db_bulkhead::QueueWait;
using db_bulkhead::Rejection;
using db_bulkhead::detail::AdmissionWord;

class Model : public Witness {
 public:
  static constexpr unsigned max_fibers = 24;
  enum class Doing { nothing, arriving, leaving, resizing, closing };

  explicit Model(Limits limits, bool aloud) : limits_{limits}, word_{limits}, aloud_{aloud} {}

  // ---- what fibers are about to do, and what came of it ----

  void arrives(QueueWait wait, FiberStopSource const* stop) {
    Fiber& me = mine();
    me.doing = Doing::arriving;
    me.wait_from = surroundings.now;
    me.wait = wait;
    me.stop = stop;
    me.had = me.permits;
    me.met_full = me.met_busy = false;
    look_around(me);
  }
  void was_admitted() {
    mine().doing = Doing::nothing;
    require(mine().permits == mine().had + 1, "admitted without a permit");
    require(!stands_in_line(scheduler().current()), "admitted and still in line");
    say("runs");
  }
  void was_refused(Rejection reason) {
    Fiber& me = mine();
    me.doing = Doing::nothing;
    say("is refused:", to_string(reason).data());
    require(me.permits == me.had, "refused, and a permit is lost with it");
    require(!stands_in_line(scheduler().current()), "refused and still in line");
    switch (reason) {
      case Rejection::full: return require(me.met_full, "refused as full while there was room");
      case Rejection::timed_out: return require(may_time_out(me), "timed out early");
      case Rejection::cancelled:
        return require(me.stop != nullptr && me.stop->is_requested(), "cancelled by nobody");
      case Rejection::closed: return require(word_.is_closed(), "refused as closed by an open gate");
      default: scheduler().fail("refused for a reason that is none of the gate's");
    }
  }
  void takes_over_from(unsigned fiber) {
    require(fibers_[fiber].permits > 0, "a permit was moved from where none is");
    --fibers_[fiber].permits;
    ++mine().permits;
  }
  void leaves() { mine().doing = Doing::leaving; }
  void left() { mine().doing = Doing::nothing; }
  void resizes(Limits to) {
    mine().doing = Doing::resizing;
    mine().next_limits = to;
  }
  void resized() {
    mine().doing = Doing::nothing;
    require(!mine().next_limits || word_.is_closed(), "resize returned and the old limits are in force");
    mine().next_limits.reset();
  }
  void closes() { mine().doing = Doing::closing; }
  void has_closed() {
    mine().doing = Doing::nothing;
    require(word_.is_closed(), "close returned and the gate is open");
    require(line_.empty(), "close returned and somebody waits");
  }

  /// From here on `must_have_been` knows of every state that the gate goes through.
  void observes() {
    mine().pictures.assign(1, state());
    mine().observing = true;
  }
  void must_have_been(GateState const& picture) {
    auto const& pictures = mine().pictures;
    require(std::find(pictures.begin(), pictures.end(), picture) != pictures.end(),
            "a state was reported that the gate was never in");
    mine().observing = false;
  }

  void must_be_at_rest() {
    require(line_.empty() && running() == 0, "the gate is not empty in the end");
    require(word_.free_permits() == static_cast<std::int64_t>(limits_.concurrent), "permits are not whole");
    require(word_.free_places() == static_cast<std::int64_t>(limits_.total()), "slots are not whole");
  }

  std::size_t waiting() const noexcept { return line_.size(); }
  bool is_closed() const noexcept { return word_.is_closed(); }
  Limits limits() const noexcept { return limits_; }

  std::uint64_t digest() const {
    std::uint64_t all = line_.size();
    for (unsigned const fiber : line_) all = mix(all, fiber);
    for (Fiber const& fiber : fibers_) {
      all = mix(all, (fiber.met_full ? 1 : 0) + (fiber.met_busy ? 2 : 0));
      if (!fiber.observing) continue;
      for (GateState const& picture : fiber.pictures) {
        all = mix(all, picture.running + (picture.waiting << 16) + (picture.limits.concurrent << 32) +
                           (picture.limits.extra_slots << 48) + (picture.closed ? 1U << 15 : 0));
      }
    }
    return all;
  }

  // ---- what the gate does ----

  void on_write(std::uint64_t cell, std::uint64_t, std::uint64_t bits) override {
    if (cell != 0) return;  // the word is the first that a gate makes
    AdmissionWord const before = word_;
    std::int64_t const ran = running();
    std::int64_t const waited = queued();
    word_ = AdmissionWord{bits};
    if (mine().doing == Doing::resizing && mine().next_limits) {
      limits_ = *std::exchange(mine().next_limits, std::nullopt);
      require(running() == ran && queued() == waited, "a resize changed who runs or waits");
    }
    require(running() >= 0 && queued() >= 0, "a count is below zero");
    require(word_.has_waiters() == (queued() > 0), "the word is wrong about whether anybody waits");
    require(!before.is_closed() || word_.is_closed(), "a closed gate was opened");
    if (running() > ran) {
      require(running() <= static_cast<std::int64_t>(limits_.concurrent), "more run than B");
      require(!before.is_closed(), "a closed gate admitted somebody");
    }
    if (running() + queued() > ran + waited) came_in(ran, waited);
    if (running() < ran) went_out(ran, waited);
    for (Fiber& fiber : fibers_) look_around(fiber);
  }

  void on_settle(unsigned waiter, WaitOutcome outcome) override {
    require(stands_in_line(waiter), "somebody was settled who does not wait");
    Fiber& settled = fibers_[waiter];
    if (outcome == WaitOutcome::granted) {
      require(waiter == line_.front(), "a waiter was overtaken");
      require(running() <= static_cast<std::int64_t>(limits_.concurrent),
              "a permit over the limit was handed on");
      require(!word_.is_closed(), "a closed gate granted a permit");
      ++settled.permits;
      if (mine().doing == Doing::leaving) --mine().permits;
    }
    std::erase(line_, waiter);
    say("settles the wait of fiber", std::to_string(waiter).c_str());
  }

  void on_unlock() override {
    require(static_cast<std::int64_t>(line_.size()) == queued(), "the word is wrong about how many wait");
    require(held() == running(), "a permit was lost or made");
    require(line_.empty() || word_.is_closed() || word_.free_permits() <= 0,
            "a permit is free while somebody waits");
  }

 private:
  struct Fiber {
    Doing doing = Doing::nothing;
    Deadline::clock::time_point wait_from{};
    QueueWait wait{};
    FiberStopSource const* stop = nullptr;
    std::optional<Limits> next_limits{};
    bool met_full = false;
    bool met_busy = false;
    int permits = 0;
    int had = 0;  // when it arrived
    bool observing = false;
    std::vector<GateState> pictures{};
  };

  Fiber& mine() { return fibers_[scheduler().current() % max_fibers]; }

  void require(bool kept, char const* what) {
    if (!kept) scheduler().fail(what);
  }
  void say(char const* what, char const* more = "") const {
    if (aloud_) std::printf("  fiber %u %s %s\n", scheduler().current(), what, more);
  }

  std::int64_t running() const noexcept {
    return static_cast<std::int64_t>(limits_.concurrent) - word_.free_permits();
  }
  std::int64_t queued() const noexcept {
    return static_cast<std::int64_t>(limits_.total()) - word_.free_places() - running();
  }
  std::int64_t held() const noexcept {
    std::int64_t all = 0;
    for (Fiber const& fiber : fibers_) all += fiber.permits;
    return all;
  }
  GateState state() const noexcept {
    return {static_cast<std::size_t>(running()), static_cast<std::size_t>(queued()), limits_,
            word_.is_closed()};
  }
  bool stands_in_line(unsigned fiber) const {
    return std::find(line_.begin(), line_.end(), fiber) != line_.end();
  }

  // Who waits is asked of the word: one who gives up has left it a moment before he is settled.
  void came_in(std::int64_t ran, std::int64_t waited) {
    require(mine().doing == Doing::arriving, "somebody came in who did not arrive");
    require(running() + queued() == ran + waited + 1, "one arrival took more than one slot");
    require(running() + queued() <= static_cast<std::int64_t>(limits_.total()), "more are in than B + Q");
    require(!word_.is_closed(), "a closed gate let somebody in");
    if (running() > ran) {
      require(waited == 0, "a newcomer overtook somebody who waits");
      ++mine().permits;
      say("takes a permit");
    } else {
      line_.push_back(scheduler().current());
      say("lines up");
    }
  }
  void went_out(std::int64_t ran, std::int64_t waited) {
    require(mine().doing == Doing::leaving && mine().permits > 0,
            "a permit was given back by one who has none");
    require(running() == ran - 1 && queued() == waited, "one permit was given back more than once");
    --mine().permits;
    say("gives its permit back");
  }

  void look_around(Fiber& fiber) {
    if (fiber.doing == Doing::arriving) {
      fiber.met_full = fiber.met_full || word_.free_places() <= 0;
      fiber.met_busy = fiber.met_busy || word_.free_permits() <= 0 || queued() > 0;
    }
    if (fiber.observing && fiber.pictures.back() != state()) fiber.pictures.push_back(state());
  }
  static bool may_time_out(Fiber const& fiber) {
    return fiber.wait.count() > 0 ? surroundings.now >= fiber.wait_from + fiber.wait : fiber.met_busy;
  }

  Limits limits_;
  AdmissionWord word_;
  bool aloud_;
  std::array<Fiber, max_fibers> fibers_{};
  std::vector<unsigned> line_;
};

}  // namespace interleavings

#endif
