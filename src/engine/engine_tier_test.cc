// What is said of --cache-dir, --cache-host and others before anything is loaded.
#include "engine/engine_tier.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "base/system/test_root.h"
#include "model/checkpoint/test_directory.h"
#include "model/families/families.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

class HostMemoryTest : public ::testing::Test {
 protected:
  HostMemoryTest() : root_("host_memory") {
    root_.Put("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:    8388608 kB");
    root_.Put("sys/devices/system/node/node0/meminfo",
              "Node 0 MemTotal: 6000000 kB\nNode 0 MemFree: 4194304 kB");
    root_.Put("sys/devices/system/node/node3/meminfo",
              "Node 3 MemTotal: 6000000 kB\nNode 3 MemFree: 4194304 kB");
  }
  Status Check(int32_t ranks_here = 1) {
    return CheckHostMemory(options_, ranks_here, root_.path());
  }

  FakeRoot root_;
  EngineOptions options_;
};

TEST_F(HostMemoryTest, MoreThanIsFreeIsRefusedWithBothNumbers) {
  EXPECT_TRUE(Check().ok());
  options_.cache_host_bytes = int64_t{8} << 30;
  EXPECT_TRUE(Check().ok());
  options_.cache_host_bytes = int64_t{12} << 30;
  const Status refused = Check();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("12.0 GiB"));
  EXPECT_THAT(refused.error().message, HasSubstr("8.00 GiB"));
  // Half of the ranks are on another machine.
  options_.mesh.dp = 4;
  EXPECT_TRUE(Check(2).ok());
  EXPECT_FALSE(Check(4).ok());
  EXPECT_EQ(HostBytesHere(options_, 2), int64_t{6} << 30);
  EXPECT_EQ(HostBytesHere(options_, 4), int64_t{12} << 30);
}

TEST_F(HostMemoryTest, ANodeThatIsNotThereIsRefused) {
  options_.cache_host_bytes = int64_t{6} << 30;  // on a node with less: said, not refused
  for (const int32_t node : {0, 3}) {
    options_.cache_host_node = node;
    EXPECT_TRUE(Check().ok()) << node;
  }
  options_.cache_host_node = 1;
  const Status refused = Check();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("node 1"));
  EXPECT_THAT(refused.error().message, HasSubstr("0, 3"));
}

TEST_F(HostMemoryTest, ANodeWithoutASizeIsRefused) {
  options_.cache_host_node = 0;
  const Status refused = Check();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("--cache-host"));
}

// Half of the node's memory is not all of the machine's.
TEST_F(HostMemoryTest, MemoryIsTheMachinesWhateverTheNodeHas) {
  options_.cache_host_node = 0;
  options_.cache_host_bytes = (int64_t{8} << 30) + 1;
  EXPECT_FALSE(Check().ok());
  options_.cache_host_bytes = int64_t{8} << 30;
  EXPECT_TRUE(Check().ok()) << "all that is free";
}

// A tier of braid-tiny's pages, which have 4 KiB.
class OpenTierTest : public ::testing::Test {
 protected:
  OpenTierTest() : opened_(OpenModel(BRAID_SOURCE_DIR "/models/braid-tiny")) {
    CHECK(opened_, "{}", opened_.error().message);
    options_.cache_dir = directory_.path() + "/pages";
  }
  Result<std::unique_ptr<RankTiers>> Open() {
    const FingerprintParts parts{opened_->spec, opened_->checkpoint, machine_, cache_, weights_,
                                 mla_};
    return OpenTier(options_, parts, {});
  }
  // The field and the message of the error that `change` causes.
  template <class Change>
  std::string Refused(Change change) {
    const EngineOptions kept = options_;
    change(options_);
    const auto tier = Open();
    options_ = kept;
    return tier ? "" : tier.error().field + ": " + tier.error().message;
  }

  const TestDirectory directory_;
  const Result<OpenedModel> opened_;
  const Machine machine_;
  const CacheGeometry cache_{
      .groups = {{.name = "attention", .block_bytes = 4096}}, .page_bytes = 4096, .pages = 9};
  const std::map<std::string_view, int64_t> weights_;
  const std::string mla_;
  EngineOptions options_;
};

TEST_F(OpenTierTest, IsThereOnlyIfItIsAskedFor) {
  EngineOptions none;
  std::swap(none, options_);
  auto tier = Open();
  ASSERT_TRUE(tier);
  EXPECT_EQ(*tier, nullptr);
  options_.cache_host_bytes = 1 << 20;
  tier = Open();
  ASSERT_TRUE(tier) << tier.error().message;
  ASSERT_NE(*tier, nullptr);
  EXPECT_EQ(TierText(**tier, options_), "pages in memory beside the cache: at most 1.00 MiB\n");
  options_.cache_host_node = 3;
  EXPECT_EQ(TierText(**tier, options_),
            "pages in memory beside the cache: at most 1.00 MiB on NUMA node 3\n");
  tier->reset();
  std::swap(none, options_);
  tier = Open();
  ASSERT_TRUE(tier) << tier.error().message;
  const std::string text = TierText(**tier, options_);
  EXPECT_THAT(text, ::testing::StartsWith("pages on disk: 0 B of at most 16.0 GiB in "));
  EXPECT_THAT(text, ::testing::EndsWith(": 0 tokens of earlier conversations\n"));
}

TEST_F(OpenTierTest, FlagsThatDoNotGoTogetherAreNamed) {
  using Options = EngineOptions&;
  EXPECT_THAT(Refused([](Options o) { o.cache_dir.clear(), o.cache_key_file = "key"; }),
              ::testing::StartsWith("cache_key_file: it encrypts"));
  EXPECT_THAT(Refused([](Options o) { o.cache_dir.clear(), o.cache_disk_bytes = 1 << 30; }),
              ::testing::StartsWith("cache_disk: it bounds a directory"));
  EXPECT_THAT(Refused([](Options o) { o.reduce = "fast"; }),
              ::testing::StartsWith("cache_dir: --cache-dir keeps pages whose bits"));
  EXPECT_THAT(Refused([](Options o) { o.scheduler.prefix_cache = false; }),
              ::testing::StartsWith("cache_dir: --cache-dir keeps prefixes"));
  EXPECT_THAT(Refused([](Options o) {
                o.cache_dir.clear(), o.cache_host_bytes = 1 << 20, o.reduce = "fast";
              }),
              ::testing::StartsWith("cache_host: --cache-host keeps pages"));
  EXPECT_THAT(Refused([](Options o) { o.cache_key_file = "/none/key"; }), HasSubstr("/none/key"));
}

TEST_F(OpenTierTest, HasRoomForAPageOfEachRank) {
  using Options = EngineOptions&;
  EXPECT_EQ(Refused([](Options o) { o.cache_disk_bytes = 4096; }), "");
  EXPECT_THAT(Refused([](Options o) { o.cache_disk_bytes = 4095; }),
              HasSubstr("cache_disk: --cache-disk 4.00 KiB has no room for a page of each rank"));
  EXPECT_THAT(Refused([](Options o) { o.cache_host_bytes = 4095; }),
              HasSubstr("cache_host: --cache-host 4.00 KiB has no room"));
  const auto ranks = [](int64_t bytes) {
    return [bytes](Options o) { o.mesh.dp = 3, o.cache_disk_bytes = bytes; };
  };
  EXPECT_THAT(Refused(ranks(3 * 4096 - 1)), HasSubstr("12.0 KiB at least"));
  EXPECT_EQ(Refused(ranks(3 * 4096)), "");
}

TEST(EngineStaging, IsForPagesThatTheHostCannotReadWhereTheyAre) {
  const Result<OpenedModel> opened = OpenModel(BRAID_SOURCE_DIR "/models/braid-tiny");
  ASSERT_TRUE(opened);
  int64_t largest = 0;
  for (const GroupGeometry& group : CachePlanOf(opened->spec, DType::kF32).groups) {
    largest = std::max(largest, RoundUp(group.block_bytes, 64));
  }
  EngineOptions options;
  const auto bytes = [&](bool on_device) {
    return StagingBytesOf(options, opened->spec, DType::kF32, on_device);
  };
  EXPECT_EQ(bytes(true), 0) << "there are no partners";
  options.partners.emplace().staging_bytes = 1;
  EXPECT_EQ(bytes(false), 0) << "partners read the arena";
  EXPECT_EQ(bytes(true), 2 * largest);
  options.mesh.tp = 2;
  EXPECT_EQ(bytes(false), 2 * largest);
  options.partners->staging_bytes = int64_t{1} << 30;
  EXPECT_EQ(bytes(false), int64_t{1} << 30);
  EXPECT_EQ(StagingText(0), "");
  EXPECT_EQ(StagingText(1 << 20),
            "copies of pages between engines, in the host's memory: at most 1.00 MiB\n");
  options.memory_bytes = 1 << 20;
  EXPECT_TRUE(CheckStaging(options, (1 << 20) - 1));
  EXPECT_FALSE(CheckStaging(options, 1 << 20)) << "nothing is left for the weights";
}

TEST(EngineEvents, AreTheFirstRanksAndNeedPrefixes) {
  EngineOptions options;
  EXPECT_EQ(*OpenEvents(options, 0), nullptr) << "nobody listens";
  options.kv_events.bind = "tcp://127.0.0.1:*";
  EXPECT_EQ(*OpenEvents(options, 1), nullptr) << "the first rank knows all";
  const auto events = OpenEvents(options, 0);
  ASSERT_TRUE(events) << events.error().message;
  EXPECT_NE(*events, nullptr);
  options.scheduler.prefix_cache = false;
  EXPECT_EQ(OpenEvents(options, 0).error().field, "kv_events");
  options.kv_events = {.replay = "tcp://127.0.0.1:*"};
  EXPECT_FALSE(OpenEvents(options, 1)) << "to repeat what nobody sends";
}

TEST(MemoryObject, HasEveryFigureUnderItsName) {
  MemoryPlan memory{.geometry = {.groups = {{.block_bytes = 64}}, .page_bytes = 64, .pages = 101},
                    .weight_bytes = 1,
                    .mapped_bytes = 2,
                    .workspace_bytes = 3,
                    .host_weight_bytes = 4,
                    .host_scratch_bytes = 5,
                    .host_reason = "why",
                    .arena_bytes = 6,
                    .kv_bytes_per_token = 7,
                    .state_bytes_per_sequence = 8,
                    .model_len_max = 1000,
                    .running_max = 9};
  const json::object object = MemoryObject(memory);
  const std::pair<const char*, int64_t> figures[] = {{"weight_bytes", 1},
                                                     {"mapped_weight_bytes", 2},
                                                     {"workspace_bytes", 3},
                                                     {"host_weight_bytes", 4},
                                                     {"host_scratch_bytes", 5},
                                                     {"cache_bytes", 6},
                                                     {"kv_bytes_per_token", 7},
                                                     {"state_bytes_per_sequence", 8},
                                                     {"cache_tokens_one_sequence", 6400}};
  for (const auto& [name, value] : figures) EXPECT_EQ(object.at(name), value) << name;
  EXPECT_EQ(object.at("host_reason"), "why");
  const std::vector<MemoryPlan::Capacity> capacities = memory.Capacities();
  const json::array& rows = object.at("capacity").as_array();
  ASSERT_EQ(rows.size(), capacities.size());
  ASSERT_FALSE(rows.empty());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("tokens"), capacities[i].tokens);
    EXPECT_EQ(rows[i].at("resumable_conversations"), capacities[i].resumable);
    EXPECT_EQ(rows[i].at("running_sequences"), capacities[i].running);
    EXPECT_FALSE(rows[i].as_object().contains("stored_conversations")) << "there is no tier";
  }
  memory.tier_bytes = 1 << 20;
  const json::object with_tier = MemoryObject(memory);
  EXPECT_EQ(with_tier.at("capacity").as_array()[0].at("stored_conversations"),
            memory.Capacities()[0].stored);
}

}  // namespace
}  // namespace braid
