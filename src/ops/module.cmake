# Instruction-set files carry their own flags; they are chosen at run time (ops/cpu/dispatch.h,
# ops/cpu/gemm/gemm.h).
set(BRAID_KIND kernels)
set(BRAID_TEST_KIND step)  # its references take most of its time
target_compile_options(braid_ops PRIVATE $<$<CONFIG:Release>:-O3>)
# Its ternaries on floats become selects of vectors.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/weight_format.cc
  ${CMAKE_SOURCE_DIR}/src/ops/grouped/grouped_format.cc
  PROPERTIES COMPILE_OPTIONS -fno-trapping-math)
function(braid_isa_flags pattern)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/cpu/${pattern})
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${ARGN}")
endfunction()

set(BRAID_AVX2_FLAGS -mavx2 -mfma -mf16c -O3)
# GCC 12's own AVX-512 headers pass variables that they leave undefined on purpose.
set(BRAID_AVX512_FLAGS ${BRAID_AVX2_FLAGS} -mavx512f -mavx512bw -mavx512dq -mavx512vl
  -mprefer-vector-width=512 -Wno-uninitialized -Wno-maybe-uninitialized)
if(BRAID_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC 12 puts vectors of 64 bytes where they are not aligned (its bug 110027).
  list(APPEND BRAID_AVX512_FLAGS --param asan-use-after-return=0)
endif()
set(BRAID_DOT_FLAGS ${BRAID_AVX512_FLAGS} -mavx512bf16 -mavx512vnni)
braid_isa_flags(base/*.cc -O3)
braid_isa_flags(avx2/*.cc ${BRAID_AVX2_FLAGS})
braid_isa_flags(avx2/peak_vnni.cc ${BRAID_AVX2_FLAGS} -mavxvnni)
braid_isa_flags(avxvnni/*.cc ${BRAID_AVX2_FLAGS} -mavxvnni)
braid_isa_flags(avx512/*.cc ${BRAID_AVX512_FLAGS})
braid_isa_flags(avx512/gemm.cc ${BRAID_DOT_FLAGS})
braid_isa_flags(avx512/gemm_fp8_dot.cc ${BRAID_DOT_FLAGS} -mavx512vbmi)
braid_isa_flags(avx512/gemm_grouped_dot.cc ${BRAID_DOT_FLAGS})
braid_isa_flags(avx512/peak_dot.cc ${BRAID_DOT_FLAGS})
braid_isa_flags(avx512/tiles.cc ${BRAID_DOT_FLAGS})
braid_isa_flags(amx/*.cc ${BRAID_DOT_FLAGS} -mamx-tile -mamx-bf16 -mamx-int8)

# Every cut of every shape on every instruction set.
set(BRAID_SLOW_TESTS LinearAttention.AnyCutOfASequenceGivesTheSameBits
  LinearAttention.ChunkedEvaluationEqualsThePlainRecurrence
  Attention.AnyCutOfASequenceGivesTheSameBits Attention.EveryCandidateAgreesWithTheReference
  Attention.MembersThatShareKeysGiveTheBitsOfOne
  LatentAttention.EveryCandidateAgreesWithTheReference
  LatentAttention.MembersThatShareKeysGiveTheBitsOfOne
  LinearAttention.WrongDraftsLeaveNoTrace Attention.WrongDraftsLeaveNoTrace
  LatentAttention.WrongDraftsLeaveNoTrace
  Vulkan.* VulkanRecurrence.* VulkanSample.* VulkanWeights.*)

# Of the Vulkan candidates; products with so many rows of a workgroup.
include(shaders)
foreach(shader AddRows Embed products/ExpertRows products/ExpertTiles GatedNorm products/Quantise
    RmsNorm Route Sample ScalarGate Swiglu WriteKv WriteLatent attention/AttentionMerge
    recurrence/Conv recurrence/ConvWindow recurrence/Delta recurrence/DeltaRows
    recurrence/DeltaStep)
  string(REGEX REPLACE "([a-z])([A-Z])" "\\1_\\2" file ${shader})
  string(TOLOWER ${file} file)
  get_filename_component(shader ${shader} NAME)
  braid_shader(braid_ops src/ops/vulkan/shaders/${file}.comp kShader${shader})
endforeach()
set(attention src/ops/vulkan/shaders/attention/attention.comp)
braid_shader(braid_ops ${attention} kShaderAttention -DROWS=4 -DWIDE=2)
braid_shader(braid_ops ${attention} kShaderAttentionWide -DROWS=4 -DWIDE=4)
foreach(rows 1 2 4)
  braid_shader(braid_ops ${attention} kShaderAttentionSplit${rows} -DROWS=${rows} -DWIDE=2 -DSPLIT)
endforeach()
set(products src/ops/vulkan/shaders/products)
foreach(rows 1 4 8)
  braid_shader(braid_ops ${products}/linear.comp kShaderLinear${rows} -DROWS=${rows})
endforeach()
foreach(rows 32 64)
  braid_shader(braid_ops ${products}/linear_tile.comp kShaderLinearTile${rows} -DTILE=${rows})
endforeach()
