target_link_libraries(braid_base PUBLIC
  Threads::Threads braid_boost_json braid_fmt braid_spdlog braid_prometheus)
braid_compile_quickly(braid_base)
