// SPDX-License-Identifier: MIT
//
// The test runner's main(): Catch2 2.13 makes it here, Catch2 3 brings it as a library.
#define CATCH_CONFIG_MAIN
#include "catch.hpp"
