# The binary. Its page comes bundled from web/dist.
include(embed)
target_link_libraries(braid_cli PRIVATE CLI11::CLI11)
braid_compile_quickly(braid_cli)
braid_embed(braid_cli web/dist/index.html kPageHtml)
add_executable(braid ${CMAKE_SOURCE_DIR}/src/cli/main.cc)
target_link_libraries(braid PRIVATE braid_cli)
