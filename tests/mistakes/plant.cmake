# braid_plant(TABLE): makes copies of the sources that TABLE.toml names with its mistakes in them.
# Sets ${planted} to the folder of the copies (and of TABLE.inc) and ${planted_copies} to what a
# target must list.
function(braid_plant table)
  set(plant ${CMAKE_SOURCE_DIR}/tests/mistakes/plant.py)
  set(toml ${CMAKE_CURRENT_SOURCE_DIR}/${table}.toml)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/planted/${table})
  execute_process(COMMAND python3 ${plant} --files ${toml}
    OUTPUT_VARIABLE files COMMAND_ERROR_IS_FATAL ANY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${toml})
  list(TRANSFORM files PREPEND ${out}/ OUTPUT_VARIABLE copies)
  list(TRANSFORM files PREPEND ${CMAKE_SOURCE_DIR}/src/ OUTPUT_VARIABLE originals)
  list(APPEND copies ${out}/${table}.inc)
  add_custom_command(
    OUTPUT ${copies}
    COMMAND python3 ${plant} ${CMAKE_SOURCE_DIR}/src ${toml} ${out}
    DEPENDS ${originals} ${plant} ${toml}
    COMMENT "Planting the mistakes of ${table}.toml"
    VERBATIM)
  set_source_files_properties(${copies} PROPERTIES COMPILE_OPTIONS "-Wno-conversion;-Wno-extra")
  set(planted ${out} PARENT_SCOPE)
  set(planted_copies ${copies} PARENT_SCOPE)
endfunction()
