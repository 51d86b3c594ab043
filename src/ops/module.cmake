# Instruction-set files carry their own flags; they are chosen at run time (ops/cpu/dispatch.h).
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/cpu/avx2/table.cc PROPERTIES
  COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;-O3")
