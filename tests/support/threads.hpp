// SPDX-License-Identifier: MIT
//
// For tests with real threads: nothing here decides an order by sleeping, and nothing
// hangs for ever.
#ifndef DB_BULKHEAD_TESTS_THREADS_HPP
#define DB_BULKHEAD_TESTS_THREADS_HPP

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include "catch.hpp"

namespace support {

/// Ends the program, naming the test, if it is not destroyed in time: a hang becomes a failure.
class Watchdog {
 public:
  explicit Watchdog(std::chrono::seconds limit = std::chrono::seconds{60})
      : test_(Catch::getResultCapture().getCurrentTestName()), thread_{[this, limit] { watch(limit); }} {}
  Watchdog(Watchdog const&) = delete;
  Watchdog& operator=(Watchdog const&) = delete;
  ~Watchdog() {
    {
      std::lock_guard const lock{mutex_};
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  void watch(std::chrono::seconds limit) {
    std::unique_lock lock{mutex_};
    if (changed_.wait_for(lock, limit, [this] { return over_; })) return;
    std::fprintf(stderr, "watchdog: still running: %s\n", test_.c_str());
    std::abort();
  }

  std::string test_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;  // last: what it uses exists before it runs
};

/// Polls until `condition()` holds; to be used under a watchdog.
template <class Condition>
void wait_until(Condition const& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::microseconds{50});
}

/// Polls until exactly `count` callers are in the queue of `gate`.
template <class Gate>
void wait_until_waiting(Gate const& gate, std::size_t count) {
  wait_until([&] { return gate.state().waiting == count; });
}

}  // namespace support

#endif
