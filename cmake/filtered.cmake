# braid_add_filtered_test(NAME PROGRAM PATTERNS [--or-skip]): a CTest test of those tests of a
# GoogleTest program that the patterns, joined by colons, name. It fails if one of them names no
# test (tests/run_filtered.py). --or-skip: it is skipped if none of them does.
function(braid_add_filtered_test name program patterns)
  add_test(NAME ${name} COMMAND python3 ${CMAKE_SOURCE_DIR}/tests/run_filtered.py ${ARGN}
    $<TARGET_FILE:${program}> ${patterns})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()
