// SPDX-License-Identifier: MIT
//
// The threads of a pool: its connectors and its housekeeper. They are the last thing
// that is made, and their end is waited for before anything else goes: a connect or a
// proof that is under way is stopped. What cannot be stopped, and is waited for: a
// provider of connection strings, and the system's resolution of a host's name.
#ifndef DB_BULKHEAD_DETAIL_POOL_THREADS_HPP
#define DB_BULKHEAD_DETAIL_POOL_THREADS_HPP

#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace db_bulkhead::detail {

template <class State>
class PoolThreads {
 public:
  /// Throws std::system_error, with none left running.
  explicit PoolThreads(std::shared_ptr<State> state) : state_{std::move(state)} {
    try {
      threads_.emplace_back([this] { state_->run_housekeeper(); });
      for (std::size_t i = 0; i < state_->connectors(); ++i) {
        threads_.emplace_back([this, i] { state_->run_connector(i); });
      }
    } catch (...) {
      end();
      throw;
    }
  }
  PoolThreads(PoolThreads const&) = delete;
  PoolThreads& operator=(PoolThreads const&) = delete;
  ~PoolThreads() { end(); }

 private:
  void end() noexcept {
    state_->end_threads();
    for (std::thread& thread : threads_) thread.join();
    state_->bury();
  }

  std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace db_bulkhead::detail

#endif
