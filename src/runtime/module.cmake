# Builds that look for mistakes make freed cache pages unusable.
if(BRAID_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_definitions(braid_runtime PUBLIC BRAID_POISON_FREED=true)
else()
  target_compile_definitions(braid_runtime PUBLIC BRAID_POISON_FREED=false)
endif()
