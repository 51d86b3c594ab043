# What the build takes from the system. Each entry has its reason in docs/DEPENDENCIES.md.
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json)
find_package(OpenSSL REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)

# The package's own CMake file demands CURL even for the core library, which does not use it.
find_path(PROMETHEUS_INCLUDE prometheus/registry.h REQUIRED)
find_library(PROMETHEUS_CORE prometheus-cpp-core REQUIRED)
add_library(prometheus_core INTERFACE)
target_include_directories(prometheus_core SYSTEM INTERFACE ${PROMETHEUS_INCLUDE})
target_link_libraries(prometheus_core INTERFACE ${PROMETHEUS_CORE})

if(BRAID_TESTS)
  find_package(GTest REQUIRED)
endif()
