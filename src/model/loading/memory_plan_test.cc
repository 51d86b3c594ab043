// The division of memory, on specs read from configs, and the sizes that the plan states.
#include "model/loading/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/math.h"
#include "base/quantities.h"
#include "cache/page_part.h"
#include "model/checkpoint/test_directory.h"
#include "model/describe.h"
#include "model/families/families.h"
#include "model/loading/weight_binding.h"

namespace braid {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

ModelSpec Tiny() {
  Result<ModelSpec> spec = ReadModelSpec(BRAID_SOURCE_DIR "/models/braid-tiny");
  CHECK(spec.ok());
  return *std::move(spec);
}

// The sizes of Qwen3.5-35B-A3B.
ModelSpec Large() {
  Result<ModelSpec> spec = ParseModelSpec(R"({"architectures": ["Qwen3_5MoeForCausalLM"],
    "vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512, "max_position_embeddings": 262144,
    "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25}})",
                                          "test");
  CHECK(spec.ok(), "{}", spec.error().message);
  return *std::move(spec);
}

MemoryRequest RequestOf(int64_t available) {
  return {.kv_dtype = DType::kF32,
          .available_bytes = available,
          .weight_bytes = 20 * kMiB,
          .workspace_bytes = 10 * kMiB,
          .total_bytes = {},
          .arena_bytes = {}};
}

TEST(Capacities, StandInTheStartUpTextAndNeverExceedWhatRuns) {
  Result<MemoryPlan> plan = PlanMemory(Tiny(), RequestOf(200 * kMiB));
  ASSERT_TRUE(plan) << plan.error().message;
  const std::vector<MemoryPlan::Capacity> capacities = plan->Capacities();
  ASSERT_EQ(capacities.size(), 3u);  // 512, 4096 and all of 8192
  std::string text;
  for (const std::string& line : DescribePlan(*plan)) text += line + '\n';
  int64_t before = std::numeric_limits<int64_t>::max();
  for (const MemoryPlan::Capacity& c : capacities) {
    EXPECT_EQ(c.resumable, ResumableConversations(plan->geometry, c.tokens));
    EXPECT_EQ(c.running, std::min<int64_t>(plan->SequencesOf(c.tokens), plan->running_max));
    EXPECT_LT(c.resumable, before);
    before = c.resumable;
    EXPECT_THAT(text, HasSubstr(fmt::format("of {} tokens: {} resumable, or {} running", c.tokens,
                                            c.resumable, c.running)));
  }
}

TEST(Capacities, TellWhatATierHasRoomFor) {
  Result<MemoryPlan> plan = PlanMemory(Tiny(), RequestOf(200 * kMiB));
  ASSERT_TRUE(plan) << plan.error().message;
  for (const MemoryPlan::Capacity& c : plan->Capacities()) EXPECT_EQ(c.stored, 0);
  const auto bytes = [&](GroupKind kind) {
    return RoundUp(PartBytes(plan->geometry, kind), kStoredAlignment);
  };
  plan->tier_bytes = 3 * (8 * bytes(GroupKind::kFull) + 2 * bytes(GroupKind::kState));
  EXPECT_EQ(plan->Capacities()[0].stored, 3);  // of 512 tokens
  EXPECT_THAT(DescribePlan(*plan), Contains(EndsWith("; 3 on disk")));
}

TEST(ParametersOf, AgreesWithThePublishedSizeOfALargeModel) {
  const ParameterCount count = ParametersOf(Large());
  EXPECT_NEAR(static_cast<double>(count.total), 34.66e9, 0.005e9);
  EXPECT_EQ(count.embedding, int64_t{248320} * 2048);
  EXPECT_NEAR(static_cast<double>(count.active), 2.95e9, 0.3e9);
}

TEST(PlanMemory, KeysAndValuesOfALargeModelTakeTheStatedBytes) {
  MemoryRequest request = RequestOf(int64_t{1} << 40);
  request.kv_dtype = DType::kBF16;
  Result<MemoryPlan> plan = PlanMemory(Large(), request);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->kv_bytes_per_token, 20480);
  EXPECT_EQ(plan->model_len_max, 262144);
}

TEST(PlanMemory, GroupsPackTheirBlocksIntoParentsOfTheLargestBlock) {
  Result<MemoryPlan> plan = PlanMemory(Tiny(), RequestOf(2000 * kMiB));
  ASSERT_TRUE(plan) << plan.error().message;
  const CacheGeometry& geometry = plan->geometry;
  ASSERT_EQ(geometry.groups.size(), 2u);
  for (const GroupGeometry& group : geometry.groups) {
    const int64_t used = group.block_bytes * group.blocks_per_page;
    EXPECT_LE(used, geometry.page_bytes);
    EXPECT_GT(used + group.block_bytes, geometry.page_bytes);
  }
  // Layers 3 and 7 are full attention; slices lie one after the other in their group's block.
  ASSERT_EQ(plan->slices.size(), 8u);
  EXPECT_EQ(plan->slices[3].group, plan->slices[7].group);
  EXPECT_NE(plan->slices[3].group, plan->slices[0].group);
  EXPECT_EQ(plan->slices[3].byte_offset, 0);
  EXPECT_EQ(plan->slices[7].byte_offset, 2 * 2 * 64 * 64 * 4);
}

TEST(PlanMemory, TakesAShareOfWhatIsLeftOrWhatCanBeUsed) {
  Result<MemoryPlan> share = PlanMemory(Tiny(), RequestOf(230 * kMiB));
  ASSERT_TRUE(share) << share.error().message;
  EXPECT_LE(share->arena_bytes, 140 * kMiB);
  EXPECT_GT(share->arena_bytes, 140 * kMiB - share->geometry.page_bytes);
  MemoryRequest few = RequestOf(int64_t{1} << 40);
  few.running_max = 2;
  Result<MemoryPlan> capped = PlanMemory(Tiny(), few);
  ASSERT_TRUE(capped) << capped.error().message;
  EXPECT_EQ(capped->SequencesOf(capped->model_len_max), 2);
}

TEST(PlanMemory, ATotalIsDividedExactly) {
  MemoryRequest request = RequestOf(int64_t{1} << 40);
  request.total_bytes = 130 * kMiB;
  Result<MemoryPlan> plan = PlanMemory(Tiny(), request);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_LE(plan->arena_bytes, 100 * kMiB);
  EXPECT_GT(plan->arena_bytes, 100 * kMiB - plan->geometry.page_bytes);
}

TEST(PlanMemory, CutsTheLengthWhenNobodyAskedForItAndRefusesWhenSomebodyDid) {
  MemoryRequest request = RequestOf(0);
  request.arena_bytes = 8 * kMiB;
  Result<MemoryPlan> cut = PlanMemory(Tiny(), request);
  ASSERT_TRUE(cut) << cut.error().message;
  EXPECT_TRUE(cut->model_len_cut);
  EXPECT_LT(cut->model_len_max, 8192);
  EXPECT_GE(cut->SequencesOf(cut->model_len_max), 1);
  request.model_len_max = 8192;
  Result<MemoryPlan> refused = PlanMemory(Tiny(), request);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("one sequence of 8192 tokens needs"));
  EXPECT_THAT(refused.error().message, HasSubstr(std::to_string(cut->model_len_max)));
}

TEST(PlanMemory, ASequenceKeepsAThirdStateBlockWhereDraftsMayComeAndTheTextSaysSo) {
  MemoryRequest request = RequestOf(200 * kMiB);
  const Result<MemoryPlan> without = PlanMemory(Tiny(), request);
  request.drafts = true;
  const Result<MemoryPlan> with = PlanMemory(Tiny(), request);
  ASSERT_TRUE(without && with);
  EXPECT_EQ(2 * with->state_bytes_per_sequence, 3 * without->state_bytes_per_sequence);
  EXPECT_THAT(DescribePlan(*with),
              Contains(HasSubstr("each running sequence " +
                                 ByteText(with->state_bytes_per_sequence) + " of state")));
}

TEST(PlanMemory, ExpertsOfAMappedFileMayStayOnDisk) {
  constexpr int64_t kGiB = 1024 * kMiB;
  MemoryRequest request{.kv_dtype = DType::kBF16,
                        .available_bytes = 12 * kGiB,
                        .weight_bytes = 20 * kGiB,
                        .workspace_bytes = kGiB,
                        .model_len_max = 8192};
  EXPECT_FALSE(PlanMemory(Large(), request));
  request.pageable_bytes = 17 * kGiB;
  for (const bool flag : {false, true}) {
    if (flag) std::swap(request.available_bytes, request.total_bytes.emplace(100 * kGiB));
    const Result<MemoryPlan> plan = PlanMemory(Large(), request);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_LE(plan->arena_bytes, 2 * kGiB);  // a quarter of what 3 + 1 GiB leave
    EXPECT_EQ(plan->on_disk_bytes, 9 * kGiB + plan->arena_bytes);
    EXPECT_EQ(plan->disk_bytes_per_token, plan->on_disk_bytes / 32);  // 8 of 256 experts
    EXPECT_THAT(DescribePlan(*plan), Contains(HasSubstr("of the experts stay on disk")));
  }
  request.total_bytes = 4 * kGiB;  // no room for what must stay
  const Result<MemoryPlan> refused = PlanMemory(Large(), request);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("memory of 4.00 GiB is too small"));
  request.total_bytes = 40 * kGiB;
  EXPECT_EQ(PlanMemory(Large(), request)->on_disk_bytes, 0);
}

TEST(PlanMemory, NamesTheNumbersWhenNothingFits) {
  Result<MemoryPlan> available = PlanMemory(Tiny(), RequestOf(31 * kMiB));
  ASSERT_FALSE(available);
  EXPECT_THAT(available.error().message,
              HasSubstr("available memory of 31.0 MiB is too small: weights need 20.0 MiB"));
  MemoryRequest total = RequestOf(int64_t{1} << 40);
  total.total_bytes = 5 * kMiB;
  EXPECT_FALSE(PlanMemory(Tiny(), total));
  MemoryRequest length = RequestOf(int64_t{1} << 40);
  length.model_len_max = 8193;
  Result<MemoryPlan> refused = PlanMemory(Tiny(), length);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("8193 tokens are more than the model's context"));
}

TEST(DescribeModel, StatesLayersParametersAndCacheOfTheConfigAlone) {
  const std::vector<FactSection> sections = DescribeModel(Large(), nullptr, nullptr);
  const std::string text = FactsAsText(sections);
  EXPECT_THAT(text, HasSubstr("30 layers (0-2, 4-6, 8-10"));
  EXPECT_THAT(text, HasSubstr("256 experts 512 wide, 8 a token, shared expert 512 wide (gated)"));
  EXPECT_THAT(text, HasSubstr("34.7 B"));
  const json::object object = FactsAsJson(sections);
  EXPECT_EQ(object.at("cache").at("kv_bytes_per_token_bf16").as_int64(), 20480);
}

TEST(DescribeModel, StatesWhatTheLoaderSkipped) {
  const std::string directory = BRAID_SOURCE_DIR "/tests/golden/qwen3_5_moe_b";
  Result<OpenedModel> opened = OpenModel(directory);
  ASSERT_TRUE(opened) << opened.error().message;
  Result<Binding> binding = BindWeights(opened->spec, opened->checkpoint);
  ASSERT_TRUE(binding) << binding.error().message;
  const std::string text =
      FactsAsText(DescribeModel(opened->spec, &opened->checkpoint, &binding->report));
  EXPECT_THAT(text, HasSubstr("model.visual.*: 1 tensors"));
  EXPECT_THAT(text, HasSubstr("(draft head, loaded where --draft uses it)"));
}

TEST(MemoryPlan, CountsTheDraftHeadWhereItIsUsed) {
  const std::string directory = BRAID_SOURCE_DIR "/tests/golden/qwen3_5_moe_b";
  Result<OpenedModel> opened = OpenModel(directory);
  ASSERT_TRUE(opened) << opened.error().message;
  const auto packed = [&](const LoadReport& report) {
    int64_t bytes = 0;
    for (const auto& [format, size] : WeightBytesOf(report)) bytes += size;
    return bytes;
  };
  const MemoryRequest request{.available_bytes = int64_t{1} << 30, .model_len_max = 256};
  Result<Binding> without = BindWeights(opened->spec, opened->checkpoint);
  Result<MemoryPlan> plan_without = PlanMemory(opened->spec, request);
  UseDraftHead(opened->spec);
  Result<Binding> with = BindWeights(opened->spec, opened->checkpoint);
  Result<MemoryPlan> plan = PlanMemory(opened->spec, request);
  ASSERT_TRUE(without.ok() && with.ok() && plan_without.ok() && plan.ok());
  EXPECT_GT(packed(with->report), packed(without->report));
  EXPECT_GT(plan->kv_bytes_per_token, plan_without->kv_bytes_per_token);
  const std::string text =
      FactsAsText(DescribeModel(opened->spec, &opened->checkpoint, &with->report));
  EXPECT_THAT(text, HasSubstr("(draft head)"));
}

}  // namespace
}  // namespace braid
