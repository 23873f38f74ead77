// SPDX-License-Identifier: MIT
//
// Gates on every parker there is, and what all of them must be in the end.
#ifndef DB_BULKHEAD_TESTS_GATES_HPP
#define DB_BULKHEAD_TESTS_GATES_HPP

#include <chrono>
#include <cstddef>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "db_bulkhead/admission.hpp"
#include "support/threads.hpp"

namespace support {

using db_bulkhead::BasicAdmission;
using db_bulkhead::BasicAdmissionGate;
using db_bulkhead::BasicPermit;
using db_bulkhead::QueueWait;
using db_bulkhead::Rejection;

/// The platform of every machine, and the one of machines without futexes.
using NativePlatform = db_bulkhead::detail::StdPlatform;
using PortablePlatform = db_bulkhead::detail::BasicStdPlatform<db_bulkhead::detail::CondvarParker>;

constexpr QueueWait no_wait{};
constexpr QueueWait endless{std::chrono::nanoseconds::max()};

/// The reason of a refusal; nothing for an admission.
template <class Admission>
std::optional<Rejection> reason(Admission const& admission) {
  return admission ? std::nullopt : std::optional{admission.rejection()};
}

/// Takes a permit that must be free.
template <class Platform>
BasicPermit<Platform> take(BasicAdmissionGate<Platform>& gate) {
  return gate.try_admit(no_wait).permit();
}

/// Whether nobody is in, and B + Q fresh calls are admitted and the next is turned away.
template <class Platform>
bool is_whole(BasicAdmissionGate<Platform>& gate) {
  auto const limits = gate.limits();
  if (gate.state() != db_bulkhead::GateState{0, 0, limits, false}) return false;
  std::vector<BasicPermit<Platform>> permits;
  for (std::size_t i = 0; i < limits.concurrent; ++i) permits.push_back(take(gate));
  std::vector<std::jthread> waiters;
  for (std::size_t i = 0; i < limits.extra_slots; ++i)
    waiters.emplace_back([&gate] { gate.try_admit(endless).permit(); });
  wait_until_waiting(gate, limits.extra_slots);
  bool const refused = reason(gate.try_admit(endless)) == Rejection::full;
  permits.clear();
  waiters.clear();
  return refused && gate.available() == limits.concurrent && gate.available_slots() == limits.total();
}

}  // namespace support

#endif
