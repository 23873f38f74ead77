# Runs the overlay port's own portfile with stand-ins for vcpkg's functions, so that what is tested is the
# port: its options, where it moves the package to, and the rewriting that vcpkg does on the way.
# Takes SOURCE (the checkout), PACKAGES (where to install) and FEATURES.

set(PORT db-bulkhead)
set(port_dir "${SOURCE}/cmake/vcpkg/${PORT}")
set(CURRENT_PACKAGES_DIR "${PACKAGES}")

# The manifest has to parse and to agree with the library's own version and with CMake's words for it.
file(READ "${port_dir}/vcpkg.json" manifest)
string(JSON VERSION GET "${manifest}" version)
string(JSON name GET "${manifest}" name)
string(JSON license GET "${manifest}" license)
foreach(feature IN LISTS FEATURES)
  string(JSON described GET "${manifest}" features ${feature} description)
endforeach()
file(STRINGS "${SOURCE}/include/db_bulkhead/version.hpp" lines REGEX "#define DB_BULKHEAD_VERSION_[A-Z]+ [0-9]+")
string(REGEX REPLACE "[^;]* ([0-9]+)" "\\1" numbers "${lines}")
list(JOIN numbers "." library_version)
if(NOT VERSION STREQUAL library_version OR NOT name STREQUAL PORT)
  message(FATAL_ERROR "vcpkg.json is of ${name} ${VERSION}, version.hpp of ${library_version}")
endif()

function(vcpkg_from_github)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUT_SOURCE_PATH;REPO;REF;SHA512;HEAD_REF" "")
  set(${arg_OUT_SOURCE_PATH} "${SOURCE}" PARENT_SCOPE)
endfunction()

function(vcpkg_check_features)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUT_FEATURE_OPTIONS" "FEATURES")
  set(options "")
  while(arg_FEATURES)
    list(POP_FRONT arg_FEATURES feature variable)
    if(feature IN_LIST FEATURES)
      list(APPEND options -D${variable}=ON)
    else()
      list(APPEND options -D${variable}=OFF)
    endif()
  endwhile()
  set(${arg_OUT_FEATURE_OPTIONS} "${options}" PARENT_SCOPE)
endfunction()

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  execute_process(COMMAND ${CMAKE_COMMAND} -G ${GENERATOR} -S ${arg_SOURCE_PATH} -B ${PACKAGES}-build
    -DCMAKE_INSTALL_PREFIX=${PACKAGES} -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${CXX} ${arg_OPTIONS}
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(vcpkg_cmake_install)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${PACKAGES}-build --target install
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# The package moves to share/<name>, one folder nearer to the prefix, and its idea of the prefix with it.
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "PACKAGE_NAME;CONFIG_PATH" "")
  file(MAKE_DIRECTORY "${PACKAGES}/share")
  file(RENAME "${PACKAGES}/${arg_CONFIG_PATH}" "${PACKAGES}/share/${arg_PACKAGE_NAME}")
  file(REMOVE_RECURSE "${PACKAGES}/share/cmake")
  file(GLOB files "${PACKAGES}/share/${arg_PACKAGE_NAME}/*.cmake")
  foreach(file IN LISTS files)
    file(READ "${file}" text)
    set(up "get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\n")
    string(REPLACE "${up}${up}${up}" "${up}${up}" text "${text}")
    file(WRITE "${file}" "${text}")
  endforeach()
endfunction()

function(vcpkg_fixup_pkgconfig)
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
  file(INSTALL ${arg_FILE_LIST} DESTINATION "${PACKAGES}/share/${PORT}" RENAME copyright)
endfunction()

# By include, CMAKE_CURRENT_LIST_DIR is the port's, as it is when vcpkg runs it.
include("${port_dir}/portfile.cmake")

foreach(file IN ITEMS copyright usage)
  if(NOT EXISTS "${PACKAGES}/share/${PORT}/${file}")
    message(FATAL_ERROR "the port installs no ${file}")
  endif()
endforeach()
