# What the build takes from the system. Each entry has its reason in docs/DEPENDENCIES.md.
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json)
find_package(OpenSSL REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)

find_path(UCX_INCLUDE ucp/api/ucp.h REQUIRED)  # headers; the library is loaded at run time

# The package's own CMake file demands CURL even for the core library, which does not use it.
find_path(PROMETHEUS_INCLUDE prometheus/registry.h REQUIRED)
find_library(PROMETHEUS_CORE prometheus-cpp-core REQUIRED)
add_library(prometheus_core INTERFACE)
target_include_directories(prometheus_core SYSTEM INTERFACE ${PROMETHEUS_INCLUDE})
target_link_libraries(prometheus_core INTERFACE ${PROMETHEUS_CORE})

if(BRAID_TESTS)
  find_package(GTest REQUIRED)
endif()

# The static libraries of `make dist`: Debian's where it has them, else built from its sources. Only
# the program that has the property BRAID_STATIC links them; everything else links `shared`.
set(DIST_DIR ${CMAKE_SOURCE_DIR}/build/dist)
set(DIST_LIBRARIES ${DIST_DIR}/lib/libfmt.a ${DIST_DIR}/lib/libspdlog.a
  ${DIST_DIR}/lib/libprometheus-cpp-core.a)

function(braid_dependency name shared archive)
  get_filename_component(folder "${archive}" DIRECTORY)
  if(NOT folder)
    # A package without its archive is no error until somebody links it.
    find_library(STATIC_${name} ${archive})
    set(archive ${STATIC_${name}})
  endif()
  add_library(${name}_static STATIC IMPORTED GLOBAL)
  set_target_properties(${name}_static PROPERTIES IMPORTED_LOCATION ${archive}
    INTERFACE_LINK_LIBRARIES "${ARGN}")
  add_library(${name} INTERFACE)
  target_link_libraries(${name} INTERFACE
    $<IF:$<BOOL:$<TARGET_PROPERTY:BRAID_STATIC>>,${name}_static,${shared}>)
endfunction()

braid_dependency(braid_boost_json Boost::json libboost_json.a)
braid_dependency(braid_crypto OpenSSL::Crypto libcrypto.a pthread dl)
braid_dependency(braid_ssl OpenSSL::SSL libssl.a braid_crypto_static)
braid_dependency(braid_fmt fmt::fmt ${DIST_DIR}/lib/libfmt.a)
braid_dependency(braid_spdlog spdlog::spdlog ${DIST_DIR}/lib/libspdlog.a braid_fmt_static)
braid_dependency(braid_prometheus prometheus_core ${DIST_DIR}/lib/libprometheus-cpp-core.a)
