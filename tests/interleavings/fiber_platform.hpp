// SPDX-License-Identifier: MIT
//
// The machine as a gate sees it (see detail/platform.hpp), made of fibers: atomics, a
// lock, a parker, stop tokens and a clock that lets every other fiber run before each
// shared operation. A timed wait ends once the clock, which only tests move, has reached
// its deadline; a compare_exchange_weak may fail for no reason, as often as tests allow.
#ifndef DB_BULKHEAD_TESTS_INTERLEAVINGS_FIBER_PLATFORM_HPP
#define DB_BULKHEAD_TESTS_INTERLEAVINGS_FIBER_PLATFORM_HPP

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/detail/parker.hpp"
#include "scheduler.hpp"

namespace interleavings {

using db_bulkhead::Deadline;
using db_bulkhead::detail::WaitOutcome;

/// Is told what happens, at once and before any other fiber runs.
class Witness {
 public:
  virtual ~Witness() = default;
  virtual void on_write(std::uint64_t cell, std::uint64_t before, std::uint64_t after) = 0;
  virtual void on_unlock() = 0;
  virtual void on_settle(unsigned waiter, WaitOutcome outcome) = 0;
};

class FiberParker;

/// What all fibers of a run share beside their own objects.
struct Surroundings {
  Deadline::clock::time_point now{std::chrono::hours{1}};
  unsigned spurious_failures = 0;  // how many more there may be
  unsigned patience = 2;           // see Scheduler::pause
  Witness* witness = nullptr;
  std::vector<FiberParker const*> parkers{};
  // Digests of plain data: of what a mutex guards, and of what a waiter reads once its wait is settled.
  std::function<std::uint64_t(void const* mutex)> contents_guarded_by{};
  std::function<std::uint64_t(FiberParker const&)> contents_beside{};
};
inline Surroundings surroundings;

/// 64 bits of shared memory that the scheduler knows of.
class Cell {
 public:
  explicit Cell(std::uint64_t bits = 0) : bits_{bits} { scheduler().memory_changed(0, digest()); }
  Cell(Cell const&) = delete;
  Cell& operator=(Cell const&) = delete;
  ~Cell() { scheduler().memory_changed(digest(), 0); }

  std::uint64_t name() const noexcept { return name_; }
  std::uint64_t get() const noexcept { return bits_; }
  void set(std::uint64_t bits) noexcept {
    auto const before = digest();
    bits_ = bits;
    scheduler().memory_changed(before, digest());
  }

 private:
  std::uint64_t digest() const noexcept { return mix(name_, bits_); }

  std::uint64_t name_ = scheduler().next_cell();
  std::uint64_t bits_;
};

template <class T>
class FiberAtomic {
 public:
  explicit FiberAtomic(T value) : cell_{bits_of(value)} {}

  T load(std::memory_order = std::memory_order_seq_cst) const {
    scheduler().step();
    return read();
  }
  void store(T value, std::memory_order = std::memory_order_seq_cst) {
    scheduler().step();
    write(value);
  }
  T exchange(T value, std::memory_order = std::memory_order_seq_cst) {
    scheduler().step();
    T const before = read();
    write(value);
    return before;
  }
  T fetch_add(T value, std::memory_order = std::memory_order_seq_cst) {
    scheduler().step();
    T const before = read();
    write(static_cast<T>(before + value));
    return before;
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order,
                               std::memory_order = std::memory_order_seq_cst) {
    scheduler().step();
    return exchange_if(expected, desired);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order,
                             std::memory_order = std::memory_order_seq_cst) {
    scheduler().step();
    if (surroundings.spurious_failures > 0 && scheduler().choose(2) == 1) {
      --surroundings.spurious_failures;
      expected = read();
      return false;
    }
    return exchange_if(expected, desired);
  }

 private:
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  static std::uint64_t bits_of(T const& value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
  }

  T read() const {
    scheduler().observe(cell_.get());
    auto const bits = cell_.get();
    std::array<unsigned char, sizeof(T)> bytes;
    std::memcpy(bytes.data(), &bits, sizeof(T));
    return std::bit_cast<T>(bytes);
  }
  void write(T value) {
    auto const before = cell_.get();
    cell_.set(bits_of(value));
    if (surroundings.witness != nullptr) surroundings.witness->on_write(cell_.name(), before, cell_.get());
  }
  bool exchange_if(T& expected, T desired) {
    T const before = read();
    bool const same = bits_of(before) == bits_of(expected);
    if (same) write(desired);
    expected = before;
    return same;
  }

  Cell cell_;
};

class FiberMutex {
 public:
  void lock() {
    scheduler().wait_until([this] { return held_.get() == 0; });
    held_.set(1);
    scheduler().observe(guarded_.get());
  }
  // No step: what can happen between here and the fiber's next one can as well happen there.
  void unlock() {
    guarded_.set(surroundings.contents_guarded_by(this));
    held_.set(0);
    if (surroundings.witness != nullptr) surroundings.witness->on_unlock();
  }

 private:
  Cell held_;
  Cell guarded_;  // a digest of the plain data
};

/// As FutexParker: a sleeper is woken by its address, and by nothing else.
class FiberParker {
 public:
  class Waker {
   public:
    Waker() = default;
    explicit Waker(void const* address) noexcept : address_{address} {}
    void wake() const {
      if (address_ == nullptr) return;
      scheduler().step();
      scheduler().wake(address_);
    }

   private:
    void const* address_ = nullptr;
  };

  FiberParker() { surroundings.parkers.push_back(this); }
  FiberParker(FiberParker const&) = delete;
  FiberParker& operator=(FiberParker const&) = delete;
  ~FiberParker() { std::erase(surroundings.parkers, this); }

  WaitOutcome outcome() const {
    scheduler().step();
    return look();
  }

  Waker settle(WaitOutcome outcome) {
    void const* const address = this;
    scheduler().step();
    auto const before = look();
    outcome_.set(static_cast<std::uint64_t>(outcome));
    if (surroundings.witness != nullptr) surroundings.witness->on_settle(owner_, outcome);
    return before == WaitOutcome::asleep ? Waker{address} : Waker{};
  }

  // To announce the sleep, to look once more and to fall asleep is one step, as if the futex did all of it.
  WaitOutcome park(Deadline deadline) {
    auto const over = [&] { return deadline.passed(surroundings.now); };
    scheduler().step();
    while (!is_settled(look()) && !over()) {
      outcome_.set(static_cast<std::uint64_t>(WaitOutcome::asleep));
      scheduler().sleep(this, over);
    }
    return look();
  }

 private:
  WaitOutcome look() const {
    auto const outcome = static_cast<WaitOutcome>(outcome_.get());
    scheduler().observe(outcome_.get());
    if (is_settled(outcome)) scheduler().observe(surroundings.contents_beside(*this));
    return outcome;
  }

  unsigned owner_ = scheduler().current();
  Cell outcome_{static_cast<std::uint64_t>(WaitOutcome::pending)};
};

class FiberStopHook {
 public:
  explicit FiberStopHook(void (*run)(FiberStopHook&)) : run_{run} {}
  void operator()() { run_(*this); }

 private:
  void (*run_)(FiberStopHook&);
};

/// A stop source, and what it shares with its tokens; it outlives them.
class FiberStopSource {
 public:
  /// Runs the callbacks that are registered, one after the other, in this fiber.
  void request_stop() {
    enter();
    bool const first = !is_requested();
    requested_.set(1);
    leave();
    if (!first) return;
    while (take_next()) (*running_)();
  }

  bool stop_requested() const {
    scheduler().step();
    scheduler().observe(requested_.get());
    return is_requested();
  }
  /// For tests to look at.
  bool is_requested() const noexcept { return requested_.get() != 0; }

  /// Registers, or says that it is too late to.
  bool add(FiberStopHook& hook) {
    enter();
    if (!is_requested()) hooks_.push_back(&hook);
    leave();
    return !is_requested();
  }
  /// Returns when the callback neither runs in another fiber nor will ever run.
  void remove(FiberStopHook& hook) {
    enter();
    std::erase(hooks_, &hook);
    leave();
    if (running_ == &hook && runner_ != scheduler().current())
      scheduler().wait_until([&] { return running_ != &hook; });
  }

 private:
  // What is done between the two is done at once, under a lock that the source has for itself.
  void enter() {
    scheduler().step();
    scheduler().observe(contents_.get());
  }
  void leave() {
    std::uint64_t all = mix(runner_, reinterpret_cast<std::uintptr_t>(running_));
    for (FiberStopHook const* const hook : hooks_) all = mix(all, reinterpret_cast<std::uintptr_t>(hook));
    contents_.set(all);
  }

  // The one that ran before is over with it.
  bool take_next() {
    enter();
    running_ = hooks_.empty() ? nullptr : hooks_.front();
    if (running_ != nullptr) hooks_.erase(hooks_.begin());
    runner_ = scheduler().current();
    leave();
    return running_ != nullptr;
  }

  Cell requested_;
  Cell contents_;
  std::vector<FiberStopHook*> hooks_;
  FiberStopHook* running_ = nullptr;
  unsigned runner_ = Scheduler::nobody;
};

class FiberStopToken {
 public:
  FiberStopToken() = default;
  explicit FiberStopToken(FiberStopSource* source) : source_{source} {}
  bool stop_possible() const noexcept { return source_ != nullptr; }
  bool stop_requested() const { return source_ != nullptr && source_->stop_requested(); }
  FiberStopSource* source() const noexcept { return source_; }

 private:
  FiberStopSource* source_ = nullptr;
};

template <class Callback>
class FiberStopCallback : private FiberStopHook {
 public:
  FiberStopCallback(FiberStopToken const& token, Callback callback)
      : FiberStopHook{[](FiberStopHook& self) { static_cast<FiberStopCallback&>(self).callback_(); }},
        callback_{std::move(callback)},
        source_{token.source()} {
    registered_ = source_->add(*this);
    if (!registered_) callback_();
  }
  FiberStopCallback(FiberStopCallback const&) = delete;
  FiberStopCallback& operator=(FiberStopCallback const&) = delete;
  ~FiberStopCallback() {
    if (registered_) source_->remove(*this);
  }

 private:
  Callback callback_;
  FiberStopSource* source_;
  bool registered_ = false;
};

struct FiberPlatform {
  template <class T>
  using atomic = FiberAtomic<T>;
  using mutex = FiberMutex;
  using parker = FiberParker;
  using stop_token = FiberStopToken;
  template <class Callback>
  using stop_callback = FiberStopCallback<Callback>;

  static Deadline::clock::time_point now() {
    scheduler().observe(static_cast<std::uint64_t>(surroundings.now.time_since_epoch().count()));
    return surroundings.now;
  }
  static void pause() { scheduler().pause(surroundings.patience); }
  static void yield() { scheduler().pause(surroundings.patience); }
};

}  // namespace interleavings

#endif
