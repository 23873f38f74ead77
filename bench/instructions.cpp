// SPDX-License-Identifier: MIT
//
// bench_instructions COUNT: so many admissions and releases, and nothing else, to be
// counted by instructions.sh.
#include <chrono>
#include <cstdlib>
#include <stop_token>

#include "db_bulkhead/admission.hpp"

int main(int argc, char** argv) {
  db_bulkhead::AdmissionGate gate{{8, 64}};
  std::stop_source source;
  std::stop_token const token = source.get_token();
  auto const deadline = db_bulkhead::Deadline::after(std::chrono::hours{1});
  long admitted = 0;
  for (long left = argc > 1 ? std::atol(argv[1]) : 0; left > 0; --left) {
    db_bulkhead::Permit const permit = gate.try_admit(deadline, token).permit();
    asm volatile("" : : : "memory");  // the work; costs no instruction
    ++admitted;
  }
  return admitted < 0;
}
