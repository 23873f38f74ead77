// SPDX-License-Identifier: MIT
//
// A network that fails on command: a TCP proxy in front of the test server, in this
// process, with one thread. Its faults are the ones that a server cannot show: bytes that
// vanish or come late, connections that end in the middle of something.
//
// - Every command is carried out by the proxy's thread before the call returns: what comes
//   later meets the fault, what came before does not. A connection whose connect() has
//   returned counts as present.
// - A fault is set for `Links::present` (those there are), for `Links::fresh` (those to
//   come), or for both.
// - Bytes are forwarded in their order, message by message where the client is the sender.
//   Tokens are looked for in those messages, to the letter; in sessions that are encrypted
//   there is nothing to find, so dsn() makes none.
// - All members may be called from any thread; nothing here limits a wait but the caller's
//   watchdog.
#ifndef DB_BULKHEAD_TESTS_FAULT_PROXY_HPP
#define DB_BULKHEAD_TESTS_FAULT_PROXY_HPP

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "db_bulkhead/pqxx/libpq.hpp"

namespace support {

class FaultProxy {
 public:
  /// The connections that a fault is for.
  enum class Links { all, present, fresh };

  /// In front of the server of a connection string: one Unix socket's directory, address or name as `host` or
  /// `hostaddr` (127.0.0.1 if there is none) and `port` (5432). std::invalid_argument where it is no such
  /// string.
  explicit FaultProxy(std::string const& server_dsn) : server_{addresses_of(server_dsn)} {
    std::array<int, 2> ends{};
    check(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), "pipe2");
    woken_ = Socket{ends[0]};
    waker_ = Socket{ends[1]};
    reserved_ = bound_to(0);
    sockaddr_in address{};
    socklen_t size = sizeof address;
    check(::getsockname(reserved_.get(), reinterpret_cast<sockaddr*>(&address), &size), "getsockname");
    port_ = ntohs(address.sin_port);
    listen();
    dsn_ = "hostaddr=127.0.0.1 port=" + port() + " sslmode=disable gssencmode=disable";
    for (char const* const key : {"user", "dbname", "password"}) {
      if (auto const value = parameter(server_dsn, key))
        dsn_ += std::string{" "} + key + "=" + quoted(*value);
    }
    thread_ = std::jthread{[this](std::stop_token const& stop) { serve(stop); }};
  }
  FaultProxy(FaultProxy const&) = delete;
  FaultProxy& operator=(FaultProxy const&) = delete;
  /// Ends all connections.
  ~FaultProxy() = default;

  /// The connection string that goes through here: the server's user, dbname and password, without
  /// encryption.
  std::string const& dsn() const noexcept { return dsn_; }
  std::string port() const { return std::to_string(port_); }

  // ---- faults that last until they are ended ----

  /// A firewall that drops silently: connections are taken and stay open, nothing is read from either end and
  /// nothing reaches the other. Ended by heal().
  void black_hole(Links which = Links::all) {
    set(which, [](Faults& faults) { faults.is_black = true; });
  }

  /// Ends black_hole(), hold_replies_after() and cut_before(), for all: what was held back is forwarded.
  void heal() {
    command([this] {
      change(Links::all, [](Faults& faults) {
        faults.is_black = false;
        faults.hold_after.clear();
        faults.cut_before.clear();
      });
      for (Link& link : links_) link.is_held = false;
    });
  }

  /// A NAT that forgets: a connection on which no byte has passed for so long is forgotten for ever. What
  /// either end sends on it is acknowledged and lost, its end included. Zero: never, for those not yet
  /// forgotten.
  void drop_silent_after(std::chrono::nanoseconds silence, Links which = Links::all) {
    set(which, [silence](Faults& faults) { faults.silence = silence; });
  }

  /// What arrives from now on is forwarded so much later, in each direction. Zero: at once.
  void delay(std::chrono::nanoseconds delay, Links which = Links::all) {
    set(which, [delay](Faults& faults) { faults.delay = delay; });
  }

  /// Once a simple query that holds the token has reached the server, on each connection that sends one, the
  /// client hears nothing more. Ended by heal(), and for later queries by an empty token.
  void hold_replies_after(std::string const& token, Links which = Links::all) {
    set_token(which, [token](Faults& faults) { faults.hold_after = token; });
  }

  /// A message of a client's that holds the token, of whatever kind, does not reach the server: both ends of
  /// its connection are closed instead. Ended by heal() or an empty token.
  void cut_before(std::string const& token, Links which = Links::all) {
    set_token(which, [token](Faults& faults) { faults.cut_before = token; });
  }

  /// Returns once so many messages with a token were forwarded, or cut off, since the last call of
  /// hold_replies_after() or cut_before().
  void wait_until_seen(int times = 1) const {
    for (int seen = seen_; seen < times; seen = seen_) seen_.wait(seen);
  }

  // ---- what happens at once ----

  /// Closes both ends of the present connections: they read an orderly end (FIN).
  void cut() {
    command([this] {
      for (Link& link : links_) link.is_over = true;
    });
  }

  /// Resets both ends of the present connections (RST; a Unix socket knows only an end).
  void reset() {
    command([this] {
      for (Link& link : links_) {
        abort(link.client);
        abort(link.server);
        link.is_over = true;
      }
    });
  }

  /// New connections are refused (ECONNREFUSED); those present go on.
  void refuse() {
    command([this] { listener_ = {}; });
  }

  /// Ends refuse(), on the same port.
  void accept_again() {
    command([this] {
      if (listener_.get() < 0) listen();
    });
  }

  // ---- observers ----

  /// Connections accepted so far.
  int connections() const noexcept { return connections_; }

  /// Connections whose end has not yet been seen here, nor made here.
  int open() const noexcept { return open_; }

  /// Connections that were forgotten so far.
  int forgotten() const noexcept { return forgotten_; }

  /// How often a client has sent something: each time it waits for an answer, that is a round trip.
  int sent() const noexcept { return sent_; }

 private:
  using Clock = std::chrono::steady_clock;

  class Socket {
   public:
    Socket() = default;
    explicit Socket(int fd) noexcept : fd_{fd} {}
    Socket(Socket&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
    Socket& operator=(Socket&& other) noexcept {
      Socket old{std::exchange(fd_, std::exchange(other.fd_, -1))};
      return *this;
    }
    ~Socket() {
      if (fd_ >= 0) ::close(fd_);
    }
    int get() const noexcept { return fd_; }

   private:
    int fd_ = -1;
  };

  struct Address {
    sockaddr_storage storage{};
    socklen_t size = 0;
  };

  struct Faults {
    bool is_black = false;
    Clock::duration delay{0};
    Clock::duration silence{0};  // 0: never forgotten
    std::string hold_after, cut_before;
  };

  // A message of a client's, or whatever was read at once; an end has no bytes.
  struct Chunk {
    Clock::time_point due;
    std::string bytes;
    bool is_end = false;
  };

  // One direction of a connection.
  struct Flow {
    std::deque<Chunk> chunks;
    std::size_t size = 0;  // of all chunks
    std::size_t sent = 0;  // of the first one
    bool is_ended = false;
  };

  // What the next bytes from a client are: its first packet, messages that begin with their type, or
  // anything.
  enum class Framing { first, typed, none };

  struct Link {
    Socket client, server;  // the server is connected to when there is something for it
    Faults faults;
    Clock::time_point last;  // when a byte passed
    Flow to_server{}, to_client{};
    std::string partial{};  // a message from the client whose end has not arrived
    Framing framing = Framing::first;
    bool is_forgotten = false;
    bool is_held = false;
    bool is_over = false;
  };

  // More than this is left to the kernel's buffers, and so to the sender.
  static constexpr std::size_t most_queued = 1 << 20;

  // ---- the server and the port ----

  static void check(int result, char const* what) {
    if (result < 0) throw std::system_error{errno, std::generic_category(), what};
  }

  /// Nothing where the string does not say, or says that it is empty.
  static std::optional<std::string> parameter(std::string const& dsn, std::string_view keyword) {
    db_bulkhead::detail::RawConninfo const options{PQconninfoParse(dsn.c_str(), nullptr)};
    if (options == nullptr) throw std::invalid_argument{"FaultProxy: not a connection string"};
    for (auto option = options.get(); option->keyword != nullptr; ++option) {
      if (keyword == option->keyword && option->val != nullptr && *option->val != '\0') return option->val;
    }
    return std::nullopt;
  }

  static std::string quoted(std::string const& text) {
    std::string result = "'";
    for (char c : text) {
      if (c == '\'' || c == '\\') result += '\\';
      result += c;
    }
    return result + "'";
  }

  static std::vector<Address> addresses_of(std::string const& dsn) {
    std::string const host =
        parameter(dsn, "hostaddr").value_or(parameter(dsn, "host").value_or("127.0.0.1"));
    std::string const port = parameter(dsn, "port").value_or("5432");
    std::vector<Address> result;
    if (host[0] == '/') {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::string const path = host + "/.s.PGSQL." + port;
      if (path.size() >= sizeof address.sun_path)
        throw std::invalid_argument{"FaultProxy: the socket's path is too long"};
      path.copy(address.sun_path, path.size());
      std::memcpy(&result.emplace_back().storage, &address, sizeof address);
      result.back().size = sizeof address;
      return result;
    }
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0)
      throw std::invalid_argument{"FaultProxy: the server's host or port is not known"};
    std::unique_ptr<addrinfo, void (*)(addrinfo*)> const owned{found, &::freeaddrinfo};
    for (; found != nullptr; found = found->ai_next) {
      std::memcpy(&result.emplace_back().storage, found->ai_addr, found->ai_addrlen);
      result.back().size = found->ai_addrlen;
    }
    return result;
  }

  static Socket bound_to(std::uint16_t port) {
    Socket socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    check(socket.get(), "socket");
    int const on = 1;
    check(::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "SO_REUSEADDR");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), "bind");
    return socket;
  }

  void listen() {
    Socket socket = bound_to(port_);
    check(::listen(socket.get(), 128), "listen");
    listener_ = std::move(socket);
  }

  static void send_small_pieces_at_once(Socket const& socket) {
    int const on = 1;  // fails on a Unix socket, which does so anyway
    static_cast<void>(::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
  }

  Socket connect_to_server() const {
    for (Address const& address : server_) {
      Socket socket{::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
      if (::connect(socket.get(), reinterpret_cast<sockaddr const*>(&address.storage), address.size) != 0)
        continue;
      ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
      send_small_pieces_at_once(socket);
      return socket;
    }
    return {};
  }

  // ---- commands ----

  // On the stack of whoever gives it; guarded by mutex_ but for the work.
  struct Command {
    std::function<void()> work;
    bool is_done = false;
    std::exception_ptr failure{};
  };

  template <class Work>
  void command(Work work) {
    Command given{work};
    std::unique_lock lock{mutex_};
    commands_.push_back(&given);
    wake();
    obeyed_.wait(lock, [&] { return given.is_done; });
    if (given.failure) std::rethrow_exception(given.failure);
  }

  template <class Change>
  void set(Links which, Change const& to) {
    command([this, which, to] { change(which, to); });
  }

  template <class Change>
  void set_token(Links which, Change const& to) {
    command([this, which, to] {
      seen_ = 0;
      change(which, to);
    });
  }

  template <class Change>
  void change(Links which, Change const& to) {
    if (which != Links::present) to(fresh_);
    if (which == Links::fresh) return;
    for (Link& link : links_) to(link.faults);
  }

  void wake() const noexcept {
    // A full pipe wakes as well.
    static_cast<void>(::write(waker_.get(), "", 1) == 1);
  }

  void obey() {
    std::array<char, 64> bytes;
    while (::read(woken_.get(), bytes.data(), bytes.size()) > 0) {
    }
    accept_waiting();  // they were there before the command was given
    std::vector<Command*> commands;
    {
      std::lock_guard const lock{mutex_};
      commands.swap(commands_);
    }
    for (Command* command : commands) obey(*command);
  }

  void obey(Command& command) {
    std::exception_ptr failure;
    try {
      command.work();
      settle();  // whoever gave the command may ask at once what is open
    } catch (...) {
      failure = std::current_exception();
    }
    std::lock_guard const lock{mutex_};
    command.failure = failure;
    command.is_done = true;
    obeyed_.notify_all();
  }

  // ---- the thread ----

  void serve(std::stop_token const& stop) {
    std::stop_callback const ends_the_wait{stop, [this] { wake(); }};
    while (!stop.stop_requested()) {
      auto const now = Clock::now();  // one for all: what is due is either asked to be written or waited for
      std::vector<pollfd> fds{{woken_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (Link const& link : links_) {
        fds.push_back(asked_of(link, link.client, reads_client(link), writes(link, link.to_client, now)));
        fds.push_back(asked_of(link, link.server, reads_server(link), writes(link, link.to_server, now)));
      }
      ::poll(fds.data(), fds.size(), milliseconds_to_next(now));
      if (fds[0].revents != 0) {
        obey();
        continue;  // the answers are about descriptors that it may have closed
      }
      for (std::size_t i = 0; i < links_.size(); ++i)
        step(links_[i], fds[2 * i + 2].revents != 0, fds[2 * i + 3].revents != 0);
      accept_waiting();
      settle();
    }
  }

  /// A descriptor of which nothing is wanted is left out: poll() would tell its end again and again.
  static pollfd asked_of(Link const& link, Socket const& socket, bool reads, bool writes) {
    bool const wanted = link.is_forgotten || (!link.faults.is_black && (reads || writes));
    int const events = (reads || link.is_forgotten ? POLLIN : 0) | (writes ? POLLOUT : 0);
    return {wanted ? socket.get() : -1, static_cast<short>(events), 0};
  }

  static bool reads_client(Link const& link) {
    return !link.to_server.is_ended && link.to_server.size < most_queued;
  }
  static bool reads_server(Link const& link) {
    return !link.is_held && !link.to_client.is_ended && link.to_client.size < most_queued;
  }
  static bool writes(Link const& link, Flow const& flow, Clock::time_point now) {
    return !link.is_forgotten && !flow.chunks.empty() && flow.chunks.front().due <= now;
  }

  int milliseconds_to_next(Clock::time_point now) const {
    Clock::duration next = std::chrono::hours{1};
    for (Link const& link : links_) {
      if (link.is_forgotten) continue;
      if (link.faults.silence.count() != 0) next = std::min(next, link.faults.silence - (now - link.last));
      if (link.faults.is_black) continue;
      for (Flow const* flow : {&link.to_server, &link.to_client}) {
        if (!flow->chunks.empty() && flow->chunks.front().due > now)
          next = std::min(next, flow->chunks.front().due - now);
      }
    }
    auto const rounded = std::chrono::ceil<std::chrono::milliseconds>(next).count();
    return static_cast<int>(std::max(rounded, decltype(rounded){0}));
  }

  void accept_waiting() {
    if (listener_.get() < 0) return;
    for (;;) {
      Socket client{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
      if (client.get() < 0) return;
      send_small_pieces_at_once(client);
      links_.push_back({.client = std::move(client), .server = {}, .faults = fresh_, .last = Clock::now()});
      ++connections_;
    }
  }

  void step(Link& link, bool client_is_ready, bool server_is_ready) {
    auto const now = Clock::now();
    if (!link.is_forgotten && link.faults.silence.count() != 0 && now - link.last >= link.faults.silence) {
      link.is_forgotten = true;
      link.to_server = link.to_client = {};
      ++forgotten_;
    }
    if (link.is_forgotten) {
      if (client_is_ready) swallow(link.client);
      if (server_is_ready) swallow(link.server);
      link.is_over = link.client.get() < 0 && link.server.get() < 0;
      return;
    }
    if (link.faults.is_black) return;
    if (client_is_ready && reads_client(link)) receive(link, link.client, link.to_server, now);
    if (server_is_ready && reads_server(link)) receive(link, link.server, link.to_client, now);
    forward(link, link.to_server, now);
    if (!link.is_over) forward(link, link.to_client, now);
  }

  /// The bytes that were read into `buffer`: 0 at an end of whatever kind, nothing if there are none now.
  template <std::size_t Size>
  static std::optional<std::size_t> read_into(std::array<char, Size>& buffer, Socket const& from) {
    ssize_t const count = ::recv(from.get(), buffer.data(), buffer.size(), 0);
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno == EAGAIN || errno == EINTR) return std::nullopt;
    return 0;
  }

  static void swallow(Socket& from) {
    std::array<char, 65536> buffer;
    if (read_into(buffer, from) == std::size_t{0}) from = {};
  }

  void receive(Link& link, Socket const& from, Flow& flow, Clock::time_point now) {
    std::array<char, 65536> buffer;
    auto const count = read_into(buffer, from);
    if (!count) return;
    link.last = now;
    auto const due = now + link.faults.delay;
    auto const add = [&](std::string bytes) {
      flow.size += bytes.size();
      flow.chunks.push_back({due, std::move(bytes)});
    };
    if (*count == 0) {
      flow.is_ended = true;
      if (&flow == &link.to_server && !link.partial.empty()) add(std::exchange(link.partial, {}));
      flow.chunks.push_back({due, {}, true});
      return;
    }
    if (&flow == &link.to_client) return add({buffer.data(), *count});
    ++sent_;
    link.partial.append(buffer.data(), *count);
    std::size_t begin = 0;
    while (std::size_t const size =
               next_message(link.framing, std::string_view{link.partial}.substr(begin))) {
      add(link.partial.substr(begin, size));
      begin += size;
    }
    link.partial.erase(0, begin);
  }

  static std::uint32_t number_at(std::string_view bytes, std::size_t at) {
    std::uint32_t number = 0;
    bytes.copy(reinterpret_cast<char*>(&number), sizeof number, at);
    return ntohl(number);
  }

  /// The size of the first message; 0 if it is not whole.
  static std::size_t next_message(Framing& framing, std::string_view bytes) {
    if (framing == Framing::first) {
      if (bytes.size() < 8) return 0;
      // Other than a start-up packet of protocol 3, it is a cancel request or a wish for encryption.
      if (number_at(bytes, 4) >> 16 != 3) {
        framing = Framing::none;
      } else {
        std::size_t const size = number_at(bytes, 0);
        if (bytes.size() < size) return 0;
        framing = Framing::typed;
        return std::max(size, std::size_t{8});
      }
    }
    if (framing == Framing::none) return bytes.size();
    if (bytes.size() < 5) return 0;
    std::size_t const size = std::size_t{1} + std::max(number_at(bytes, 1), std::uint32_t{4});
    return bytes.size() < size ? 0 : size;
  }

  static bool holds(Chunk const& chunk, std::string const& token) {
    return !token.empty() && chunk.bytes.find(token) != std::string::npos;
  }

  void forward(Link& link, Flow& flow, Clock::time_point now) {
    bool const is_to_server = &flow == &link.to_server;
    while (!flow.chunks.empty() && flow.chunks.front().due <= now) {
      Chunk const& chunk = flow.chunks.front();
      if (chunk.is_end) {
        link.is_over = true;
        return;
      }
      if (is_to_server && flow.sent == 0 && holds(chunk, link.faults.cut_before)) {
        link.is_over = true;
        ++newly_seen_;
        return;
      }
      if (link.server.get() < 0) link.server = connect_to_server();
      ssize_t const count =
          ::send((is_to_server ? link.server : link.client).get(), chunk.bytes.data() + flow.sent,
                 chunk.bytes.size() - flow.sent, MSG_NOSIGNAL);
      if (count < 0) {
        link.is_over = errno != EAGAIN && errno != EINTR;
        return;
      }
      link.last = now;
      flow.sent += static_cast<std::size_t>(count);
      if (flow.sent < chunk.bytes.size()) continue;
      if (is_to_server && chunk.bytes[0] == 'Q' && holds(chunk, link.faults.hold_after)) {
        link.is_held = true;
        ++newly_seen_;
      }
      flow.size -= chunk.bytes.size();
      flow.sent = 0;
      flow.chunks.pop_front();
    }
  }

  /// Ends what is over, and then lets it be known.
  void settle() {
    std::erase_if(links_, [](Link& link) {
      if (link.is_over) {
        end(link.client);
        end(link.server);
      }
      return link.is_over;
    });
    open_ = static_cast<int>(
        std::count_if(links_.begin(), links_.end(), [](Link const& link) { return link.client.get() >= 0; }));
    if (newly_seen_ == 0) return;
    seen_ += std::exchange(newly_seen_, 0);
    seen_.notify_all();
  }

  static void end(Socket& socket) {
    // Closed with bytes unread, a socket sends a reset, and drops what is still on its way to the peer.
    ::shutdown(socket.get(), SHUT_WR);
    std::array<char, 65536> buffer;
    while (read_into(buffer, socket).value_or(0) != 0) {
    }
    socket = {};
  }

  static void abort(Socket& socket) {
    linger const at_once{1, 0};
    static_cast<void>(::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
    socket = {};
  }

  std::vector<Address> const server_;
  std::string dsn_;
  std::uint16_t port_ = 0;
  std::atomic<int> connections_{0}, open_{0}, forgotten_{0}, sent_{0}, seen_{0};

  std::mutex mutex_;  // guards commands_; none of them is carried out under it
  std::condition_variable obeyed_;
  std::vector<Command*> commands_;
  Socket woken_, waker_;  // a pipe

  // The thread's own, once it runs.
  Socket reserved_;  // keeps the port while nobody listens: the kernel could give it to somebody else
  Socket listener_;
  Faults fresh_;
  std::vector<Link> links_;
  int newly_seen_ = 0;

  std::jthread thread_;  // last: what it uses exists before it runs
};

}  // namespace support

#endif
