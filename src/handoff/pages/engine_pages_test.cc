// Where the blocks of one rank lie, and those that ranks share.
#include "handoff/pages/engine_pages.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

namespace braid::handoff {
namespace {

const CacheGeometry kWhole = {.groups = {{"keys", GroupKind::kFull, 64, 2},
                                         {"state", GroupKind::kState, 96, 1},
                                         {"draft", GroupKind::kFull, 32, 4}},
                              .page_bytes = 128,
                              .pages = 8};

PageMove MoveOf() {
  PageMove move{.id = MoveId(1), .slot = {}, .request = {}, .parts = {}};
  PagePart keys{.index = 4, .kind = GroupKind::kFull, .blocks = {}, .key = {}};
  keys.blocks.by_group[0] = BlockId(5);
  keys.blocks.by_group[2] = BlockId(13);
  PagePart state{.index = 4, .kind = GroupKind::kState, .blocks = {}, .key = {}};
  state.blocks.by_group[1] = BlockId(6);
  move.parts = {keys, state};
  return move;
}

TEST(EnginePages, OfOneRankLieInItsArena) {
  std::vector<std::byte> arena(128 * 8);
  EnginePages pages({});
  pages.Attach(0, {arena.data()}, kWhole);
  EXPECT_FALSE(pages.apart());
  EXPECT_EQ(pages.ranks(), 1u);
  EXPECT_EQ(pages.block_bytes_max(), 96);
  const std::map<PartKey, Page> parts = pages.Of(MoveOf());
  ASSERT_EQ(parts.size(), 3u);
  const auto expect = [&](int32_t group, int32_t block, size_t size) {
    const Page page = parts.at({GroupId(group), 4});
    EXPECT_EQ(page.size, size);
    EXPECT_EQ(page.data - arena.data(), BlockBytesOffset(kWhole, GroupId(group), BlockId(block)));
    EXPECT_EQ(page.group, GroupId(group));
    EXPECT_EQ(page.block, BlockId(block));
  };
  expect(0, 5, 64);
  expect(1, 6, 96);
  expect(2, 13, 32);
}

// Two ranks with half of the keys each, and all of the state.
TEST(EnginePages, OfRanksAreGatheredFromAllAndScatteredToAll) {
  CacheGeometry own = kWhole;
  own.groups[0].block_bytes = 32;
  own.groups[2].block_bytes = 16;
  const std::vector<PageRun> state = {{.whole = 0, .own = 0, .bytes = 90}};
  PageLayout layout{.block_bytes = {64, 96, 32}, .ranks = {}};
  for (const int64_t rank : {0, 1}) {
    layout.ranks.push_back({.runs = {{{.whole = 32 * rank, .own = 0, .bytes = 32}},
                                     state,
                                     {{.whole = 16 * rank, .own = 0, .bytes = 16}}}});
  }
  EnginePages pages(layout);
  std::vector<std::vector<std::byte>> arenas(2, std::vector<std::byte>(128 * 8));
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    pages.Attach(rank, {arenas[rank].data()}, own);
    for (size_t i = 0; i < arenas[rank].size(); ++i) {
      arenas[rank][i] = static_cast<std::byte>(rank * 100 + i * 7);
    }
  }
  const std::vector<std::vector<std::byte>> before = arenas;
  EXPECT_TRUE(pages.apart());
  EXPECT_EQ(pages.ranks(), 2u);
  EXPECT_EQ(pages.block_bytes_max(), 96);
  std::vector<EnginePages::Copy> copies;
  std::vector<std::vector<std::byte>> wholes;
  for (const auto& [key, page] : pages.Of(MoveOf())) {
    EXPECT_EQ(page.data, nullptr);
    EXPECT_EQ(page.size, static_cast<size_t>(kWhole.groups[static_cast<size_t>(key.group.value)]
                                                 .block_bytes));
    wholes.emplace_back(page.size, std::byte{9});
    copies.push_back({page, nullptr});
  }
  for (size_t i = 0; i < copies.size(); ++i) copies[i].whole = wholes[i].data();
  ASSERT_TRUE(pages.Fetch(copies));
  const auto own_bytes = [&](size_t rank, int32_t group, int32_t block, int64_t bytes) {
    const auto begin =
        before[rank].begin() + BlockBytesOffset(own, GroupId(group), BlockId(block));
    return std::vector<std::byte>(begin, begin + bytes);
  };
  for (const auto& [i, group, block, half] :
       {std::tuple(0, 0, 5, 32), std::tuple(2, 2, 13, 16)}) {
    const std::vector<std::byte>& whole = wholes[static_cast<size_t>(i)];
    EXPECT_EQ(std::vector(whole.begin(), whole.begin() + half), own_bytes(0, group, block, half));
    EXPECT_EQ(std::vector(whole.begin() + half, whole.end()), own_bytes(1, group, block, half));
  }
  EXPECT_EQ(std::vector(wholes[1].begin(), wholes[1].begin() + 90), own_bytes(1, 1, 6, 90));
  EXPECT_EQ(std::ranges::count(wholes[1].begin() + 90, wholes[1].end(), std::byte{0}), 6)
      << "padding tells nothing of what the memory held";
  for (std::vector<std::byte>& arena : arenas) std::ranges::fill(arena, std::byte{7});
  ASSERT_TRUE(pages.Store(copies));
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    std::vector<std::byte> want(128 * 8, std::byte{7});
    for (const auto& [group, block, bytes] :
         {std::tuple(0, 5, 32), std::tuple(1, 6, 90), std::tuple(2, 13, 16)}) {
      const size_t of = group == 1 ? 1 : rank;
      std::ranges::copy(own_bytes(of, group, block, bytes),
                        want.begin() + BlockBytesOffset(own, GroupId(group), BlockId(block)));
    }
    EXPECT_EQ(arenas[rank], want) << rank;
  }
}

}  // namespace
}  // namespace braid::handoff
