# Compiler flags of the whole project: warnings are errors, contraction of a*b+c is never left to
# the compiler (equal arithmetic on every path is a promise, see docs/decisions), sanitizers by
# preset.
add_library(braid_flags INTERFACE)
target_include_directories(braid_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(braid_flags INTERFACE
  -Wall -Wextra -Wconversion -Werror -ffp-contract=off -fno-math-errno -fstack-protector-strong
  -fno-semantic-interposition
  -Wno-missing-field-initializers
  # GCC 12 sees overlaps in std::string that are not there (its bug 105651).
  -Wno-restrict)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Only the fuzz targets are built with clang, whose warnings differ.
  target_compile_options(braid_flags INTERFACE -Wno-error -Wno-everything)
endif()
if(BRAID_SANITIZE)
  # -g1: a report needs lines, not variables (a seventh of the time to compile, half of the size).
  target_compile_options(braid_flags INTERFACE
    -fsanitize=${BRAID_SANITIZE} -fno-omit-frame-pointer -O1 -g1 -D_GLIBCXX_ASSERTIONS)
  target_link_options(braid_flags INTERFACE -fsanitize=${BRAID_SANITIZE})
  if(BRAID_SANITIZE MATCHES "undefined")
    target_compile_options(braid_flags INTERFACE -fno-sanitize-recover=all)
  endif()
  # The sanitizers' instrumentation makes some warnings of GCC 12 fire on correct code.
  target_compile_options(braid_flags INTERFACE -Wno-maybe-uninitialized -Wno-tsan)
else()
  target_compile_options(braid_flags INTERFACE -D_FORTIFY_SOURCE=2)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # What ccache asks for before it keeps objects that were compiled with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endif()

# Kernels are compiled for speed (src/ops/module.cmake). The other modules compile in a third less
# time with less of it, and those that read, check and print, where a step's time is not spent, in
# half with a precompiled header besides. The sanitizer presets compile without it and so show what
# a file forgets to include.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(BRAID_PRECOMPILED <algorithm> <array> <cmath> <cstdint> <cstring> <functional> <map> <memory>
  <optional> <set> <span> <string> <string_view> <utility> <variant> <vector> <boost/json.hpp>
  <fmt/core.h>)
function(braid_compile_quickly target)
  if(NOT CMAKE_BUILD_TYPE STREQUAL Release)
    return()
  endif()
  target_compile_options(${target} PRIVATE -O1)
  if(target STREQUAL braid_base)
    target_precompile_headers(${target} PRIVATE ${BRAID_PRECOMPILED})
  else()
    target_precompile_headers(${target} REUSE_FROM braid_base)
  endif()
endfunction()
