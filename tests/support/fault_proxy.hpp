// SPDX-License-Identifier: MIT
//
// A network that fails on command: a TCP proxy in front of the test server, with one
// thread. Its faults are the ones that a server cannot show: bytes that vanish.
//
// `forget_after` is a firewall or NAT that forgets connections on which nothing has
// passed for so long: what is sent on them later is acknowledged and lost.
#ifndef DB_BULKHEAD_TESTS_FAULT_PROXY_HPP
#define DB_BULKHEAD_TESTS_FAULT_PROXY_HPP

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

class FaultProxy {
 public:
  /// In front of a server at a Unix socket's directory or an IPv4 address.
  FaultProxy(std::string host, std::string port)
      : host_{std::move(host)}, server_port_{std::move(port)}, listener_{AF_INET} {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    check(::bind(listener_.get(), any, size), "bind");
    check(::listen(listener_.get(), 64), "listen");
    check(::getsockname(listener_.get(), any, &size), "getsockname");
    port_ = std::to_string(ntohs(address.sin_port));
    thread_ = std::jthread{[this](std::stop_token const& stop) { run(stop); }};
  }
  FaultProxy(FaultProxy const&) = delete;
  FaultProxy& operator=(FaultProxy const&) = delete;

  std::string const& port() const noexcept { return port_; }

  /// From now on, also for connections that are open.
  void forget_after(std::chrono::milliseconds silence) { forget_after_ = silence.count(); }

  /// How many connections the network has forgotten.
  int forgotten() const noexcept { return forgotten_; }

  /// How often a client has sent something: each time it waits for an answer, that is a round trip.
  int sent() const noexcept { return sent_; }

 private:
  using Clock = std::chrono::steady_clock;

  class Socket {
   public:
    explicit Socket(int family) : Socket{::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), 0} {}
    Socket(int fd, int /*taken over*/) : fd_{fd} { check(fd, "socket"); }
    Socket(Socket&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
    Socket& operator=(Socket&& other) noexcept {
      std::swap(fd_, other.fd_);
      return *this;
    }
    ~Socket() {
      if (fd_ >= 0) ::close(fd_);
    }
    int get() const noexcept { return fd_; }

   private:
    int fd_;
  };

  struct Link {
    Socket client, server;
    Clock::time_point last = Clock::now();
    bool is_forgotten = false;
    bool is_over = false;
  };

  static void check(int result, char const* what) {
    if (result < 0) throw std::system_error{errno, std::generic_category(), what};
  }

  static sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  Socket connect_to_server() const {
    if (host_.empty() || host_[0] != '/') {
      sockaddr_in address = loopback(std::stoi(server_port_));
      if (!host_.empty()) ::inet_pton(AF_INET, host_.c_str(), &address.sin_addr);
      Socket socket{AF_INET};
      check(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), "connect");
      return socket;
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::string const path = host_ + "/.s.PGSQL." + server_port_;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    Socket socket{AF_UNIX};
    check(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), "connect");
    return socket;
  }

  void run(std::stop_token const& stop) {
    std::vector<Link> links;
    while (!stop.stop_requested()) {
      std::vector<pollfd> fds{{listener_.get(), POLLIN, 0}};
      for (Link const& link : links) {
        fds.push_back({link.client.get(), POLLIN, 0});
        fds.push_back({link.server.get(), POLLIN, 0});
      }
      ::poll(fds.data(), fds.size(), 5);
      for (std::size_t i = 0; i < links.size(); ++i) {
        forget(links[i]);
        if (fds[2 * i + 1].revents != 0) {
          ++sent_;
          pass(links[i], links[i].client, links[i].server);
        }
        if (fds[2 * i + 2].revents != 0) pass(links[i], links[i].server, links[i].client);
      }
      std::erase_if(links, [](Link const& link) { return link.is_over; });
      if (fds[0].revents != 0) {
        Socket client{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC), 0};
        links.push_back({std::move(client), connect_to_server()});
      }
    }
  }

  void forget(Link& link) {
    auto const limit = std::chrono::milliseconds{forget_after_};
    if (link.is_forgotten || limit.count() == 0 || Clock::now() - link.last < limit) return;
    link.is_forgotten = true;
    ++forgotten_;
  }

  static void pass(Link& link, Socket const& from, Socket const& to) {
    std::array<char, 16384> bytes;
    ssize_t const count = ::read(from.get(), bytes.data(), bytes.size());
    if (count <= 0) {
      link.is_over = true;
      return;
    }
    if (link.is_forgotten) return;
    link.last = Clock::now();
    for (ssize_t sent = 0; sent < count;) {
      ssize_t const now =
          ::send(to.get(), bytes.data() + sent, static_cast<std::size_t>(count - sent), MSG_NOSIGNAL);
      if (now <= 0) {
        link.is_over = true;
        return;
      }
      sent += now;
    }
  }

  std::string host_, server_port_, port_;
  Socket listener_;
  std::atomic<std::chrono::milliseconds::rep> forget_after_{0};  // 0: never
  std::atomic<int> forgotten_{0};
  std::atomic<int> sent_{0};
  std::jthread thread_;
};

#endif
