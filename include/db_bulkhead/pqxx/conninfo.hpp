// SPDX-License-Identifier: MIT
//
// A connection string, parsed by libpq, completed with this library's defaults, and
// able to take its secrets out of a text. Nothing here ever shows the string itself:
// libpq's own message about one that does not parse may quote a password.
//
// Several hosts ("host=a,b") become as many attempts, in their order, because libpq's
// non-blocking connect leaves the time limit for each host to its user. Everything
// that the string does not say is left to libpq: environment, service file, password file.
#ifndef DB_BULKHEAD_PQXX_CONNINFO_HPP
#define DB_BULKHEAD_PQXX_CONNINFO_HPP

#include <algorithm>
#include <cstddef>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "db_bulkhead/pqxx/libpq.hpp"

namespace db_bulkhead::detail {

class Conninfo {
 public:
  /// A keyword/value string or a URI. Throws std::invalid_argument, which says nothing about the text.
  explicit Conninfo(std::string const& text) {
    char* message = nullptr;
    RawConninfo const options{text.find('\0') == std::string::npos ? PQconninfoParse(text.c_str(), &message)
                                                                   : nullptr};
    PQfreemem(message);
    if (!options) {
      throw std::invalid_argument{
          "db_bulkhead: the connection string is not valid (it is not shown, for it may hold a password)"};
    }
    for (auto option = options.get(); option->keyword != nullptr; ++option) {
      if (option->val == nullptr) continue;
      settings_.emplace_back(option->keyword, option->val);
      if (is_secret(*option)) secrets_.emplace_back(option->val);
    }
    names_may_be_secret_ = is_uri(text) && names_hold_an_at();
    add_defaults();
  }

  /// The keywords and values as libpq takes them, valid while this object is: two null-terminated arrays.
  struct Parameters {
    std::vector<char const*> keywords, values;
  };
  Parameters parameters() const {
    Parameters all;
    for (auto const& [keyword, value] : settings_) {
      all.keywords.push_back(keyword.c_str());
      all.values.push_back(value.c_str());
    }
    all.keywords.push_back(nullptr);
    all.values.push_back(nullptr);
    return all;
  }

  /// One for each host to be tried, in that order.
  std::vector<Conninfo> attempts() const {
    // Preferred means: first every host as a standby, then whoever is there.
    if (get("target_session_attrs") != "prefer-standby" || hosts().size() < 2) return hosts();
    auto all = with("target_session_attrs", "standby").hosts();
    auto const any = with("target_session_attrs", "any").hosts();
    all.insert(all.end(), any.begin(), any.end());
    return all;
  }

  /// Whether a part of a password may have been taken for a name, which a server would quote: in a URI whose
  /// password holds an unescaped @, what follows that passes for host, port and database.
  bool names_may_be_secret() const noexcept { return names_may_be_secret_; }

  /// `message` on one line, without the secrets of the string and without `other_secret`. What libpq quotes
  /// before it has reached a server is left out too: in a URI whose password holds an unescaped / a part of
  /// it passes for the port.
  std::string without_secrets(std::string message, std::string_view other_secret) const {
    if (message.rfind("connection to server ", 0) != 0) message = without_quotations(message);
    std::vector<std::string_view> secrets{secrets_.begin(), secrets_.end()};
    secrets.push_back(other_secret);
    // The longest first: one that another begins with would leave the rest of that standing.
    std::sort(secrets.begin(), secrets.end(), [](auto a, auto b) { return a.size() > b.size(); });
    for (std::string_view const secret : secrets) blot_out(message, secret);
    std::replace_if(
        message.begin(), message.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
    message.erase(message.find_last_not_of(' ') + 1);
    return message;
  }

 private:
  static bool is_secret(PQconninfoOption const& option) noexcept {
    // libpq marks what is to be hidden in a dialog; SCRAM keys are as good as a password.
    std::string_view const keyword{option.keyword};
    return option.dispchar[0] == '*' || keyword.find("password") != std::string_view::npos ||
           keyword.find("secret") != std::string_view::npos || keyword.rfind("scram_", 0) == 0;
  }

  static bool is_uri(std::string_view text) noexcept {
    return text.rfind("postgresql://", 0) == 0 || text.rfind("postgres://", 0) == 0;
  }

  bool names_hold_an_at() const noexcept {
    for (auto const* keyword : {"host", "hostaddr", "port", "dbname"}) {
      if (get(keyword).find('@') != std::string_view::npos) return true;
    }
    return false;
  }

  // A dead peer is noticed after about a minute. Both kinds are needed: keepalives probe a connection that
  // is waiting for an answer, tcp_user_timeout ends one whose data is not acknowledged.
  void add_defaults() {
    add_default("fallback_application_name", "db_bulkhead");
    add_default("keepalives", "1");
    add_default("keepalives_idle", "30");      // seconds
    add_default("keepalives_interval", "10");  // seconds
    add_default("keepalives_count", "3");
    add_default("tcp_user_timeout", "60000");  // milliseconds
  }

  std::string_view get(std::string_view keyword) const noexcept {
    for (auto const& [key, value] : settings_) {
      if (key == keyword) return value;
    }
    return {};
  }

  void add_default(char const* keyword, char const* value) {
    if (get(keyword).empty()) set(keyword, value);
  }

  void set(std::string_view keyword, std::string_view value) {
    for (auto& [key, old] : settings_) {
      if (key == keyword) {
        old = value;
        return;
      }
    }
    settings_.emplace_back(keyword, value);
  }

  Conninfo with(std::string_view keyword, std::string_view value) const {
    Conninfo changed = *this;
    changed.set(keyword, value);
    return changed;
  }

  std::vector<Conninfo> hosts() const {
    auto const names = list(get("host")), addresses = list(get("hostaddr")), ports = list(get("port"));
    std::size_t const count = std::max(names.size(), addresses.size());
    auto const fits = [count](auto const& part, std::size_t may_be) {
      return part.size() == count || part.size() <= may_be;
    };
    // Lists that do not match are for libpq to refuse.
    if (count < 2 || !fits(names, 0) || !fits(addresses, 0) || !fits(ports, 1)) return {*this};
    std::vector<Conninfo> each;
    for (std::size_t i = 0; i < count; ++i) {
      Conninfo one = *this;
      if (!names.empty()) one.set("host", names[i]);
      if (!addresses.empty()) one.set("hostaddr", addresses[i]);
      if (ports.size() == count) one.set("port", ports[i]);
      each.push_back(std::move(one));
    }
    if (get("load_balance_hosts") == "random") {
      std::shuffle(each.begin(), each.end(), std::minstd_rand{std::random_device{}()});
    }
    return each;
  }

  static std::vector<std::string_view> list(std::string_view text) {
    std::vector<std::string_view> parts;
    if (text.empty()) return parts;
    for (;;) {
      auto const comma = text.find(',');
      parts.push_back(text.substr(0, comma));
      if (comma == std::string_view::npos) return parts;
      text.remove_prefix(comma + 1);
    }
  }

  // All between the first and the last quotation mark, of whatever kind the language has: ASCII marks, or any
  // character beyond ASCII.
  static std::string without_quotations(std::string const& message) {
    auto const is_mark = [](unsigned char c) { return c == '"' || c == '\'' || c >= 0x80; };
    auto const first = std::find_if(message.begin(), message.end(), is_mark);
    if (first == message.end()) return message;
    auto const last = std::find_if(message.rbegin(), message.rend(), is_mark).base();
    return std::string{message.begin(), first} + "***" + std::string{last, message.end()};
  }

  static void blot_out(std::string& text, std::string_view secret) {
    constexpr std::string_view blot = "***";
    if (secret.empty()) return;
    for (auto at = text.find(secret); at != std::string::npos; at = text.find(secret, at + blot.size())) {
      text.replace(at, secret.size(), blot);
    }
  }

  std::vector<std::pair<std::string, std::string>> settings_;
  std::vector<std::string> secrets_;
  bool names_may_be_secret_ = false;
};

}  // namespace db_bulkhead::detail

#endif
