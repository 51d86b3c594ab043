# The two programs: `braid`, linked with the system's shared libraries, and `braid_dist`, the same
# objects linked so that the C library is all it needs (scripts/pack_dist.sh makes the archive).
set(BRAID_COMMIT "" CACHE STRING "What `braid version` calls the commit; empty: git is asked")
set(COMMIT_SOURCE ${CMAKE_BINARY_DIR}/embed/commit.cc)
add_custom_target(braid_commit
  COMMAND ${CMAKE_COMMAND} -DBRAID_OUTPUT=${COMMIT_SOURCE} -DBRAID_COMMIT=${BRAID_COMMIT}
    -P ${CMAKE_SOURCE_DIR}/cmake/commit.cmake
  BYPRODUCTS ${COMMIT_SOURCE}
  VERBATIM)
add_library(braid_main OBJECT ${CMAKE_SOURCE_DIR}/src/cli/main.cc ${COMMIT_SOURCE})
add_dependencies(braid_main braid_commit)
target_link_libraries(braid_main PRIVATE braid_cli)

add_executable(braid $<TARGET_OBJECTS:braid_main>)
target_link_libraries(braid PRIVATE braid_cli)

# CMake finds a rule only in the folder that declares it, so this stands beside its users.
add_custom_command(
  OUTPUT ${DIST_LIBRARIES}
  COMMAND ${CMAKE_SOURCE_DIR}/scripts/dist_libraries.sh ${DIST_DIR}
  DEPENDS ${CMAKE_SOURCE_DIR}/scripts/dist_libraries.sh
  COMMENT "Building static libraries"
  VERBATIM)

set(NOTICES ${DIST_DIR}/NOTICES)
file(GLOB PAGE_NOTICES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/web/dist/NOTICES)
add_custom_command(
  OUTPUT ${NOTICES}
  COMMAND ${CMAKE_COMMAND} -E env CARGO=${CARGO} python3 ${CMAKE_SOURCE_DIR}/scripts/notices.py
    --output ${NOTICES}
  DEPENDS ${CMAKE_SOURCE_DIR}/scripts/notices.py ${CMAKE_SOURCE_DIR}/rust/Cargo.lock
    ${PAGE_NOTICES} ${DIST_LIBRARIES}
  COMMENT "Collecting licence notices"
  VERBATIM)
add_executable(braid_dist EXCLUDE_FROM_ALL $<TARGET_OBJECTS:braid_main>)
braid_embed(braid_dist ${NOTICES} kNotices)
target_link_libraries(braid_dist PRIVATE braid_cli)
target_link_options(braid_dist PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections
  -Wl,-Map=${DIST_DIR}/braid.map)
set_target_properties(braid_dist PROPERTIES BRAID_STATIC ON LINKER_LANGUAGE CXX)
add_custom_target(dist
  COMMAND ${CMAKE_SOURCE_DIR}/scripts/pack_dist.sh $<TARGET_FILE:braid_dist> ${DIST_DIR}
  DEPENDS braid_dist
  VERBATIM)
