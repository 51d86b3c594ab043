# The HTTP tests' server runs the whole of this module on a fake model.
if(BRAID_TESTS)
  add_subdirectory(${CMAKE_SOURCE_DIR}/tests/http ${CMAKE_BINARY_DIR}/tests/http)
endif()
