// Where requests run, whose turn it is, and how long a step may take. Numbers in names (C7.n,
// C12.n) are those of the behavioural scenarios.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "scheduler/planning/plan_hash.h"
#include "scheduler/testing/scheduler_fixture.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PlacementTest : public SchedulerFixture {
 protected:
  PlacementTest() : SchedulerFixture(Config(1)) {}
  static SchedulerConfig Config(int32_t dp_ranks, Placement placement = Placement::kPrefixAffine) {
    return {.cache = {.groups = {{"full", GroupKind::kFull, 64, 1},
                                 {"state", GroupKind::kState, 64, 1}},
                      .page_bytes = 64,
                      .pages = 200},
            .context_tokens_max = 40000,
            .step_tokens_max = 512,
            .running_max = 8,
            .vocabulary = 50000,
            .dp_ranks = dp_ranks,
            .placement = placement};
  }
  RequestId Send(const Request& r) {
    tenants_[r.id.value] = r.tenant;
    return SchedulerFixture::Send(r);
  }
  void LandAfter(const Plan& plan, int64_t duration_us) {
    StepDone done = ResultOf(plan);
    done.duration_us = duration_us;
    CompleteRow(std::move(done));
  }
  // The requests that a plan admits; their own objects may be gone by now.
  static std::map<int64_t, SlotId> Admitted(const Plan& plan) {
    std::map<int64_t, SlotId> admitted;
    for (const Row& row : plan.rows) {
      for (const Admission& a : plan.admissions) {
        if (a.slot == row.slot) admitted[row.request.value] = row.slot;
      }
    }
    return admitted;
  }
  std::map<int64_t, int32_t> RanksOf(const Plan& plan) const {
    std::map<int64_t, int32_t> ranks;
    for (const auto& [id, slot] : Admitted(plan)) {
      ranks[id] = slot.value / s_.config().running_max;
    }
    return ranks;
  }
  int32_t RankOf(const Request& r) {
    Send(r);
    const Plan plan = Step();
    return RanksOf(plan).at(r.id.value);
  }

  std::map<int64_t, std::string> tenants_;
};

TEST_F(PlacementTest, C7_95_EveryRankHasAChunkAndABudgetOfItsOwn) {
  Use(Config(4));
  for (TokenId i = 0; i < 4; ++i) Send(Make(3000, 1, i * 5000));
  const Plan plan = Step();
  EXPECT_THAT(plan.dp_rank_rows, ElementsAre(1, 1, 1, 1));
  for (const Row& row : plan.rows) EXPECT_EQ(row.token_count, 512);
}

TEST_F(PlacementTest, AnIdleRankTakesPartInEveryStep) {
  Use(Config(3));
  Request r = Make(100, 3);
  r.dp_rank = 1;
  Send(r);
  for (Plan plan = Step(); !plan.empty(); plan = Step()) {
    EXPECT_THAT(plan.dp_rank_rows, ElementsAre(0, 1, 0));
  }
}

TEST_F(PlacementTest, C12_156_AHolderOfThePrefixIsPreferredUnlessItIsFarBusier) {
  Use(Config(3));
  Request first = Make(640, 1);
  first.dp_rank = 2;
  Send(first);
  Drain();
  EXPECT_EQ(RankOf(Make(640, 300)), 2);
  EXPECT_EQ(RankOf(Make(640, 300)), 2);
  EXPECT_EQ(RankOf(Make(640, 300)), 2);  // two more than the others
  EXPECT_EQ(RankOf(Make(640, 300)), 0);  // three would be too many
  Request half = Make(320, 300);
  half.prompt.resize(700, 9);
  EXPECT_EQ(RankOf(half), 1);  // less than half of it is anywhere
}

TEST_F(PlacementTest, C12_156_OfSeveralHoldersTheLeastLoadedIsTaken) {
  Use(Config(3));
  for (const int32_t rank : {1, 2}) {
    Request r = Make(640, 1);
    r.dp_rank = rank;
    Send(r);
    Drain();
  }
  EXPECT_EQ(RankOf(Make(640, 300)), 1);
  EXPECT_EQ(RankOf(Make(640, 300)), 2);
}

TEST_F(PlacementTest, C12_157_AFullRankIsPassedOverAndWhenAllAreFullARequestWaits) {
  SchedulerConfig config = Config(2);
  config.running_max = 1;
  Use(config);
  Request first = Make(640, 1);
  first.dp_rank = 1;
  Send(first);
  Drain();
  EXPECT_EQ(RankOf(Make(640, 300)), 1);
  EXPECT_EQ(RankOf(Make(640, 300)), 0);
  Send(Make(640, 1));
  EXPECT_TRUE(RanksOf(Step()).empty());
  EXPECT_EQ(s_.stats().waiting, 1);
  Drain();
}

TEST_F(PlacementTest, C12_158_WhatWasPlacedAMomentAgoCountsAsLoad) {
  Use(Config(4, Placement::kLeastLoaded));
  for (TokenId i = 0; i < 8; ++i) Send(Make(20, 50, i * 100));
  std::map<int32_t, int32_t> placed;
  for (const auto& [id, rank] : RanksOf(Step())) ++placed[rank];
  EXPECT_EQ(placed, (std::map<int32_t, int32_t>{{0, 2}, {1, 2}, {2, 2}, {3, 2}}));
}

TEST_F(PlacementTest, C12_159_TheLastTokenDoesNotCountAndAPromptToBeScoredHoldsNothing) {
  Use(Config(2));
  Request first = Make(129, 1);  // 128 of them are stored
  first.dp_rank = 1;
  Send(first);
  Drain();
  EXPECT_EQ(RankOf(Make(129, 300)), 1);
  EXPECT_EQ(RankOf(Make(128, 300)), 0);  // 64 of 128 are no more than half
  Request scored = Make(129, 0);
  scored.prompt_logprobs = 0;
  EXPECT_EQ(RankOf(scored), 0);  // as busy as the other, and lower
}

TEST_F(PlacementTest, C12_160_ARankThatDoesNotExistIsRefused) {
  Use(Config(2));
  for (const int32_t rank : {-2, 2}) {
    Request r = Make(10, 1);
    r.dp_rank = rank;
    const Status status = s_.Admissible(r);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().field, "dp_rank");
    EXPECT_THAT(status.error().message, HasSubstr("there are 2 data-parallel ranks"));
  }
}

TEST_F(PlacementTest, RoundRobinTakesTheRanksInTurn) {
  Use(Config(3, Placement::kRoundRobin));
  std::vector<int32_t> ranks;
  for (TokenId i = 0; i < 6; ++i) ranks.push_back(RankOf(Make(20, 50, i * 100)));
  EXPECT_THAT(ranks, ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST_F(PlacementTest, ARequestThatMustWaitForItsRankDelaysNobodyElsewhere) {
  SchedulerConfig config = Config(2);
  config.running_max = 1;
  Use(config);
  for (int i = 0; i < 2; ++i) {
    Request r = Make(20, 300, i * 1000);
    r.dp_rank = 0;
    Send(r);
  }
  EXPECT_EQ(RanksOf(Step()).size(), 1u);
  EXPECT_EQ(RankOf(Make(20, 1, 5000)), 1);
}

TEST_F(PlacementTest, AFloodOfOneTenantDelaysAnothersFirstRequestByOneAtMost) {
  SchedulerConfig config = Config(1);
  config.running_max = 1;
  Use(config);
  const auto send = [&](const std::string& tenant, int32_t tokens) {
    Request r = Make(tokens, 5, static_cast<TokenId>(next_id_) * 60);
    r.tenant = tenant;
    r.cache_salt = "salt " + std::to_string(next_id_);  // which makes no tenant of its own
    return Send(r);
  };
  for (int i = 0; i < 300; ++i) send(i % 3 == 0 ? "flood" : "surge", 20 + i % 7);
  for (int round = 0; round < 20; ++round) {
    const RequestId mine = send("quiet " + std::to_string(round), 30);
    std::map<std::string, int> before;
    for (bool admitted = false; !admitted;) {
      const Plan plan = Step();
      ASSERT_FALSE(plan.empty());
      for (const auto& [id, slot] : Admitted(plan)) {
        admitted |= id == mine.value;
        if (!admitted) ++before[tenants_[id]];
      }
    }
    EXPECT_LE(before["flood"], 1);
    EXPECT_LE(before["surge"], 1);
    for (int i = 0; i < 9; ++i) Step();
  }
  Drain();
}

TEST_F(PlacementTest, TenantsThatAlwaysWaitAreServedAlike) {
  SchedulerConfig config = Config(1);
  config.running_max = 1;
  Use(config);
  // "long" asks for ten times as much at a time; both get half of the tokens.
  for (int i = 0; i < 400; ++i) {
    Request r = Make(i % 8 == 0 ? 500 : 50, 1, static_cast<TokenId>(i) * 100);
    r.tenant = i % 8 == 0 ? "long" : "short";
    Send(r);
  }
  std::map<std::string, int64_t> tokens;
  while (tokens["long"] + tokens["short"] < 16000) {
    const Plan plan = Step();
    ASSERT_FALSE(plan.empty());
    for (const Row& row : plan.rows) tokens[tenants_[row.request.value]] += row.token_count;
  }
  EXPECT_NEAR(static_cast<double>(tokens["long"]), 8000, 600);
}

// A device on which a step takes 1 ms, and so much more for every prompt token.
int64_t Duration(const Plan& plan, int64_t token_us) {
  int64_t prompt = 0;
  for (const Row& row : plan.rows) prompt += row.token_count > 1 ? row.token_count : 0;
  return 1000 + token_us * prompt;
}

TEST_F(PlacementTest, ALongPromptDoesNotMakeStepsLongerThanTheLatencyAskedFor) {
  struct Case {
    int64_t latency_us, token_us;
    int32_t tokens;  // that fit a step; 0: as many as there are
  };
  for (const Case& c : {Case{0, 20, 0}, Case{5000, 20, 192}, Case{5000, 200, 20}}) {
    SchedulerConfig config = Config(1);
    config.cache.pages = 2000;
    config.running_max = 32;
    config.step_tokens_max = 2048;
    config.decode_latency_us = c.latency_us;
    Use(config);
    for (TokenId i = 0; i < 16; ++i) Send(Make(30, 2000, i * 100));
    for (int i = 0; i < 20; ++i) {
      const Plan plan = s_.NextPlan();
      LandAfter(plan, Duration(plan, c.token_us));
    }
    const RequestId big = Send(Make(20000, 1, 20000));
    int64_t longest = 0, steps = 0;
    for (bool reading = true; reading; ++steps) {
      const Plan plan = s_.NextPlan();
      ASSERT_GE(plan.rows.size(), 16u);  // nobody misses a step
      reading = false;
      for (const Row& row : plan.rows) reading |= row.request == big && !row.sample;
      longest = std::max(longest, Duration(plan, c.token_us));
      LandAfter(plan, Duration(plan, c.token_us));
    }
    if (c.tokens == 0) {
      EXPECT_GT(longest, 40000);
    } else {
      EXPECT_LE(longest, c.latency_us);
      EXPECT_LE(steps, 20000 / c.tokens + 5);  // and it uses what it may
    }
    Drain();
  }
}

}  // namespace
}  // namespace braid
