# libzmq is loaded at run time.
target_link_libraries(braid_kv_events PRIVATE ${CMAKE_DL_LIBS})
