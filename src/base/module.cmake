target_link_libraries(braid_base PUBLIC
  Threads::Threads Boost::json fmt::fmt spdlog::spdlog prometheus_core)
braid_compile_quickly(braid_base)
