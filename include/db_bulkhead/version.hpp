// SPDX-License-Identifier: MIT
//
// The version of the library, for the preprocessor. It follows semantic
// versioning; while the major number is 0, a new minor number may change names.
// The build reads the three numbers from here, so that they stand in one place.
#ifndef DB_BULKHEAD_VERSION_HPP
#define DB_BULKHEAD_VERSION_HPP

#define DB_BULKHEAD_VERSION_MAJOR 0
#define DB_BULKHEAD_VERSION_MINOR 1
#define DB_BULKHEAD_VERSION_PATCH 0

#endif
