# braid_add_numerics(target) adds a source that defines kNumerics (src/engine/fingerprint.h): a
# digest of all that decides about the bits of pages, which is the sources of the modules below, the
# compiler and its flags. A change of any other file leaves it as it is, and it does not depend on
# where the repository lies. A file too many in it costs a cold start, a file too few a wrong token.
#
# The same file is the script that computes it:
#   cmake -DBRAID_SOURCES=DIR -DBRAID_FLAGS=TEXT -DBRAID_OUTPUT=FILE -P numerics.cmake
if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  set(files "")
  # The scheduler and the cache decide which bytes are which tokens', the engine what is asked for.
  foreach(module base tensor comm vulkan cache experts ops scheduler model parallel runtime engine)
    set(folder ${BRAID_SOURCES}/src/${module})
    file(GLOB_RECURSE found RELATIVE ${BRAID_SOURCES} ${folder}/*.cc ${folder}/*.h
      ${folder}/*.cmake ${folder}/*.comp ${folder}/*.glsl)
    list(APPEND files ${found})
  endforeach()
  # Tests, and what families say about text (src/LAYERS): tokens are what pages are found by.
  list(FILTER files EXCLUDE REGEX "_test\\.cc$|^src/model/families/text/")
  list(APPEND files cmake/toolchain_flags.cmake cmake/shaders.cmake)
  list(SORT files)
  set(text "${BRAID_FLAGS}\n")
  foreach(file ${files})
    file(SHA256 ${BRAID_SOURCES}/${file} sum)
    string(APPEND text "${file} ${sum}\n")
  endforeach()
  string(SHA256 digest "${text}")
  string(SUBSTRING ${digest} 0 32 digest)
  string(CONCAT text
    "#include <string_view>\n\nnamespace braid {\nextern const std::string_view kNumerics;\n"
    "constinit const std::string_view kNumerics{\"${digest}\"};\n}  // namespace braid\n")
  # It keeps the time of a file that is equal.
  file(CONFIGURE OUTPUT ${BRAID_OUTPUT} CONTENT "${text}" @ONLY)
  return()
endif()

include(shaders)

set(BRAID_NUMERICS_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

# Every build runs the script, which takes 50 ms and writes only what has changed.
function(braid_add_numerics target)
  set(output ${CMAKE_BINARY_DIR}/embed/numerics.cc)
  # It compiles what runs on devices.
  execute_process(COMMAND ${GLSLC} --version OUTPUT_VARIABLE glslc OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REGEX REPLACE "[^A-Za-z0-9.]+" " " glslc "${glslc}")
  string(JOIN " " flags ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}
    ${CMAKE_SYSTEM_PROCESSOR} ${CMAKE_BUILD_TYPE} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_RELEASE}
    ${BRAID_SANITIZE} ${glslc})
  add_custom_target(braid_numerics
    COMMAND ${CMAKE_COMMAND} -DBRAID_SOURCES=${CMAKE_SOURCE_DIR} -DBRAID_FLAGS=${flags}
      -DBRAID_OUTPUT=${output} -P ${BRAID_NUMERICS_SCRIPT}
    BYPRODUCTS ${output}
    VERBATIM)
  set_source_files_properties(${output} PROPERTIES GENERATED ON)
  set_source_files_properties(${output} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${output})
  add_dependencies(${target} braid_numerics)
endfunction()
