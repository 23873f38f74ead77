// SPDX-License-Identifier: MIT
//
// Waiting for a socket until a deadline or a stop, and a look at whether the peer is
// still there. Only the waiting costs anything: a `SocketWait` that never has to wait
// reads no clock and opens no descriptor.
#ifndef DB_BULKHEAD_PQXX_SOCKET_HPP
#define DB_BULKHEAD_PQXX_SOCKET_HPP

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <limits>
#include <optional>
#include <stop_token>
#include <system_error>

#include "db_bulkhead/deadline.hpp"
#include "db_bulkhead/pqxx/libpq.hpp"

namespace db_bulkhead::detail {

enum class Waited { ready, timed_out, cancelled };

class SocketWait {
 public:
  explicit SocketWait(Deadline deadline, std::stop_token stop = {}) noexcept
      : deadline_{deadline}, stop_{std::move(stop)} {}
  SocketWait(SocketWait const&) = delete;
  SocketWait& operator=(SocketWait const&) = delete;

  Deadline deadline() const noexcept { return deadline_; }

  /// Until one of `events` (as poll names them) or an error is there. Throws std::system_error.
  Waited until(int socket, short events) { return until(socket, events, deadline_); }

  /// The same, with an earlier end for this wait alone.
  Waited until(int socket, short events, Deadline deadline) {
    if (stop_.stop_possible() && !alarm_) alarm_.emplace(stop_);
    std::array<pollfd, 2> fds{{{socket, events, 0}, {alarm_ ? alarm_->descriptor() : -1, POLLIN, 0}}};
    for (;;) {
      if (stop_.stop_requested()) return Waited::cancelled;
      int const ready = ::poll(fds.data(), fds.size(), milliseconds_to(deadline));
      if (ready < 0 && errno != EINTR) {
        throw std::system_error{errno, std::generic_category(), "db_bulkhead: poll"};
      }
      if (ready > 0 && fds[0].revents != 0) return Waited::ready;
      if (ready <= 0 && deadline.passed()) return Waited::timed_out;
    }
  }

 private:
  // A pipe that a stop makes readable: the way to wake a thread out of poll.
  class Alarm {
   public:
    explicit Alarm(std::stop_token const& stop) : pipe_{}, ring_{stop, Ring{pipe_.ends[1]}} {}
    int descriptor() const noexcept { return pipe_.ends[0]; }

   private:
    struct Pipe {
      Pipe() {
        if (::pipe(ends.data()) != 0) {
          throw std::system_error{errno, std::generic_category(), "db_bulkhead: pipe"};
        }
        for (int end : ends) ::fcntl(end, F_SETFD, FD_CLOEXEC);
      }
      Pipe(Pipe const&) = delete;
      Pipe& operator=(Pipe const&) = delete;
      ~Pipe() {
        for (int end : ends) ::close(end);
      }
      std::array<int, 2> ends{};
    };
    struct Ring {
      int end;
      void operator()() const noexcept {
        char const bell = 0;
        // An empty pipe takes one byte; there is nobody to tell if it does not.
        [[maybe_unused]] auto const written = ::write(end, &bell, 1);
      }
    };

    Pipe pipe_;
    std::stop_callback<Ring> ring_;
  };

  // Rounded up, so that no wait ends early; capped, and then taken up again by the loop.
  static int milliseconds_to(Deadline deadline) noexcept {
    if (deadline.is_never()) return -1;
    auto const left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
    return static_cast<int>(
        std::min<std::chrono::milliseconds::rep>(left.count(), std::numeric_limits<int>::max()));
  }

  Deadline deadline_;
  std::stop_token stop_;
  std::optional<Alarm> alarm_;
};

/// Whether the server can still read what is sent. No round trip: about 0.45 us. What has arrived meanwhile
/// (notices, notifications) is read into libpq's buffer, for behind it the end may show.
inline bool peer_is_there(PGconn* raw) noexcept {
#ifdef POLLRDHUP
  constexpr short hung_up = POLLRDHUP;
#else
  constexpr short hung_up = 0;
#endif
  // More rounds than a burst of notices takes; a peer that fills them all is certainly there.
  for (int round = 0; round < 64; ++round) {
    pollfd fd{PQsocket(raw), static_cast<short>(POLLIN | hung_up), 0};
    if (fd.fd < 0) return false;
    int const ready = ::poll(&fd, 1, 0);
    if (ready == 0) return true;
    if (ready < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    if ((fd.revents & (hung_up | POLLHUP | POLLERR | POLLNVAL)) != 0) return false;
    if (PQconsumeInput(raw) == 0) return false;
  }
  return true;
}

}  // namespace db_bulkhead::detail

#endif
