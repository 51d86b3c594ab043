# Instruction-set files carry their own flags; they are chosen at run time (ops/cpu/dispatch.h).
set(BRAID_AVX2_FLAGS -mavx2 -mfma -mf16c -O3)
# GCC 12's own AVX-512 headers pass variables that they leave undefined on purpose.
set(BRAID_AVX512_FLAGS ${BRAID_AVX2_FLAGS} -mavx512f -mavx512bw -mavx512dq -mavx512vl
  -mprefer-vector-width=512 -Wno-uninitialized -Wno-maybe-uninitialized)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/cpu/avx2/table.cc
  PROPERTIES COMPILE_OPTIONS "${BRAID_AVX2_FLAGS}")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/cpu/avx512/table.cc
  PROPERTIES COMPILE_OPTIONS "${BRAID_AVX512_FLAGS}")
set(BRAID_AVX512_DOT_FLAGS ${BRAID_AVX512_FLAGS} -mavx512bf16 -mavx512vnni)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/cpu/avx512/products.cc
  PROPERTIES COMPILE_OPTIONS "${BRAID_AVX512_DOT_FLAGS}")
file(GLOB amx_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/cpu/amx/*.cc)
set_source_files_properties(${amx_sources}
  PROPERTIES COMPILE_OPTIONS "${BRAID_AVX512_DOT_FLAGS};-mamx-tile;-mamx-bf16;-mamx-int8")
# Peak loops: one file per set of instructions that a CPU may have or lack.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/cpu/avx2/peak.cc
  PROPERTIES COMPILE_OPTIONS "${BRAID_AVX2_FLAGS}")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/cpu/avx2/peak_vnni.cc
  PROPERTIES COMPILE_OPTIONS "${BRAID_AVX2_FLAGS};-mavxvnni")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/cpu/avx512/peak.cc
  PROPERTIES COMPILE_OPTIONS "${BRAID_AVX512_FLAGS}")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/cpu/avx512/peak_dot.cc
  PROPERTIES COMPILE_OPTIONS "${BRAID_AVX512_DOT_FLAGS}")
