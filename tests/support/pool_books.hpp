// SPDX-License-Identifier: MIT
//
// A shell around the decisions of a pool without connections, threads or clock: it keeps
// the entries, and does at once what the real one does in its own time.
#ifndef DB_BULKHEAD_TESTS_POOL_BOOKS_HPP
#define DB_BULKHEAD_TESTS_POOL_BOOKS_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "db_bulkhead/detail/pool_core.hpp"

struct PoolBooks {
  using Core = db_bulkhead::detail::PoolCore;
  using Entry = db_bulkhead::detail::PoolEntry;
  using Taker = db_bulkhead::detail::PoolTaker;
  using Time = db_bulkhead::detail::PoolTime;

  explicit PoolBooks(db_bulkhead::PoolOptions its_options = {}, std::uint_fast32_t seed = 1)
      : options{std::move(its_options)}, core{options, seed} {}
  PoolBooks(PoolBooks const&) = delete;
  PoolBooks& operator=(PoolBooks const&) = delete;

  Entry& begin_connecting() {
    entries.push_back(std::make_unique<Entry>());
    core.begin_connecting(*entries.back(), now);
    return *entries.back();
  }

  void fail(Entry& entry, db_bulkhead::ConnectFailure kind = db_bulkhead::ConnectFailure::unreachable) {
    core.connect_failed(entry, {.kind = kind, .what = "down"}, now);
    forget(entry);
  }

  /// Opens all that is wanted, as fast as it is allowed.
  void open_all() {
    while (core.may_connect(now)) core.connected(begin_connecting(), now);
  }

  /// Lends one, opening it if there is none. Null if the caller has to wait or is refused.
  Entry* lend() {
    Taker& taker = take();
    open_all();
    if (taker.entry == nullptr) core.leave(taker);
    settled();
    return taker.entry;
  }

  Taker& take() {
    takers.push_back(std::make_unique<Taker>());
    last_taken = core.take(*takers.back(), now);
    return *takers.back();
  }

  /// Closes all that is to be closed; how many that were.
  std::size_t close_all() {
    std::size_t closed = 0;
    while (Entry* const entry = core.next_to_close()) {
      core.closed(*entry);
      forget(*entry);
      ++closed;
    }
    return closed;
  }

  std::vector<Taker*> settled() {
    std::vector<Taker*> all;
    while (Taker* const taker = core.next_settled()) all.push_back(taker);
    return all;
  }

  std::size_t in(db_bulkhead::detail::Phase phase) const { return core.counts().in(phase); }
  std::size_t total() const { return core.counts().total(); }

  void forget(Entry& entry) {
    std::erase_if(entries, [&](auto const& each) { return each.get() == &entry; });
  }

  db_bulkhead::PoolOptions const options;
  Core core;
  Time now{std::chrono::hours{1}};
  Core::Taken last_taken{};
  std::vector<std::unique_ptr<Entry>> entries;
  std::vector<std::unique_ptr<Taker>> takers;
};

#endif
