target_link_libraries(braid_comm PRIVATE braid_crypto)
# Three processes for each role, some of which wait for seconds.
set(BRAID_SLOW_TESTS MpiProcesses.*)
