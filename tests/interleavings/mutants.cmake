# Seeded faults. Each is an exact replacement in a copy of one header, compiled into the same executable; a
# mutant passes its test when a broken promise is found. A text that no longer occurs exactly once ends the
# configuration, so that no mutant lives on as a copy of the healthy code.
#
# A scheduler that runs one fiber at a time is sequentially consistent: a wrong memory order cannot be seen
# here. ThreadSanitizer runs over the stress tests for those.

# Writes a copy of a header, in which `new` stands for `old`, into a directory.
function(db_bulkhead_changed_header directory header old new)
  file(READ ${PROJECT_SOURCE_DIR}/include/db_bulkhead/${header} text)
  string(FIND "${text}" "${old}" first)
  string(FIND "${text}" "${old}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "A mutant no longer applies: this is not exactly once in ${header}:\n${old}")
  endif()
  string(REPLACE "${old}" "${new}" changed "${text}")
  file(CONFIGURE OUTPUT ${directory}/db_bulkhead/${header} CONTENT "@changed@" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/db_bulkhead/${header})
endfunction()

function(db_bulkhead_mutant name header old new)
  string(MAKE_C_IDENTIFIER "mutant_${name}" target)
  set(directory ${CMAKE_CURRENT_BINARY_DIR}/mutants/${target})
  db_bulkhead_changed_header(${directory} ${header} "${old}" "${new}")
  db_bulkhead_interleavings(${target} ${directory})
  # There are many of them: without what only a debugger needs, and what a mutant leaves unused is no fault.
  target_compile_options(${target} PRIVATE -g0 -Wno-unused -Wno-unused-parameter)
  db_bulkhead_fiber_test("caught: ${name}" ${target} mutant)
endfunction()

# No fault, and must keep every promise: waiters spin from the first, and so briefly that all of it can be
# gone through. In the healthy code only the drawn runs come to spin.
set(directory ${CMAKE_CURRENT_BINARY_DIR}/mutants/spinning)
db_bulkhead_changed_header(${directory} admission.hpp "pace_.is_fast() && " "")
db_bulkhead_changed_header(${directory} detail/waiter.hpp
  "yields = 16;
  static constexpr int pauses = 64;"
  "yields = 1;
  static constexpr int pauses = 1;")
db_bulkhead_interleavings(spinning_interleavings ${directory})
target_compile_options(spinning_interleavings PRIVATE -g0)
db_bulkhead_fiber_test("every one of the small settings keeps every promise when waiters spin"
  spinning_interleavings all)

db_bulkhead_mutant("a grant that comes with the time-out is lost" admission.hpp
  "      if (auto const settled = waiter.parker.outcome(); detail::is_settled(settled)) return settled;
      waker = dismiss(waiter, why);"
  "      if (auto const settled = waiter.parker.outcome(); detail::is_settled(settled)) return why;
      waker = dismiss(waiter, why);")

db_bulkhead_mutant("who gives up does not look again under the lock" admission.hpp
  "      if (auto const settled = waiter.parker.outcome(); detail::is_settled(settled)) return settled;
      waker = dismiss(waiter, why);"
  "      waker = dismiss(waiter, why);")

db_bulkhead_mutant("a permit that was moved from goes back too" permit.hpp
  "gate_{std::exchange(other.gate_, nullptr)}"
  "gate_{other.gate_}")

db_bulkhead_mutant("a permit that is assigned over is lost" permit.hpp
  "    std::swap(gate_, taken.gate_);"
  "    gate_ = std::exchange(taken.gate_, nullptr);")

db_bulkhead_mutant("a permit goes back twice" admission.hpp
  "      if (counts_.replace(word, word.with_one_finished())) return;
    }
    release_to_first();"
  "      if (counts_.replace(word, word.with_one_finished().with_one_finished())) return;
    }
    release_to_first();")

db_bulkhead_mutant("a newcomer takes a permit before those who wait" detail/admission_word.hpp
  "return (bits_ & (waiters | closed)) == 0 && free_permits() > 0;"
  "return (bits_ & closed) == 0 && free_permits() > 0;")

db_bulkhead_mutant("a release does not look for waiters" admission.hpp
  "    while (!word.has_waiters()) {
      if (counts_.replace"
  "    for (;;) {
      if (counts_.replace")

# [row-17] of tests/faults.md
db_bulkhead_mutant("who lines up does not look again under the lock" admission.hpp
  "      if (word.admits_at_once()) {
        if (counts_.replace(word, word.with_one_running())) return Arrival::running;
      } else if (word.is_full()) {"
  "      if (word.is_full()) {")

db_bulkhead_mutant("who gives up keeps the place" admission.hpp
  "    counts_.update([this](Word word) { return word.with_one_place_freed(!queue_.empty()); });
    return waiter.parker.settle(why);"
  "    return waiter.parker.settle(why);")

db_bulkhead_mutant("the last one to give up leaves the mark that somebody waits" admission.hpp
  "    counts_.update([this](Word word) { return word.with_one_place_freed(!queue_.empty()); });
    return waiter.parker.settle(why);"
  "    counts_.update([](Word word) { return word.with_one_place_freed(true); });
    return waiter.parker.settle(why);")

db_bulkhead_mutant("the mark that somebody waits goes with the first of several" detail/admission_word.hpp
  "    return AdmissionWord{((bits_ + place) & ~waiters) | (more_wait ? waiters : 0)};"
  "    return AdmissionWord{(bits_ + place) & ~waiters};")

db_bulkhead_mutant("the last to come is the first to be served" detail/wait_queue.hpp
  "  Waiter* first() const noexcept { return first_; }"
  "  Waiter* first() const noexcept { return last_; }")

db_bulkhead_mutant("a shrink hands permits on over the limit" admission.hpp
  "while (!word.has_waiters() || !word.within_limit()) {"
  "while (!word.has_waiters()) {")

db_bulkhead_mutant("a grown limit wakes nobody" admission.hpp
  "while (!queue_.empty() && counts_.load().free_permits() > 0) {"
  "while (false) {")

db_bulkhead_mutant("a grown limit wakes one only" admission.hpp
  "while (!queue_.empty() && counts_.load().free_permits() > 0) {"
  "if (!queue_.empty() && counts_.load().free_permits() > 0) {")

db_bulkhead_mutant("closing forgets those who wait" admission.hpp
  "    while (!queue_.empty()) dismiss(*queue_.first(), Outcome::closed).wake();"
  "")

db_bulkhead_mutant("a closed gate admits" detail/admission_word.hpp
  "return (bits_ & (waiters | closed)) == 0 && free_permits() > 0;"
  "return (bits_ & waiters) == 0 && free_permits() > 0;")

db_bulkhead_mutant("a stop does not reach who waits" admission.hpp
  "if (stop.stop_possible()) registration.emplace(stop, on_stop);"
  "")

db_bulkhead_mutant("a stop settles the wait and wakes nobody" admission.hpp
  "    waker.wake();
    return why;"
  "    return why;")

db_bulkhead_mutant("a granted waiter is not woken" admission.hpp
  "    }
    waker.wake();
  }"
  "    }
  }")

db_bulkhead_mutant("the limits change without their version" detail/admission_counts.hpp
  "    version_.store(version + 1, std::memory_order_relaxed);"
  "")

db_bulkhead_mutant("a state is put together from two moments" detail/admission_counts.hpp
  "version % 2 == 0 && version_.load(std::memory_order_relaxed) == version"
  "version % 2 == 0")

db_bulkhead_mutant("a resize forgets the places" detail/admission_word.hpp
  "(to.total() - from.total()) * place"
  "(to.concurrent - from.concurrent) * place")

db_bulkhead_mutant("a gate that is full lets one more wait" detail/admission_word.hpp
  "return free_places() <= 0;"
  "return free_places() <= -1;")
