// What a tier is asked to read ahead: for whom, once, how much, and until when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "cache/page_key.h"
#include "scheduler/testing/scheduler_fixture.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ReadAheadTest : public SchedulerFixture {
 protected:
  ReadAheadTest() : SchedulerFixture(Config()) {}
  // One request runs at a time.
  static SchedulerConfig Config() {
    SchedulerConfig config = BlockConfig();
    config.tier = true;
    config.running_max = 1;
    return config;
  }
  // The keys and values of blocks [begin, end) of prompts that begin with `first`, and the state at
  // the end: what a move brings.
  static std::vector<KnownPart> PartsOf(TokenId first, int32_t begin, int32_t end) {
    std::vector<KnownPart> parts;
    PageKey key = RootPageKey("", "");
    for (int32_t i = 0; i < end; ++i) {
      BlockTokens tokens;
      std::iota(tokens.begin(), tokens.end(), first + i * kBlockTokens);
      key = ChildPageKey(key, tokens);
      if (i >= begin) parts.push_back({key, GroupKind::kFull});
    }
    parts.push_back({key, GroupKind::kState});
    return parts;
  }
  void Store(TokenId first, int32_t blocks) {
    s_.Apply(PagesKnown{.added = PartsOf(first, 0, blocks), .dropped = {}});
  }
  // Takes the slot for a while.
  RequestId Occupy(int32_t new_tokens = 50, TokenId first = 4000) {
    const RequestId id = Send(Make(65, new_tokens, first));
    EXPECT_THAT(Step().ahead, IsEmpty());
    return id;
  }
  // What the next plans name, until `s_` has nothing to do or somebody else is admitted.
  std::vector<PagesAhead> AheadOf(int plans) {
    std::vector<PagesAhead> all;
    for (int i = 0; i < plans; ++i) {
      const Plan plan = Step();
      EXPECT_FALSE(plan.empty());
      all.insert(all.end(), plan.ahead.begin(), plan.ahead.end());
    }
    return all;
  }
  // What comes from the tier.
  static std::vector<KnownPart> PartsIn(const Plan& plan) {
    std::vector<KnownPart> parts;
    for (const PageMove& move : plan.moves) {
      if (!move.in()) continue;
      for (const PagePart& part : move.parts) parts.push_back({part.key, part.kind});
    }
    return parts;
  }
  static bool Ends(const PagesAhead& ahead, RequestId id) {
    return ahead.request == id && ahead.parts.empty();
  }
  void Leave(RequestId id) {
    s_.Apply(Abort{.id = id});
    Take();
  }
};

TEST_F(ReadAheadTest, ARequestThatWaitsNamesOnceWhatItsMoveBrings) {
  Store(10, 4);
  const RequestId running = Occupy();
  const RequestId waiting = Send(Make(64 * 4 + 1, 1));
  const Plan plan = Step();
  ASSERT_THAT(plan.ahead, SizeIs(1));
  EXPECT_EQ(plan.ahead[0].request, waiting);
  EXPECT_EQ(plan.ahead[0].dp_rank, DpRankId(0));
  EXPECT_THAT(plan.ahead[0].parts, ElementsAreArray(PartsOf(10, 0, 4)));
  EXPECT_THAT(PartsIn(plan), IsEmpty());
  EXPECT_THAT(AheadOf(20), IsEmpty());
  Leave(running);
  const Plan admits = Step();
  ASSERT_THAT(admits.ahead, SizeIs(1));
  EXPECT_TRUE(Ends(admits.ahead[0], waiting));
  EXPECT_EQ(PartsIn(admits), plan.ahead[0].parts);
}

TEST_F(ReadAheadTest, OneThatIsAdmittedAtOnceNamesNothing) {
  Store(10, 4);
  Send(Make(64 * 4 + 1, 1));
  const Plan plan = Step();
  EXPECT_THAT(PartsIn(plan), SizeIs(5));
  EXPECT_THAT(plan.ahead, IsEmpty());
}

TEST_F(ReadAheadTest, WithoutATierOrWithoutPagesInItNothingIsNamed) {
  for (const bool tier : {false, true}) {
    SchedulerConfig config = Config();
    config.tier = tier;
    Use(config);
    if (!tier) Store(10, 4);  // nobody looks at it
    Occupy();
    Send(Make(64 * 4 + 1, 1));
    EXPECT_THAT(AheadOf(5), IsEmpty()) << tier;
  }
}

TEST_F(ReadAheadTest, WhatTheArenaHasIsNotNamed) {
  Send(Make(64 * 2 + 1, 1));
  while (s_.stats().finished == 0) Step();
  Store(10, 4);
  Occupy();
  Send(Make(64 * 4 + 1, 1));
  const std::vector<PagesAhead> ahead = AheadOf(3);
  ASSERT_THAT(ahead, SizeIs(1));
  EXPECT_THAT(ahead[0].parts, ElementsAreArray(PartsOf(10, 2, 4)));
}

TEST_F(ReadAheadTest, WhatTwoRequestsShareIsNamedOnce) {
  Store(10, 4);
  Store(10, 6);
  const RequestId running = Occupy();
  const RequestId first = Send(Make(64 * 4 + 1, 1)), second = Send(Make(64 * 6 + 1, 1));
  std::vector<PagesAhead> ahead = AheadOf(3);
  ASSERT_THAT(ahead, SizeIs(2));
  EXPECT_EQ(ahead[0].request, first);
  EXPECT_EQ(ahead[1].request, second);
  EXPECT_THAT(ahead[1].parts, ElementsAreArray(PartsOf(10, 4, 6)));
  Leave(first);
  ahead = AheadOf(1);
  ASSERT_THAT(ahead, SizeIs(1));
  EXPECT_TRUE(Ends(ahead[0], first));
  // It may be named again, for somebody else.
  const RequestId third = Send(Make(64 * 4 + 1, 1));
  ahead = AheadOf(3);
  ASSERT_THAT(ahead, SizeIs(1));
  EXPECT_EQ(ahead[0].request, third);
  EXPECT_THAT(ahead[0].parts, ElementsAreArray(PartsOf(10, 0, 4)));
  Leave(running);
}

TEST_F(ReadAheadTest, OneThatLeavesTheQueueIsToldOnce) {
  Store(10, 4);
  const RequestId running = Occupy();
  const RequestId waiting = Send(Make(64 * 4 + 1, 1));
  EXPECT_THAT(AheadOf(2), SizeIs(1));
  Leave(waiting);
  const std::vector<PagesAhead> ahead = AheadOf(5);
  ASSERT_THAT(ahead, SizeIs(1));
  EXPECT_TRUE(Ends(ahead[0], waiting));
  // One that was not looked at yet, or has nothing there, is not told.
  Leave(Send(Make(64 * 4 + 1, 1)));
  const RequestId unknown = Send(Make(64 * 4 + 1, 1, 2000));
  EXPECT_THAT(AheadOf(2), IsEmpty());
  Leave(unknown);
  EXPECT_THAT(AheadOf(2), IsEmpty());
  Leave(running);
}

TEST_F(ReadAheadTest, TheFirstOfTheQueueAreLookedAtInItsOrder) {
  for (int i = 0; i < 6; ++i) Store(10 + 500 * i, 2);
  const RequestId running = Occupy();
  std::vector<RequestId> waiting;
  for (int i = 0; i < 6; ++i) waiting.push_back(Send(Make(64 * 2 + 1, 1, 10 + 500 * i)));
  std::vector<RequestId> named;
  for (const PagesAhead& ahead : AheadOf(5)) named.push_back(ahead.request);
  EXPECT_THAT(named, ElementsAre(waiting[0], waiting[1], waiting[2], waiting[3]));
  Leave(waiting[1]);
  const std::vector<PagesAhead> ahead = AheadOf(5);
  ASSERT_THAT(ahead, SizeIs(2));
  EXPECT_TRUE(Ends(ahead[0], waiting[1]));
  EXPECT_EQ(ahead[1].request, waiting[4]);
  Leave(running);
}

// Parts of 128 MiB, so that four reach the bound.
TEST_F(ReadAheadTest, WhatIsNamedIsBoundedForAllTogether) {
  SchedulerConfig config = Config();
  config.cache.page_bytes = config.cache.groups[0].block_bytes =
      config.cache.groups[1].block_bytes = int64_t{128} << 20;
  Use(config);
  Store(10, 2);
  Store(1000, 20);
  Store(2000, 2);
  const RequestId running = Occupy();
  const RequestId first = Send(Make(64 * 2 + 1, 1)), second = Send(Make(64 * 20 + 1, 1, 1000)),
                  third = Send(Make(64 * 2 + 1, 1, 2000));
  std::vector<PagesAhead> ahead = AheadOf(5);
  ASSERT_THAT(ahead, SizeIs(2));
  EXPECT_EQ(ahead[0].request, first);
  EXPECT_THAT(ahead[0].parts, SizeIs(3));
  EXPECT_EQ(ahead[1].request, second);
  EXPECT_THAT(ahead[1].parts, ElementsAre(PartsOf(1000, 0, 1)[0])) << "its beginning";
  Leave(second);
  ahead = AheadOf(5);
  ASSERT_THAT(ahead, SizeIs(2));
  EXPECT_TRUE(Ends(ahead[0], second));
  EXPECT_EQ(ahead[1].request, third);
  EXPECT_THAT(ahead[1].parts, SizeIs(1));
  Leave(running);
}

TEST_F(ReadAheadTest, OfAClearedTierNothingIsNamed) {
  Store(10, 4);
  Store(1000, 4);
  const RequestId running = Occupy();
  const RequestId before = Send(Make(64 * 4 + 1, 1));
  EXPECT_THAT(AheadOf(2), SizeIs(1));
  s_.Apply(FlushCache{.tiers = true});
  Send(Make(64 * 4 + 1, 1, 1000));
  EXPECT_THAT(AheadOf(2), IsEmpty());
  Leave(running);
  const Plan plan = Step();
  ASSERT_THAT(plan.ahead, SizeIs(1));
  EXPECT_TRUE(Ends(plan.ahead[0], before));
  EXPECT_THAT(PartsIn(plan), IsEmpty());
}

TEST_F(ReadAheadTest, ARequestOfARankIsNamedThere) {
  SchedulerConfig config = Config();
  config.dp_ranks = 2;
  Use(config);
  Store(10, 4);
  Store(1000, 4);
  Occupy();
  const RequestId other = Occupy(50, 3000);
  Request own = Make(64 * 4 + 1, 1);
  own.dp_rank = 1;
  Send(own);
  const RequestId any = Send(Make(64 * 4 + 1, 1, 1000));
  const std::vector<PagesAhead> ahead = AheadOf(3);
  ASSERT_THAT(ahead, SizeIs(2));
  EXPECT_EQ(ahead[0].request, any);
  EXPECT_EQ(ahead[0].dp_rank, DpRankId(0));
  EXPECT_EQ(ahead[1].request, own.id);
  EXPECT_EQ(ahead[1].dp_rank, DpRankId(1));
  Leave(other);
  const Plan plan = Step();
  ASSERT_THAT(plan.ahead, SizeIs(1));
  EXPECT_TRUE(Ends(plan.ahead[0], own.id)) << "it came first";
  EXPECT_EQ(PartsIn(plan), ahead[1].parts);
}

}  // namespace
}  // namespace braid
