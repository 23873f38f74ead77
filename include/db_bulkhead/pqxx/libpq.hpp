// SPDX-License-Identifier: MIT
//
// libpq, wherever it is installed, and its handles as owned values.
//
// Distributions put libpq-fe.h into a folder of their own, which pkg-config and CMake
// know. Debian's is tried here as well, so that nothing but this library's include
// path is needed.
#ifndef DB_BULKHEAD_PQXX_LIBPQ_HPP
#define DB_BULKHEAD_PQXX_LIBPQ_HPP

#if __has_include(<libpq-events.h>)
#include <libpq-events.h>
#include <libpq-fe.h>
#elif __has_include(<postgresql/libpq-events.h>)
#include <postgresql/libpq-events.h>
#include <postgresql/libpq-fe.h>
#else
#error "db_bulkhead: libpq's headers (libpq-fe.h, libpq-events.h) are not in the include path"
#endif

#include <memory>

namespace db_bulkhead::detail {

struct FinishConnection {
  void operator()(PGconn* raw) const noexcept { PQfinish(raw); }
};
using RawConnection = std::unique_ptr<PGconn, FinishConnection>;

struct ClearResult {
  void operator()(PGresult* result) const noexcept { PQclear(result); }
};
using RawResult = std::unique_ptr<PGresult, ClearResult>;

struct FreeMemory {
  void operator()(void* memory) const noexcept { PQfreemem(memory); }
};

struct FreeConninfo {
  void operator()(PQconninfoOption* options) const noexcept { PQconninfoFree(options); }
};
using RawConninfo = std::unique_ptr<PQconninfoOption, FreeConninfo>;

/// libpq's own notice processor writes to stderr; this one is silent.
inline void silence_notices(PGconn* raw) noexcept {
  PQsetNoticeProcessor(
      raw, [](void*, char const*) {}, nullptr);
}

/// Drops the notifications that have arrived: they were meant for the last user of the session.
inline void drop_notifications(PGconn* raw) noexcept {
  while (std::unique_ptr<PGnotify, FreeMemory>{PQnotifies(raw)}) {
  }
}

}  // namespace db_bulkhead::detail

#endif
