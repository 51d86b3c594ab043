# The decoders of quantised checkpoints are loops over all weights.
set(BRAID_KIND quick)
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/model/checkpoint/formats/*.cc)
set_source_files_properties(${sources} PROPERTIES
  COMPILE_OPTIONS $<$<CONFIG:Release>:-O3> SKIP_PRECOMPILE_HEADERS ON)
# Sums of files (checksums.h).
target_link_libraries(braid_model PRIVATE braid_crypto)

# Long sequences, and the largest of each family's random models.
set(BRAID_SLOW_TESTS LatentAttention.TheExpandedFormAgreesWithTheAbsorbedOneOfTheReference
  LatentAttention.NeitherThreadsNorOtherSequencesChangeABitOfTheExpandedForm
  LatentAttention.HeadsThatDoNotFitAtOnceFollowInTurn
  LatentAttention.TokensOfShortPartsKeepTheBitsOfTheAbsorbedForm
  Checkpoint.TheLargestHostileHeadersCostLittle *Golden.*/*_c)
# Configs of published models are data in the library: families/published.cc has the table.
include(embed)
file(GLOB configs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/configs/*.json)
foreach(config ${configs})
  get_filename_component(name ${config} NAME_WE)
  braid_embed(braid_model ${config} kConfig_${name})
endforeach()
