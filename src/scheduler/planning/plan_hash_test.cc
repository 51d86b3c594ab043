// Ranks that plan something else are found by the hash, whatever it is.
#include "scheduler/planning/plan_hash.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace braid {
namespace {

Plan Example(const Request& request) {
  Plan plan;
  plan.step = StepId(3);
  plan.admissions = {{SlotId(1), &request, {5, 6}}};
  plan.tables = {{SlotId(1), GroupId(0), 2, BlockId(9)}};
  plan.rows = {{.slot = SlotId(1),
                .request = RequestId(7),
                .token_begin = 0,
                .token_count = 2,
                .start = 64,
                .drafts = 1,
                .sample = true,
                .prompt_logprobs = false,
                .propose = {1, 0, 2}}};
  plan.dp_rank_rows = {1, 0};
  plan.tokens = {11, 12};
  plan.ahead = {{.request = RequestId(9),
                 .dp_rank = DpRankId(0),
                 .parts = {{.key = {5, 6}, .kind = GroupKind::kFull}}}};
  plan.moves = {{.id = MoveId(4),
                 .place = Place::kDisk,
                 .direction = Direction::kIn,
                 .dp_rank = DpRankId(1),
                 .slot = SlotId(2),
                 .request = RequestId(8),
                 .begin = 64,
                 .end = 128,
                 .parts = {{.index = 1, .kind = GroupKind::kFull, .blocks = {}, .key = {}}}}};
  plan.moves[0].parts[0].blocks.by_group[0] = BlockId(6);
  plan.released = {SlotId(5)};
  plan.experts = {{1, 0}};
  return plan;
}

TEST(PlanHash, AnyDifferenceChangesIt) {
  Request request, other;
  request.id = RequestId(7);
  other.id = RequestId(8);
  const std::vector<std::function<void(Plan&)>> changes = {
      [](Plan&) {},
      [](Plan& p) { p.step = StepId(4); },
      [](Plan& p) { p.admissions[0].slot = SlotId(2); },
      [&](Plan& p) { p.admissions[0].request = &other; },
      [](Plan& p) { p.admissions[0].output[1] = 7; },
      [](Plan& p) { p.admissions.clear(); },
      [](Plan& p) { p.tables[0].slot = SlotId(2); },
      [](Plan& p) { p.tables[0].group = GroupId(1); },
      [](Plan& p) { p.tables[0].index = 3; },
      [](Plan& p) { p.tables[0].block = BlockId(8); },
      [](Plan& p) { p.rows[0].slot = SlotId(2); },
      [](Plan& p) { p.rows[0].request = RequestId(8); },
      [](Plan& p) { p.rows[0].token_count = 1; },
      [](Plan& p) { p.rows[0].start = 65; },
      [](Plan& p) { p.rows[0].drafts = 0; },
      [](Plan& p) { p.rows[0].sample = false; },
      [](Plan& p) { p.rows[0].prompt_logprobs = true; },
      [](Plan& p) { p.rows[0].propose = {0, 1, 2}; },
      [](Plan& p) { p.rows[0].propose = {1, 0, 3}; },
      [](Plan& p) { p.dp_rank_rows = {0, 1}; },
      [](Plan& p) { p.tokens[0] = 12; },
      [](Plan& p) { p.ahead[0].request = RequestId(8); },
      [](Plan& p) { p.ahead[0].dp_rank = DpRankId(1); },
      [](Plan& p) { p.ahead[0].parts[0].key.low = 4; },
      [](Plan& p) { p.ahead[0].parts[0].key.high = 7; },
      [](Plan& p) { p.ahead[0].parts[0].kind = GroupKind::kState; },
      [](Plan& p) { p.moves[0].id = MoveId(5); },
      [](Plan& p) { p.moves[0].place = Place::kPeer; },
      [](Plan& p) { p.moves[0].direction = Direction::kOut; },
      [](Plan& p) { p.moves[0].dp_rank = DpRankId(0); },
      [](Plan& p) { p.moves[0].slot = SlotId(1); },
      [](Plan& p) { p.moves[0].request = RequestId(7); },
      [](Plan& p) { p.moves[0].begin = 0; },
      [](Plan& p) { p.moves[0].end = 192; },
      [](Plan& p) { p.moves[0].parts[0].index = 0; },
      [](Plan& p) { p.moves[0].parts[0].kind = GroupKind::kState; },
      [](Plan& p) { p.moves[0].parts[0].blocks.by_group[0] = BlockId(7); },
      [](Plan& p) { p.released[0] = SlotId(6); },
      [](Plan& p) { p.experts[0] = {0, 1}; },
  };
  std::set<uint64_t> hashes;
  for (const auto& change : changes) {
    Plan plan = Example(request);
    change(plan);
    hashes.insert(HashPlan(plan));
    EXPECT_EQ(HashPlan(plan), HashPlan(plan));
  }
  EXPECT_EQ(hashes.size(), changes.size());
  EXPECT_NE(HashPlan(Example(request), 1), HashPlan(Example(request)));
}

}  // namespace
}  // namespace braid
