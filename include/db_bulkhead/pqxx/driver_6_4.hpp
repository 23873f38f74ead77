// SPDX-License-Identifier: MIT
//
// libpqxx 6.4 alone: a connection on a handle that we opened, and a way to make it as
// new. Included by driver.hpp, which holds what all versions have in common.
//
// A 6.4 connection object caches session variables (`get_variable` answers from the
// cache, after RESET ALL too) and keeps the definitions of prepared statements, which
// it registers on first use. The first must not reach the next borrower, the second
// must, so that the object cannot simply be replaced; and it has no public way to
// forget the first alone. Its private members are reached by explicit instantiation,
// to which access checks do not apply ([temp.spec.general]). 6.4 is the last of its
// line, so that these members cannot change any more.
#ifndef DB_BULKHEAD_PQXX_DRIVER_6_4_HPP
#define DB_BULKHEAD_PQXX_DRIVER_6_4_HPP

#include <pqxx/pqxx>

#include <memory>
#include <string>
#include <utility>

#include "db_bulkhead/pqxx/libpq.hpp"

// Included alone with another version, this header is empty.
#if PQXX_VERSION_MAJOR == 6

namespace db_bulkhead::detail::pqxx_6_4 {

// Each `member` is a friend function that is found through its tag, and defined by the instantiation below.
struct Variables {
  friend auto member(Variables) noexcept;
};
struct Prepared {
  friend auto member(Prepared) noexcept;
};
struct Receivers {
  friend auto member(Receivers) noexcept;
};
struct Transaction {
  friend auto member(Transaction) noexcept;
};

template <class Tag, auto Member>
struct Expose {
  friend auto member(Tag) noexcept { return Member; }
};

template struct Expose<Variables, &pqxx::connection_base::m_vars>;
template struct Expose<Prepared, &pqxx::connection_base::m_prepared>;
template struct Expose<Receivers, &pqxx::connection_base::m_receivers>;
template struct Expose<Transaction, &pqxx::connection_base::m_trans>;

template <class Tag>
auto& get(pqxx::connection_base& driver, Tag tag) noexcept {
  return driver.*member(tag);
}

// Hands libpqxx the handle that is being adopted on this thread, once; it never opens one.
class AdoptingPolicy : public pqxx::connectionpolicy {
 public:
  using pqxx::connectionpolicy::connectionpolicy;

  // libpqxx passes its policies nothing but a string.
  static handle& handle_to_adopt() noexcept {
    thread_local handle adopted = nullptr;
    return adopted;
  }

  handle do_startconnect(handle current) override {
    return current != nullptr ? current : std::exchange(handle_to_adopt(), nullptr);
  }
};

using Connection = pqxx::basic_connection_base<AdoptingPolicy>;

// Else libpqxx would replace a lost connection in silence, inside what the caller takes for a transaction.
inline void never_reconnect(pqxx::connection_base& driver) noexcept {
#include <pqxx/internal/ignore-deprecated-pre.hxx>
  driver.inhibit_reactivation(true);
#include <pqxx/internal/ignore-deprecated-post.hxx>
}

}  // namespace db_bulkhead::detail::pqxx_6_4

namespace db_bulkhead::detail {

using OwnedDriver = std::unique_ptr<pqxx_6_4::Connection>;

inline OwnedDriver adopt(PGconn* raw) {
  pqxx_6_4::AdoptingPolicy::handle_to_adopt() = raw;
  auto driver = std::make_unique<pqxx_6_4::Connection>(std::string{});
  pqxx_6_4::never_reconnect(*driver);
  return driver;
}

/// Makes the object forget what the last borrower told it. False where somebody still points to it, or it to
/// somebody: then it must be closed.
inline bool renew(OwnedDriver& driver, bool forget_prepared) noexcept try {
  using namespace pqxx_6_4;
  if (get(*driver, Transaction{}).get() != nullptr) return false;
  if (!get(*driver, Receivers{}).empty() || !driver->get_errorhandlers().empty()) return false;
  get(*driver, Variables{}).clear();
  if (forget_prepared) get(*driver, Prepared{}).clear();
  driver->trace(nullptr);
  driver->set_verbosity(pqxx::connection_base::normal);
  never_reconnect(*driver);
  return true;
} catch (...) {
  return false;
}

/// Whether statements were prepared through the object, of which it believes that the server has them still.
inline bool knows_prepared(pqxx::connection_base& driver) noexcept {
  return !pqxx_6_4::get(driver, pqxx_6_4::Prepared{}).empty();
}

}  // namespace db_bulkhead::detail

#endif

#endif
