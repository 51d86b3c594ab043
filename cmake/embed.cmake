# braid_embed(target file symbol) compiles a file into a static library as
#   namespace braid { extern const std::string_view <symbol>; }
# The user of the bytes writes that declaration in a header of its own. The bytes become a string
# literal of \xNN escapes, so any file is safe, and the copy is made again when the file changes.
# The same file is the script that the build runs for it (cmake -P): nothing but CMake is needed.
if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  file(READ "${BRAID_EMBED_FILE}" bytes HEX)
  string(LENGTH "${bytes}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
  # CMake's regular expressions know no counts; a line holds 32 bytes, that is 128 characters.
  string(REPEAT "." 128 line)
  string(REGEX REPLACE "(${line})" "\\1\"\n    \"" bytes "${bytes}")
  file(WRITE "${BRAID_EMBED_OUTPUT}"
    "#include <string_view>\n\nnamespace braid {\n"
    "extern const std::string_view ${BRAID_EMBED_SYMBOL};\n"
    "constinit const std::string_view ${BRAID_EMBED_SYMBOL}{\n    \"${bytes}\",\n    ${size}};\n"
    "}  // namespace braid\n")
  return()
endif()

set(BRAID_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(braid_embed target file symbol)
  get_filename_component(source ${file} ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
  get_source_file_property(generated ${source} GENERATED)
  if(NOT EXISTS ${source} AND NOT generated)
    message(FATAL_ERROR "braid_embed: ${source} does not exist")
  endif()
  set(output ${CMAKE_BINARY_DIR}/embed/${symbol}.cc)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DBRAID_EMBED_FILE=${source} -DBRAID_EMBED_OUTPUT=${output}
      -DBRAID_EMBED_SYMBOL=${symbol} -P ${BRAID_EMBED_SCRIPT}
    DEPENDS ${source} ${BRAID_EMBED_SCRIPT}
    COMMENT "Embedding ${file}"
    VERBATIM)
  set_source_files_properties(${output} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${output})
endfunction()
