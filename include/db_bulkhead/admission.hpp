// SPDX-License-Identifier: MIT
//
// Admission: two counting semaphores that are taken together. Of B + Q slots an
// arrival gets one at once or is refused; of B permits it gets one in its turn.
//
// Bounded: at every instant at most B run and at most B + Q are inside. A shrink by
// `resize` refuses newcomers at once and drains what is over the limit.
// Order: permits go to waiters strictly in the order of their arrival. A newcomer
// gets a free permit only while nobody waits. Nothing is promised about the order
// in which threads that call at the same moment arrive.
// Waiting ends at a deadline on the steady clock, by a stop token, by `close`, and
// never early. A permit that comes at the same moment as one of these wins.
// Cost: with a free permit one compare-and-swap; a refusal is a load. Neither takes
// a lock, allocates, throws or reads the clock. Nothing grows with the number waiting.
// Lifetime: all permits must be back and all calls have returned before a gate is
// destroyed; it is checked, and ends the program with a message.
// Thread safety: every member may be called from any thread at any time.
// Memory: giving back a permit happens before the admission that receives it returns.
// Not promised: that a thread which already holds a permit may wait for another one
// without locking itself out. `DbBulkhead` detects that for its transactions.
#ifndef DB_BULKHEAD_ADMISSION_HPP
#define DB_BULKHEAD_ADMISSION_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/detail/admission_counts.hpp"
#include "db_bulkhead/detail/admission_word.hpp"
#include "db_bulkhead/detail/hand_off_pace.hpp"
#include "db_bulkhead/detail/platform.hpp"
#include "db_bulkhead/detail/wait_queue.hpp"
#include "db_bulkhead/detail/waiter.hpp"
#include "db_bulkhead/error.hpp"
#include "db_bulkhead/limits.hpp"
#include "db_bulkhead/permit.hpp"

namespace db_bulkhead {

/// What an arrival got: a permit, or the reason for having none.
template <class Platform>
class BasicAdmission {
 public:
  BasicAdmission(BasicPermit<Platform> permit, std::chrono::nanoseconds waited) noexcept
      : permit_{std::move(permit)}, waited_{waited} {}
  BasicAdmission(Rejection rejection, std::chrono::nanoseconds waited) noexcept
      : rejection_{rejection}, waited_{waited} {}

  /// Whether there is a permit.
  explicit operator bool() const noexcept { return static_cast<bool>(permit_); }

  /// Moves the permit out. std::logic_error where there is none.
  BasicPermit<Platform> permit() && {
    if (!permit_) throw std::logic_error("db_bulkhead: Admission::permit() of a refused admission");
    return std::move(permit_);
  }

  /// Why there is no permit. std::logic_error where there is one.
  Rejection rejection() const {
    if (permit_) throw std::logic_error("db_bulkhead: Admission::rejection() of a granted admission");
    return rejection_;
  }

  /// How long the caller stood in the queue; zero if it never did.
  std::chrono::nanoseconds waited() const noexcept { return waited_; }

 private:
  BasicPermit<Platform> permit_;
  Rejection rejection_ = Rejection::full;
  std::chrono::nanoseconds waited_;
};

template <class Platform>
class BasicAdmissionGate {
 public:
  using permit_type = BasicPermit<Platform>;
  using admission_type = BasicAdmission<Platform>;
  using stop_token = typename Platform::stop_token;

  /// std::invalid_argument for limits out of range; see `Limits`.
  explicit BasicAdmissionGate(Limits limits) : counts_{(require_valid(limits), limits)} {}
  BasicAdmissionGate(BasicAdmissionGate const&) = delete;
  BasicAdmissionGate& operator=(BasicAdmissionGate const&) = delete;
  ~BasicAdmissionGate() { require_idle(); }

  /// Waits for a permit until `deadline`. One that is past waits not at all, but takes a free permit.
  /// Refusals: closed, cancelled, full, timed_out; the first that applies.
  admission_type try_admit(Deadline deadline, stop_token const& stop = {}) noexcept {
    return try_admit(std::chrono::nanoseconds::max(), deadline, stop);
  }

  /// Waits for a permit for `wait` at most; a wait of zero or less takes a free permit or none.
  /// The clock is read only if the caller has to queue.
  admission_type try_admit(QueueWait wait, stop_token const& stop = {}) noexcept {
    return try_admit(wait, Deadline::never(), stop);
  }

  /// Waits for a permit until `deadline`, and for `wait` at most.
  admission_type try_admit(QueueWait wait, Deadline deadline, stop_token const& stop = {}) noexcept {
    Word word = counts_.load();
    bool const stopped = stop.stop_requested();
    while (!stopped && word.admits_at_once()) {
      if (counts_.replace(word, word.with_one_running())) return admitted();
    }
    if (word.is_closed()) return refused(Rejection::closed);
    if (stopped) return refused(Rejection::cancelled);
    if (word.is_full()) return refused(Rejection::full);
    if (wait.count() <= 0) return refused(Rejection::timed_out);
    return queue(wait, deadline, stop);
  }

  GateState state() const noexcept { return counts_.state(); }
  Limits limits() const noexcept { return counts_.limits(); }

  /// Free permits, and free slots: to look at, never to decide by, for they change at any moment.
  std::size_t available() const noexcept { return at_least_zero(counts_.load().free_permits()); }
  std::size_t available_slots() const noexcept { return at_least_zero(counts_.load().free_places()); }

  /// Puts other limits in force and returns at once. Grown permits go to waiters before it returns; after
  /// a shrink nobody is admitted by the old limit, and what is over the new one drains; waiters stay.
  /// std::invalid_argument, with nothing changed, for limits out of range. No effect once closed.
  void resize(Limits limits) {
    require_valid(limits);
    std::lock_guard const lock{mutex_};
    if (counts_.load().is_closed()) return;
    counts_.put_in_force(limits);
    while (!queue_.empty() && counts_.load().free_permits() > 0) {
      // Woken under the lock: it is held until the last grown permit is handed out.
      grant_first(Platform::now(), [](Word word, bool more_wait) {
        return word.with_first_running(more_wait);
      }).wake();
    }
  }

  /// Refuses newcomers and sends every waiter away with `closed`; running work goes on. Idempotent.
  void close() noexcept {
    std::lock_guard const lock{mutex_};
    counts_.update([](Word word) { return word.with_closed(); });
    while (!queue_.empty()) dismiss(*queue_.first(), Outcome::closed).wake();
  }

 private:
  friend class BasicPermit<Platform>;

  using Word = detail::AdmissionWord;
  using Outcome = detail::WaitOutcome;
  using Waiter = detail::Waiter<Platform>;
  using Waker = typename Platform::parker::Waker;
  using time_point = Deadline::clock::time_point;
  using Pace = detail::HandOffPace<Platform>;

  enum class Arrival { running, waiting, full, closed };

  static std::size_t at_least_zero(std::int64_t count) noexcept {
    return static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  }

  // ---- arriving ----

  admission_type admitted(std::chrono::nanoseconds waited = {}) noexcept {
    return {permit_type{this}, waited};
  }
  static admission_type refused(Rejection reason, std::chrono::nanoseconds waited = {}) noexcept {
    return {reason, waited};
  }

  DB_BULKHEAD_NOINLINE admission_type queue(QueueWait wait, Deadline deadline,
                                            stop_token const& stop) noexcept {
    auto const start = Platform::now();
    Deadline const end = std::min(deadline, Deadline::after(wait, start));
    if (end.passed(start)) return refused(Rejection::timed_out);
    Waiter waiter;
    switch (line_up(waiter)) {
      case Arrival::running: return admitted();
      case Arrival::full: return refused(Rejection::full);
      case Arrival::closed: return refused(Rejection::closed);
      case Arrival::waiting: break;
    }
    Outcome const outcome = wait_in_line(waiter, end, stop);
    auto const waited = Platform::now() - start;
    switch (outcome) {
      case Outcome::granted: return admitted(waited);
      case Outcome::cancelled: return refused(Rejection::cancelled, waited);
      case Outcome::closed: return refused(Rejection::closed, waited);
      default: return refused(Rejection::timed_out, waited);
    }
  }

  // Decides under the lock, so that a permit which comes free meanwhile is either seen here or handed to
  // the waiter: there is no moment in which it could pass by.
  Arrival line_up(Waiter& waiter) noexcept {
    std::lock_guard const lock{mutex_};
    Word word = counts_.load();
    for (;;) {
      if (word.is_closed()) return Arrival::closed;
      if (word.admits_at_once()) {
        if (counts_.replace(word, word.with_one_running())) return Arrival::running;
      } else if (word.is_full()) {
        return Arrival::full;
      } else if (counts_.replace(word, word.with_one_waiting())) {
        break;
      }
    }
    waiter.may_spin = pace_.is_fast() && queue_.size() < Pace::spinners;
    queue_.push_last(waiter);
    queue_.first()->make_first();
    return Arrival::waiting;
  }

  Outcome wait_in_line(Waiter& waiter, Deadline end, stop_token const& stop) noexcept {
    bool slept = false;
    {
      auto on_stop = [this, &waiter]() noexcept { leave(waiter, Outcome::cancelled); };
      // Registered and destroyed outside the lock: both may run, or wait for, a callback that takes it.
      std::optional<typename Platform::template stop_callback<decltype(on_stop)>> registration;
      if (stop.stop_possible()) registration.emplace(stop, on_stop);
      slept = waiter.wait(end);
    }
    Outcome const outcome = leave(waiter, Outcome::timed_out);
    if (outcome == Outcome::granted) {
      auto const latency = Platform::now() - waiter.granted_at;
      slept ? pace_.sleeper_ran(latency) : pace_.spinner_ran(latency);
    }
    return outcome;
  }

  // Settles a wait that nobody has settled yet, and says how it ended: a grant beats a deadline or a stop
  // that comes at the same moment.
  Outcome leave(Waiter& waiter, Outcome why) noexcept {
    if (auto const settled = waiter.parker.outcome(); detail::is_settled(settled)) return settled;
    Waker waker;
    {
      std::lock_guard const lock{mutex_};
      if (auto const settled = waiter.parker.outcome(); detail::is_settled(settled)) return settled;
      waker = dismiss(waiter, why);
    }
    waker.wake();
    return why;
  }

  // ---- changes of the queue: called under mutex_ ----

  // No permit can be free for those behind: while anybody waits, none is, but under this lock.
  [[nodiscard]] Waker dismiss(Waiter& waiter, Outcome why) noexcept {
    take_out(waiter);
    counts_.update([this](Word word) { return word.with_one_place_freed(!queue_.empty()); });
    return waiter.parker.settle(why);
  }

  template <class Change>
  [[nodiscard]] Waker grant_first(time_point now, Change change) noexcept {
    Waiter& waiter = *queue_.first();
    take_out(waiter);
    counts_.update([&](Word word) { return change(word, !queue_.empty()); });
    waiter.granted_at = now;
    return waiter.parker.settle(Outcome::granted);
  }

  void take_out(Waiter& waiter) noexcept {
    queue_.remove(waiter);
    if (!queue_.empty()) queue_.first()->make_first();
  }

  // ---- leaving: called by Permit ----

  void release() noexcept {
    Word word = counts_.load();
    while (!word.has_waiters()) {
      if (counts_.replace(word, word.with_one_finished())) return;
    }
    release_to_first();
  }

  DB_BULKHEAD_NOINLINE void release_to_first() noexcept {
    Waker waker;
    {
      std::lock_guard const lock{mutex_};
      Word word = counts_.load();
      // Whether anybody waits cannot change under the lock. Over the limit, a permit that comes back is
      // handed to nobody: that is how a shrink drains.
      while (!word.has_waiters() || !word.within_limit()) {
        if (counts_.replace(word, word.with_one_finished())) return;
      }
      auto const now = Platform::now();
      pace_.record(now, limits().concurrent);
      waker = grant_first(now,
                          [](Word before, bool more_wait) { return before.with_one_place_freed(more_wait); });
    }
    waker.wake();
  }

  // A permit that outlives its gate would write to freed memory: better to end here, and say why.
  void require_idle() const noexcept {
    GateState const left = state();
    if (left.running == 0 && left.waiting == 0) return;
    std::fprintf(stderr, "db_bulkhead: a gate was destroyed while in use: %zu running, %zu waiting\n",
                 left.running, left.waiting);
    std::terminate();
  }

  detail::AdmissionCounts<Platform> counts_;

  // Guards queue_ and pace_, the links of every waiter, the "somebody waits" and "closed" bits of the word
  // and changes of the limits. No user code runs under it, nothing blocks and nothing is allocated.
  typename Platform::mutex mutex_;
  detail::WaitQueue<Waiter> queue_;
  Pace pace_;
};

using Admission = BasicAdmission<detail::StdPlatform>;
using AdmissionGate = BasicAdmissionGate<detail::StdPlatform>;

}  // namespace db_bulkhead

#endif
