# Finds libpqxx and libpq and joins them in the imported target db_bulkhead::libpqxx.
# Included by the project itself and, from the installed package, by whoever asks for
# the component pqxx, so that both find it the same way:
#
#   1. a target libpqxx::pqxx that is there already (libpqxx as a subproject),
#   2. libpqxx's CMake package (vcpkg, an installed libpqxx 7 or 8),
#   3. pkg-config (Debian and Ubuntu ship no CMake package).
#
# libpq is needed beside it: db_bulkhead asks it for what libpqxx hides.
# Where anything is missing, db_bulkhead_libpqxx_problem says what; otherwise it is empty.

set(db_bulkhead_libpqxx_problem "")

if(NOT TARGET db_bulkhead::libpqxx)
  if(NOT TARGET libpqxx::pqxx)
    find_package(libpqxx CONFIG QUIET)
  endif()

  if(TARGET libpqxx::pqxx)
    find_package(PostgreSQL QUIET)
    if(TARGET PostgreSQL::PostgreSQL)
      add_library(db_bulkhead::libpqxx INTERFACE IMPORTED)
      set_target_properties(db_bulkhead::libpqxx PROPERTIES
        INTERFACE_LINK_LIBRARIES "libpqxx::pqxx;PostgreSQL::PostgreSQL")
    else()
      set(db_bulkhead_libpqxx_problem "libpqxx was found, libpq's headers or library were not")
    endif()
  else()
    find_package(PkgConfig QUIET)
    if(NOT PKG_CONFIG_FOUND)
      set(db_bulkhead_libpqxx_problem "there is no CMake package libpqxx, and no pkg-config to look further")
    else()
      pkg_check_modules(db_bulkhead_libpqxx QUIET IMPORTED_TARGET libpqxx libpq)
      if(TARGET PkgConfig::db_bulkhead_libpqxx)
        add_library(db_bulkhead::libpqxx INTERFACE IMPORTED)
        set_target_properties(db_bulkhead::libpqxx PROPERTIES
          INTERFACE_LINK_LIBRARIES PkgConfig::db_bulkhead_libpqxx)
      else()
        set(db_bulkhead_libpqxx_problem
          "there is no CMake package libpqxx, and pkg-config does not find both libpqxx and libpq")
      endif()
    endif()
  endif()
endif()
