# The installed package: headers, CMake package and pkg-config files. All of it is
# independent of the architecture, so all of it goes below include/ and share/.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/db_bulkhead)
set(pkgconfig_dir ${CMAKE_INSTALL_DATADIR}/pkgconfig)

write_basic_package_version_file(${PROJECT_BINARY_DIR}/db_bulkhead-config-version.cmake
  COMPATIBILITY SameMinorVersion  # names may change with the minor version while the major one is 0
  ARCH_INDEPENDENT
)
install(FILES
  ${PROJECT_SOURCE_DIR}/cmake/db_bulkhead-config.cmake
  ${PROJECT_BINARY_DIR}/db_bulkhead-config-version.cmake
  DESTINATION ${package_dir}
)

install(TARGETS db_bulkhead EXPORT db_bulkhead FILE_SET HEADERS)
install(EXPORT db_bulkhead NAMESPACE db_bulkhead:: FILE db_bulkhead-targets.cmake DESTINATION ${package_dir})

# Relative to where the file is found, so that the installed tree can be moved.
file(RELATIVE_PATH pc_to_prefix /${pkgconfig_dir} /)
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
configure_file(cmake/db_bulkhead.pc.in ${PROJECT_BINARY_DIR}/db_bulkhead.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/db_bulkhead.pc DESTINATION ${pkgconfig_dir})

# An export set of its own: the targets of the core must load where there is no libpqxx.
if(TARGET db_bulkhead_pqxx)
  install(TARGETS db_bulkhead_pqxx EXPORT db_bulkhead_pqxx FILE_SET HEADERS)
  install(EXPORT db_bulkhead_pqxx NAMESPACE db_bulkhead:: FILE db_bulkhead-pqxx-targets.cmake
    DESTINATION ${package_dir})
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/db_bulkhead-libpqxx.cmake DESTINATION ${package_dir})
  configure_file(cmake/db_bulkhead-pqxx.pc.in ${PROJECT_BINARY_DIR}/db_bulkhead-pqxx.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/db_bulkhead-pqxx.pc DESTINATION ${pkgconfig_dir})
endif()
