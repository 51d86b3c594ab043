# The programs. Their page comes bundled from web/dist.
include(embed)
target_link_libraries(braid_cli PUBLIC CLI11::CLI11 PRIVATE braid_crypto)
set(BRAID_KIND quick)
set_source_files_properties(cli/command/no_commit.cc cli/command/no_notices.cc
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
braid_embed(braid_cli web/dist/index.html kPageHtml)
include(dist)
