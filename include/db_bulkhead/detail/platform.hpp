// SPDX-License-Identifier: MIT
//
// What the gate needs from the machine: atomics, a lock, a way to sleep, a clock, stop
// tokens and hints to the processor. Gathered in one type, which the gate takes as a
// template parameter, so that tests can put a deterministic scheduler in its place and
// run through all interleavings. `StdPlatform` is what everybody else uses.
#ifndef DB_BULKHEAD_DETAIL_PLATFORM_HPP
#define DB_BULKHEAD_DETAIL_PLATFORM_HPP

#include <atomic>
#include <mutex>
#include <stop_token>
#include <thread>

#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/detail/parker.hpp"

#if defined(__x86_64__) || defined(__i386__) || defined(_M_X64) || defined(_M_IX86)
#include <immintrin.h>
#endif

#if defined(_MSC_VER)
#define DB_BULKHEAD_NOINLINE __declspec(noinline)
#else
#define DB_BULKHEAD_NOINLINE [[gnu::noinline]]
#endif

namespace db_bulkhead::detail {

template <class ParkerType>
struct BasicStdPlatform {
  template <class T>
  using atomic = std::atomic<T>;
  using mutex = std::mutex;
  using parker = ParkerType;
  using stop_token = std::stop_token;
  template <class Callback>
  using stop_callback = std::stop_callback<Callback>;

  static Deadline::clock::time_point now() noexcept { return Deadline::clock::now(); }

  /// Tells the processor that the thread is spinning.
  static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__) || defined(_M_X64) || defined(_M_IX86)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
  }
  static void yield() noexcept {
    std::this_thread::yield();
  }
};

using StdPlatform = BasicStdPlatform<Parker>;

}  // namespace db_bulkhead::detail

#endif
