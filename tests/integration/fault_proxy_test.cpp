// SPDX-License-Identifier: MIT
//
// The network that fails on command, by bare libpq: the tests that rest on it are worth no
// more than its faults are true. That nothing comes is looked at for a moment; a moment
// too short overlooks a fault, and never makes one up.
#include "support/fault_proxy.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "server.hpp"
#include "support/threads.hpp"

using namespace std::chrono_literals;
using db_bulkhead::detail::RawConnection;
using db_bulkhead::detail::RawResult;
using support::FaultProxy;
using support::wait_until;
using Clock = std::chrono::steady_clock;
using Links = FaultProxy::Links;

namespace {

constexpr std::chrono::milliseconds a_moment{25};

/// Whether there is nothing to read, no end either.
bool is_silent(PGconn* raw, std::chrono::milliseconds time = a_moment) {
  pollfd asked{PQsocket(raw), POLLIN, 0};
  return ::poll(&asked, 1, static_cast<int>(time.count())) == 0;
}

/// What the socket ends with, once it does: 0 for an orderly end, or an error.
int end_of(PGconn* raw) {
  for (;;) {
    static_cast<void>(is_silent(raw, 10s));
    char byte = 0;
    ssize_t const count = ::recv(PQsocket(raw), &byte, 1, 0);
    if (count <= 0) return count == 0 ? 0 : errno;
  }
}

/// Has sent its first packet, and waits for the server's.
RawConnection begun(FaultProxy const& proxy) {
  RawConnection raw{PQconnectStart(proxy.dsn().c_str())};
  while (PQconnectPoll(raw.get()) == PGRES_POLLING_WRITING) {
  }
  return raw;
}

// A session of libpq's, through a proxy.
class Client {
 public:
  explicit Client(FaultProxy const& proxy) : raw_{PQconnectdb(proxy.dsn().c_str())} {
    if (PQstatus(raw_.get()) != CONNECTION_OK) throw std::runtime_error{PQerrorMessage(raw_.get())};
    db_bulkhead::detail::silence_notices(raw_.get());
    pid_ = PQbackendPID(raw_.get());
  }

  int pid() const { return pid_; }
  PGconn* raw() const { return raw_.get(); }

  void send(std::string const& sql) { REQUIRE(PQsendQuery(raw_.get(), sql.c_str()) == 1); }

  /// The first value of the next result, what it says where it has no rows, or an empty text for an error.
  std::string answer() {
    std::string text;
    while (RawResult const result{PQgetResult(raw_.get())}) {
      if (PQresultStatus(result.get()) == PGRES_TUPLES_OK) text = PQgetvalue(result.get(), 0, 0);
      if (PQresultStatus(result.get()) == PGRES_COMMAND_OK) text = PQcmdStatus(result.get());
    }
    return text;
  }
  std::string ask(std::string const& sql) {
    send(sql);
    return answer();
  }

  bool hears_nothing(std::chrono::milliseconds time = a_moment) const { return is_silent(raw(), time); }
  int end() const { return end_of(raw()); }

 private:
  RawConnection raw_;
  int pid_ = 0;
};

bool has_session(int pid) {
  return Admin{}
             .exec("SELECT count(*) FROM pg_stat_activity WHERE pid = " + std::to_string(pid))[0][0]
             .as<int>() != 0;
}

// What the kernel says to a connect(), 0 where it succeeds.
int connect_error(std::string const& port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int const socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int const result = ::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address);
  int const error = result == 0 ? 0 : errno;
  ::close(socket);
  return error;
}

auto entries_of(char const* folder) {
  return std::distance(std::filesystem::directory_iterator{folder}, std::filesystem::directory_iterator{});
}

}  // namespace

TEST_CASE("a proxy without a fault changes nothing, and counts") {
  support::Watchdog const watchdog;
  FaultProxy proxy{test_dsn()};
  CHECK(proxy.connections() == 0);
  int pid = 0;
  {
    Client one{proxy}, two{proxy};
    pid = one.pid();
    CHECK(one.ask("SELECT length('" + std::string(3'000'000, 'x') + "')") == "3000000");
    CHECK(two.ask("SELECT repeat('x', 3000000)").size() == 3'000'000);
    int const before = proxy.sent();
    CHECK(one.ask("SELECT 1") == "1");
    CHECK(proxy.sent() == before + 1);
    CHECK(proxy.connections() == 2);
    CHECK(proxy.open() == 2);
  }
  wait_until([&] { return proxy.open() == 0 && !has_session(pid); });
  CHECK(proxy.connections() == 2);
}

TEST_CASE("a proxy passes on what is no session: a cancel request") {
  support::Watchdog const watchdog;
  FaultProxy proxy{test_dsn()};
  Client client{proxy};
  client.send("SELECT pg_sleep(60)");
  auto const cancel = PQgetCancel(client.raw());
  std::array<char, 256> message{};
  // The server takes no notice of one that comes before the query.
  while (client.hears_nothing(1ms))
    CHECK(PQcancel(cancel, message.data(), static_cast<int>(message.size())) == 1);
  PQfreeCancel(cancel);
  CHECK(client.answer().empty());
  CHECK(client.ask("SELECT 42") == "42");
}

TEST_CASE("a proxy goes to a Unix socket where the server has one") {
  support::Watchdog const watchdog;
  std::string folder = (std::filesystem::temp_directory_path() / "fault_proxy_XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder + "/.s.PGSQL.77").copy(address.sun_path, sizeof address.sun_path - 1);
  int const listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(listener, 1) == 0);
  {
    FaultProxy const proxy{"host=" + folder + " port=77 user=me dbname='a \\' b' password=x"};
    RawConnection const raw = begun(proxy);
    int const accepted = ::accept(listener, nullptr, nullptr);
    std::array<char, 512> bytes{};
    auto const count = static_cast<std::size_t>(::recv(accepted, bytes.data(), bytes.size(), 0));
    std::string_view const packet{bytes.data(), count};
    CHECK(packet.find(std::string_view{"user\0me\0", 8}) != std::string_view::npos);
    CHECK(packet.find("a ' b") != std::string_view::npos);
    ::close(accepted);
  }
  ::close(listener);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a proxy says what it cannot make a server of") {
  CHECK_THROWS_AS(FaultProxy{"no_such_key=1"}, std::invalid_argument);
  CHECK_THROWS_AS(FaultProxy{"host=/" + std::string(200, 'x')}, std::invalid_argument);
  CHECK_THROWS_AS(FaultProxy{"host=127.0.0.1,127.0.0.1"}, std::invalid_argument);
}

TEST_CASE("a black hole keeps connections open and lets nothing through until it is healed") {
  support::Watchdog const watchdog;
  FaultProxy proxy{test_dsn()};
  Client client{proxy};
  SECTION("for all connections") {
    proxy.black_hole();
    client.send("SELECT 42");
    CHECK(client.hears_nothing());
    auto const fresh = begun(proxy);
    CHECK(is_silent(fresh.get()));
    wait_until([&] { return proxy.connections() == 2; });
    CHECK(proxy.open() == 2);
    proxy.heal();
    CHECK(client.answer() == "42");
    PostgresPollingStatusType status = PGRES_POLLING_READING;
    while (status == PGRES_POLLING_READING) {
      static_cast<void>(is_silent(fresh.get(), 10s));
      status = PQconnectPoll(fresh.get());
    }
    CHECK(status == PGRES_POLLING_OK);
  }
  SECTION("for those that are present") {
    proxy.black_hole(Links::present);
    client.send("SELECT 42");
    CHECK(Client{proxy}.ask("SELECT 1") == "1");
    CHECK(client.hears_nothing());
    proxy.heal();
    CHECK(client.answer() == "42");
  }
  SECTION("for those that are to come") {
    proxy.black_hole(Links::fresh);
    auto const fresh = begun(proxy);
    CHECK(client.ask("SELECT 42") == "42");
    CHECK(is_silent(fresh.get()));
  }
  SECTION("what was on its way included") {
    proxy.delay(20ms, Links::present);
    int const before = proxy.sent();
    client.send("SELECT 42");
    wait_until([&] { return proxy.sent() > before; });
    proxy.black_hole(Links::present);
    Client busy{proxy};  // so that the proxy has more to do than to wait
    for (auto const end = Clock::now() + 60ms; Clock::now() < end;) REQUIRE(busy.ask("SELECT 1") == "1");
    CHECK(client.hears_nothing());
    CHECK(busy.ask("SELECT query <> 'SELECT 42' FROM pg_stat_activity WHERE pid = " +
                   std::to_string(client.pid())) == "t");
    proxy.heal();
    CHECK(client.answer() == "42");
  }
  SECTION("the end of one side included") {
    proxy.black_hole();
    kill_backend(client.pid());
    CHECK(client.hears_nothing());
    CHECK(proxy.open() == 1);
    proxy.heal();
    CHECK(client.end() == 0);
  }
}

TEST_CASE("a connection that is silent for too long is forgotten for ever, each for itself") {
  support::Watchdog const watchdog;
  FaultProxy proxy{test_dsn()};
  {
    Client silent{proxy}, busy{proxy};
    proxy.drop_silent_after(250ms);
    while (proxy.forgotten() == 0) REQUIRE(busy.ask("SELECT 1") == "1");
    CHECK(busy.ask("SELECT 42") == "42");
    CHECK(proxy.forgotten() == 1);
    proxy.drop_silent_after(0ms);
    proxy.heal();
    silent.send("SELECT 1");
    CHECK(silent.hears_nothing());
    // Neither end hears of the other's.
    kill_backend(silent.pid());
    CHECK(silent.hears_nothing());
    CHECK(proxy.open() == 2);
    CHECK(busy.ask("SELECT 42") == "42");
  }
  wait_until([&] { return proxy.open() == 0; });
  CHECK(proxy.forgotten() == 1);

  int pid = 0;
  {
    Client const left{proxy};
    pid = left.pid();
    proxy.drop_silent_after(20ms, Links::present);
    wait_until([&] { return proxy.forgotten() == 2; });
  }
  wait_until([&] { return proxy.open() == 0; });
  CHECK(has_session(pid));  // the server does not hear that its client has left
}

TEST_CASE("a cut is an orderly end for both sides, whatever was under way") {
  support::Watchdog const watchdog;
  FaultProxy proxy{test_dsn()};
  Client idle{proxy}, working{proxy};
  proxy.black_hole(Links::present);
  working.send("SELECT 1");  // stays unread
  proxy.cut();
  CHECK(proxy.open() == 0);
  CHECK(idle.end() == 0);
  CHECK(working.end() == 0);
  wait_until([&] { return !has_session(idle.pid()) && !has_session(working.pid()); });
  CHECK(Client{proxy}.ask("SELECT 42") == "42");
}

TEST_CASE("who has connected is present, though nothing has come of it yet") {
  support::Watchdog const watchdog;
  FaultProxy proxy{test_dsn()};
  for (int i = 1; i <= 50; ++i) {
    RawConnection const raw = begun(proxy);
    proxy.cut();
    CHECK(proxy.connections() == i);
    CHECK(end_of(raw.get()) == 0);
  }
}

TEST_CASE("a reset is one, for those that are present") {
  support::Watchdog const watchdog;
  FaultProxy proxy{test_dsn()};
  Client const client{proxy};
  proxy.reset();
  CHECK(proxy.open() == 0);
  CHECK(client.end() == ECONNRESET);
  wait_until([&] { return !has_session(client.pid()); });
  CHECK(Client{proxy}.ask("SELECT 42") == "42");
}

TEST_CASE("new connections are refused, those that are there go on, until the port is open again") {
  support::Watchdog const watchdog;
  FaultProxy proxy{test_dsn()};
  Client client{proxy};
  for (int i = 0; i < 3; ++i) {
    proxy.refuse();
    CHECK(connect_error(proxy.port()) == ECONNREFUSED);
    CHECK(client.ask("SELECT 42") == "42");
    proxy.accept_again();
    proxy.accept_again();
    CHECK(Client{proxy}.ask("SELECT 42") == "42");
  }
  CHECK(proxy.connections() == 4);
}

TEST_CASE("a delay is met in each direction, and by each piece") {
  support::Watchdog const watchdog;
  FaultProxy proxy{test_dsn()};
  Client slow{proxy};
  proxy.delay(20ms, Links::present);
  Client quick{proxy};
  auto const start = Clock::now();
  slow.send("SELECT 42");
  CHECK(quick.ask("SELECT 1") == "1");
  CHECK(slow.answer() == "42");
  CHECK(Clock::now() - start >= 40ms);
  CHECK(slow.ask("SELECT repeat('x', 3000000)").size() == 3'000'000);
  proxy.delay(0ms);
  CHECK(slow.ask("SELECT 42") == "42");
}

TEST_CASE("the replies to a query with a token are held back, and it has been carried out") {
  support::Watchdog const watchdog;
  TestTable table{"i int"};
  FaultProxy proxy{test_dsn()};
  Client client{proxy}, other{proxy};
  SECTION("until it is healed") {
    proxy.hold_replies_after("COMMIT");
    CHECK(client.ask("BEGIN") == "BEGIN");
    CHECK(client.ask("INSERT INTO " + table.name() + " VALUES (1)") == "INSERT 0 1");
    client.send("COMMIT");
    proxy.wait_until_seen();
    wait_until([&] { return table.count() == 1; });
    CHECK(client.hears_nothing());
    CHECK(other.ask("SELECT 42") == "42");
    proxy.heal();
    CHECK(client.answer() == "COMMIT");
    CHECK(client.ask("COMMIT") == "COMMIT");
  }
  SECTION("though it comes in many pieces, with the token at the end") {
    proxy.hold_replies_after("the token");
    client.send("SELECT length('" + std::string(2'000'000, 'x') + "') /* the token */");
    other.send("SELECT 1 /* the token */");
    proxy.wait_until_seen(2);
    CHECK(client.hears_nothing());
    CHECK(other.hears_nothing());
    proxy.heal();
    CHECK(client.answer() == "2000000");
    CHECK(other.answer() == "1");
  }
  SECTION("and those to the extended protocol are not") {
    proxy.hold_replies_after("token");
    REQUIRE(PQsendQueryParams(client.raw(), "SELECT 42 /* token */", 0, nullptr, nullptr, nullptr, nullptr,
                              0) == 1);
    CHECK(client.answer() == "42");
  }
  SECTION("on no connection but those it is for, and no longer than it is asked for") {
    proxy.hold_replies_after("token", Links::fresh);
    CHECK(client.ask("SELECT 1 /* token */") == "1");
    {
      Client fresh{proxy};
      fresh.send("SELECT 1 /* token */");
      proxy.wait_until_seen();
      CHECK(fresh.hears_nothing());
      proxy.hold_replies_after("");
      CHECK(Client{proxy}.ask("SELECT 1 /* token */") == "1");
      CHECK(fresh.hears_nothing());
    }
    wait_until([&] { return proxy.open() == 2; });  // whoever waits for a reply may still leave
  }
}

TEST_CASE("a connection is cut before the message that holds a token, and the server never sees that") {
  support::Watchdog const watchdog;
  TestTable table{"i int"};
  FaultProxy proxy{test_dsn()};
  Client client{proxy};
  proxy.cut_before("COMMIT");
  SECTION("a simple query") {
    CHECK(client.ask("BEGIN") == "BEGIN");
    CHECK(client.ask("INSERT INTO " + table.name() + " VALUES (1)") == "INSERT 0 1");
    client.send("COMMIT");
    proxy.wait_until_seen();
    CHECK(proxy.open() == 0);
    CHECK(client.end() == 0);
  }
  SECTION("one of the extended protocol") {
    REQUIRE(PQsendQueryParams(client.raw(), "COMMIT", 0, nullptr, nullptr, nullptr, nullptr, 0) == 1);
    CHECK(client.end() == 0);
  }
  wait_until([&] { return !has_session(client.pid()); });
  CHECK(table.count() == 0);
  proxy.heal();
  CHECK(Client{proxy}.ask("COMMIT") == "COMMIT");
}

TEST_CASE("a server that refuses is an end to who comes through the proxy") {
  support::Watchdog const watchdog;
  FaultProxy closed{test_dsn()};
  closed.refuse();
  FaultProxy proxy{closed.dsn()};
  CHECK_THROWS_AS(Client{proxy}, std::runtime_error);
  closed.accept_again();
  CHECK(Client{proxy}.ask("SELECT 42") == "42");
}

TEST_CASE("a proxy leaves no thread, no descriptor and no session behind, whatever its connections are in") {
  support::Watchdog const watchdog;
  auto const threads = entries_of("/proc/self/task"), descriptors = entries_of("/proc/self/fd");
  std::vector<int> pids;
  {
    FaultProxy proxy{test_dsn()};
    Client idle{proxy}, held{proxy};
    for (Client const* client : {&idle, &held}) pids.push_back(client->pid());
    proxy.hold_replies_after("SELECT");
    held.send("SELECT 1");
    proxy.wait_until_seen();
    proxy.drop_silent_after(1ms, Links::present);
    wait_until([&] { return proxy.forgotten() == 2; });
    { FaultProxy const never_used{test_dsn()}; }
    proxy.drop_silent_after(0ms);
    Client fresh{proxy};
    pids.push_back(fresh.pid());
    proxy.black_hole();
    fresh.send("SELECT 1");
    proxy.refuse();
  }
  CHECK(entries_of("/proc/self/task") == threads);
  CHECK(entries_of("/proc/self/fd") == descriptors);
  for (int const pid : pids) wait_until([&] { return !has_session(pid); });
}
