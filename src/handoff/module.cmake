target_include_directories(braid_handoff SYSTEM PRIVATE ${UCX_INCLUDE})
target_link_libraries(braid_handoff PRIVATE braid_crypto)
# As vectors, which the plain x86-64 has no products of 64 bits for, checksums take three times as
# long.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/handoff/message.cc
  PROPERTIES COMPILE_OPTIONS "-fno-tree-vectorize;-fno-tree-slp-vectorize")
