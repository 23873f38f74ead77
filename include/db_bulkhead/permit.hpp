// SPDX-License-Identifier: MIT
//
// A permit to run, owned. It holds one of a gate's B permits and one of its B + Q
// slots from admission until it is destroyed (or assigned over), and gives both back
// then, exactly once: the next in line runs. There is no other way to release, so a
// permit can neither be lost nor given back twice.
//
// Lifetime: a permit must not outlive its gate; a gate that is destroyed while
// permits are out ends the program. Thread safety: a permit may be moved to and
// destroyed on another thread; a single object is not for two threads at once.
// Memory: what was done before a permit was given back is visible to whoever runs
// with it next.
#ifndef DB_BULKHEAD_PERMIT_HPP
#define DB_BULKHEAD_PERMIT_HPP

#include <utility>

#include "db_bulkhead/detail/platform.hpp"

namespace db_bulkhead {

template <class Platform>
class BasicAdmissionGate;
template <class Platform>
class BasicAdmission;

template <class Platform>
class BasicPermit {
 public:
  /// An empty permit: holds nothing.
  BasicPermit() noexcept = default;
  BasicPermit(BasicPermit&& other) noexcept : gate_{std::exchange(other.gate_, nullptr)} {}
  BasicPermit& operator=(BasicPermit&& other) noexcept {
    // By way of a temporary, so that what was held is given back and assignment to itself keeps it.
    BasicPermit taken{std::move(other)};
    std::swap(gate_, taken.gate_);
    return *this;
  }
  ~BasicPermit() {
    if (gate_ != nullptr) gate_->release();
  }

  /// Whether a permit is held.
  explicit operator bool() const noexcept { return gate_ != nullptr; }

 private:
  friend class BasicAdmissionGate<Platform>;
  friend class BasicAdmission<Platform>;
  explicit BasicPermit(BasicAdmissionGate<Platform>* gate) noexcept : gate_{gate} {}

  BasicAdmissionGate<Platform>* gate_ = nullptr;
};

using Permit = BasicPermit<detail::StdPlatform>;

}  // namespace db_bulkhead

// A permit is of no use without the gate that it goes back to.
#include "db_bulkhead/admission.hpp"  // IWYU pragma: export

#endif
