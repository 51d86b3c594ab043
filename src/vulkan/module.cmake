# The loader finds libvulkan when a device is asked for.
find_path(VOLK_INCLUDE volk.h REQUIRED)
target_link_libraries(braid_vulkan PRIVATE ${CMAKE_DL_LIBS})
include(shaders)
braid_shader(braid_vulkan src/vulkan/shaders/read.comp kShaderRead)
braid_shader(braid_vulkan src/vulkan/shaders/multiply.comp kShaderMultiply)
braid_shader(braid_vulkan src/vulkan/shaders/add_one.comp kShaderAddOne)
set(BRAID_KIND quick)
