// SPDX-License-Identifier: MIT
//
// A gate on fibers, its model, and the things that fibers do with it.
#ifndef DB_BULKHEAD_TESTS_INTERLEAVINGS_WORLD_HPP
#define DB_BULKHEAD_TESTS_INTERLEAVINGS_WORLD_HPP

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>
#include <utility>

#include "db_bulkhead/admission.hpp"
#include "fiber_platform.hpp"
#include "model.hpp"
#include "scheduler.hpp"

namespace interleavings {

using Gate = db_bulkhead::BasicAdmissionGate<FiberPlatform>;
using Admission = db_bulkhead::BasicAdmission<FiberPlatform>;
using Permit = db_bulkhead::BasicPermit<FiberPlatform>;

using namespace std::chrono_literals;
constexpr QueueWait no_wait{};
constexpr QueueWait one_tick{1s};
constexpr QueueWait endless{std::chrono::nanoseconds::max()};

/// Something that happens once, for others to wait for.
class Event {
 public:
  void happen() { happened_.set(1); }
  bool has_happened() const { return happened_.get() != 0; }
  void wait() {
    scheduler().wait_until([this] { return has_happened(); });
  }

 private:
  Cell happened_;
};

class World {
 private:
  // Declared first: the model knows a gate's word as the first cell that is made. Not destroyed with the
  // world, for fibers that were left in the middle are still in it.
  class Ground {
   public:
    explicit Ground(Limits limits) { new (storage_) Gate{limits}; }
    Gate& gate() { return *std::launder(reinterpret_cast<Gate*>(storage_)); }

    /// The bytes that follow `mutex` in the gate: what it guards is declared after it.
    std::uint64_t contents_after(void const* mutex) const {
      auto const* const from = static_cast<unsigned char const*>(mutex) + sizeof(FiberMutex);
      std::uint64_t all = 0;
      for (auto const* at = from; at < storage_ + sizeof(Gate); at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, at, 8);
        all = mix(all, word);
      }
      return all;
    }

   private:
    alignas(Gate) unsigned char storage_[sizeof(Gate)]{};
  };
  Ground ground_;

  static std::uint64_t contents_of_waiter(FiberParker const& parker) {
    using Waiter = db_bulkhead::detail::Waiter<FiberPlatform>;
    auto const& waiter = reinterpret_cast<Waiter const&>(parker);  // whose first member it is
    std::uint64_t all = waiter.may_spin ? 1 : 0;
    all = mix(all, static_cast<std::uint64_t>(waiter.granted_at.time_since_epoch().count()));
    all = mix(all, reinterpret_cast<std::uintptr_t>(waiter.ahead));
    return mix(all, reinterpret_cast<std::uintptr_t>(waiter.behind));
  }

 public:
  World(Limits limits, bool aloud) : ground_{limits}, model{limits, aloud} {
    surroundings.witness = &model;
    surroundings.contents_beside = contents_of_waiter;
    surroundings.contents_guarded_by = [this](void const* mutex) {
      std::uint64_t all = ground_.contents_after(mutex);
      for (FiberParker const* const parker : surroundings.parkers) all += contents_of_waiter(*parker);
      return all;
    };
  }

  Gate& gate() { return ground_.gate(); }

  Admission arrive(QueueWait wait, FiberStopSource* stop = nullptr) {
    model.arrives(wait, stop);
    auto admission = gate().try_admit(wait, stop != nullptr ? FiberStopToken{stop} : FiberStopToken{});
    if (admission) {
      model.was_admitted();
      scheduler().only_matters(0);
    } else {
      model.was_refused(admission.rejection());
      scheduler().only_matters(1);
    }
    returned[scheduler().current()].happen();
    return admission;
  }
  void leave(Permit permit) {
    model.leaves();
    permit = Permit{};
    model.left();
    scheduler().only_matters(0);
  }

  /// Arrives and, if admitted, leaves again.
  void call(QueueWait wait, FiberStopSource* stop = nullptr) {
    if (auto admission = arrive(wait, stop)) leave(std::move(admission).permit());
  }
  void resize(Limits to) {
    model.resizes(to);
    gate().resize(to);
    model.resized();
    scheduler().only_matters(0);
  }
  void close() {
    model.closes();
    gate().close();
    model.has_closed();
  }
  void look() {
    model.observes();
    model.must_have_been(gate().state());
    scheduler().only_matters(0);
  }
  void tick() {
    scheduler().step();
    surroundings.now += 1s;
  }

  Model model;
  std::array<FiberStopSource, Model::max_fibers> stops{};
  std::array<Event, Model::max_fibers> returned{};  // by fiber: its arrival is over
  Permit* handed_over = nullptr;
  Event offered{};
  Event begun{};  // the undisturbed beginning is over
};

}  // namespace interleavings

#endif
