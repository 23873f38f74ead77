# Fails when the headers under include/ and the list in cmake/headers.cmake differ.
#   cmake -P tests/headers/check_list.cmake
cmake_minimum_required(VERSION 3.24)
cmake_path(SET root NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../..")
include("${root}/cmake/headers.cmake")

set(listed ${db_bulkhead_core_headers} ${db_bulkhead_pqxx_headers})
file(GLOB_RECURSE present RELATIVE "${root}/include" "${root}/include/*")

set(unlisted ${present})
list(REMOVE_ITEM unlisted ${listed})
set(absent ${listed})
list(REMOVE_ITEM absent ${present})

if(unlisted)
  list(JOIN unlisted ", " unlisted)
  message(SEND_ERROR "In include/ but not in cmake/headers.cmake: ${unlisted}")
endif()
if(absent)
  list(JOIN absent ", " absent)
  message(SEND_ERROR "In cmake/headers.cmake but not in include/: ${absent}")
endif()
