// SPDX-License-Identifier: MIT
//
// libpqxx, in the versions that this library knows: 6.4, 7.7.1 to 7.10, 8.0. All that
// differs between them is here (and, for 6.4, in driver_6_4.hpp):
//
//   DriverConnection    what libpqxx calls a connection, on a handle that we opened
//   adopt               makes one from a raw handle
//   renew               makes one as new again, for the next borrower
//   owns                whether it still has that handle
//   knows_prepared      whether it believes in prepared statements
//   DriverTransaction   a dbtransaction that sends nothing by itself
//
// 7.0 to 7.7.0 cannot take over a raw handle, and 6.0 to 6.3 and anything older differ
// in ways that nobody has tried: they are refused here.
#ifndef DB_BULKHEAD_PQXX_DRIVER_HPP
#define DB_BULKHEAD_PQXX_DRIVER_HPP

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
#include <pqxx/pqxx>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

#include <memory>
#include <utility>

#include "db_bulkhead/pqxx/libpq.hpp"

#if PQXX_VERSION_MAJOR == 6 && PQXX_VERSION_MINOR == 4
#define DB_BULKHEAD_PQXX_6_4 1
#include "db_bulkhead/pqxx/driver_6_4.hpp"
#elif PQXX_VERSION_MAJOR < 7 || (PQXX_VERSION_MAJOR == 7 && PQXX_VERSION_MINOR < 7)
#error "db_bulkhead needs libpqxx 6.4, 7.7.1 or later 7.x, or 8.x"
#else
#define DB_BULKHEAD_PQXX_6_4 0
#endif

namespace db_bulkhead::detail {

#if DB_BULKHEAD_PQXX_6_4

using DriverConnection = pqxx::connection_base;

// A virtual base of 6.4's transactions, which the most derived class has to initialise.
using DriverTransactionName = pqxx::internal::namedclass;

#else

using DriverConnection = pqxx::connection;

// Stands for the above, so that the most derived class is the same for all versions.
struct DriverTransactionName {
  explicit DriverTransactionName(char const* /*name*/) noexcept {}
};

using OwnedDriver = std::unique_ptr<pqxx::connection>;

inline OwnedDriver adopt(PGconn* raw) {
  return OwnedDriver{new pqxx::connection(pqxx::connection::seize_raw_connection(raw))};
}

/// From 7 on the object knows no prepared statements and no variables: a new one on the same handle forgets
/// all that it does know (receivers, notification and notice handlers, transaction). False where that would
/// leave somebody with a pointer to the old one: then it must be closed.
inline bool renew(OwnedDriver& driver, bool /*forget_prepared*/) noexcept try {
#include <pqxx/internal/ignore-deprecated-pre.hxx>
  if (!driver->get_errorhandlers().empty()) return false;
#include <pqxx/internal/ignore-deprecated-post.hxx>
  // Moving throws where a transaction or a receiver is still registered, and leaves the handle where it was.
  pqxx::connection old{std::move(*driver)};
  // The cast: 8 says void* where libpq says PGconn*.
  RawConnection raw{static_cast<PGconn*>(std::move(old).release_raw_connection())};
  silence_notices(raw.get());
  driver = adopt(raw.get());
  raw.release();
  return true;
} catch (...) {
  return false;
}

constexpr bool knows_prepared(pqxx::connection const& /*driver*/) noexcept {
  return false;
}

#endif

/// Whether `driver` still has the handle `raw`: neither closed it nor passed it on.
inline bool owns(DriverConnection const& driver, PGconn const* raw) noexcept {
  return driver.sock() == PQsocket(raw) && driver.backendpid() == PQbackendPID(raw);
}

/// A transaction that libpqxx takes for an open one: it was begun on the raw handle before. What libpqxx
/// would send to end it is asked of the derived class, whose destructor must call `leave`.
class DriverTransaction : public virtual DriverTransactionName, public pqxx::dbtransaction {
 protected:
#if DB_BULKHEAD_PQXX_6_4
  explicit DriverTransaction(DriverConnection& driver)
      : DriverTransactionName{"db_bulkhead"}, pqxx::dbtransaction{driver} {
    Begin();
  }
  void leave() noexcept {
    End();
  }
#else
  explicit DriverTransaction(DriverConnection& driver)
      : DriverTransactionName{"db_bulkhead"}, pqxx::dbtransaction{driver} {
    register_transaction();
  }
  void leave() noexcept {
    close();
  }
#endif

  /// commit() was called, and libpqxx has no objection.
  virtual void on_commit() = 0;
  /// abort() was called, or the destructor calls it.
  virtual void on_abort() = 0;

 private:
#if DB_BULKHEAD_PQXX_6_4
  void do_begin() final {}
  // Not as the base class does, which aborts the transaction when a statement fails: from 7 on it goes on,
  // and what a swallowed error means is decided in one place for all versions.
  pqxx::result do_exec(char const query[]) final {
    return direct_exec(query);
  }
  void do_commit() final {
    on_commit();
  }
  void do_abort() final {
    on_abort();
  }
#elif PQXX_VERSION_MAJOR < 8
  void do_commit() final {
    on_commit();
  }
  void do_abort() final {
    on_abort();
  }
#else
  void do_commit(pqxx::sl) final {
    on_commit();
  }
  void do_abort(pqxx::sl) final {
    on_abort();
  }
#endif
};

}  // namespace db_bulkhead::detail

#endif
