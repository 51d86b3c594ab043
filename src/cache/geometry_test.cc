// Offsets, capacities, and the geometries that are refused.
#include "cache/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

using ::testing::HasSubstr;

CacheGeometry Geometry(int32_t pages) {
  return {.groups = {{"full", GroupKind::kFull, 1000, 4}, {"state", GroupKind::kState, 4096, 1}},
          .page_bytes = 4096,
          .pages = pages};
}

TEST(Geometry, OffsetsAreAffineInParentAndPlaceAndPassFourGigabytes) {
  EXPECT_EQ(BlockBytesOffset(Geometry(10), GroupId(0), BlockId(4 * 3 + 2)), 3 * 4096 + 2000);
  EXPECT_EQ(BlockBytesOffset(Geometry(10), GroupId(1), BlockId(9)), 9 * 4096);
  // A million tokens: 15,625 blocks of 8 MiB.
  CacheGeometry large = Geometry(16000);
  large.page_bytes = large.groups[1].block_bytes = int64_t{8} << 20;
  EXPECT_EQ(BlockBytesOffset(large, GroupId(1), BlockId(15625)), int64_t{15625} << 23);
}

TEST(Geometry, ALongestSequenceFitsAndOneTokenMoreDoesNot) {
  for (int32_t pages : {5, 6, 40, 1000}) {
    const CacheGeometry g = Geometry(pages);
    const int64_t most = SequenceTokensMax(g);
    EXPECT_LE(PagesFor(g, BlocksOfSequence(g, most)), pages - 1);
    EXPECT_GT(PagesFor(g, BlocksOfSequence(g, most + 1)), pages - 1);
  }
  EXPECT_EQ(SequenceTokensMax(Geometry(3)), 64);  // one full page, one state
  EXPECT_EQ(SequenceTokensMax(Geometry(1 + 3 + 2)),
            512);  // three states, two pages of four blocks
}

TEST(Geometry, C5_73_ParentsAreSharedByTheGroupsThatGrow) {
  const CacheGeometry geometry{
      .groups = {{"full", GroupKind::kFull, 64, 1}, {"draft", GroupKind::kFull, 64, 1}},
      .page_bytes = 64,
      .pages = 1 + 8};
  EXPECT_EQ(SequenceTokensMax(geometry), 4 * kBlockTokens);
}

TEST(Geometry, AsManyConversationsStayResumableAsFitBesideOneThatRuns) {
  for (int32_t pages : {3, 5, 6, 41, 1000}) {
    const CacheGeometry g = Geometry(pages);
    EXPECT_EQ(ResumableConversations(g, 63), 0);
    for (int64_t tokens : {64, 127, 128, 500, 2000}) {
      // Four blocks of keys share a page, each of two states has its own.
      const int64_t states = std::min<int64_t>(tokens / 64, 2);
      const int64_t room = pages - 1 - PagesFor(g, BlocksOfSequence(g, tokens));
      int64_t most = 0;
      while (CeilDiv((most + 1) * (tokens / 64), 4) + (most + 1) * states <= room) ++most;
      EXPECT_EQ(ResumableConversations(g, tokens), most) << pages << " " << tokens;
    }
  }
}

TEST(Geometry, RefusesWhatNoArenaCanBe) {
  const auto message = [](const CacheGeometry& g) {
    const Status status = CheckGeometry(g);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(message(Geometry(3)), "");
  EXPECT_THAT(message(Geometry(2)), HasSubstr("1 pages"));
  EXPECT_THAT(message(Geometry(0)), HasSubstr("has 0 pages"));
  EXPECT_THAT(message(Geometry(-5)), HasSubstr("has 0 pages"));
  CacheGeometry g = Geometry(10);
  g.groups[0].blocks_per_page = 5;
  EXPECT_THAT(message(g), HasSubstr("\"full\": 5 blocks of 1000 bytes do not fit"));
  g.groups[0].blocks_per_page = 0;
  EXPECT_THAT(message(g), HasSubstr("blocks_per_page is 0"));
  g.groups[0].block_bytes = int64_t{1} << 62;
  g.groups[0].blocks_per_page = 4;
  EXPECT_THAT(message(g), HasSubstr("do not fit"));
  g.groups.clear();
  EXPECT_THAT(message(g), HasSubstr("0 groups"));
}

}  // namespace
}  // namespace braid
