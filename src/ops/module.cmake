# Instruction-set files carry their own flags; they are chosen at run time (ops/cpu/dispatch.h).
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/cpu/avx2/table.cc PROPERTIES
  COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;-O3")
set(braid_avx512_flags "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512bf16;-mavx512vnni;-O3")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/cpu/avx512/products.cc PROPERTIES
  COMPILE_OPTIONS "${braid_avx512_flags}")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/cpu/amx/products.cc PROPERTIES
  COMPILE_OPTIONS "${braid_avx512_flags};-mamx-tile;-mamx-bf16;-mamx-int8")
