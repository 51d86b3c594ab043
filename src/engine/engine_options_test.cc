// What --isa, --compute, --kv-dtype, --draft and others come to, on CPUs that are given.
#include "engine/engine_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "runtime/drafts/lookup_drafter.h"

namespace braid {
namespace {

CpuFeatures Avx2Cpu() {
  CpuFeatures cpu;
  cpu.avx2 = true;
  for (int core = 0; core < 4; ++core) cpu.topology.cores.push_back({{core}});
  cpu.model_name = "test";
  return cpu;
}

CpuFeatures Bf16Cpu() {
  CpuFeatures cpu = Avx2Cpu();
  cpu.avx512 = cpu.avx512_bf16 = true;
  return cpu;
}

TEST(EngineOptions, AutoMultipliesInBf16OnlyWhereTheCpuDoes) {
  EXPECT_EQ(ResolveMachine({}, Avx2Cpu())->device.compute, Compute::kF32);
  EXPECT_EQ(ResolveMachine({}, Bf16Cpu())->device.compute, Compute::kBF16);
  EXPECT_EQ(ResolveMachine({.isa = "avx2"}, Bf16Cpu())->device.compute, Compute::kF32);
}

TEST(EngineOptions, KeysAndValuesFollowTheArithmetic) {
  EXPECT_EQ(ResolveMachine({.compute = "bf16"}, Avx2Cpu())->kv_dtype, DType::kBF16);
  EXPECT_EQ(ResolveMachine({.compute = "fp32"}, Bf16Cpu())->kv_dtype, DType::kF32);
  EXPECT_EQ(ResolveMachine({.compute = "fp32", .kv_dtype = "bf16"}, Avx2Cpu())->kv_dtype,
            DType::kBF16);
  EXPECT_EQ(ResolveMachine({.kv_dtype = "int8"}, Bf16Cpu())->kv_dtype, DType::kI8);
}

TEST(EngineOptions, StateIsFp32UnlessAskedFor) {
  EXPECT_EQ(ResolveMachine({.compute = "bf16"}, Bf16Cpu())->state_dtype, DType::kF32);
  EXPECT_EQ(ResolveMachine({.state_dtype = "bf16"}, Avx2Cpu())->state_dtype, DType::kBF16);
  EXPECT_EQ(ResolveMachine({.state_dtype = "int8"}, Avx2Cpu())->state_dtype, DType::kI8);
}

TEST(EngineOptions, RefusesAnInstructionSetThatTheCpuLacks) {
  const auto machine = ResolveMachine({.isa = "amx"}, Avx2Cpu());
  ASSERT_FALSE(machine);
  EXPECT_NE(machine.error().message.find("at most avx2"), std::string::npos);
  EXPECT_EQ(ResolveMachine({.isa = "base"}, Avx2Cpu())->device.isa, Isa::kBase);
}

TEST(EngineOptions, ThreadsDefaultToPhysicalCores) {
  EXPECT_EQ(ResolveMachine({}, Avx2Cpu())->threads, 4);
  EXPECT_EQ(ResolveMachine({.threads = 3}, Avx2Cpu())->threads, 3);
  CpuFeatures limited = Avx2Cpu();
  limited.topology.quota_cpus = 1.5;
  EXPECT_EQ(ResolveMachine({}, limited)->threads, 1);
}

TEST(EngineOptions, DraftsAreAsManyAsTheFlagSaysByWhomItSays) {
  const struct {
    const char* text;
    bool has_head;
    int32_t most;
    bool adapt, lookup, head;
  } cases[] = {
      {"off", true, 0, true, true, false},   {"0", true, 0, true, true, false},
      {"auto", false, 4, true, true, false}, {"auto", true, 4, true, true, true},
      {"ngram", true, 4, true, true, false}, {"1", false, 1, false, true, false},
      {"1", true, 1, false, false, true},    {"15", false, 15, false, true, false},
  };
  for (const auto& c : cases) {
    const Result<DraftChoice> choice = ParseDraft(c.text, c.has_head);
    ASSERT_TRUE(choice) << c.text;
    SchedulerConfig config{.draft_tokens_max = 9,
                           .draft_adapt = !c.adapt,
                           .draft_lookup = !c.lookup,
                           .draft_head = !c.head};
    choice->Apply(config);
    EXPECT_EQ(std::tuple(config.draft_tokens_max, config.draft_adapt, config.draft_lookup,
                         config.draft_head),
              std::tuple(c.most, c.adapt, c.lookup, c.head))
        << c.text << (c.has_head ? " with" : " without") << " a head";
  }
  for (const char* text : {"", "on", "16", "-1", "3x", "1.5", " 1"}) {
    const Result<DraftChoice> choice = ParseDraft(text, true);
    ASSERT_FALSE(choice) << text;
    EXPECT_EQ(choice.error().field, "draft");
  }
}

TEST(EngineOptions, DraftsTakeMemoryForWhoProposesThem) {
  SchedulerConfig limits{.running_max = 3, .draft_tokens_max = 0};
  const ModelSpec spec{.hidden = 32};
  CachePlan cache;
  cache.draft.bytes = 1000;
  EXPECT_EQ(DraftBytes(spec, cache, limits, 100), 0);
  EXPECT_EQ(DraftsText(limits, 5000), "");
  limits.draft_tokens_max = 2;
  limits.draft_adapt = false;
  EXPECT_EQ(DraftBytes(spec, cache, limits, 100), LookupDrafter::Bytes(3, 100));
  EXPECT_EQ(DraftBytes(spec, cache, limits, 0), LookupDrafter::Bytes(3, 1 << 30)) << "any context";
  EXPECT_EQ(DraftsText(limits, 5000),
            "drafts: 2 a sequence and step, looked up; 4.88 KiB beside the cache\n");
  limits.draft_head = true;
  EXPECT_EQ(DraftBytes(spec, cache, limits, 100),
            LookupDrafter::Bytes(3, 100) + 3 * (64 * 32 * 4 + 1000));
  limits.draft_adapt = true;
  EXPECT_THAT(DraftsText(limits, 0), ::testing::HasSubstr("up to 2 a sequence and step, of the "
                                                          "head or looked up"));
  limits.draft_lookup = false;
  EXPECT_THAT(DraftsText(limits, 0), ::testing::HasSubstr("step, of the head;"));
}

TEST(EngineOptions, RanksOverlapAndDispatchAsTheyAreTold) {
  const auto overlap = [](const char* flag, bool processes) {
    return EngineOptions{.two_batch_overlap = flag}.overlap(processes);
  };
  EXPECT_EQ(overlap("on", false), Overlap::kOn);
  EXPECT_EQ(overlap("off", true), Overlap::kOff);
  EXPECT_EQ(overlap("auto", true), Overlap::kAuto);
  EXPECT_EQ(overlap("auto", false), Overlap::kOff) << "threads share the memory";
  const auto form = [](const char* flag) {
    return EngineOptions{.ep_dispatch = flag}.dispatch().form;
  };
  EXPECT_EQ(form("auto"), DispatchForm::kAuto);
  EXPECT_EQ(form("throughput"), DispatchForm::kThroughput);
  EXPECT_EQ(form("latency"), DispatchForm::kLatency);
  EXPECT_FALSE(EngineOptions().expanded_mla());
  EXPECT_TRUE(EngineOptions{.mla = "expanded"}.expanded_mla());
  const WeightChoice choice =
      EngineOptions{.weights = "int8", .quantise_head = true}.weight_choice();
  EXPECT_EQ(choice.format, ops::WeightFormat::kI8);
  EXPECT_TRUE(choice.head);
  EXPECT_FALSE(EngineOptions().weight_choice().format) << "auto: as stored";
}

TEST(EngineOptions, ARecordedArenaMustSuitTheModel) {
  EngineOptions options;
  const CacheGeometry recorded{.groups = {{.kind = GroupKind::kFull, .block_bytes = 64},
                                          {.kind = GroupKind::kState, .block_bytes = 32}},
                               .page_bytes = 64,
                               .pages = 50};
  const auto take = [&](auto change, MemoryPlan plan = {}) {
    SchedulerConfig& config = options.recorded.emplace(SchedulerConfig{
        .cache = recorded, .context_tokens_max = 300, .running_max = 5, .vocabulary = 77});
    change(config);
    plan.geometry = recorded;
    plan.geometry.pages = 9;
    const Status status = TakeRecorded(options, 77, plan);
    if (status) {
      EXPECT_EQ(plan.geometry.pages, 50);
      EXPECT_EQ(plan.arena_bytes, 50 * 64);
      EXPECT_EQ(plan.model_len_max, 300);
      EXPECT_EQ(plan.running_max, 5);
    }
    return status.ok();
  };
  EXPECT_TRUE(take([](SchedulerConfig&) {}));
  EXPECT_FALSE(take([](SchedulerConfig& c) { c.vocabulary = 78; }));
  EXPECT_FALSE(take([](SchedulerConfig& c) { c.cache.groups[1].block_bytes = 16; }));
  EXPECT_FALSE(take([](SchedulerConfig& c) { c.cache.groups[1].kind = GroupKind::kFull; }));
  EXPECT_FALSE(take([](SchedulerConfig& c) { c.cache.groups.pop_back(); }));
  EXPECT_FALSE(take([](SchedulerConfig& c) { c.cache.groups.push_back(c.cache.groups[0]); }));
}

TEST(EngineOptions, ComputeIsWhatIsAskedFor) {
  EXPECT_EQ(ResolveMachine({.compute = "bf16"}, Avx2Cpu())->device.compute, Compute::kBF16);
  EXPECT_EQ(ResolveMachine({.compute = "fp32"}, Bf16Cpu())->device.compute, Compute::kF32);
  EXPECT_EQ(ResolveMachine({.isa = "avx512"}, Bf16Cpu())->device.isa, Isa::kAvx512);
  EXPECT_EQ(ResolveMachine({.isa = "avx512"}, Bf16Cpu())->device.compute, Compute::kBF16);
  EXPECT_FALSE(ResolveMachine({.isa = "mmx"}, Bf16Cpu()));
  const Machine bound = *ResolveMachine({}, Avx2Cpu());
  EXPECT_EQ(bound.cpu.model_name, "test");
  EXPECT_EQ(bound.places.cpus, Avx2Cpu().topology.PlacesOf(4).cpus);
}

}  // namespace
}  // namespace braid
