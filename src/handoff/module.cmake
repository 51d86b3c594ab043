target_include_directories(braid_handoff SYSTEM PRIVATE ${UCX_INCLUDE})
target_link_libraries(braid_handoff PRIVATE braid_crypto)
