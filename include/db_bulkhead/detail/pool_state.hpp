// SPDX-License-Identifier: MIT
//
// What a pool and its leases share: the gate in front, the idle connections, the
// books. It outlives both, being held by each. Whoever calls `obtain` or `give_back`
// holds a permit of `gate`; that is what guarantees that an idle connection exists or
// that there is room for a new one, for a permit holder has one connection in hand at
// most.
#ifndef DB_BULKHEAD_DETAIL_POOL_STATE_HPP
#define DB_BULKHEAD_DETAIL_POOL_STATE_HPP

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "db_bulkhead/admission.hpp"
#include "db_bulkhead/connector.hpp"
#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/detail/pool_counts.hpp"
#include "db_bulkhead/error.hpp"
#include "db_bulkhead/pool_concept.hpp"
#include "db_bulkhead/pool_options.hpp"

namespace db_bulkhead::detail {

template <connector Connector>
class PoolState {
 public:
  using connection_type = typename Connector::connection_type;
  using Connection = std::unique_ptr<connection_type>;
  using Reason = ConnectionUnavailable::Reason;

  PoolState(Connector connector, PoolOptions options)
      : options_{(require_valid(options), std::move(options))},
        gate_{Limits{options_.max_size, options_.max_waiting}},
        connector_{std::move(connector)} {}

  AdmissionGate& gate() noexcept { return gate_; }
  PoolOptions const& options() const noexcept { return options_; }

  /// A connection that is alive and as new: an idle one, or one opened for this call.
  Connection obtain(Deadline deadline, AcquireOptions const& how) {
    for (;;) {
      auto parked = take_newest(Late::left_alone);
      if (!parked && begin_connecting(how)) return open(deadline, how);
      // No room for another connection: a session that let somebody down before is better than none.
      if (!parked) parked = take_newest(Late::taken);
      if (!parked) continue;  // meanwhile another caller took it, and its own connection made room
      if (Connection connection = make_ready(std::move(*parked), deadline, how)) return connection;
    }
  }

  /// Back from its borrower: to be reset and kept, or closed.
  void give_back(Connection connection, bool discard) noexcept {
    if (discard || is_closed()) return close(std::move(connection), Phase::leased);
    move(Phase::leased, Phase::resetting);
    auto const since = Deadline::clock::now();
    auto const progress =
        connector_.begin_reset(*connection, Deadline::after(options_.connection_timeout, since));
    if (progress == ResetProgress::failed) return close_unclean(std::move(connection));
    park({std::move(connection), progress == ResetProgress::pending, since});
  }

  /// Closes what is idle, and from now on what comes back; then waits for the rest until `deadline`.
  void close_all(Deadline deadline) noexcept {
    gate_.close();
    std::vector<Parked> parked;
    {
      std::lock_guard const lock{mutex_};
      closed_ = true;
      parked.swap(parked_);
    }
    for (Parked& each : parked) close(std::move(each.connection), each.phase());
    std::unique_lock lock{mutex_};
    auto const none_left = [this] { return counts_.total() == 0; };
    if (deadline.is_never()) {
      changed_.wait(lock, none_left);
    } else {
      changed_.wait_until(lock, deadline.time_point(), none_left);
    }
  }

  PoolStats stats() const {
    std::lock_guard const lock{mutex_};
    PoolStats stats = failures_;
    stats.max = options_.max_size;
    stats.waiting = gate_.state().waiting;
    counts_.fill_in(stats);
    return stats;
  }

  [[noreturn]] void refuse(Reason reason, std::string const& why, AcquireOptions const& how) {
    PoolStats const now = stats();
    if (reason == Reason::timed_out) count(&PoolStats::timeouts);
    std::string what = "pool '" + options_.name + "'";
    if (!how.label.empty()) what += ", for '" + std::string{how.label} + "'";
    throw ConnectionUnavailable{reason, what + ": " + why + " (" + std::to_string(now.leased) + " of " +
                                            std::to_string(now.max) + " leased, " +
                                            std::to_string(now.connecting) + " connecting, " +
                                            std::to_string(now.waiting) + " of " +
                                            std::to_string(options_.max_waiting) + " waiting)"};
  }

 private:
  // A connection without a borrower.
  struct Parked {
    Connection connection;
    bool resetting;                     // the answers of its reset are still to be read
    Deadline::clock::time_point since;  // when it came back
    bool late = false;                  // a borrower has waited for the answers in vain

    Phase phase() const noexcept { return resetting ? Phase::resetting : Phase::idle; }
  };

  // ---- lending ----

  enum class Late { left_alone, taken };

  // The newest, so that what is not needed at the present load stays idle. One that is being reset remains
  // so in the books.
  std::optional<Parked> take_newest(Late late) noexcept {
    std::lock_guard const lock{mutex_};
    if (parked_.empty() || (parked_.back().late && late == Late::left_alone)) return std::nullopt;
    Parked parked = std::move(parked_.back());
    parked_.pop_back();
    if (!parked.resetting) counts_.move(Phase::idle, Phase::leased);
    return parked;
  }

  // Nothing, if the connection had to be closed.
  Connection make_ready(Parked parked, Deadline deadline, AcquireOptions const& how) {
    if (parked.resetting) {
      switch (connector_.finish_reset(*parked.connection, deadline, how.stop)) {
        case ResetProgress::pending: give_up_on(std::move(parked), how);
        case ResetProgress::failed: return close_unclean(std::move(parked.connection)), nullptr;
        case ResetProgress::done: move(Phase::resetting, Phase::leased);
      }
    }
    if (connector_.alive(*parked.connection)) return std::move(parked.connection);
    count(&PoolStats::validation_failures);
    close(std::move(parked.connection), Phase::leased);
    return nullptr;
  }

  // The borrower's time is up before the session is reset. The next one may be luckier; a session that is
  // at it for longer than anybody may wait will hardly get there.
  [[noreturn]] void give_up_on(Parked parked, AcquireOptions const& how) {
    if (Deadline::after(options_.connection_timeout, parked.since).passed()) {
      close_unclean(std::move(parked.connection));
    } else {
      parked.late = true;
      park(std::move(parked));
    }
    if (how.stop.stop_requested()) refuse(Reason::cancelled, "stopped while a session was being reset", how);
    refuse(Reason::timed_out, "no time left while a session was being reset", how);
  }

  Connection open(Deadline deadline, AcquireOptions const& how) {
    Connection connection = connect(deadline, how);
    if (opened()) return connection;
    close(std::move(connection), Phase::leased);
    refuse(Reason::closed, "the pool was closed while connecting", how);
  }

  Connection connect(Deadline deadline, AcquireOptions const& how) {
    try {
      return connector_.connect(deadline, how.stop);
    } catch (ConnectionUnavailable const& failure) {
      connect_failed(failure.reason());
      throw;
    } catch (...) {
      connect_failed(Reason::connect_failed);
      std::throw_with_nested(ConnectionUnavailable{
          Reason::connect_failed, "pool '" + options_.name + "': connecting failed (cause nested)"});
    }
  }

  // False where there is no room for another connection.
  bool begin_connecting(AcquireOptions const& how) {
    {
      std::lock_guard const lock{mutex_};
      if (!closed_) {
        if (counts_.total() >= options_.max_size) return false;
        // Room for every connection there is, so that parking one never has to allocate.
        parked_.reserve(counts_.total() + 1);
        counts_.begin_connecting();
        return true;
      }
    }
    refuse(Reason::closed, "the pool is closed", how);
  }

  void connect_failed(Reason reason) noexcept {
    std::lock_guard const lock{mutex_};
    counts_.connect_failed();
    if (reason == Reason::timed_out) ++failures_.timeouts;
    if (reason == Reason::connect_failed) ++failures_.connect_failures;
    changed_.notify_all();
  }

  bool opened() noexcept {
    std::lock_guard const lock{mutex_};
    counts_.opened();
    return !closed_;
  }

  // ---- keeping and closing ----

  void park(Parked parked) noexcept {
    Phase const phase = parked.phase();
    {
      std::lock_guard const lock{mutex_};
      if (!closed_) {
        if (phase != Phase::resetting) counts_.move(Phase::resetting, phase);
        // Late ones are kept at the far end: the next borrower takes any other first.
        parked_.insert(parked.late ? parked_.begin() : parked_.end(), std::move(parked));
        return;
      }
    }
    close(std::move(parked.connection), Phase::resetting);
  }

  void close_unclean(Connection connection) noexcept {
    count(&PoolStats::reset_failures);
    close(std::move(connection), Phase::resetting);
  }

  // The one place where connections end. Closing does I/O: outside the lock.
  void close(Connection connection, Phase from) noexcept {
    move(from, Phase::closing);
    connection.reset();
    std::lock_guard const lock{mutex_};
    counts_.closed();
    changed_.notify_all();
  }

  void move(Phase from, Phase to) noexcept {
    std::lock_guard const lock{mutex_};
    counts_.move(from, to);
  }

  void count(std::uint64_t PoolStats::*failure) noexcept {
    std::lock_guard const lock{mutex_};
    ++(failures_.*failure);
  }

  bool is_closed() const noexcept {
    std::lock_guard const lock{mutex_};
    return closed_;
  }

  PoolOptions const options_;
  AdmissionGate gate_;
  Connector connector_;

  // Guards everything below. No I/O and no call of the connector happens under it, and no exception leaves it
  // but bad_alloc of `begin_connecting`, before anything is changed.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Parked> parked_;  // late ones first, newest last
  PoolCounts counts_;
  PoolStats failures_;  // its running totals of failures only; the rest comes from elsewhere
  bool closed_ = false;
};

}  // namespace db_bulkhead::detail

#endif
