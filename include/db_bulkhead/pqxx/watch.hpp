// SPDX-License-Identifier: MIT
//
// An observer inside libpq: it sees the command tag and the SQLSTATE of every result
// of a connection, with no round trip, whoever sent the command. That is how text
// that ends a transaction ("COMMIT", "ROLLBACK; BEGIN") is found out, and how the
// SQLSTATE of an error is known that libpqxx does not pass on (57P01 in every version,
// 40001 and 40P01 in 6.4).
//
// It also knows when the connection is gone, whoever closed it, so that a raw handle
// is never used after that.
#ifndef DB_BULKHEAD_PQXX_WATCH_HPP
#define DB_BULKHEAD_PQXX_WATCH_HPP

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "db_bulkhead/pqxx/libpq.hpp"

namespace db_bulkhead::detail {

class SessionWatch {
 public:
  /// Watches `raw` until libpq closes it. Throws std::bad_alloc.
  static std::shared_ptr<SessionWatch> attach(PGconn* raw) {
    auto watch = std::make_shared<SessionWatch>();
    watch->raw_ = raw;
    // libpq's share: freed when it closes the connection, which may be later than our last look at it.
    auto share = std::make_unique<std::shared_ptr<SessionWatch>>(watch);
    if (PQregisterEventProc(raw, &SessionWatch::on_event, "db_bulkhead", share.get()) == 0) {
      throw std::bad_alloc{};
    }
    share.release();
    return watch;
  }

  /// The handle; null once it was closed.
  PGconn* raw() const noexcept { return raw_; }

  /// Forgets what was seen: a new transaction begins, in which writing is to be expected or not.
  void arm(bool writes, bool touched) noexcept {
    boundary_crossed_ = rolled_back_ = false;
    touched_ = touched;
    sqlstate_[0] = '\0';
    writes_ = writes;
  }

  /// Forgets the borrower: a new loan begins.
  void forget_loan() noexcept {
    met_ = 0;
    writes_ = true;
    touched_ = false;
  }

  /// Whether a command was seen since `forget_loan` that may have changed the session: any that does more
  /// than read and write rows, begin and end transactions. What a function did inside of one cannot be seen.
  bool touched() const noexcept { return touched_; }

  /// Calls `f` with each SQLSTATE that was met since `forget_loan`, once; the last of many. Not with 25006
  /// (read-only transaction) where writing was not to be expected.
  template <class F>
  void for_each_error(F f) const {
    for (std::size_t i = 0; i < met_; ++i) f(std::string_view{errors_[i].data(), 5});
  }

  /// Whether a transaction was begun, committed or prepared since `arm`.
  bool boundary_crossed() const noexcept { return boundary_crossed_; }
  /// Whether the tag ROLLBACK was seen since `arm`: of ROLLBACK, ROLLBACK TO or ROLLBACK AND CHAIN.
  bool rolled_back() const noexcept { return rolled_back_; }
  /// Whether the last result was an error: then nothing of that query follows but its end.
  bool last_result_was_error() const noexcept { return last_result_was_error_; }
  /// Whether all prepared statements were dropped (DEALLOCATE ALL, DISCARD ALL) since this was last asked.
  bool forget_prepared_dropped() noexcept { return std::exchange(prepared_dropped_, false); }
  /// The last SQLSTATE since `arm`, but for 25P02, which only repeats that there was one.
  std::string sqlstate() const { return sqlstate_; }

 private:
  static int on_event(PGEventId event, void* info, void* pass_through) noexcept {
    // No default: a result may be destroyed after its connection, and then nothing here exists any more.
    if (event == PGEVT_RESULTCREATE) {
      (*share_of(pass_through))->see(static_cast<PGEventResultCreate*>(info)->result);
    } else if (event == PGEVT_CONNDESTROY) {
      (*share_of(pass_through))->raw_ = nullptr;
      delete share_of(pass_through);
    }
    return 1;
  }

  static std::shared_ptr<SessionWatch>* share_of(void* pass_through) noexcept {
    return static_cast<std::shared_ptr<SessionWatch>*>(pass_through);
  }

  void see(PGresult* result) noexcept {
    char const* const code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    last_result_was_error_ = code != nullptr;
    if (code != nullptr) {
      if (std::string_view const seen{code}; seen.size() == 5 && seen != "25P02") {
        seen.copy(sqlstate_, 5);
        sqlstate_[5] = '\0';
        remember(seen);
      }
      return;
    }
    std::string_view const tag{PQcmdStatus(result)};
    touched_ = touched_ || !is_harmless(tag);
    if (tag == "ROLLBACK") rolled_back_ = true;
    if (tag == "DEALLOCATE ALL" || tag == "DISCARD ALL") prepared_dropped_ = true;
    if (tag == "BEGIN" || tag == "START TRANSACTION" || tag == "COMMIT" || tag == "PREPARE TRANSACTION") {
      boundary_crossed_ = true;
    }
  }

  // By the tag's first word; what follows are numbers of rows. ROLLBACK PREPARED and the like are harmless
  // too.
  static bool is_harmless(std::string_view tag) noexcept {
    auto const word = tag.substr(0, tag.find(' '));
    for (std::string_view const harmless :
         {"", "SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "COPY", "FETCH", "SHOW", "EXPLAIN", "BEGIN",
          "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"}) {
      if (word == harmless) return true;
    }
    return false;
  }

  void remember(std::string_view code) noexcept {
    if (code == "25006" && !writes_) return;
    bool known = false;
    for_each_error([&](std::string_view met) { known = known || met == code; });
    if (known) return;
    if (met_ < errors_.size()) ++met_;
    code.copy(errors_[met_ - 1].data(), 5);
  }

  PGconn* raw_ = nullptr;
  bool boundary_crossed_ = false;
  bool rolled_back_ = false;
  bool prepared_dropped_ = false;
  bool last_result_was_error_ = false;
  bool writes_ = true;
  bool touched_ = false;
  char sqlstate_[6] = {};
  std::array<std::array<char, 5>, 8> errors_{};
  std::size_t met_ = 0;
};

}  // namespace db_bulkhead::detail

#endif
