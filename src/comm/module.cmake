target_link_libraries(braid_comm PRIVATE braid_crypto)

# comm_test's MpiRank as three processes. mpirun fails where a rank leaves a group that has ended,
# so what the ranks print decides.
find_program(MPIRUN mpirun)
if(BRAID_TESTS AND MPIRUN)
  foreach(role all leaves sizes)
    add_test(NAME comm_mpi_${role}
      COMMAND ${MPIRUN} --allow-run-as-root --oversubscribe -n 3
        $<TARGET_FILE:comm_test> --gtest_brief=1 --gtest_filter=MpiRank.*)
    set_tests_properties(comm_mpi_${role} PROPERTIES LABELS "unit;slow" TIMEOUT 120
      ENVIRONMENT "BRAID_TEST_MPI_ROLE=${role}"
      PASS_REGULAR_EXPRESSION
        "as it should be[^!]*as it should be[^!]*as it should be")
  endforeach()
elseif(BRAID_TESTS)
  message(STATUS "No mpirun: ranks as processes are not tested (Debian: openmpi-bin)")
endif()
