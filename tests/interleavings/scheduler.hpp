// SPDX-License-Identifier: MIT
//
// Fibers that take turns as they are told. A fiber calls `wait_until` (or `step`) before
// whatever others could notice; there, and only there, may another one go on. Who does
// is asked of `Choices`, so that a run is nothing but a list of choices: it can be
// repeated, and all of them can be tried.
//
// A state is known by the contents of shared memory and by all that each fiber has
// observed so far, for a fiber that has seen the same goes on in the same way. A state
// met a second time need not be gone through again. A fiber that has come to the end of
// a part of its work may say so, and with what result: how it came to it then matters
// no more (`only_matters`).
//
// The memory is sequentially consistent here: what a weaker order breaks is found by
// the thread sanitizer in the tests with real threads, not here.
#ifndef DB_BULKHEAD_TESTS_INTERLEAVINGS_SCHEDULER_HPP
#define DB_BULKHEAD_TESTS_INTERLEAVINGS_SCHEDULER_HPP

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace interleavings {

constexpr std::uint64_t mix(std::uint64_t seed, std::uint64_t value) noexcept {
  std::uint64_t x = (seed ^ (value + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 29)) * 0x94d049bb133111eb;
  return x ^ (x >> 32);
}

class Scheduler;

class Choices {
 public:
  virtual ~Choices() = default;
  /// One of 0 .. count - 1, or nothing if all that follows is known.
  virtual std::optional<unsigned> choose(unsigned count, Scheduler const& at) = 0;
};

class Scheduler {
 public:
  enum class End { finished, known, stuck, failed };

  /// Forgets fibers and memory of the last run. Nothing on an unfinished fiber's stack is destroyed.
  void reset() {
    used_ = 0;
    current_ = nobody;
    main_cells_ = 0;
    memory_ = trace_ = steps_ = 0;
    failure_.clear();
  }

  /// Adds a fiber; they are numbered from 0.
  void spawn(std::function<void()> body) {
    if (used_ == fibers_.size()) fibers_.push_back(new_fiber());
    Fiber& fiber = *fibers_[used_++];
    fiber.body = std::move(body);
    fiber.started = fiber.finished = fiber.spins = false;
    fiber.asleep_at = nullptr;
    fiber.seen = fiber.cells = fiber.parts = fiber.paused_at = 0;
    fiber.pauses = 0;
    fiber.ready = [](void const*) { return true; };
  }

  /// Runs until every fiber has finished, none can go on, a choice is known, or something failed. Can be
  /// called again for those that are stuck, and for new ones.
  End run(Choices& choices) {
    choices_ = &choices;
    if (_setjmp(main_) == 0) go_on();
    current_ = nobody;
    return end_;
  }

  /// Lets others run, and returns at a moment at which `ready()` holds. `ready` looks and changes nothing.
  template <class Ready>
  void wait_until(Ready const& ready) {
    if (current_ == nobody) return;
    Fiber& me = *fibers_[current_];
    me.ready = [](void const* condition) { return (*static_cast<Ready const*>(condition))(); };
    me.condition = &ready;
    observe(0);
    go_on();
  }
  void step() {
    wait_until([] { return true; });
  }

  /// A step of a fiber that spins. One that has met the same memory `patience` times in a row waits for a
  /// change of it, or for the moment in which nobody else can go on: the loop it is in may have no end.
  void pause(unsigned patience) {
    if (current_ == nobody) return;
    Fiber& me = *fibers_[current_];
    bool const changed = std::exchange(me.paused_at, memory_) != memory_;
    me.pauses = changed ? 1 : me.pauses + 1;
    observe(me.pauses);
    me.spins = true;
    wait_until([this, &me, patience] { return me.pauses < patience || me.paused_at != memory_; });
    me.spins = false;
  }

  /// Sleeps until somebody calls wake(address), or `over()` holds.
  template <class Over>
  void sleep(void const* address, Over const& over) {
    void const*& asleep_at = fibers_[current_]->asleep_at;
    asleep_at = address;
    wait_until([&] { return asleep_at == nullptr || over(); });
    asleep_at = nullptr;
  }
  void wake(void const* address) {
    for (unsigned i = 0; i < used_; ++i)
      if (fibers_[i]->asleep_at == address) fibers_[i]->asleep_at = nullptr;
  }

  /// A choice that is not about who goes on.
  unsigned choose(unsigned count) {
    observe(1);
    auto const choice = choices_->choose(count, *this);
    if (!choice) leave(End::known);
    trace_ = mix(trace_, *choice);
    observe(*choice);
    return *choice;
  }

  /// What the running fiber learns; to be told of everything that it reads and others may change.
  void observe(std::uint64_t value) noexcept {
    trace_ = mix(trace_, value);
    if (current_ != nobody) fibers_[current_]->seen = mix(fibers_[current_]->seen, value);
  }

  /// Of all that the running fiber has observed, what it does from here on depends on `result` alone.
  void only_matters(std::uint64_t result) noexcept {
    Fiber& me = *fibers_[current_];
    me.seen = mix(++me.parts, result);
    me.cells = me.parts << 16;
  }

  void memory_changed(std::uint64_t less, std::uint64_t more) noexcept { memory_ += more - less; }

  /// A name for something that the running fiber makes, the same in every run in which it makes it.
  std::uint64_t next_cell() noexcept {
    if (current_ == nobody) return main_cells_++;
    return (std::uint64_t{current_ + 1} << 32) + fibers_[current_]->cells++;
  }

  /// Ends the run: a promise was broken.
  void fail(std::string what) {
    if (failure_.empty()) failure_ = std::move(what);
    if (current_ != nobody) leave(End::failed);
  }

  std::uint64_t state() const {
    std::uint64_t all = mix(memory_, also ? also() : 0);
    for (unsigned i = 0; i < used_; ++i) {
      Fiber const& fiber = *fibers_[i];
      all = mix(all, fiber.finished ? 0 : fiber.seen + (fiber.asleep_at != nullptr ? 1 : 0));
    }
    return all;
  }

  static constexpr unsigned nobody = ~0U;
  static constexpr unsigned most_fibers = 32;
  unsigned current() const noexcept { return current_; }
  std::string const& failure() const noexcept { return failure_; }
  std::uint64_t trace() const noexcept { return trace_; }
  std::uint64_t steps() const noexcept { return steps_; }

  /// What else tells two states apart: what the tests themselves remember.
  std::function<std::uint64_t()> also;

 private:
  static constexpr std::size_t stack_size = 64 * 1024;
  static constexpr std::uint64_t most_steps = 1'000'000;

  struct Fiber {
    std::unique_ptr<char[]> stack{new char[stack_size]};
    ::ucontext_t birth{};
    bool born = false;
    ::jmp_buf start{};  // the lowest frame of the stack, for all bodies that run on it
    ::jmp_buf registers{};
    std::function<void()> body;
    bool started = false;
    bool finished = false;
    bool spins = false;
    unsigned pauses = 0;
    std::uint64_t paused_at = 0;
    void const* asleep_at = nullptr;
    std::uint64_t seen = 0;
    std::uint64_t cells = 0;
    std::uint64_t parts = 0;
    bool (*ready)(void const*) = nullptr;
    void const* condition = nullptr;
  };

  static std::unique_ptr<Fiber> new_fiber() {
    auto fiber = std::make_unique<Fiber>();
    ::getcontext(&fiber->birth);
    fiber->birth.uc_stack = {fiber->stack.get(), 0, stack_size};
    ::makecontext(&fiber->birth, &Scheduler::enter, 0);
    return fiber;
  }

  static void enter();
  [[noreturn, gnu::noinline]] void live() {
    _setjmp(fibers_[current_]->start);
    fibers_[current_]->body();
    fibers_[current_]->finished = true;
    go_on();
    std::abort();  // nobody goes back to one who has finished
  }

  using Numbers = std::array<unsigned, most_fibers>;

  template <class Condition>
  unsigned find_all(Numbers& numbers, Condition condition) const {
    unsigned count = 0;
    for (unsigned i = 0; i < used_; ++i)
      if (!fibers_[i]->finished && condition(*fibers_[i])) numbers[count++] = i;
    return count;
  }

  void go_on() {
    if (++steps_ > most_steps) fail("there is no end to it");
    Numbers numbers;
    unsigned count = find_all(numbers, [](Fiber const& fiber) { return fiber.ready(fiber.condition); });
    if (count == 0) count = find_all(numbers, [](Fiber const& fiber) { return fiber.spins; });
    bool const all_finished = count == 0 && find_all(numbers, [](Fiber const&) { return true; }) == 0;
    if (count == 0) return back_to_main(all_finished ? End::finished : End::stuck);
    // Whoever runs comes first, so that a run of first choices changes fibers only where it must.
    auto const end = numbers.begin() + count;
    if (auto const me = std::find(numbers.begin(), end, current_); me != end)
      std::rotate(numbers.begin(), me, me + 1);
    unsigned pick = 0;
    if (count > 1) {
      auto const choice = choices_->choose(count, *this);
      if (!choice) leave(End::known);
      pick = *choice;
    }
    trace_ = mix(trace_, numbers[pick]);
    if (numbers[pick] != current_) switch_to(numbers[pick]);
  }

  // A context gives birth to a fiber, once; all other changes are jumps. They take no system calls, of which
  // swapcontext takes two.
  [[gnu::noinline]] void switch_to(unsigned next) {
    Fiber* const from = current_ == nobody ? nullptr : fibers_[current_].get();
    Fiber& to = *fibers_[next];
    current_ = next;
    if (from != nullptr && _setjmp(from->registers) != 0) return;
    if (to.started) _longjmp(to.registers, 1);
    to.started = true;
    if (std::exchange(to.born, true)) _longjmp(to.start, 1);
    ::setcontext(&to.birth);
  }

  // Returns if a later run goes on here.
  [[gnu::noinline]] void back_to_main(End end) {
    if (current_ != nobody && _setjmp(fibers_[current_]->registers) != 0) return;
    leave(end);
  }
  [[noreturn]] void leave(End end) {
    end_ = end;
    _longjmp(main_, 1);
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  unsigned used_ = 0;
  unsigned current_ = nobody;
  std::uint64_t main_cells_ = 0;
  std::uint64_t memory_ = 0;
  std::uint64_t trace_ = 0;
  std::uint64_t steps_ = 0;
  Choices* choices_ = nullptr;
  End end_ = End::finished;
  std::string failure_;
  ::jmp_buf main_{};
};

/// The one that everything in this program runs on.
inline Scheduler& scheduler() {
  static Scheduler only;
  return only;
}

inline void Scheduler::enter() {
  scheduler().live();
}

}  // namespace interleavings

#endif
