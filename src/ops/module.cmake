# Instruction-set files carry their own flags; they are chosen at run time (ops/cpu/dispatch.h).
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/cpu/avx2/table.cc PROPERTIES
  COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;-O3")
# Peak loops: one file per set of instructions that a CPU may have or lack.
set(peak_avx512 -mavx512f -Wno-uninitialized -Wno-maybe-uninitialized)
set(peak_dot_avx512 ${peak_avx512} -mavx512bw -mavx512vl -mavx512bf16 -mavx512vnni)
foreach(peak "avx2/peak|-mavx2;-mfma" "avx2/peak_vnni|-mavx2;-mavxvnni"
             "avx512/peak|${peak_avx512}" "avx512/peak_dot|${peak_dot_avx512}"
             "amx/peak|-mamx-tile;-mamx-bf16;-mamx-int8")
  string(REPLACE "|" ";" peak "${peak}")
  list(POP_FRONT peak file)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/cpu/${file}.cc PROPERTIES
    COMPILE_OPTIONS "${peak}")
endforeach()
