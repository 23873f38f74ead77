# What this project's own tests, benchmarks and examples are compiled with. Applied
# per target and never INTERFACE, so that nobody who uses the library inherits it.

function(db_bulkhead_developer_target target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wshadow)
  if(DB_BULKHEAD_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
endfunction()
