# braid_shader(target source symbol [-DNAME=VALUE ...]) compiles a GLSL compute shader for Vulkan
# 1.3, checks it and embeds it as <symbol> (cmake/embed.cmake). Shaders include others of their
# folder and the one above.
include(embed)
find_program(GLSLC glslc)
find_program(SPIRV_VAL spirv-val)
if(NOT GLSLC OR NOT SPIRV_VAL)
  message(FATAL_ERROR "glslc or spirv-val not found: Debian has them in glslc and spirv-tools")
endif()

function(braid_shader target source symbol)
  get_filename_component(source ${source} ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
  get_filename_component(folder ${source} DIRECTORY)
  file(GLOB included CONFIGURE_DEPENDS ${folder}/*.glsl ${folder}/../*.glsl)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/embed)
  set(output ${CMAKE_BINARY_DIR}/embed/${symbol}.spv)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${GLSLC} --target-env=vulkan1.3 -O -Werror -I ${folder} -I ${folder}/.. ${ARGN}
      -o ${output} ${source}
    COMMAND ${SPIRV_VAL} --target-env vulkan1.3 ${output}
    DEPENDS ${source} ${included}
    COMMENT "Compiling ${symbol}"
    VERBATIM)
  set_source_files_properties(${output} PROPERTIES GENERATED ON)
  braid_embed(${target} ${output} ${symbol})
endfunction()
