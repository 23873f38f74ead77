// SPDX-License-Identifier: MIT
//
// Which of libpqxx's types a callback may return. What shares the ownership of its
// data may leave: result, row and field. What points to a transaction, a connection or
// somebody else's data may not: transactions of every kind, streams, cursors,
// pipelines, large objects, receivers, error handlers, iterators, array parsers,
// parameters and non-owning refs.
#ifndef DB_BULKHEAD_PQXX_RESULTS_HPP
#define DB_BULKHEAD_PQXX_RESULTS_HPP

#include <cstddef>
#include <type_traits>

#include "db_bulkhead/owning_result.hpp"
#include "db_bulkhead/pqxx/driver.hpp"

namespace db_bulkhead {

namespace detail {

#if DB_BULKHEAD_PQXX_6_4
using DriverFocus = pqxx::internal::transactionfocus;
#else
using DriverFocus = pqxx::transaction_focus;
#endif

// is_base_of and not derived_from: some of libpqxx's classes derive privately.
template <class T, class... Bases>
inline constexpr bool is_one_of = std::is_class_v<T> && (std::is_base_of_v<Bases, T> || ...);

template <class T>
concept bound_to_connection =
    is_one_of<T, pqxx::transaction_base, DriverFocus, DriverConnection, pqxx::cursor_base,
              pqxx::icursorstream, pqxx::icursor_iterator, pqxx::internal::sql_cursor,
              pqxx::largeobjectaccess, pqxx::notification_receiver, pqxx::errorhandler, pqxx::array_parser> ||
    is_one_of<T, pqxx::const_result_iterator, pqxx::const_row_iterator, pqxx::const_reverse_result_iterator,
              pqxx::const_reverse_row_iterator>;

}  // namespace detail

template <detail::bound_to_connection T>
struct OutlivesTransaction<T> : std::false_type {};

// auto: the enumerations have other names in each version.
template <auto Update, auto Ownership>
struct OutlivesTransaction<pqxx::stateless_cursor<Update, Ownership>> : std::false_type {};

template <>
struct OutlivesTransaction<pqxx::result> : std::true_type {};
template <>
struct OutlivesTransaction<pqxx::row> : std::true_type {};
template <>
struct OutlivesTransaction<pqxx::field> : std::true_type {};

#if DB_BULKHEAD_PQXX_6_4
template <>
struct OutlivesTransaction<pqxx::prepare::invocation> : std::false_type {};
template <>
struct OutlivesTransaction<pqxx::internal::parameterized_invocation> : std::false_type {};
#else
template <>
struct OutlivesTransaction<pqxx::connecting> : std::false_type {};
template <>
struct OutlivesTransaction<pqxx::blob> : std::false_type {};
template <>
struct OutlivesTransaction<pqxx::zview> : std::false_type {};
template <>
struct OutlivesTransaction<pqxx::params> : std::false_type {};
template <class T>
struct OutlivesTransaction<pqxx::range<T>> : std::bool_constant<outlives_transaction<T>> {};
#endif

#if PQXX_VERSION_MAJOR == 7 && PQXX_VERSION_MINOR == 7
template <class... Ts>
struct OutlivesTransaction<pqxx::internal::owning_stream_input_iteration<Ts...>> : std::false_type {};
#elif PQXX_VERSION_MAJOR == 7
// 8 makes no array of what does not own its data.
template <class T, std::size_t Dimensions, auto Separator>
struct OutlivesTransaction<pqxx::array<T, Dimensions, Separator>>
    : std::bool_constant<outlives_transaction<T>> {};
#endif

#if PQXX_VERSION_MAJOR > 7 || (PQXX_VERSION_MAJOR == 7 && PQXX_VERSION_MINOR >= 10)
template <>
struct OutlivesTransaction<pqxx::notification> : std::false_type {};
template <>
struct OutlivesTransaction<pqxx::prepped> : std::false_type {};
#endif

#if PQXX_VERSION_MAJOR >= 8
template <>
struct OutlivesTransaction<pqxx::row_ref> : std::false_type {};
template <>
struct OutlivesTransaction<pqxx::field_ref> : std::false_type {};
#endif

}  // namespace db_bulkhead

#endif
