// SPDX-License-Identifier: MIT
//
// What a server in a black hole looks like to whoever connects to it.
#ifndef DB_BULKHEAD_TESTS_SILENT_SERVER_HPP
#define DB_BULKHEAD_TESTS_SILENT_SERVER_HPP

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

// Takes connections (the kernel does, for it) and never answers.
class SilentServer {
 public:
  SilentServer() : socket_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket_, any, size) != 0 || ::listen(socket_, 16) != 0 ||
        ::getsockname(socket_, any, &size) != 0) {
      throw std::system_error{errno, std::generic_category(), "a silent server"};
    }
    port_ = std::to_string(ntohs(address.sin_port));
  }
  SilentServer(SilentServer const&) = delete;
  SilentServer& operator=(SilentServer const&) = delete;
  ~SilentServer() { ::close(socket_); }

  std::string const& port() const noexcept { return port_; }
  std::string dsn() const { return "hostaddr=127.0.0.1 user=x dbname=x sslmode=disable port=" + port_; }

 private:
  int socket_;
  std::string port_;
};

#endif
