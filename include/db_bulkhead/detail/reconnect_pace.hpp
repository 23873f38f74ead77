// SPDX-License-Identifier: MIT
//
// How fast a pool may connect. One pace for the whole pool, so that a server which is
// down, starting or refusing is not stormed by the many who want a connection:
//
//   all is well      as many connects at once as there are connectors, after a ramp of
//                    1, 2, 4 ... from the start or from the end of an outage
//   the last failed  none until the backoff is over, then one, as a probe
//
// The backoff grows exponentially and is drawn at random between a quarter of its bound
// and the bound, for the pools of many processes meet the same outage.
// No thread safety: the pool's lock is held. Time is passed in.
#ifndef DB_BULKHEAD_DETAIL_RECONNECT_PACE_HPP
#define DB_BULKHEAD_DETAIL_RECONNECT_PACE_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>

#include "db_bulkhead/connector.hpp"
#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/pool_options.hpp"

namespace db_bulkhead::detail {

/// Why a connect failed. Text, and not the exception itself: whoever is turned away gets one of their own.
struct ConnectTrouble {
  ConnectFailure kind = ConnectFailure::unreachable;
  std::string what{};     // ours, which holds no secret
  std::string foreign{};  // of an exception that is not ours; empty where there is none
};

/// What is known of an outage.
struct Outage {
  Deadline::clock::time_point since{};  // the first failure after the last success
  Deadline::clock::time_point last{};   // the latest failure
  Deadline::clock::time_point next{};   // when the next connect is due
  ConnectTrouble trouble{};             // the latest
};

class ReconnectPace {
 public:
  using Time = Deadline::clock::time_point;

  ReconnectPace(ReconnectBackoff const& backoff, std::size_t connectors, std::uint_fast32_t seed)
      : backoff_{backoff}, most_{connectors}, random_{seed} {}

  /// How many connects may be under way at `now`.
  std::size_t allowed(Time now) const noexcept {
    if (!is_failing()) return ramp_;
    return now >= outage_.next ? 1 : 0;
  }

  /// Whether the last connect failed; `outage` is about that.
  bool is_failing() const noexcept { return failures_ > 0; }
  Outage const& outage() const noexcept { return outage_; }

  /// Whether it is no use to wait for a connection. A server that answered that it is starting up or has too
  /// many clients is not down; and one failure proves nothing while other connections do their work.
  bool is_down(bool others_work) const noexcept {
    if (!is_failing() || is_told_to_retry_ || outage_.trouble.kind == ConnectFailure::busy) return false;
    return !others_work || outage_.trouble.kind == ConnectFailure::refused || unrefuted_ > 1;
  }

  void succeeded() noexcept {
    if (!is_failing()) ramp_ = std::min(2 * ramp_, most_);
    failures_ = unrefuted_ = 0;
    is_told_to_retry_ = false;
    outage_ = {};
  }

  /// Connects that were under way together fail together: only the first of them counts.
  void failed(ConnectTrouble trouble, Time began, Time now) noexcept {
    bool const is_new = !is_failing() || began >= outage_.last;
    if (!is_failing()) outage_.since = now;
    outage_.trouble = std::move(trouble);
    if (!is_new) return;
    outage_.last = now;
    is_told_to_retry_ = false;
    ramp_ = 1;
    ++failures_;
    ++unrefuted_;
    outage_.next = Deadline::after(draw(outage_.trouble.kind), now).time_point();
  }

  /// A connection that is in use has just worked: a failed connect is no proof of an outage. Nor is it a
  /// reason to try more often: a server that has too many clients serves those it has.
  void others_work() noexcept { unrefuted_ = std::min(unrefuted_, 1U); }

  /// Somebody knows that it is worth trying again, and so worth waiting for how it goes.
  void retry_now() noexcept {
    outage_.next = {};
    is_told_to_retry_ = true;
  }

 private:
  std::chrono::nanoseconds draw(ConnectFailure kind) {
    std::chrono::nanoseconds const bound = kind == ConnectFailure::refused ? backoff_.refused : doubled();
    // Full jitter starts at zero, and has tried more than 20 times in the first 10 s with one seed in
    // hundreds. A wait of zero is none: whoever waits would not be told of the failure.
    auto const floor = std::max<std::chrono::nanoseconds>(bound / 4, std::chrono::nanoseconds{1});
    return std::chrono::nanoseconds{
        std::uniform_int_distribution<std::chrono::nanoseconds::rep>{floor.count(), bound.count()}(random_)};
  }

  std::chrono::nanoseconds doubled() const noexcept {
    std::chrono::nanoseconds bound = backoff_.first;
    for (unsigned i = 1; i < failures_ && bound < backoff_.longest; ++i) {
      bound += std::min<std::chrono::nanoseconds>(bound, backoff_.longest - bound);
    }
    return bound;
  }

  ReconnectBackoff backoff_;
  std::size_t most_;
  std::mt19937 random_;
  std::size_t ramp_ = 1;
  unsigned failures_ = 0;   // in a row
  unsigned unrefuted_ = 0;  // of those: since another connection worked, and one before
  bool is_told_to_retry_ = false;
  Outage outage_;
};

}  // namespace db_bulkhead::detail

#endif
