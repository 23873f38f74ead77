// SPDX-License-Identifier: MIT
//
// Catch2 2.13 and 3.x under one name. Tests keep to what both have.
#ifndef DB_BULKHEAD_TESTS_CATCH_HPP
#define DB_BULKHEAD_TESTS_CATCH_HPP

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#endif
