# One way of using the library, from a directory outside the tree, compiled and run:
#   cmake -DCASE=... -DPROGRAM=core|pqxx -DSOURCE=... -DBUILD=... -DCXX=... -DGENERATOR=... -P run.cmake
cmake_minimum_required(VERSION 3.24)

if(DEFINED ENV{TMPDIR})
  set(tmp "$ENV{TMPDIR}")
else()
  set(tmp /tmp)
endif()
string(RANDOM LENGTH 12 suffix)
set(scratch "${tmp}/db_bulkhead-package-${suffix}")
set(here "${CMAKE_CURRENT_LIST_DIR}")

# run(COMMAND...): fails, with the output, unless the command succeeds.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    string(REPLACE "\n" "\n  " output "${output}")  # indented, CMake leaves the lines as they are
    file(REMOVE_RECURSE "${scratch}")
    message(FATAL_ERROR "  ${command}\n  ended with ${status}:\n  ${output}")
  endif()
endfunction()

# refused(PATTERN COMMAND...): the command has to fail, and to say why.
function(refused pattern)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")  # CMake breaks the lines of its messages
  if(status EQUAL 0 OR NOT output MATCHES "${pattern}")
    file(REMOVE_RECURSE "${scratch}")
    message(FATAL_ERROR "expected a refusal with '${pattern}'; status ${status}:\n${output}")
  endif()
endfunction()

set(configure ${CMAKE_COMMAND} --fresh -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX} -B ${scratch}/build)

# The program in scratch/build, built and run.
function(build_and_run)
  run(${CMAKE_COMMAND} --build ${scratch}/build)
  foreach(program IN LISTS ARGN)
    run(${scratch}/build/${program})
  endforeach()
endfunction()

# An installed tree that was moved after its installation: nothing in it may know where it was.
function(install_moved)
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${scratch}/first)
  file(RENAME ${scratch}/first ${scratch}/prefix)
endfunction()

function(case_find_package)
  install_moved()
  run(${configure} -S ${here}/installed -DPROGRAM=${PROGRAM} -DVERSION=${VERSION} -DCMAKE_PREFIX_PATH=${scratch}/prefix)
  build_and_run(consumer)
endfunction()

# What cannot be served is said so that one knows what to do.
function(case_find_package_refusals)
  install_moved()
  set(find ${configure} -S ${here}/installed -DCMAKE_PREFIX_PATH=${scratch}/prefix)
  string(REGEX REPLACE "^([0-9]+)\\.([0-9]+).*" "\\1" major "${VERSION}")
  string(REGEX REPLACE "^([0-9]+)\\.([0-9]+).*" "\\2" minor "${VERSION}")
  math(EXPR next "${minor} + 1")
  refused("version: ${VERSION}" ${find} -DPROGRAM=core -DVERSION=${major}.${next})
  refused("no component 'nonsense'; it has: pqxx" ${find} -DPROGRAM=core -DCOMPONENTS=nonsense)
  if(EXISTS ${scratch}/prefix/share/cmake/db_bulkhead/db_bulkhead-pqxx-targets.cmake)
    refused("needs libpqxx and libpq" ${CMAKE_COMMAND} -E env PKG_CONFIG_LIBDIR=/nowhere PKG_CONFIG_PATH=
      ${find} -DPROGRAM=pqxx -DCMAKE_DISABLE_FIND_PACKAGE_libpqxx=ON)
    file(REMOVE ${scratch}/prefix/share/cmake/db_bulkhead/db_bulkhead-pqxx-targets.cmake)
  endif()
  refused("installed without its component pqxx" ${find} -DPROGRAM=pqxx)
endfunction()

function(case_subproject)
  run(${configure} -S ${here}/subproject -DWAY=${WAY} -DPROGRAMS=${PROGRAM} -DDB_BULKHEAD_SOURCE=${SOURCE})
  build_and_run(${PROGRAM})
endfunction()

function(case_vcpkg)
  set(PACKAGES ${scratch}/installed)
  set(FEATURES "")
  if(PROGRAM STREQUAL "pqxx")
    set(FEATURES pqxx)
  endif()
  include(${here}/vcpkg.cmake)
  run(${configure} -S ${here}/installed -DPROGRAM=${PROGRAM} -DCMAKE_PREFIX_PATH=${PACKAGES})
  build_and_run(consumer)
endfunction()

function(case_pkg_config)
  install_moved()
  set(module db_bulkhead)
  if(PROGRAM STREQUAL "pqxx")
    set(module db_bulkhead-pqxx)
  endif()
  set(ENV{PKG_CONFIG_PATH} ${scratch}/prefix/share/pkgconfig:$ENV{PKG_CONFIG_PATH})
  execute_process(COMMAND pkg-config --cflags --libs "${module} = ${VERSION}"
    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  run(${CXX} -std=c++20 ${here}/${PROGRAM}.cpp -o ${scratch}/consumer ${flags})
  run(${scratch}/consumer)
endfunction()

# No build system and no package: the folder include/ is enough.
function(case_include_only)
  run(${CXX} -std=c++20 -pthread -I ${SOURCE}/include ${here}/core.cpp -o ${scratch}/consumer)
  run(${scratch}/consumer)
endfunction()

file(MAKE_DIRECTORY "${scratch}")
cmake_language(CALL case_${CASE})
file(REMOVE_RECURSE "${scratch}")
