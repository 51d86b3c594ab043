// A request whose numbers are not finite ends alone, and nothing of it is reused.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "tests/equality/table.h"

namespace braid {
namespace {

class NonFiniteTest : public ::testing::TestWithParam<Subject> {
 protected:
  static Request Clean(Request request) {
    std::replace(request.prompt.begin(), request.prompt.end(), kNanTokenForTest, TokenId{8});
    request.sampling.logit_bias = {{kNanTokenForTest, -1000.0f}};
    return request;
  }
  // 200 tokens of the clean prompt, the bad one, and some more.
  static Request Bad(int64_t id, const Request& clean) {
    Request bad = clean;
    bad.id = RequestId(id);
    bad.prompt[200] = kNanTokenForTest;
    return bad;
  }
};

TEST_P(NonFiniteTest, EndsThatRequestOnlyAndNothingOfItIsReused) {
  Machine machine(GetParam(), /*inject_nan_for_test=*/true);
  const Request clean = Clean(Target(true));
  const Answer want = Cold(machine, clean);
  SchedulerConfig config = machine.config();
  config.chunk_tokens_max = 64;  // the bad prompt's blocks come back one by one, unsampled
  Engine run(machine, config);
  run.Submit(Bad(1, clean));
  for (int step = 0; step < 3; ++step) run.Step();
  Request longer = Bad(2, clean);  // takes over what the first has published so far
  const std::vector<TokenId> more = Tokens(11, 150);
  longer.prompt.insert(longer.prompt.end(), more.begin(), more.end());
  run.Submit(longer);
  run.Submit(clean);
  for (int64_t id = 3; id < 8; ++id) {
    run.Submit(Clean(MakeRequest(id, Tokens(static_cast<uint64_t>(id), 90), 40)));
  }
  run.Drain();
  for (int64_t id : {1, 2}) {
    EXPECT_THAT(run.answer(id).error, ::testing::HasSubstr("not finite"));
    EXPECT_TRUE(run.answer(id).tokens.empty());
  }
  EXPECT_EQ(run.answer(2).reuse.tokens, 192);  // what is bad was never published
  ExpectSame(run.answer(kTarget), want);
  for (int64_t id = 3; id < 8; ++id) EXPECT_EQ(run.answer(id).tokens.size(), 40u);
  // Of the bad prompt no more is found than it has in common with the good one.
  const Answer& again = run.Ask(Bad(9, clean));
  EXPECT_LE(again.reuse.known, 192);
  EXPECT_FALSE(again.error.empty());
  Request warm = clean;
  warm.id = RequestId(10);
  ExpectSame(run.Ask(warm), want);
  EXPECT_GT(run.answer(10).reuse.tokens, 0);
}

TEST_P(NonFiniteTest, EndsADecodingRequestAfterItsGoodTokens) {
  Machine machine(GetParam(), /*inject_nan_for_test=*/true);
  Request request = Clean(Target(false));
  const Answer want = Cold(machine, request);
  request.sampling.logit_bias = {{kNanTokenForTest, 1000.0f}};  // sampled first, read then
  Engine run(machine, machine.config());
  const Answer& got = run.Ask(request);
  EXPECT_EQ(got.tokens, std::vector<TokenId>{kNanTokenForTest});
  EXPECT_THAT(got.error, ::testing::HasSubstr("not finite"));
  Request other = Clean(Target(false));
  other.id = RequestId(1);
  ExpectSame(run.Ask(other), want);
}

// The same plan twice: while the pages that its table names are somebody's, and afterwards.
TEST_P(NonFiniteTest, AReadOfAFreedPageIsNoticed) {
  if (GetParam().mesh.ranks() > 1) return;  // pages are freed alike on all ranks
  Machine machine(GetParam());
  SchedulerConfig config = machine.config();
  config.prefix_cache = false;
  Scheduler scheduler = *Scheduler::Create(config);
  const Request request = MakeRequest(1, Tokens(3, 64), 2);
  scheduler.Apply(Submit{request});
  const Plan first = scheduler.NextPlan();
  const auto run = [&](const Plan& plan) {
    Inbox ended;
    machine.executor().Launch(plan, ended);
    return ended.AwaitStep();
  };
  const Request reader = MakeRequest(2, Tokens(3, 70), 1);
  Plan stale{.admissions = {{.slot = SlotId(5), .request = &reader}},
             .tables = first.tables,
             .rows = {{.slot = SlotId(5), .request = reader.id, .token_count = 6, .start = 64}},
             .tokens = {reader.prompt.begin() + 64, reader.prompt.end()}};
  for (TableUpdate& update : stale.tables) update.slot = SlotId(5);
  for (int32_t g = 0; g < static_cast<int32_t>(config.cache.groups.size()); ++g) {
    stale.tables.push_back({SlotId(5), GroupId(g), 1, BlockId(config.cache.pages - 1 - g)});
  }
  stale.rows[0].sample = true;
  scheduler.Apply(run(first));
  EXPECT_EQ(run(stale).rows[0].error, "");
  scheduler.Apply(run(scheduler.NextPlan()));
  ASSERT_TRUE(scheduler.idle());
  scheduler.Apply(Submit{MakeRequest(3, Tokens(4, 300), 1)});
  Plan next = scheduler.NextPlan();
  EXPECT_GE(next.freed.size(), first.tables.size());
  next.tables.clear();  // nothing of it runs; its pages are as they were left
  next.rows.clear();
  run(next);
  EXPECT_THAT(run(stale).rows[0].error, ::testing::HasSubstr("not finite"));
}

std::vector<Subject> Subjects() {
  std::vector<Subject> subjects;
  for (const Model model :
       {Model::kQwen3Next, Model::kKimiLinear, Model::kLing2, Model::kDeepseekV3}) {
    subjects.push_back({model, BestHere(Compute::kF32)});
  }
  // Rows that are not finite travel beside others, as numbers and as codes.
  for (const Arithmetic* arithmetic : ArithmeticsHere()) {
    if (arithmetic != BestHere(Compute::kF32) && arithmetic->weights != ops::WeightFormat::kI8) {
      continue;
    }
    subjects.push_back({.model = Model::kQwen3Next,
                        .arithmetic = arithmetic,
                        .mesh = {.tp = 2, .ep = 2},
                        .halves = true});
  }
  return subjects;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, NonFiniteTest, ::testing::ValuesIn(Subjects()), [](const auto& row) {
      const Subject& subject = row.param;
      return NameOf(subject.model) +
             (subject.halves ? fmt::format("_halves_{}", subject.arithmetic->name) : "");
    });

}  // namespace
}  // namespace braid
