target_link_libraries(braid_base PUBLIC
  Threads::Threads braid_boost_json braid_fmt braid_spdlog braid_prometheus ${CMAKE_DL_LIBS})
set(BRAID_KIND quick)
