// Which entries a sequence has after each step: all blocks of a full group, two or three of a state
// group.
#include "cache/block_tables.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

class BlockTablesTest : public ::testing::Test {
 protected:
  // (group, index) pairs that a row adds.
  std::vector<std::pair<int, int>> Cover(int32_t begin, int32_t end) {
    std::vector<TableChange> changes;
    EXPECT_TRUE(tables_.Cover(begin, end, cache_, changes));
    std::vector<std::pair<int, int>> out;
    for (const TableChange& c : changes) out.emplace_back(c.group.value, c.index);
    return out;
  }
  size_t Owned(int32_t group) {
    std::vector<BlockId> owned;
    tables_.AppendOwned(GroupId(group), cache_.index(), owned);
    return owned.size();
  }

  using Entries = std::vector<std::pair<int, int>>;
  const CacheGeometry geometry_{
      .groups = {{"full", GroupKind::kFull, 64, 1}, {"state", GroupKind::kState, 64, 1}},
      .page_bytes = 64,
      .pages = 20};
  PrefixCache cache_{geometry_};
  BlockTables tables_{geometry_};
};

TEST_F(BlockTablesTest, C4_54_ALongChunkLeavesHolesBetweenItsStates) {
  EXPECT_EQ(Cover(0, 300), (Entries{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {1, 3}, {1, 4}}));
}

TEST_F(BlockTablesTest, AnAlignedChunkWritesOneStateAndNoRows) {
  EXPECT_EQ(Cover(0, 128), (Entries{{0, 0}, {0, 1}, {1, 1}}));
}

TEST_F(BlockTablesTest, C5_75_ADecodingSequenceOwnsTwoStateBlocksForEver) {
  Cover(0, 100);
  tables_.RetireStates(100, 2, cache_);
  for (int32_t at = 100; at < 1000; ++at) {
    Cover(at, at + 1);
    tables_.RetireStates(at + 1, 2, cache_);
    ASSERT_EQ(Owned(1), 2u) << at;
    ASSERT_EQ(Owned(0), static_cast<size_t>(at / 64 + 1)) << at;
  }
  tables_.ReleaseAll(cache_);
  EXPECT_EQ(cache_.pool().pages_used(), 0);
}

TEST_F(BlockTablesTest, WhereThereIsRoomASequenceGetsTheStateBlocksThatItKeeps) {
  Cover(0, 64);
  EXPECT_EQ(Owned(1), 1u);
  tables_.RetireStates(64, 2, cache_);
  EXPECT_EQ(Owned(1), 2u);
}

TEST_F(BlockTablesTest, C4_51_ATokenInsideABlockNeedsNothingAndTheNextBlocksFirstNeedsOneEach) {
  Cover(0, 63);
  EXPECT_EQ(Cover(63, 64), (Entries{}));
  EXPECT_EQ(Cover(64, 65), (Entries{{0, 1}, {1, 1}}));
}

// What leaves for another engine: all keys, and the state that the sequence goes on from.
TEST_F(BlockTablesTest, PartsOfAPromptAreItsKeysItsLastStateAndTheRowsBehindIt) {
  Cover(0, 200);
  std::vector<PagePart> parts;
  tables_.AppendParts(0, 200, parts);
  ASSERT_EQ(parts.size(), 6u);
  std::vector<TableChange> entries;
  tables_.AppendEntries(entries);
  ASSERT_EQ(entries.size(), parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool state = parts[i].kind == GroupKind::kState;
    EXPECT_EQ(state, i >= 4);
    EXPECT_EQ(parts[i].index, entries[i].index);
    EXPECT_EQ(GroupId(state ? 1 : 0), entries[i].group);
    EXPECT_EQ(parts[i].blocks.by_group[state ? 1 : 0], entries[i].block);
    EXPECT_TRUE(entries[i].block.valid());
  }
  EXPECT_EQ(parts[4].index, 2);
  EXPECT_EQ(parts[5].index, 3);
  parts.clear();
  tables_.AppendParts(128, 200, parts);  // the first two blocks are there already
  EXPECT_EQ(parts.size(), 4u);
}

TEST_F(BlockTablesTest, AReservationIsUsedBeforeThePool) {
  ASSERT_TRUE(tables_.Reserve({{2, 3}}, cache_));
  EXPECT_EQ(cache_.pool().pages_used(), 5);
  Cover(0, 128);
  Cover(128, 129);
  EXPECT_EQ(Owned(0), 3u);
  EXPECT_EQ(Owned(1), 3u);
}

TEST_F(BlockTablesTest, NothingChangesWhenThePoolHasTooFew) {
  Cover(0, 64 * 10);
  const int32_t used = cache_.pool().pages_used();
  std::vector<TableChange> changes;
  EXPECT_FALSE(tables_.Cover(64 * 10, 64 * 19, cache_, changes));
  EXPECT_FALSE(tables_.Reserve({{20, 0}}, cache_));
  EXPECT_TRUE(changes.empty());
  EXPECT_EQ(cache_.pool().pages_used(), used);
  Cover(64 * 10, 64 * 10 + 1);
}

TEST_F(BlockTablesTest, C4_52_StopsWhenARowStartsWhereNoStateIs) {
  Cover(0, 128);
  std::vector<TableChange> changes;
  EXPECT_DEATH(tables_.Cover(64, 65, cache_, changes), "no state at 64");
  EXPECT_DEATH(tables_.Cover(130, 131, cache_, changes), "no rows at 130");
}

}  // namespace
}  // namespace braid
