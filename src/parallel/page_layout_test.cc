// Every model on every mesh that divides it: the pages of its ranks make up those of one rank, with
// no byte twice and none left out. tests/cli/handoff_test.py shows that they are the right ones.
#include "parallel/page_layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "parallel/rank_view.h"
#include "parallel/test_models.h"

namespace braid {
namespace {

constexpr int64_t kPadding = 64;  // slices are aligned

// Whether the runs, which may lie in any order, fill so many bytes but for padding. `shared`: ranks
// that hold the same heads have the same runs.
bool Fill(std::vector<std::pair<int64_t, int64_t>> runs, int64_t bytes, bool shared) {
  std::ranges::sort(runs);
  if (shared) runs.erase(std::unique(runs.begin(), runs.end()), runs.end());
  int64_t end = 0;
  for (const auto& [at, size] : runs) {
    if (size <= 0 || at < end || at - end >= kPadding) return false;
    end = at + size;
  }
  return end <= bytes && bytes - end < kPadding;
}

// Empty, or what is wrong.
std::string Wrong(const ModelSpec& spec, const Mesh& mesh, const PageLayout& layout) {
  for (size_t g = 0; g < layout.block_bytes.size(); ++g) {
    std::vector<std::pair<int64_t, int64_t>> whole;
    for (int32_t rank = 0; rank < mesh.tp; ++rank) {
      std::vector<std::pair<int64_t, int64_t>> own;
      for (const PageRun& run : layout.ranks[static_cast<size_t>(rank)].runs[g]) {
        whole.emplace_back(run.whole, run.bytes);
        own.emplace_back(run.own, run.bytes);
      }
      const CachePlan plan = CachePlanOf(ViewOf(spec, mesh, rank)->spec, DType::kI8);
      if (!Fill(own, plan.groups[g].block_bytes, false)) return "a rank's block is not filled";
    }
    if (!Fill(whole, layout.block_bytes[g], true)) return "the whole block is not filled";
  }
  return "";
}

TEST(PageLayout, MakesUpTheBlocksOfOneRankOnEveryMesh) {
  int32_t checked = 0;
  for (NamedSpec& named : SpecsToDivide()) {
    if (HasDraftHead(named.spec)) {
      const Mesh mesh{.tp = CheckMesh(named.spec, {.tp = 2}) ? 2 : 1};
      EXPECT_EQ(Wrong(named.spec, mesh, PageLayoutOf(named.spec, mesh, DType::kI8)), "")
          << named.name << " without its draft head";
      UseDraftHead(named.spec);
    }
    for (const DType state : {DType::kF32, DType::kI8}) {
      PlanState(named.spec, 3, state);
      for (const Mesh& mesh : MeshesOf(named.spec)) {
        if (mesh.dp > 1 || mesh.ep > 1) continue;
        const PageLayout layout = PageLayoutOf(named.spec, mesh, DType::kI8);
        EXPECT_EQ(Wrong(named.spec, mesh, layout), "") << named.name << ", tp " << mesh.tp;
        checked += mesh.tp > 1 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(checked, 40);
}

TEST(PageLayout, ItsCheckSeesARunThatIsMissingMovedOrLonger) {
  ModelSpec spec = SpecsToDivide().front().spec;
  Mesh mesh{.tp = 2};
  for (const NamedSpec& named : SpecsToDivide()) {
    if (CheckMesh(named.spec, mesh)) spec = named.spec;
  }
  const PageLayout layout = PageLayoutOf(spec, mesh, DType::kI8);
  ASSERT_EQ(Wrong(spec, mesh, layout), "");
  Rng rng(5);
  for (int32_t i = 0; i < 60; ++i) {
    PageLayout wrong = layout;
    auto& groups = wrong.ranks[rng.Below(2)].runs;
    auto& runs = groups[rng.Below(groups.size())];
    const size_t at = rng.Below(runs.size());
    if (i % 3 == 0) runs.erase(runs.begin() + static_cast<ptrdiff_t>(at));
    if (i % 3 == 1) runs[at].own += kPadding;
    if (i % 3 == 2) runs[at].bytes += kPadding;
    EXPECT_NE(Wrong(spec, mesh, wrong), "") << i;
  }
}

TEST(PageRuns, ScatteredBlocksAreGatheredAgain) {
  const std::vector<PageRun> first = {{0, 4, 4}, {8, 0, 4}}, second = {{4, 0, 4}, {12, 4, 4}};
  std::byte whole[16], again[16] = {}, one[8], two[8];
  for (int i = 0; i < 16; ++i) whole[i] = static_cast<std::byte>(i);
  Scatter(first, whole, one);
  Scatter(second, whole, two);
  EXPECT_EQ(one[0], std::byte{8});
  EXPECT_EQ(two[7], std::byte{15});
  Gather(first, one, again);
  Gather(second, two, again);
  EXPECT_EQ(std::memcmp(whole, again, 16), 0);
}

}  // namespace
}  // namespace braid
