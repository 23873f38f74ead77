// SPDX-License-Identifier: MIT
//
// Encryption, on a server of its own whose certificate the test changes. The files are made by the server's
// own process (COPY ... TO PROGRAM), so that they belong to whom it runs as.
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "catch.hpp"
#include "db_bulkhead/pqxx.hpp"
#include "integration/server.hpp"

using namespace db_bulkhead;
using namespace std::chrono_literals;

namespace {

class TlsServer {
 public:
  TlsServer() {
    authority("ca");
    authority("other_ca");
    run("openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr");
    certificate("good.crt", "-days 2");
    // OpenSSL 3.4 and later name the dates; before, a certificate could end before it began.
    certificate("expired.crt",
                "-not_before 20200101000000Z -not_after 20200102000000Z || openssl x509 -req -in server.csr "
                "-CA ca.crt -CAkey ca.key -CAcreateserial -out expired.crt -days -1");
    use("good.crt");
  }
  ~TlsServer() { set("ssl", "off"); }

  void use(std::string const& certificate) {
    set("ssl_cert_file", certificate);
    set("ssl", "on");
  }
  void use_none() { set("ssl", "off"); }

  /// What a pool says when it connects with these settings; nothing if it can.
  std::optional<std::string> refusal(std::string const& settings, bool require_tls = true) const {
    PqxxPool pool{
        "hostaddr=127.0.0.1 port=" + test_parameter("port") + " user=postgres dbname=postgres " + settings,
        {.max_size = 1, .require_tls = require_tls}};
    try {
      PqxxLease lease = pool.acquire(Deadline::after(30s));
      pqxx::nontransaction tx{*lease};
      CHECK(tx.exec("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")[0][0].as<bool>() ==
            require_tls);
      return std::nullopt;
    } catch (ConnectionUnavailable const& refused) {
      return refused.what();
    }
  }

  std::string authority_file(std::string const& name) const { return directory_ + "/" + name + ".crt"; }

 private:
  void run(std::string const& command) {
    admin_.exec("COPY (SELECT 1) TO PROGRAM 'cd " + directory_ + " && " + command + " >>openssl.log 2>&1'");
  }
  void authority(std::string const& name) {
    run("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=" + name + " -keyout " + name +
        ".key -out " + name + ".crt");
  }
  void certificate(std::string const& name, std::string const& validity) {
    std::string const sign =
        "openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out " + name;
    run("{ " + sign + " " + validity + "; }");
  }
  // In force once a new session sees it.
  void set(std::string const& name, std::string const& value) {
    admin_.exec("ALTER SYSTEM SET " + name + " = '" + value + "'");
    admin_.exec("SELECT pg_reload_conf()");
    while (Admin{}.exec("SHOW " + name)[0][0].as<std::string>() != value) std::this_thread::yield();
  }

  Admin admin_;
  std::string directory_ = admin_.exec("SHOW data_directory")[0][0].as<std::string>();
};

}  // namespace

TEST_CASE("a server is trusted if it is the one that was meant, and no other") {
  TlsServer server;
  std::string const verified = "sslmode=verify-full sslrootcert=";
  std::string const good = verified + server.authority_file("ca");
  CHECK(server.refusal("host=localhost " + good) == std::nullopt);
  CHECK(server.refusal("host=elsewhere.invalid " + good) != std::nullopt);
  CHECK(server.refusal("host=localhost " + verified + server.authority_file("other_ca")) != std::nullopt);
  server.use("expired.crt");
  CHECK(server.refusal("host=localhost " + good) != std::nullopt);
}

TEST_CASE("plain text is refused where TLS is required, also where libpq would fall back to it") {
  TlsServer server;
  CHECK(server.refusal("sslmode=prefer") == std::nullopt);
  server.use_none();
  CHECK(server.refusal("sslmode=prefer", false) == std::nullopt);
  for (auto const* mode : {"sslmode=disable", "sslmode=allow", "sslmode=prefer"}) {
    auto const message = server.refusal(mode);
    REQUIRE(message);
    CHECK(message->find("require_tls") != std::string::npos);
  }
  CHECK(server.refusal("sslmode=require") != std::nullopt);
}
