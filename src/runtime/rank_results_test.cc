// What a data-parallel rank takes of a plan, how rows travel, and the results that ranks give each
// other.
#include "runtime/rank_results.h"

#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "comm/thread_group.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kRankSlots = 3;  // of a data-parallel rank

Row RowOf(int32_t slot, int32_t tokens) {
  return {.slot = SlotId(slot), .request = RequestId(100 + slot), .token_count = tokens};
}

TEST(PlanOf, HasWhatIsTheRanksInItsOwnSlots) {
  Plan plan;
  for (const int32_t rank : {0, 1, 2}) {
    plan.freed.push_back({DpRankId(rank), GroupId(0), BlockId(rank)});
  }
  const Request request;
  for (const int32_t slot : {2, 3, 5, 6}) {
    plan.admissions.push_back({SlotId(slot), &request, {slot}});
    plan.tables.push_back({SlotId(slot), GroupId(0), slot, BlockId(slot)});
    plan.rows.push_back(RowOf(slot, 1));
    plan.tokens.push_back(slot);
    plan.released.push_back(SlotId(slot));
  }
  plan.step = StepId(7);
  plan.moves.resize(2);
  const Plan own = PlanOf(plan, 1, kRankSlots);
  EXPECT_EQ(own.step, StepId(7));
  ASSERT_EQ(own.freed.size(), 1u);
  EXPECT_EQ(own.freed[0].block, BlockId(1));
  ASSERT_EQ(own.admissions.size(), 2u);
  ASSERT_EQ(own.tables.size(), 2u);
  ASSERT_EQ(own.rows.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const int32_t slot = i == 0 ? 0 : 2;
    EXPECT_EQ(own.admissions[i].slot, SlotId(slot));
    EXPECT_THAT(own.admissions[i].output, ElementsAre(slot + kRankSlots));
    EXPECT_EQ(own.tables[i].slot, SlotId(slot));
    EXPECT_EQ(own.tables[i].block, BlockId(slot + kRankSlots));
    EXPECT_EQ(own.rows[i].slot, SlotId(slot));
    EXPECT_EQ(own.rows[i].request, RequestId(100 + slot + kRankSlots));
  }
  EXPECT_THAT(own.released, ElementsAre(SlotId(0), SlotId(2)));
  EXPECT_THAT(own.tokens, ElementsAre(2, 3, 5, 6)) << "rows say where theirs are";
  EXPECT_EQ(own.moves.size(), 2u);
}

TEST(PlanOf, TheFullestRankHasMostTokensOfAll) {
  EXPECT_EQ(TokensOfTheFullest({}, kRankSlots), 0);
  Plan plan;
  plan.rows = {RowOf(0, 3), RowOf(2, 4), RowOf(3, 6), RowOf(6, 1), RowOf(8, 2)};
  EXPECT_EQ(TokensOfTheFullest(plan, kRankSlots), 7);
  plan.rows[2].token_count = 8;
  EXPECT_EQ(TokensOfTheFullest(plan, kRankSlots), 8);
  plan.rows[4].token_count = 8;
  EXPECT_EQ(TokensOfTheFullest(plan, kRankSlots), 9);
}

TEST(ParcelRows, AreThoseOfAFewTokensOrAsTheRuleSays) {
  const struct {
    DispatchRule rule;
    int32_t tokens, tp;
    int32_t rows;
  } cases[] = {
      {{.form = DispatchForm::kAuto}, 1, 1, 1},
      {{.form = DispatchForm::kAuto}, 16, 1, 16},
      {{.form = DispatchForm::kAuto}, 17, 1, 0},
      {{.form = DispatchForm::kAuto}, 17, 2, 9},
      {{.form = DispatchForm::kAuto}, 32, 2, 16},
      {{.form = DispatchForm::kAuto}, 33, 2, 0},
      {{.form = DispatchForm::kAuto, .parcel_rows_max = 8}, 16, 1, 8},
      {{.form = DispatchForm::kThroughput}, 1, 1, 0},
      {{.form = DispatchForm::kLatency}, 33, 2, 17},
      {{.form = DispatchForm::kLatency}, 64, 1, 64},
      {{.form = DispatchForm::kLatency}, 65, 1, 64},
      {{.form = DispatchForm::kLatency}, 0, 4, 1},
  };
  for (const auto& c : cases) {
    Plan plan;
    if (c.tokens > 0) plan.rows = {RowOf(0, c.tokens), RowOf(3, 1)};
    EXPECT_EQ(ParcelRowsOf(c.rule, plan, kRankSlots, c.tp), c.rows) << c.tokens << " on " << c.tp;
  }
}

// Ranks 0 and 2 sample; rank 1 has the tokens of rank 0.
TEST(ResultExchange, GivesEveryRankTheRowsOfAllInTheirOrder) {
  ThreadGroup group(3, std::chrono::seconds(60));
  std::vector<StepDone> out(3);
  std::vector<std::vector<MoveVote>> votes(3);
  std::vector<int32_t> from(3);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<size_t>(rank);
      StepDone& own = out[at];
      ResultExchange exchange;
      for (int turn = 0; turn < 2; ++turn) {  // the second step has nothing of the first
        own = {.step = StepId(4 + turn), .rows = {}};
        for (int32_t i = 0; rank != 1 && i < 2 - turn; ++i) {
          own.rows.push_back({.request = RequestId(10 * rank + i), .token = 7 * rank + i + turn});
        }
        const RankWord word{.halves_from = 100 + rank,
                            .vote = rank == 2 ? MoveVote::kReady : MoveVote::kBusy};
        const Status status =
            exchange.Share(group.rank(rank), rank != 1, word, turn == 0 ? 4 : 2, own);
        ASSERT_TRUE(status) << status.error().message;
      }
      votes[at] = exchange.votes();
      from[at] = exchange.halves_from();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(out[rank].step, StepId(5));
    ASSERT_EQ(out[rank].rows.size(), 2u);
    EXPECT_EQ(out[rank].rows[0].request, RequestId(0));
    EXPECT_EQ(out[rank].rows[0].token, 1);
    EXPECT_EQ(out[rank].rows[1].request, RequestId(20));
    EXPECT_EQ(out[rank].rows[1].token, 15);
    EXPECT_THAT(votes[rank], ElementsAre(MoveVote::kBusy, MoveVote::kBusy, MoveVote::kReady));
    EXPECT_EQ(from[rank], 100);
  }
}

TEST(ResultExchange, SaysWhoDidNotCome) {
  ThreadGroup group(2, std::chrono::milliseconds(20));
  ResultExchange exchange;
  StepDone out;
  const Status status = exchange.Share(group.rank(0), true, {}, 0, out);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("no word from rank 1"));
}

}  // namespace
}  // namespace braid
