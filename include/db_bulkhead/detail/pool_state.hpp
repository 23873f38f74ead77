// SPDX-License-Identifier: MIT
//
// A pool's shell: it holds the one lock around the decisions (pool_core.hpp), does what
// they ask for, and reports back. The pool and its leases share it; it outlives both.
//
// Who does the I/O: borrowers prove and reset what they borrow, and begin the reset of
// what they bring back; connectors open; the housekeeper closes, and proves what is
// idle. The gate in front holds the line: whoever calls `obtain` or `give_back` has one
// of its permits, so that there are as many takers and loans as connections at most.
#ifndef DB_BULKHEAD_DETAIL_POOL_STATE_HPP
#define DB_BULKHEAD_DETAIL_POOL_STATE_HPP

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "db_bulkhead/admission.hpp"
#include "db_bulkhead/connector.hpp"
#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/detail/coarse_clock.hpp"
#include "db_bulkhead/detail/parker.hpp"
#include "db_bulkhead/detail/pool_core.hpp"
#include "db_bulkhead/error.hpp"
#include "db_bulkhead/pool_concept.hpp"
#include "db_bulkhead/pool_options.hpp"
#include "db_bulkhead/source_location.hpp"

namespace db_bulkhead::detail {

/// What wakes one thread of a pool. One for each: a condition variable with several waiters can lose a
/// wake-up (glibc bug 25847).
class Bell {
 public:
  /// Under the pool's lock.
  void ring() noexcept {
    rung_ = true;
    heard_.notify_one();
  }

  /// Returns when it is rung, or at `end`.
  void wait(std::unique_lock<std::mutex>& lock, Deadline end) noexcept {
    auto const rung = [this] { return rung_; };
    if (end.is_never()) {
      heard_.wait(lock, rung);
    } else {
      heard_.wait_until(lock, end.time_point(), rung);
    }
    rung_ = false;
  }

 private:
  std::condition_variable heard_;
  bool rung_ = false;
};

/// How long a borrower waits at most. It is reckoned when there is something to wait for: a clock costs more
/// than all the rest of a borrow that finds a connection.
class Patience {
 public:
  Patience(Deadline deadline, QueueWait longest) noexcept : deadline_{deadline}, longest_{longest} {}

  Deadline end() noexcept {
    if (!is_reckoned_) {
      deadline_ = std::min(deadline_, Deadline::after(longest_));
      is_reckoned_ = true;
    }
    return deadline_;
  }

 private:
  Deadline deadline_;
  QueueWait longest_;
  bool is_reckoned_ = false;
};

template <connector Connector>
class PoolState {
 public:
  using connection_type = typename Connector::connection_type;
  using Connection = std::unique_ptr<connection_type>;
  using Reason = ConnectionUnavailable::Reason;
  using Time = PoolTime;

  /// A connection, with what is told of its loan if that becomes suspicious.
  struct Entry : PoolEntry {
    Connection connection;
    std::string label;
    SourceLocation site{};
  };

  PoolState(Connector connector, PoolOptions options)
      : options_{(require_valid(options), std::move(options))},
        gate_{Limits{options_.max_size, options_.max_waiting}},
        connector_{std::move(connector)},
        core_{options_, std::random_device{}()},
        connector_bells_(options_.connectors) {}
  PoolState(PoolState const&) = delete;
  PoolState& operator=(PoolState const&) = delete;
  ~PoolState() { bury(); }

  PoolOptions const& options() const noexcept { return options_; }

  // ---- borrowing ----

  /// A permit of the gate; throws ConnectionUnavailable without one. What `obtain` and `give_back` ask for.
  Permit admit(Patience& patience, AcquireOptions const& how) {
    // Those in line are told when it is their turn; nobody else has to line up for that.
    if (suspended_.load(std::memory_order_relaxed)) refuse(Reason::suspended, "the pool is suspended", how);
    auto admission = gate_.try_admit(QueueWait{}, how.stop);
    if (!admission && admission.rejection() == Rejection::timed_out) {
      admission = gate_.try_admit(patience.end(), how.stop);
    }
    if (admission) return std::move(admission).permit();
    switch (admission.rejection()) {
      case Rejection::full: refuse(Reason::full, "no connection free, and the queue is full", how);
      case Rejection::cancelled: refuse(Reason::cancelled, "stopped while waiting", how);
      case Rejection::closed: refuse(Reason::closed, "the pool is closed", how);
      default: refuse_late("no connection came free in time", how);
    }
  }

  /// A connection that is alive and as new.
  Entry& obtain(Patience& patience, AcquireOptions const& how, SourceLocation const& site) {
    for (;;) {
      Entry& entry = borrow(patience, how);
      if (!make_ready(entry, patience, how)) continue;
      watch(entry, how, site);
      return entry;
    }
  }

  /// Back from its borrower: to be reset and kept, or closed.
  void give_back(Entry& entry, bool discarded) noexcept {
    Verdict const verdict =
        discarded || gate_.state().closed ? Verdict::evict : connector_.judge(*entry.connection);
    auto progress = ResetProgress::failed;
    if (verdict == Verdict::keep) {
      progress = connector_.begin_reset(*entry.connection, options_.connection_timeout);
    }
    tell(take_back(entry, verdict, progress, coarse_now()));
  }

  // ---- the whole ----

  void resize(std::size_t max_size) {
    PoolOptions wanted = options_;
    wanted.max_size = max_size;
    wanted.min_idle = std::min(wanted.min_idle, max_size);
    require_valid(wanted);
    change([&] { core_.resize(max_size, Deadline::clock::now()); });
    gate_.resize(Limits{max_size, options_.max_waiting});
  }

  void evict_all() noexcept {
    change([&] { core_.evict_all(); });
  }

  void suspend() noexcept {
    suspended_ = true;
    change([&] { core_.suspend(); });
  }

  void resume() noexcept {
    suspended_ = false;
    change([&] { core_.resume(); });
  }

  /// Closes what is idle, and from now on what comes back; then waits for the rest until `deadline`.
  void close_all(Deadline deadline) noexcept {
    gate_.close();
    change([&] { core_.close(); });
    closing_.request_stop();
    std::unique_lock lock{mutex_};
    auto const none_left = [this] { return core_.counts().total() == 0; };
    if (deadline.is_never()) {
      changed_.wait(lock, none_left);
    } else {
      changed_.wait_until(lock, deadline.time_point(), none_left);
    }
  }

  PoolStats stats() const {
    std::lock_guard const lock{mutex_};
    PoolStats stats = totals_;
    stats.max = core_.max_size();
    stats.waiting = gate_.state().waiting + core_.waiting();
    core_.counts().fill_in(stats);
    return stats;
  }

  // ---- threads: see pool_threads.hpp ----

  std::size_t connectors() const noexcept { return connector_bells_.size(); }

  void run_connector(std::size_t number) noexcept {
    std::unique_lock lock{mutex_};
    while (!over_) {
      if (core_.may_connect(Deadline::clock::now())) {
        open_one(lock);
      } else {
        connector_bells_[number].wait(lock, core_.next_connect());
      }
    }
  }

  void run_housekeeper() noexcept {
    std::unique_lock lock{mutex_};
    while (!over_) {
      close_all_due(lock);
      Time const now = Deadline::clock::now();
      core_.make_round(now);
      tell_leaks(lock, now);
      if (auto* const entry = core_.next_to_prove(now)) {
        prove(lock, static_cast<Entry&>(*entry));
        continue;
      }
      carry_out();
      housekeeper_bell_.wait(lock, core_.next_round(now));
    }
  }

  /// Ends the threads' loops. What is closed from now on is closed by whoever brings it back.
  void end_threads() noexcept {
    closing_.request_stop();
    std::lock_guard const lock{mutex_};
    over_ = true;
    ring_all();
  }

  /// Closes what has to be closed, on this thread.
  void bury() noexcept {
    std::unique_lock lock{mutex_};
    close_all_due(lock);
  }

 private:
  struct Taker : PoolTaker {
    Parker parker;
  };
  using Taken = PoolCore::Taken;

  // ---- the lock, and what follows from a change under it ----

  template <class Change>
  auto change(Change change) {
    std::lock_guard const lock{mutex_};
    struct Then {
      PoolState& state;
      ~Then() { state.carry_out(); }
    } const then{*this};
    return change();
  }

  // Under the lock. A parker may be gone as soon as it is settled; its waker knows that.
  void carry_out() noexcept {
    while (PoolTaker* const taker = core_.next_settled()) {
      static_cast<Taker*>(taker)->parker.settle(WaitOutcome::granted).wake();
    }
    PoolOrders const orders = core_.take_orders();
    if (orders.connect) {
      for (Bell& bell : connector_bells_) bell.ring();
    }
    if (orders.housekeep) housekeeper_bell_.ring();
  }

  void ring_all() noexcept {
    for (Bell& bell : connector_bells_) bell.ring();
    housekeeper_bell_.ring();
  }

  // ---- borrowing ----

  Entry& borrow(Patience& patience, AcquireOptions const& how) {
    Taker taker;
    Time const now = coarse_now();
    Taken const taken = change([&] { return core_.take(taker, now); });
    if (taken == Taken::waiting) wait_for(taker, patience.end(), how);
    if (taker.entry != nullptr) return static_cast<Entry&>(*taker.entry);
    switch (taker.refusal) {
      case PoolRefusal::closed: refuse(Reason::closed, "the pool is closed", how);
      case PoolRefusal::suspended: refuse(Reason::suspended, "the pool is suspended", how);
      default: refuse_down(how);
    }
  }

  // Returns once the taker is served or refused. What was granted beats a deadline or a stop that comes at
  // the same moment.
  void wait_for(Taker& taker, Deadline end, AcquireOptions const& how) {
    bool stopped = false;
    {
      auto on_stop = [&]() noexcept {
        std::lock_guard const lock{mutex_};
        if (!core_.leave(taker)) return;
        stopped = true;
        taker.parker.settle(WaitOutcome::cancelled).wake();
      };
      // Registered and destroyed outside the lock: both may run, or wait for, a callback that takes it.
      std::optional<std::stop_callback<decltype(on_stop)>> registration;
      if (how.stop.stop_possible()) registration.emplace(how.stop, on_stop);
      taker.parker.park(end);
    }
    bool left = false;
    if (!stopped) {
      std::lock_guard const lock{mutex_};
      // A settled taker may be in the list of those to be woken still, if the time was up meanwhile; not when
      // the lock is free.
      left = !PoolCore::is_settled(taker) && core_.leave(taker);
    }
    if (stopped) refuse(Reason::cancelled, "stopped while waiting for a connection", how);
    if (left) refuse_late("no connection was opened or came free in time", how);
  }

  // False if the connection had to be closed.
  bool make_ready(Entry& entry, Patience& patience, AcquireOptions const& how) {
    if (entry.fresh) return true;
    if (entry.resetting) {
      switch (connector_.finish_reset(*entry.connection, patience.end(), how.stop)) {
        case ResetProgress::pending: give_up_on(entry, how);
        case ResetProgress::failed: return discard(entry, &PoolStats::reset_failures);
        case ResetProgress::done: PoolCore::reset_done(entry);
      }
    }
    if (!connector_.alive(*entry.connection)) return discard(entry, &PoolStats::validation_failures);
    // 0 is always: the two clocks may be a tick apart.
    bool const is_always = options_.validate_after_idle.count() == 0;
    if (!is_always && entry.since - entry.proven < options_.validate_after_idle) return true;
    return make_proven(entry, patience.end(), how);
  }

  bool make_proven(Entry& entry, Deadline end, AcquireOptions const& how) {
    Deadline const patience = Deadline::after(options_.validation_timeout);
    switch (connector_.ping(*entry.connection, std::min(end, patience), how.stop)) {
      case ResetProgress::done: return true;
      case ResetProgress::pending:
        // It is the borrower whose time is up: the next one finds the answer, or none again.
        if (end < patience || how.stop.stop_requested()) {
          entry.resetting = true;
          give_up_on(entry, how);
        }
        [[fallthrough]];
      case ResetProgress::failed: break;
    }
    return discard(entry, &PoolStats::validation_failures);
  }

  // The borrower's time is up before the session is ready. The next one may be luckier; a session that is at
  // it for longer than anybody may wait will hardly get there.
  [[noreturn]] void give_up_on(Entry& entry, AcquireOptions const& how) {
    Time const now = Deadline::clock::now();
    if (Deadline::after(options_.connection_timeout, entry.proven).passed(now)) {
      discard(entry, &PoolStats::reset_failures);
    } else {
      change([&] { core_.set_aside(entry, now); });
    }
    if (how.stop.stop_requested()) refuse(Reason::cancelled, "stopped while a session was being reset", how);
    refuse_late("no time left while a session was being reset", how);
  }

  bool discard(Entry& entry, std::uint64_t PoolStats::*failure) noexcept {
    change([&] {
      ++(totals_.*failure);
      core_.discard(entry);
    });
    return false;
  }

  // ---- coming back ----

  std::optional<LeakReport> take_back(Entry& entry, Verdict verdict, ResetProgress progress,
                                      Time now) noexcept {
    std::optional<LeakReport> returned;
    bool buries = false;
    change([&] {
      if (entry.leak_told) returned = report_on(entry, now, true);
      if (verdict == Verdict::evict_older) core_.evict_older(entry);
      if (progress != ResetProgress::failed) {
        core_.give_back(entry, progress == ResetProgress::pending, now);
      } else {
        if (verdict == Verdict::keep) ++totals_.reset_failures;
        core_.discard(entry);
      }
      buries = over_;
    });
    if (buries) bury();
    return returned;
  }

  // ---- leaks ----

  void watch(Entry& entry, AcquireOptions const& how, SourceLocation const& site) {
    QueueWait const threshold = how.leak_threshold.value_or(options_.leak_threshold);
    if (threshold.unlimited()) return;
    change([&] {
      entry.label = how.label;
      entry.site = site;
      core_.watch_loan(entry, Deadline::after(threshold, entry.since).time_point());
    });
  }

  // Nothing where nobody listens, or where there is no memory for it.
  std::optional<LeakReport> report_on(Entry& entry, Time now, bool came_back) noexcept try {
    if (!options_.on_leak) return std::nullopt;
    LeakReport report{
        .label = entry.label, .age = now - entry.since, .site = entry.site, .came_back = came_back};
    if constexpr (requires { connector_.backend_pid(*entry.connection); }) {
      report.backend_pid = connector_.backend_pid(*entry.connection);
    }
    return report;
  } catch (...) {
    return std::nullopt;
  }

  void tell(std::optional<LeakReport> const& report) noexcept {
    if (!report) return;
    try {
      options_.on_leak(*report);
    } catch (...) {  // a report that cannot be told changes nothing
    }
  }

  // ---- threads ----

  void open_one(std::unique_lock<std::mutex>& lock) noexcept {
    Time const began = Deadline::clock::now();
    std::unique_ptr<Entry> entry;
    try {
      entry = std::make_unique<Entry>();
      core_.begin_connecting(*entry, began);
    } catch (...) {  // no memory: those who wait have their deadlines
      return;
    }
    carry_out();  // another connector may have to open another one
    lock.unlock();
    auto trouble = connect(*entry, Deadline::after(options_.connection_timeout, began));
    lock.lock();
    if (trouble) {
      if (!core_.is_closed()) ++totals_.connect_failures;
      core_.connect_failed(*entry, std::move(*trouble), Deadline::clock::now());
    } else {
      core_.connected(*entry.release(), Deadline::clock::now());
    }
    carry_out();
    changed_.notify_all();
  }

  std::optional<ConnectTrouble> connect(Entry& entry, Deadline end) noexcept {
    try {
      try {
        entry.connection = connector_.connect(end, closing_.get_token());
        return std::nullopt;
      } catch (ConnectError const& error) {
        return ConnectTrouble{error.kind(), error.what(), text_of_nested(error)};
      } catch (std::exception const& error) {
        return ConnectTrouble{.what = "connecting failed (cause nested)", .foreign = error.what()};
      }
    } catch (...) {  // no memory for the words, or nothing that has any
      return ConnectTrouble{};
    }
  }

  static std::string text_of_nested(std::exception const& outer) {
    try {
      std::rethrow_if_nested(outer);
    } catch (std::exception const& inner) {
      return inner.what();
    } catch (...) {
      return "an exception that is no std::exception";
    }
    return {};
  }

  void prove(std::unique_lock<std::mutex>& lock, Entry& entry) noexcept {
    lock.unlock();
    Deadline const patience = Deadline::after(options_.validation_timeout);
    auto const stop = closing_.get_token();
    auto const reset =
        entry.resetting ? connector_.finish_reset(*entry.connection, patience, stop) : ResetProgress::done;
    bool const is_reset = reset == ResetProgress::done;
    bool const alive = is_reset && connector_.alive(*entry.connection) &&
                       connector_.ping(*entry.connection, patience, stop) == ResetProgress::done;
    lock.lock();
    if (!is_reset) {
      ++totals_.reset_failures;
    } else if (!alive) {
      ++totals_.validation_failures;
    }
    core_.proven(entry, alive, Deadline::clock::now());
    carry_out();
  }

  // The one place where connections end. Closing does I/O: outside the lock.
  void close_all_due(std::unique_lock<std::mutex>& lock) noexcept {
    while (PoolEntry* const due = core_.next_to_close()) {
      lock.unlock();
      std::unique_ptr<Entry> entry{static_cast<Entry*>(due)};
      entry->connection.reset();
      lock.lock();
      core_.closed(*entry);
      carry_out();
      changed_.notify_all();
    }
  }

  void tell_leaks(std::unique_lock<std::mutex>& lock, Time now) noexcept {
    while (PoolEntry* const due = core_.next_leak(now)) {
      ++totals_.leaks_suspected;
      auto const report = report_on(static_cast<Entry&>(*due), now, false);
      lock.unlock();
      tell(report);
      lock.lock();
    }
  }

  // ---- refusing ----

  ConnectionUnavailable unavailable(Reason reason, std::string const& why, AcquireOptions const& how) const {
    PoolStats const now = stats();
    std::string what = "pool '" + options_.name + "'";
    if (!how.label.empty()) what += ", for '" + std::string{how.label} + "'";
    return {reason, what + ": " + why + " (" + std::to_string(now.leased) + " of " + std::to_string(now.max) +
                        " leased, " + std::to_string(now.connecting) + " connecting, " +
                        std::to_string(now.waiting) + " of " + std::to_string(options_.max_waiting) +
                        " waiting)"};
  }

  [[noreturn]] void refuse(Reason reason, std::string const& why, AcquireOptions const& how) const {
    throw unavailable(reason, why, how);
  }

  [[noreturn]] void refuse_late(std::string const& why, AcquireOptions const& how) {
    std::optional<Outage> outage;
    {
      std::lock_guard const lock{mutex_};
      ++totals_.timeouts;
      if (auto const* known = core_.outage()) outage = *known;
    }
    if (outage) refuse_because(*outage, Reason::timed_out, why + "; ", how);
    refuse(Reason::timed_out, why, how);
  }

  [[noreturn]] void refuse_down(AcquireOptions const& how) const {
    std::optional<Outage> outage;
    {
      std::lock_guard const lock{mutex_};
      if (auto const* known = core_.outage()) outage = *known;
    }
    if (outage) refuse_because(*outage, Reason::connect_failed, "", how);
    refuse(Reason::connect_failed, "the last connect had failed, and one has succeeded since", how);
  }

  // What a connector says of its own is said here; what it was told by others is nested.
  [[noreturn]] void refuse_because(Outage const& outage, Reason reason, std::string const& why,
                                   AcquireOptions const& how) const {
    std::string const all = why + describe(outage) + ": " + outage.trouble.what;
    if (outage.trouble.foreign.empty()) refuse(reason, all, how);
    try {
      throw std::runtime_error{outage.trouble.foreign};
    } catch (...) {
      std::throw_with_nested(unavailable(reason, all, how));
    }
  }

  static std::string describe(Outage const& outage) {
    Time const now = Deadline::clock::now();
    auto const milliseconds = [](std::chrono::nanoseconds time) {
      return std::to_string(std::chrono::ceil<std::chrono::milliseconds>(time).count()) + " ms";
    };
    return "connecting has failed for " + milliseconds(now - outage.since) + ", last " +
           milliseconds(now - outage.last) + " ago, next try in " +
           milliseconds(std::max<std::chrono::nanoseconds>(outage.next - now, {}));
  }

  PoolOptions const options_;
  AdmissionGate gate_;
  Connector connector_;
  std::stop_source closing_;  // ends connects and proofs that are under way
  std::atomic<bool> suspended_{false};

  // Guards everything below. No I/O, no call of the connector but `backend_pid` and no user code happens
  // under it.
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a connection was closed, or a connect has ended
  PoolCore core_;
  PoolStats totals_;  // its running totals of failures only; the rest comes from elsewhere
  std::vector<Bell> connector_bells_;
  Bell housekeeper_bell_;
  bool over_ = false;  // no threads any more
};

}  // namespace db_bulkhead::detail

#endif
