// Where chunks of a prompt end.
#include "scheduler/planning/prefill_chunk.h"

#include <gtest/gtest.h>

#include <deque>

namespace braid {
namespace {

class PrefillChunkTest : public ::testing::Test {
 protected:
  PrefillChunkTest() { At(0, 1000); }
  // Computed up to `planned`, to be computed up to `end`.
  void At(int32_t planned, int32_t end) {
    s_.planned = planned;
    s_.prefill_end = end;
    s_.reuses = true;
  }
  int32_t Chunk(int32_t budget, int32_t least = 1, int32_t chunk_max = 0) const {
    return ChunkTokens(
        s_, {.budget = budget, .chunk_max = chunk_max, .least = least, .has_state = true});
  }
  Sequence& Follower(int32_t awaited) {
    Sequence& f = followers_.emplace_back(Request{}, geometry_);
    f.awaited = awaited;
    s_.followers.push_back(&f);
    return f;
  }

  const CacheGeometry geometry_{
      .groups = {{"full", GroupKind::kFull, 64, 1}}, .page_bytes = 64, .pages = 4};
  Sequence s_{Request{}, geometry_};
  std::deque<Sequence> followers_;
};

TEST_F(PrefillChunkTest, APromptWithinTheBudgetIsOneChunkUpToWhereItWillBeResumed) {
  At(0, 1031);
  EXPECT_EQ(PrefillCut(s_, true), 960);  // 1023 tokens hold 15 blocks
  EXPECT_EQ(Chunk(2000), 960);
  At(960, 1031);
  EXPECT_EQ(PrefillCut(s_, true), 1031);
  EXPECT_EQ(Chunk(2000), 71);
}

TEST_F(PrefillChunkTest, TheLastBoundaryIsNotWorthACutWhenLittleComesAfterIt) {
  At(0, 1032);  // resumed at 1024, and 8 tokens behind it
  EXPECT_EQ(PrefillCut(s_, true), 1032);
  At(0, 1031);  // resumed at 960, and 71 behind it
  EXPECT_EQ(PrefillCut(s_, true), 960);
  At(0, 1024);
  EXPECT_EQ(PrefillCut(s_, true), 960);  // the boundary is 64 behind: exactly a block
}

TEST_F(PrefillChunkTest, WithoutStateOrReuseNothingIsCut) {
  s_.branch_at = 128;
  Follower(192);
  EXPECT_EQ(PrefillCut(s_, false), 1000);
  EXPECT_EQ(PrefillCut(s_, true), 128);
  s_.reuses = false;
  EXPECT_EQ(PrefillCut(s_, true), 1000);
}

TEST_F(PrefillChunkTest, ACutIsTheNextOfBranchAndFollowersThatIsAhead) {
  s_.branch_at = 256;
  Follower(192);
  Follower(128);
  EXPECT_EQ(PrefillCut(s_, true), 128);
  At(128, 1000);
  EXPECT_EQ(PrefillCut(s_, true), 192);
  At(192, 1000);
  EXPECT_EQ(PrefillCut(s_, true), 256);
  At(256, 1000);
  EXPECT_EQ(PrefillCut(s_, true), 1000);
}

TEST_F(PrefillChunkTest, TheRemainderEndsAtTheFirstFollower) {
  At(100, 1000);
  EXPECT_EQ(PrefillRemainder(s_), 900);
  Follower(640);
  Follower(320);
  Follower(64);  // waits for what is planned already
  EXPECT_EQ(PrefillRemainder(s_), 220);
  At(320, 1000);
  EXPECT_EQ(PrefillRemainder(s_), 320);
}

TEST_F(PrefillChunkTest, AChunkEndsAtABoundaryWhereABudgetOfABlockReachesOne) {
  EXPECT_EQ(Chunk(200), 192);
  EXPECT_EQ(Chunk(192), 192);
  EXPECT_EQ(Chunk(64), 64);
  At(10, 1000);
  EXPECT_EQ(Chunk(100), 54);
  EXPECT_EQ(Chunk(64), 54);
  EXPECT_EQ(Chunk(54), 54);
  EXPECT_EQ(Chunk(64, 1, 60), 54);
}

TEST_F(PrefillChunkTest, AChunkOfABudgetOfLessPassesOverABoundary) {
  At(60, 1000);
  EXPECT_EQ(Chunk(63), 63);
  EXPECT_EQ(Chunk(35), 35);
  EXPECT_EQ(Chunk(4), 4);
}

TEST_F(PrefillChunkTest, LessThanIsWorthARowIsNone) {
  EXPECT_EQ(Chunk(50), 50);
  EXPECT_EQ(Chunk(50, 50), 50);
  EXPECT_EQ(Chunk(50, 51), 0);
  EXPECT_EQ(Chunk(64, 100), 64);  // it reaches a boundary
  At(10, 60);
  EXPECT_EQ(Chunk(50, 100), 50);  // and all that remains
}

TEST_F(PrefillChunkTest, ALimitOfChunksHoldsAndMayBeLessThanABlock) {
  EXPECT_EQ(Chunk(500, 1, 128), 128);
  EXPECT_EQ(Chunk(500, 1, 130), 128);
  EXPECT_EQ(Chunk(500, 64, 16), 16);  // the limit itself, not a crumb of the budget
  EXPECT_EQ(Chunk(10, 64, 16), 0);
}

// A row from inside one block to inside another beyond the next would hold four states.
TEST_F(PrefillChunkTest, ARowFromInsideABlockToInsideAnotherEndsAtTheBoundaryBefore) {
  At(10, 10 + 64);
  EXPECT_EQ(Chunk(500), 64);  // the next block only
  At(10, 10 + 128);
  EXPECT_EQ(Chunk(500), 118);
  At(0, 130);
  s_.reuses = false;
  EXPECT_EQ(Chunk(500), 130);  // from a boundary
}

}  // namespace
}  // namespace braid
