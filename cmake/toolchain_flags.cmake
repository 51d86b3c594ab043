# Compiler flags of the whole project: warnings are errors, contraction of a*b+c is never left to
# the compiler (equal arithmetic on every path is a promise, see docs/decisions), sanitizers by
# preset.
add_library(braid_flags INTERFACE)
target_include_directories(braid_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(braid_flags INTERFACE
  -Wall -Wextra -Wconversion -Werror -ffp-contract=off -fno-math-errno -fstack-protector-strong
  -Wno-missing-field-initializers
  # GCC 12 sees overlaps in std::string that are not there (its bug 105651).
  -Wno-restrict)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Only the fuzz targets are built with clang, whose warnings differ.
  target_compile_options(braid_flags INTERFACE -Wno-error -Wno-everything)
endif()
if(BRAID_SANITIZE)
  target_compile_options(braid_flags INTERFACE
    -fsanitize=${BRAID_SANITIZE} -fno-omit-frame-pointer -O1 -D_GLIBCXX_ASSERTIONS)
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
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
