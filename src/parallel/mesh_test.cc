// What a mesh may divide and how ranks are numbered.
#include "parallel/mesh.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/test_models.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

ModelSpec SmallModel() {
  ModelSpec spec{.hidden = 64, .vocabulary = 100};
  spec.layers.push_back({.prefix = "a.",
                         .mixer = FullAttention{.heads = 12, .kv_heads = 2, .head_dim = 8},
                         .ffn = DenseFfn{.width = 96}});
  spec.layers.push_back(
      {.prefix = "b.",
       .mixer = LinearAttention{.key_heads = 4, .value_heads = 12, .key_dim = 4, .value_dim = 4},
       .ffn = MoeFfn{.experts = 24, .top_k = 2, .width = 16, .shared_width = 16}});
  return spec;
}

std::string Refusal(const ModelSpec& spec, const Mesh& mesh) {
  const Status status = CheckMesh(spec, mesh);
  return status ? "" : status.error().message;
}

TEST(Share, PartsFollowEachOtherAndDifferByOneAtMost) {
  for (const int64_t total : {1, 7, 16, 100, 151936}) {
    for (const int32_t count : {1, 2, 3, 4, 7, 16}) {
      int64_t end = 0;
      for (int32_t i = 0; i < count; ++i) {
        const RowRange part = Share{i, count}.Of(total);
        EXPECT_EQ(part.begin, end);
        EXPECT_TRUE(part.count == total / count || part.count == total / count + 1);
        end += part.count;
      }
      EXPECT_EQ(end, total);
    }
  }
}

TEST(Share, SeveralRanksShareAUnitWhereThereAreFewer) {
  for (int32_t i = 0; i < 8; ++i) {
    const RowRange part = Share{i, 8}.OfShared(2);
    EXPECT_EQ(part.begin, i / 4);
    EXPECT_EQ(part.count, 1);
  }
  EXPECT_EQ(Share(1, 2).OfShared(6).begin, 3);
  EXPECT_EQ(Share(1, 2).OfShared(6).count, 3);
}

TEST(Mesh, RanksOfAGroupFollowEachOther) {
  const Mesh mesh{.dp = 2, .tp = 3, .ep = 2};
  EXPECT_EQ(mesh.ranks(), 6);
  EXPECT_EQ(mesh.GroupOf(2), 0);
  EXPECT_EQ(mesh.GroupOf(3), 1);
  EXPECT_EQ(mesh.TensorShare(4).index, 1);
  EXPECT_EQ(mesh.TensorShare(4).count, 3);
  EXPECT_EQ(mesh.ExpertShare(5).index, 1);
  EXPECT_EQ(mesh.ExpertShare(5).count, 2);
}

TEST(Mesh, OneRankHoldsAnyModel) {
  for (const NamedSpec& named : SpecsToDivide()) {
    EXPECT_EQ(Refusal(named.spec, {}), "") << named.name;
  }
}

TEST(Mesh, DividesHeadsExpertsAndRanks) {
  const ModelSpec spec = SmallModel();
  EXPECT_EQ(Refusal(spec, {.tp = 2}), "");
  EXPECT_EQ(Refusal(spec, {.tp = 4, .ep = 4}), "") << "two ranks have the same keys and values";
  EXPECT_EQ(Refusal(spec, {.tp = 12, .ep = 12}), "");
  EXPECT_EQ(Refusal(spec, {.dp = 3, .tp = 1, .ep = 3}), "");
  EXPECT_EQ(Refusal(spec, {.dp = 2, .tp = 2, .ep = 4}), "");
}

TEST(Mesh, ARefusalNamesNumbersAndTheNearestMesh) {
  const ModelSpec spec = SmallModel();
  EXPECT_EQ(Refusal(spec, {.dp = 2, .redundant = 2}),
            "dp 2 x tp 1 x ep 1: 2 redundant experts; several ranks (ep) can hold 0 to 128");
  EXPECT_EQ(Refusal(spec, {.tp = 5}),
            "dp 1 x tp 5 x ep 1: tp 5 does not divide the 12 attention heads; tp 5 neither divides "
            "nor is a multiple of the 2 heads of keys and values; tp 5 neither divides nor is a "
            "multiple of the 4 key heads of linear attention; tp 5 does not divide the 12 value "
            "heads of linear attention; the nearest that would do is dp 1 x tp 4 x ep 1");
  // Each of three ranks has four heads; those of the second would read keys of both.
  EXPECT_THAT(Refusal(spec, {.tp = 3}),
              HasSubstr("tp 3 neither divides nor is a multiple of the 2 heads of keys"));
  EXPECT_THAT(Refusal(spec, {.dp = 5, .tp = 1, .ep = 5}),
              HasSubstr("ep 5 does not divide the 24 experts; the nearest that would do is dp 5 x "
                        "tp 1 x ep 1"));
  EXPECT_THAT(Refusal(spec, {.dp = 1, .tp = 4, .ep = 3}),
              HasSubstr("ep 3 does not divide the 4 ranks of dp 1 x tp 4; the nearest that would "
                        "do is dp 1 x tp 4 x ep 2"));
  EXPECT_THAT(Refusal(spec, {.tp = 0}), HasSubstr("each must be from 1 to 4096"));
  EXPECT_THAT(Refusal(spec, {.tp = 5000}), HasSubstr("each must be from 1 to 4096"));
}

TEST(Mesh, RedundantExpertsDivideWithTheOthers) {
  const ModelSpec spec = SmallModel();
  EXPECT_EQ(Refusal(spec, {.dp = 5, .ep = 5, .redundant = 1}), "");
  EXPECT_EQ(Refusal(spec, {.dp = 8, .ep = 8, .redundant = 128}), "");
  EXPECT_EQ(Refusal(spec, {.dp = 5, .ep = 5, .redundant = 2}),
            "dp 5 x tp 1 x ep 5: ep 5 does not divide the 24 experts and 2 redundant ones");
  EXPECT_THAT(Refusal(spec, {.dp = 5, .tp = 5, .ep = 5, .redundant = 1}),
              HasSubstr("does not divide the 12 attention heads;"));
  for (const int32_t redundant : {-8, 136}) {
    EXPECT_EQ(Refusal(spec, {.dp = 8, .ep = 8, .redundant = redundant}),
              fmt::format("dp 8 x tp 1 x ep 8: {} redundant experts; several ranks (ep) can hold 0 "
                          "to 128",
                          redundant));
  }
}

TEST(Mesh, TheNearestMeshMayHaveMoreRanks) {
  const ModelSpec spec = SmallModel();
  EXPECT_THAT(Refusal(spec, {.tp = 11}), HasSubstr("would do is dp 1 x tp 12 x ep 1"));
  EXPECT_THAT(Refusal(spec, {.dp = 24, .ep = 22}), HasSubstr("would do is dp 24 x tp 1 x ep 24"));
  EXPECT_THAT(Refusal(spec, {.tp = 3}), HasSubstr("would do is dp 1 x tp 2 x ep 1"))
      << "of two the smaller";
}

TEST(Mesh, OfEachKindThereAreFrom1To4096) {
  const ModelSpec spec = SmallModel();
  EXPECT_EQ(Refusal(spec, {.dp = 4096}), "");
  for (const Mesh& mesh : {Mesh{.dp = 4097}, Mesh{.dp = 0}, Mesh{.tp = 4097}, Mesh{.tp = -1},
                           Mesh{.ep = 4097}, Mesh{.ep = 0}}) {
    EXPECT_THAT(Refusal(spec, mesh), HasSubstr("each must be from 1 to 4096")) << MeshText(mesh);
  }
}

TEST(Mesh, ExpertsAreNotDividedWhereThereAreNone) {
  ModelSpec spec = SmallModel();
  spec.layers.pop_back();
  EXPECT_THAT(Refusal(spec, {.tp = 2, .ep = 2}),
              HasSubstr("ep 2 divides experts, and the model has none; the nearest that would do "
                        "is dp 1 x tp 2 x ep 1"));
}

TEST(Mesh, NormGroupsAreNotCut) {
  ModelSpec spec = SmallModel();
  std::get<LinearAttention>(spec.layers[1].mixer).norm_groups = 2;
  EXPECT_THAT(Refusal(spec, {.tp = 4}),
              HasSubstr("tp 4 does not divide the 2 groups of the output norm"));
}

TEST(Mesh, EveryRankHasARow) {
  struct Case {
    int32_t& (*count)(ModelSpec&);
    const char* units;
  };
  for (const Case& c :
       {Case{[](ModelSpec& s) -> int32_t& { return std::get<DenseFfn>(s.layers[0].ffn).width; },
             "channels of the feed-forward"},
        Case{
            [](ModelSpec& s) -> int32_t& { return std::get<MoeFfn>(s.layers[1].ffn).shared_width; },
            "channels of the shared expert"},
        Case{[](ModelSpec& s) -> int32_t& { return s.hidden; }, "hidden channels"},
        Case{[](ModelSpec& s) -> int32_t& { return s.vocabulary; }, "tokens of the vocabulary"}}) {
    ModelSpec spec = SmallModel();
    c.count(spec) = 4;
    EXPECT_EQ(Refusal(spec, {.tp = 4}), "");
    c.count(spec) = 3;
    EXPECT_THAT(Refusal(spec, {.tp = 4}),
                HasSubstr(fmt::format("tp 4 is more than the 3 {}", c.units)));
  }
  ModelSpec spec = SmallModel();
  std::get<MoeFfn>(spec.layers[1].ffn).shared_width = 0;
  EXPECT_EQ(Refusal(spec, {.tp = 4}), "") << "it has no shared expert";
}

TEST(Mesh, LatentAttentionAndADraftHeadAreDividedAsWell) {
  ModelSpec spec = SmallModel();
  spec.layers[0].mixer = LatentAttention{.heads = 6};
  EXPECT_THAT(Refusal(spec, {.tp = 4}), HasSubstr("tp 4 does not divide the 6 heads of latent"));
  EXPECT_EQ(Refusal(spec, {.tp = 2}), "");
  spec.draft = DraftSpec{.layers = {{.mixer = FullAttention{.heads = 3, .kv_heads = 3},
                                     .ffn = DenseFfn{.width = 96}}}};
  EXPECT_THAT(Refusal(spec, {.tp = 2}), HasSubstr("tp 2 does not divide the 3 attention heads"));
}

}  // namespace
}  // namespace braid
