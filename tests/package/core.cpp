// SPDX-License-Identifier: MIT
//
// A user of the core alone: one permit, taken and given back.
#include <chrono>

#include "db_bulkhead/admission.hpp"

int main() {
  db_bulkhead::AdmissionGate gate{{.concurrent = 1}};
  {
    auto const first = gate.try_admit(std::chrono::nanoseconds{0});
    auto const second = gate.try_admit(std::chrono::nanoseconds{0});
    if (!first || second || second.rejection() != db_bulkhead::Rejection::full) return 1;
  }
  return gate.available() == 1 ? 0 : 1;
}
