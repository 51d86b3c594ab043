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
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC first collects garbage at 512 MiB (twice the parameter, which is in KiB), which few files
  # reach, not at 256, of which precompiled headers take half. The objects are the same bytes.
  target_compile_options(braid_flags INTERFACE --param=ggc-min-heapsize=262144)
endif()
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

# Kernels are compiled for speed (src/ops/module.cmake), what a step runs with -O2. Modules that
# read, check and print, where a step's time is not spent, and tests compile in less time with -O1.
# Headers that most files include are compiled once per kind of target, which halves the time of a
# clean build. -DBRAID_TOGETHER=OFF, as in the preset `fuzz`, compiles without them and each file by
# itself, and so shows what a file forgets to include.
option(BRAID_TOGETHER "Compile common headers once and several files as one" ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(BRAID_PRECOMPILED <algorithm> <array> <cmath> <cstdint> <cstring> <functional> <map> <memory>
  <optional> <set> <span> <string> <string_view> <utility> <variant> <vector> <boost/json.hpp>
  <fmt/core.h>)

# The target whose precompiled headers all targets of a kind use: a library of one empty file.
function(braid_headers kind)
  if(TARGET headers_${kind})
    return()
  endif()
  set(source ${CMAKE_BINARY_DIR}/headers_${kind}.cc)
  file(WRITE ${source} "")
  add_library(headers_${kind} OBJECT ${source})
  target_link_libraries(headers_${kind} PRIVATE braid_flags
    Threads::Threads braid_boost_json braid_fmt braid_spdlog)
  set(headers ${BRAID_PRECOMPILED})
  if(kind STREQUAL test)
    target_link_libraries(headers_${kind} PRIVATE GTest::gtest GTest::gmock)
    list(APPEND headers <fmt/format.h> <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  if(NOT kind STREQUAL step AND CMAKE_BUILD_TYPE STREQUAL Release)
    target_compile_options(headers_${kind} PRIVATE -O1)
  endif()
  target_precompile_headers(headers_${kind} PRIVATE ${headers})
endfunction()

# Kinds: `step`, code that a step runs; `quick`, code that it does not; `test`.
function(braid_precompile target kind)
  if(NOT BRAID_TOGETHER)
    return()
  endif()
  braid_headers(${kind})
  if(NOT kind STREQUAL step AND CMAKE_BUILD_TYPE STREQUAL Release)
    # With -O1, GCC 12 sees reads past the ends of std::string that are not there either.
    target_compile_options(${target} PRIVATE -O1 -Wno-array-bounds -Wno-stringop-overread)
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)  # compiled as libraries are: the headers fit no other code
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM headers_${kind})
endfunction()
