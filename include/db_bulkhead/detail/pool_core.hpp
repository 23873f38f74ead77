// SPDX-License-Identifier: MIT
//
// The decisions of a pool, and nothing else: what to lend, open, prove, close, and
// whom to serve. No I/O, no threads, no clock, no lock: the shell around it
// (pool_state.hpp) holds one lock, passes the time in, does what is asked for and
// reports how it went.
//
// A connection is an entry in one phase at a time:
//
//   connecting -> leased | idle        connected
//   idle, resetting -> leased          lent (an unread reset is the borrower's to read)
//   leased -> idle | resetting         given back
//   idle -> validating -> idle         proven by the housekeeper
//   any -> closing -> gone             the shell closes it
//
// A taker is a caller that was admitted by the gate (so there are `max_size` at most)
// and finds nothing to lend. Takers are served in the order of their arrival, by
// whatever comes free: a return, a connect, a validation.
//
// Which of several: the newest idle one, so that what the load does not need stays
// idle; of what has to go, the oldest.
#ifndef DB_BULKHEAD_DETAIL_POOL_CORE_HPP
#define DB_BULKHEAD_DETAIL_POOL_CORE_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "db_bulkhead/connector.hpp"
#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/detail/pool_counts.hpp"
#include "db_bulkhead/detail/reconnect_pace.hpp"
#include "db_bulkhead/detail/wait_queue.hpp"
#include "db_bulkhead/pool_options.hpp"

namespace db_bulkhead::detail {

using PoolTime = Deadline::clock::time_point;

/// A connection in the books. Written by PoolCore alone, but for the two limits of a loan.
struct PoolEntry {
  PoolEntry* ahead = nullptr;  // in `parked_`, `set_aside_` or `closing_`
  PoolEntry* behind = nullptr;
  std::size_t index = 0;  // in `all_`

  Phase phase = Phase::connecting;
  bool resetting = false;  // the answers of its reset are still to be read
  bool late = false;       // a borrower has waited for them in vain
  bool retiring = false;   // is to go once there is another in its place
  bool leak_told = false;
  bool fresh = false;  // goes from its connect straight to its borrower
  std::uint64_t generation = 0;
  PoolTime began{};                     // the connect
  PoolTime expires{};                   // fixed when it was opened
  PoolTime since{};                     // when it was parked or lent
  PoolTime proven{};                    // when it was last known to be alive
  PoolTime leak_due = PoolTime::max();  // when the loan becomes suspicious
};

/// Why a taker gets no connection.
enum class PoolRefusal { none, closed, suspended, down };

/// A caller that waits for a connection.
struct PoolTaker {
  PoolTaker* ahead = nullptr;
  PoolTaker* behind = nullptr;
  PoolEntry* entry = nullptr;  // what it was given
  PoolRefusal refusal = PoolRefusal::none;
};

/// Who has to be woken after a change.
struct PoolOrders {
  bool connect = false;    // connectors: there may be something to open
  bool housekeep = false;  // the housekeeper: there is something to close, or an earlier hour to wake
};

class PoolCore {
 public:
  enum class Taken { lent, waiting, refused };

  PoolCore(PoolOptions const& options, std::uint_fast32_t seed)
      : options_{options},
        pace_{options.reconnect_backoff, options.connectors, seed},
        random_{seed},
        longest_round_{longest_round(options)},
        max_size_{options.max_size} {}

  // ---- borrowers ----

  /// Whether a caller has to be turned away whatever is idle.
  PoolRefusal refusal() const noexcept {
    if (closed_) return PoolRefusal::closed;
    return suspended_ ? PoolRefusal::suspended : PoolRefusal::none;
  }

  Taken take(PoolTaker& taker, PoolTime now) {
    if (taker.refusal = refusal(); taker.refusal != PoolRefusal::none) return Taken::refused;
    if (PoolEntry* const entry = newest_to_lend(now)) return lend(*entry, taker, now);
    if (is_down(now)) {
      is_missed_ = true;
      orders_.connect = true;  // they may sleep without an end, as nobody had been missed
      taker.refusal = PoolRefusal::down;
      return Taken::refused;
    }
    takers_.push_last(taker);
    orders_.connect = true;
    serve_with_late_ones(now);
    if (taker.entry == nullptr) return Taken::waiting;
    settled_.remove(taker);
    return Taken::lent;
  }

  /// A taker gives up. False if it was served or refused meanwhile.
  bool leave(PoolTaker& taker) noexcept {
    if (is_settled(taker)) return false;
    takers_.remove(taker);
    return true;
  }

  static bool is_settled(PoolTaker const& taker) noexcept {
    return taker.entry != nullptr || taker.refusal != PoolRefusal::none;
  }

  /// A connection whose loan ends when it becomes suspicious at `due`.
  void watch_loan(PoolEntry& entry, PoolTime due) noexcept {
    entry.leak_due = due;
    if (due < next_round_) orders_.housekeep = true;
  }

  /// Comes back fit for the next one; `resetting` if the answers of its reset are still to be read.
  void give_back(PoolEntry& entry, bool resetting, PoolTime now) {
    pace_.others_work();
    entry.resetting = resetting;
    entry.fresh = false;
    entry.proven = now;
    offer(entry, now);
  }

  /// Comes back, or was taken, and must not be lent any more.
  void discard(PoolEntry& entry) { begin_closing(entry); }

  /// A borrower has waited for the answers of its reset in vain: the next one takes any other first.
  void set_aside(PoolEntry& entry, PoolTime now) {
    entry.late = true;
    if (is_unfit(entry)) return begin_closing(entry);
    park(entry, now);
    serve_with_late_ones(now);
  }

  /// The reset of a lent connection is done.
  static void reset_done(PoolEntry& entry) noexcept { entry.resetting = entry.late = false; }

  // ---- connects ----

  bool may_connect(PoolTime now) const noexcept {
    return wants_more() && counts_.in(Phase::connecting) < pace_.allowed(now);
  }

  /// When `may_connect` may become true by time alone.
  Deadline next_connect() const noexcept {
    if (!wants_more() || !pace_.is_failing() || counts_.in(Phase::connecting) > 0) return Deadline::never();
    return Deadline::at(pace_.outage().next);
  }

  /// Throws std::bad_alloc, with nothing changed.
  void begin_connecting(PoolEntry& entry, PoolTime now) {
    entry.index = all_.size();
    all_.push_back(&entry);
    entry.began = now;
    entry.generation = generation_;
    is_missed_ = false;
    counts_.begin_connecting();
    orders_.connect = true;  // perhaps more than one is wanted
    serve_with_late_ones(now);
  }

  void connected(PoolEntry& entry, PoolTime now) {
    pace_.succeeded();
    is_missed_ = false;  // nobody is turned away any more
    entry.expires = expiry(now);
    entry.proven = now;
    counts_.opened(Phase::leased);
    entry.phase = Phase::leased;
    entry.fresh = true;
    offer(entry, now);
    serve_with_late_ones(now);
    if (retiring_ > 0 && spare() >= options_.min_idle) retire_one();
    orders_.connect = true;
    if (next_round_ == PoolTime::max()) orders_.housekeep = true;  // it sleeps while there is nothing to keep
  }

  /// The entry is out of the books afterwards. A connect that was given up because the pool closes is no
  /// failure.
  void connect_failed(PoolEntry& entry, ConnectTrouble trouble, PoolTime now) {
    remove(entry);
    counts_.connect_failed();
    orders_.connect = true;
    if (closed_) return;
    pace_.failed(std::move(trouble), entry.began, now);
    if (!is_down(now)) return serve_with_late_ones(now);
    is_missed_ = is_missed_ || !takers_.empty();
    refuse_takers(PoolRefusal::down);
  }

  /// The last failure, if nothing has been opened since.
  Outage const* outage() const noexcept { return pace_.is_failing() ? &pace_.outage() : nullptr; }

  // ---- housekeeping ----

  /// Looks for what is too old, idle for too long, or stale.
  void make_round(PoolTime now) {
    // A round follows at once where the last one found something to close: it is time that makes it gradual.
    std::size_t unneeded = now < next_trim_ ? 0 : std::max<std::size_t>(1, all_.size() / 4);
    for (PoolEntry *entry = parked_.first(), *next = nullptr; entry != nullptr; entry = next) {
      next = entry->behind;
      if (is_expired(*entry, now)) {
        retire(*entry, now);
      } else if (unneeded > 0 && parked_.size() > options_.min_idle && is_idle_too_long(*entry, now)) {
        --unneeded;
        next_trim_ = now + longest_round_;
        begin_closing(*entry);
      }
    }
    // Nobody counts on those that were set aside: they need no replacement, and min_idle keeps none of them.
    for (PoolEntry *entry = set_aside_.first(), *next = nullptr; entry != nullptr; entry = next) {
      next = entry->behind;
      if (is_expired(*entry, now) && may_retire(now)) {
        count_retirement(now);
        begin_closing(*entry);
      } else if (unneeded > 0 && is_idle_too_long(*entry, now)) {
        --unneeded;
        next_trim_ = now + longest_round_;
        begin_closing(*entry);
      }
    }
    if (wants_more()) orders_.connect = true;
  }

  /// When the next round is due.
  Deadline next_round(PoolTime now) {
    PoolTime next = PoolTime::max();
    for (PoolEntry const* entry : all_) next = std::min(next, due(*entry));
    if (next != PoolTime::max() || !all_.empty()) {
      // Not before the retirement that had to wait could be allowed; and soon, for what is parked or lent
      // meanwhile is not looked at until then.
      next = std::clamp(next, now + least_round, now + longest_round_);
    }
    next_round_ = next;
    return Deadline::at(next);
  }

  /// An idle connection that has not been proven for too long, if there is one; it is validating from now on.
  PoolEntry* next_to_prove(PoolTime now) {
    for (auto const* list : {&parked_, &set_aside_}) {
      for (PoolEntry* entry = list->first(); entry != nullptr; entry = entry->behind) {
        if (is_going(*entry) || now < later(entry->proven, options_.keepalive)) continue;
        unpark(*entry);
        set_phase(*entry, Phase::validating);
        return entry;
      }
    }
    return nullptr;
  }

  void proven(PoolEntry& entry, bool alive, PoolTime now) {
    if (!alive || is_unfit(entry)) return begin_closing(entry);
    entry.proven = now;
    entry.resetting = false;
    PoolTime const since = entry.since;
    // Not to the newest end: nobody has used it.
    if (takers_.empty()) {
      park(entry, since, End::oldest);
    } else {
      offer(entry, now);
    }
  }

  /// A loan that has become suspicious and was not told yet.
  PoolEntry* next_leak(PoolTime now) noexcept {
    for (PoolEntry* entry : all_) {
      if (entry->phase != Phase::leased || entry->leak_told || now < entry->leak_due) continue;
      entry->leak_told = true;
      return entry;
    }
    return nullptr;
  }

  /// What the shell has to close now; `closed` is due for each.
  PoolEntry* next_to_close() noexcept {
    PoolEntry* const entry = closing_.first();
    if (entry != nullptr) closing_.remove(*entry);
    return entry;
  }

  /// The entry is out of the books afterwards.
  void closed(PoolEntry& entry) {
    remove(entry);
    counts_.closed();
    orders_.connect = true;
  }

  // ---- changes of the whole ----

  /// More room is used as callers come; less drains, idle connections first.
  void resize(std::size_t max_size, PoolTime now) {
    max_size_ = max_size;
    while (alive() > max_size_ && close_oldest()) {
    }
    serve_with_late_ones(now);
    orders_.connect = true;
  }

  /// Everything opened before now goes: what is idle at once, what is lent when it comes back.
  void evict_all() {
    begin_generation();
    pace_.retry_now();
    orders_.connect = true;
  }

  /// The same, for what a borrower met on `witness`. One of an older generation knows nothing of this one:
  /// many come back after a failover, and each would take what was opened since.
  void evict_older(PoolEntry const& witness) {
    if (witness.generation == generation_) begin_generation();
  }

  void suspend() {
    suspended_ = true;
    refuse_takers(PoolRefusal::suspended);
  }

  void resume() {
    suspended_ = false;
    pace_.retry_now();
    orders_.connect = true;
  }

  void close() {
    closed_ = true;
    refuse_takers(PoolRefusal::closed);
    while (close_oldest()) {
    }
    orders_ = {true, true};
  }

  // ---- what the shell has to know ----

  bool is_closed() const noexcept { return closed_; }
  std::size_t max_size() const noexcept { return max_size_; }
  std::size_t waiting() const noexcept { return takers_.size(); }
  PoolCounts const& counts() const noexcept { return counts_; }

  /// A taker that was served or refused, to be woken; null when there is none left.
  PoolTaker* next_settled() noexcept {
    PoolTaker* const taker = settled_.first();
    if (taker != nullptr) settled_.remove(*taker);
    return taker;
  }

  PoolOrders take_orders() noexcept { return std::exchange(orders_, {}); }

 private:
  static constexpr std::chrono::nanoseconds least_round = std::chrono::milliseconds{20};

  // A second, or less where a limit is so short that it would be missed by much.
  static std::chrono::nanoseconds longest_round(PoolOptions const& options) noexcept {
    auto const shortest =
        std::min<std::chrono::nanoseconds>({options.keepalive, options.idle_timeout, options.max_lifetime});
    return std::clamp<std::chrono::nanoseconds>(shortest / 4, least_round, std::chrono::seconds{1});
  }

  enum class End { newest, oldest };

  static PoolTime later(PoolTime start, QueueWait wait) noexcept {
    return Deadline::after(wait, start).time_point();
  }

  // ---- lending ----

  PoolEntry* newest_to_lend(PoolTime now) {
    while (PoolEntry* const entry = parked_.last()) {
      if (!is_expired(*entry, now) || !may_retire(now)) return entry;
      count_retirement(now);
      begin_closing(*entry);
    }
    return nullptr;
  }

  Taken lend(PoolEntry& entry, PoolTaker& taker, PoolTime now) {
    unpark(entry);
    lend_to(entry, taker, now);
    return Taken::lent;
  }

  void lend_to(PoolEntry& entry, PoolTaker& taker, PoolTime now) noexcept {
    set_phase(entry, Phase::leased);
    entry.since = now;
    entry.leak_due = PoolTime::max();
    entry.leak_told = false;
    taker.entry = &entry;
  }

  // To whoever waits, else to the idle ones.
  void offer(PoolEntry& entry, PoolTime now) {
    if (is_unfit(entry)) return begin_closing(entry);
    if (is_expired(entry, now) && may_retire(now)) {
      count_retirement(now);
      return begin_closing(entry);
    }
    if (takers_.empty()) return park(entry, now);
    serve_first(entry, now);
  }

  void serve_first(PoolEntry& entry, PoolTime now) {
    PoolTaker& taker = *takers_.first();
    takers_.remove(taker);
    lend_to(entry, taker, now);
    settled_.push_last(taker);
  }

  // A session that let somebody down before is better than none: for takers to whom nothing else is coming,
  // if there is no room for another.
  void serve_with_late_ones(PoolTime now) {
    while (takers_.size() > counts_.in(Phase::connecting) && !has_room() && !set_aside_.empty()) {
      PoolEntry& entry = *set_aside_.first();
      unpark(entry);
      serve_first(entry, now);
    }
  }

  void refuse_takers(PoolRefusal why) noexcept {
    while (PoolTaker* const taker = takers_.first()) {
      takers_.remove(*taker);
      taker->refusal = why;
      settled_.push_last(*taker);
    }
  }

  // Whoever comes when a connect is due, and nobody has begun it, waits for how it goes.
  bool is_down(PoolTime now) const noexcept {
    bool const is_due = now >= pace_.outage().next && counts_.in(Phase::connecting) == 0;
    return !is_due && pace_.is_down(counts_.in(Phase::leased) > 0);
  }

  // ---- parking ----

  void park(PoolEntry& entry, PoolTime since, End end = End::newest) {
    set_phase(entry, entry.resetting ? Phase::resetting : Phase::idle);
    entry.fresh = false;
    entry.since = since;
    if (entry.late) {
      set_aside_.push_last(entry);
    } else if (end == End::oldest) {
      parked_.push_first(entry);
    } else {
      parked_.push_last(entry);
    }
  }

  void unpark(PoolEntry& entry) noexcept {
    (entry.late ? set_aside_ : parked_).remove(entry);
    if (entry.retiring) --retiring_;
    entry.late = entry.retiring = false;
  }

  static bool is_parked(PoolEntry const& entry) noexcept {
    return entry.phase == Phase::idle || entry.phase == Phase::resetting;
  }

  // ---- growing ----

  // Connections that are neither going nor gone.
  std::size_t alive() const noexcept { return counts_.total() - counts_.in(Phase::closing); }
  bool has_room() const noexcept { return counts_.total() < max_size_; }
  // Idle ones that can be counted on.
  std::size_t spare() const noexcept { return parked_.size() - retiring_; }

  bool wants_more() const noexcept {
    if (closed_ || suspended_ || !has_room()) return false;
    std::size_t const idle = spare() + counts_.in(Phase::validating);
    std::size_t const missing = idle < options_.min_idle ? options_.min_idle - idle : 0;
    // While callers are turned away, the pool probes by itself.
    std::size_t const probes = is_missed_ ? 1 : 0;
    return takers_.size() + missing + probes > counts_.in(Phase::connecting);
  }

  // Fixed at birth: a jitter that is drawn at every look is none.
  PoolTime expiry(PoolTime born) {
    using Rep = std::chrono::nanoseconds::rep;
    if (options_.max_lifetime.unlimited()) return PoolTime::max();
    auto const jitter = options_.lifetime_jitter.value_or(options_.max_lifetime / 10);
    std::uniform_int_distribution<Rep> less{0, jitter.count()};
    return later(born, options_.max_lifetime - std::chrono::nanoseconds{less(random_)});
  }

  // ---- going ----

  void begin_generation() {
    ++generation_;
    while (close_oldest()) {
    }
  }

  bool is_unfit(PoolEntry const& entry) const noexcept {
    return closed_ || entry.generation != generation_ || alive() > max_size_;
  }

  // Age is no reason to give up what works while nothing else can be had.
  bool is_expired(PoolEntry const& entry, PoolTime now) const noexcept {
    return now >= entry.expires && !pace_.is_failing();
  }

  bool is_idle_too_long(PoolEntry const& entry, PoolTime now) const noexcept {
    return now >= later(entry.since, options_.idle_timeout);
  }

  // A few at a time, however many are due: one in a second, or four times what the pool's size and the
  // lifetime need in the long run.
  bool may_retire(PoolTime now) const noexcept { return now >= next_retirement_; }
  void count_retirement(PoolTime now) noexcept {
    auto const needed = options_.max_lifetime / (4 * static_cast<std::chrono::nanoseconds::rep>(max_size_));
    next_retirement_ = now + std::min<std::chrono::nanoseconds>(needed, std::chrono::seconds{1});
  }

  // The replacement first, where one is needed and there is room. It may be one that came back, and the room
  // may be gone meanwhile: so what is retiring is looked at again with every round.
  void retire(PoolEntry& entry, PoolTime now) {
    if (!entry.retiring) {
      if (!may_retire(now)) return;
      count_retirement(now);
      entry.retiring = true;
      ++retiring_;
      orders_.connect = true;
    }
    bool const replaced = spare() >= options_.min_idle;
    bool const replaceable = has_room() || counts_.in(Phase::connecting) > 0;
    if (replaced || !replaceable) begin_closing(entry);
  }

  // Its replacement is on its way. A proof would only take it out of line, again and again.
  bool is_going(PoolEntry const& entry) const noexcept {
    return entry.retiring && !suspended_ && !pace_.is_failing();
  }

  void retire_one() {
    for (PoolEntry* entry = parked_.first(); entry != nullptr; entry = entry->behind) {
      if (entry->retiring) return begin_closing(*entry);
    }
  }

  // False if there is none.
  bool close_oldest() {
    PoolEntry* const oldest = set_aside_.empty() ? parked_.first() : set_aside_.first();
    if (oldest != nullptr) begin_closing(*oldest);
    return oldest != nullptr;
  }

  void begin_closing(PoolEntry& entry) {
    if (is_parked(entry)) unpark(entry);
    set_phase(entry, Phase::closing);
    closing_.push_last(entry);
    orders_.housekeep = true;
  }

  // ---- books ----

  void set_phase(PoolEntry& entry, Phase phase) noexcept {
    counts_.move(entry.phase, phase);
    entry.phase = phase;
  }

  void remove(PoolEntry& entry) noexcept {
    all_[entry.index] = all_.back();
    all_[entry.index]->index = entry.index;
    all_.pop_back();
  }

  PoolTime due(PoolEntry const& entry) const noexcept {
    if (entry.phase == Phase::leased) return entry.leak_told ? PoolTime::max() : entry.leak_due;
    if (!is_parked(entry)) return PoolTime::max();
    PoolTime next = is_going(entry) ? PoolTime::max() : later(entry.proven, options_.keepalive);
    // What is old and has to stay for now is no reason to wake: every round looks at it.
    if (!entry.retiring && !pace_.is_failing()) {
      next = std::min(next, std::max(entry.expires, next_retirement_));
    }
    if (entry.late || parked_.size() > options_.min_idle) {
      next = std::min(next, std::max(later(entry.since, options_.idle_timeout), next_trim_));
    }
    return next;
  }

  PoolOptions const& options_;
  ReconnectPace pace_;
  std::mt19937 random_;
  std::chrono::nanoseconds longest_round_;
  std::size_t max_size_;
  PoolCounts counts_;
  std::vector<PoolEntry*> all_;
  WaitQueue<PoolEntry> parked_;     // idle and resetting, newest last
  WaitQueue<PoolEntry> set_aside_;  // of those the late ones
  WaitQueue<PoolEntry> closing_;    // not yet asked for
  WaitQueue<PoolTaker> takers_;
  WaitQueue<PoolTaker> settled_;
  std::size_t retiring_ = 0;  // of the parked ones
  std::uint64_t generation_ = 0;
  PoolTime next_retirement_ = PoolTime::min();
  PoolTime next_trim_ = PoolTime::min();
  PoolTime next_round_ = PoolTime::min();
  PoolOrders orders_;
  bool is_missed_ = false;  // somebody was turned away since the last connect began
  bool suspended_ = false;
  bool closed_ = false;
};

}  // namespace db_bulkhead::detail

#endif
