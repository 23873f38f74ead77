// SPDX-License-Identifier: MIT
//
// Which results may leave a transaction. The caller gets a result after COMMIT, when the
// transaction is over and its connection may serve somebody else already. So a result
// has to own what it holds. References, pointers, views, iterators, futures and what
// contains them (an optional, pair, tuple, variant, array, smart pointer or container)
// are refused at compile time; so are a driver's cursors, streams and transactions,
// which its header names by specialising `OutlivesTransaction`.
//
// What cannot be seen in a type cannot be refused: a struct with a pointer member, or a
// lambda that captured a reference.
#ifndef DB_BULKHEAD_OWNING_RESULT_HPP
#define DB_BULKHEAD_OWNING_RESULT_HPP

#include <array>
#include <concepts>
#include <coroutine>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <optional>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace db_bulkhead {

template <class T>
struct OutlivesTransaction;

/// Whether a callback may return a T. Specialise `OutlivesTransaction<T>` to decide for a type of yours.
template <class T>
inline constexpr bool outlives_transaction = OutlivesTransaction<std::remove_cv_t<T>>::value;

namespace detail {

template <class T>
concept borrows = std::is_reference_v<T> || std::is_pointer_v<T> || std::ranges::view<T> ||
    (std::input_or_output_iterator<T> && !std::ranges::range<T>);

template <class T>
concept container_of_others = std::ranges::range<T> && !std::same_as<std::ranges::range_value_t<T>, T>;

template <class T>
concept complete = requires {
  sizeof(T);
};

// What a smart pointer points to: nothing is known of an incomplete type, so it passes.
template <class T>
constexpr bool owned_outlives_transaction() {
  using Pointee = std::remove_extent_t<T>;
  if constexpr (complete<Pointee>) {
    return outlives_transaction<Pointee>;
  } else {
    return true;
  }
}

template <class T>
constexpr bool outlives_by_shape() {
  if constexpr (borrows<T>) {
    return false;
  } else if constexpr (container_of_others<T>) {
    return outlives_transaction<std::ranges::range_value_t<T>>;
  } else {
    return true;
  }
}

}  // namespace detail

template <class T>
struct OutlivesTransaction : std::bool_constant<detail::outlives_by_shape<T>()> {};

template <>
struct OutlivesTransaction<void> : std::true_type {};

template <class T>
struct OutlivesTransaction<std::reference_wrapper<T>> : std::false_type {};
template <class T>
struct OutlivesTransaction<std::future<T>> : std::false_type {};
template <class T>
struct OutlivesTransaction<std::shared_future<T>> : std::false_type {};
// What vector<bool> hands out for an element points into the vector.
template <>
struct OutlivesTransaction<std::vector<bool>::reference> : std::false_type {};
template <class Promise>
struct OutlivesTransaction<std::coroutine_handle<Promise>> : std::false_type {};

template <class T>
struct OutlivesTransaction<std::optional<T>> : std::bool_constant<outlives_transaction<T>> {};
template <class T, class Deleter>
struct OutlivesTransaction<std::unique_ptr<T, Deleter>>
    : std::bool_constant<detail::owned_outlives_transaction<T>()> {};
template <class T>
struct OutlivesTransaction<std::shared_ptr<T>> : std::bool_constant<detail::owned_outlives_transaction<T>()> {
};
template <class T>
struct OutlivesTransaction<std::weak_ptr<T>> : std::bool_constant<detail::owned_outlives_transaction<T>()> {};
template <class T, std::size_t N>
struct OutlivesTransaction<std::array<T, N>> : std::bool_constant<outlives_transaction<T>> {};
template <class First, class Second>
struct OutlivesTransaction<std::pair<First, Second>>
    : std::bool_constant<outlives_transaction<First> && outlives_transaction<Second>> {};
template <class... Ts>
struct OutlivesTransaction<std::tuple<Ts...>> : std::bool_constant<(outlives_transaction<Ts> && ...)> {};
template <class... Ts>
struct OutlivesTransaction<std::variant<Ts...>> : std::bool_constant<(outlives_transaction<Ts> && ...)> {};

}  // namespace db_bulkhead

#endif
