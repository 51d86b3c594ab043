// What plans look like, request by request; the simulation covers what comes of combining them.
// Numbers in names (C5.n, C6.n, C7.n) are those of the behavioural scenarios.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <utility>

#include "scheduler/life_cycle/phase.h"
#include "scheduler/testing/scheduler_fixture.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SchedulerConfig Config(int32_t pages) {
  return {
      .cache = {.groups = {{"full", GroupKind::kFull, 64, 1}, {"state", GroupKind::kState, 64, 1}},
                .page_bytes = 64,
                .pages = pages + 1},
      .context_tokens_max = 4096,
      .step_tokens_max = 256,
      .running_max = 4,
      .vocabulary = 100};
}

Request MakeRequest(int64_t id, int32_t prompt, int32_t new_tokens) {
  Request r;
  r.id = RequestId(id);
  r.prompt.assign(static_cast<size_t>(prompt), static_cast<TokenId>(id % 100));
  r.stop.new_tokens_max = new_tokens;
  return r;
}

// A scheduler with an executor that samples the same token always.
class Engine {
 public:
  explicit Engine(const SchedulerConfig& config) : scheduler(*Scheduler::Create(config)) {}

  void Submit(Request r) { scheduler.Apply(braid::Submit{std::move(r)}); }
  StepDone Result(const Plan& plan) const { return ResultOf(plan, token); }
  // Plans, runs and takes the outputs of one step.
  Plan Step() {
    Plan plan = scheduler.NextPlan();
    if (!plan.empty()) scheduler.Apply(Result(plan));
    Take();
    return plan;
  }
  void Take() {
    for (Output& o : scheduler.TakeOutputs()) {
      tokens[o.id.value] += static_cast<int32_t>(o.tokens.size());
      prompt_logprobs[o.id.value] += static_cast<int32_t>(o.prompt_logprobs.size());
      if (o.finish) last.emplace(o.id.value, o);
    }
  }
  void Finish() {
    for (int i = 0; i < 100000 && !scheduler.idle(); ++i) Step();
    EXPECT_TRUE(scheduler.idle());
    EXPECT_EQ(scheduler.stats().pages_used, 0);
    EXPECT_TRUE(scheduler.Audit().ok());
  }

  Scheduler scheduler;
  TokenId token = 5;
  std::map<int64_t, int32_t> tokens, prompt_logprobs;
  std::map<int64_t, Output> last;
};

std::vector<int64_t> Requests(const Plan& plan) {
  std::vector<int64_t> ids;
  for (const Row& row : plan.rows) ids.push_back(row.request.value);
  return ids;
}

TEST(Scheduler, CreateRefusesBudgetsThatCannotServeAStep) {
  SchedulerConfig config = Config(10);
  config.running_max = 80;
  config.step_tokens_max = 70;
  EXPECT_THAT(Scheduler::Create(config).error().message, HasSubstr("80 running sequences"));
  config = Config(1);
  EXPECT_THAT(Scheduler::Create(config).error().message, HasSubstr("needs 2"));
  config = Config(10);
  config.vocabulary = 0;
  EXPECT_THAT(Scheduler::Create(config).error().message, HasSubstr("vocabulary is 0"));
}

struct Absurd {
  void (*change)(SchedulerConfig&);
  const char* said;
};

TEST(Scheduler, CreateRefusesAbsurdFiguresAndSaysThem) {
  const Absurd cases[] = {
      {[](auto& c) { c.cache.groups.clear(); }, "0 groups, must have 1 to 8"},
      {[](auto& c) { c.cache.groups[0].block_bytes = 0; }, "block_bytes is 0, must be positive"},
      {[](auto& c) { c.cache.groups[0].block_bytes = -64; }, "block_bytes is -64"},
      {[](auto& c) { c.cache.groups[1].blocks_per_page = 0; }, "blocks_per_page is 0"},
      {[](auto& c) { c.cache.groups[1].blocks_per_page = 2; }, "2 blocks of 64 bytes do not fit"},
      {[](auto& c) { c.cache.page_bytes = 0; }, "do not fit a page of 0 bytes"},
      {[](auto& c) { c.cache.pages = 0; }, "0 pages of 64 bytes besides the sink"},
      {[](auto& c) { c.cache.pages = 2; }, "1 pages of 64 bytes besides the sink"},
      {[](auto& c) { c.context_tokens_max = 0; }, "context_tokens_max is 0, must be at least 1"},
      {[](auto& c) { c.step_tokens_max = 0; }, "step_tokens_max is 0, must be at least 64"},
      {[](auto& c) { c.step_tokens_max = 63; }, "step_tokens_max is 63, must be at least 64"},
      {[](auto& c) { c.running_max = 0; }, "running_max is 0, must be at least 1"},
      {[](auto& c) { c.running_max = 257; }, "256, and 257 running sequences need a token each"},
      {[](auto& c) { c.waiting_max = -1; }, "waiting_max is -1, must be at least 1"},
      {[](auto& c) { c.preemptions_max = 0; }, "preemptions_max is 0, must be at least 1"},
      {[](auto& c) { c.vocabulary = 0; }, "vocabulary is 0, must be at least 1"},
      {[](auto& c) { c.dp_ranks = 0; }, "dp_ranks is 0, must be at least 1"},
      {[](auto& c) { c.dp_ranks = 1 << 20; }, "1048576 ranks of 4 sequences are more than 1048576"},
      {[](auto& c) { c.decode_latency_us = -1; }, "decode_latency_us is -1, must be at least 0"},
      {[](auto& c) { c.chunk_tokens_max = -1; }, "chunk_tokens_max is -1, must be at least 0"},
      {[](auto& c) { c.draft_tokens_max = 64; }, "draft_tokens_max is 64, must be at most 63"},
      {[](auto& c) { c.draft_tokens_max = -1; }, "draft_tokens_max is -1"},
  };
  ASSERT_TRUE(Scheduler::Create(Config(10)).ok());
  for (const Absurd& c : cases) {
    SchedulerConfig config = Config(10);
    c.change(config);
    const auto refused = Scheduler::Create(config);
    ASSERT_FALSE(refused.ok()) << c.said;
    EXPECT_THAT(refused.error().message, HasSubstr(c.said));
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  }
}

TEST(Scheduler, C5_72_C5_79_RefusesWhatCanNeverFitAndAcceptsTheLongestThatDoes) {
  Engine e(Config(3 + 5));  // three states and 320 tokens of the full group
  EXPECT_TRUE(e.scheduler.Admissible(MakeRequest(1, 300, 21)).ok());
  const Status status = e.scheduler.Admissible(MakeRequest(1, 300, 22));
  EXPECT_EQ(status.error().field, "max_tokens");
  EXPECT_THAT(status.error().message,
              HasSubstr("need 9 cache pages and the arena has 8: 321 tokens"));
  EXPECT_EQ(e.scheduler.Admissible(MakeRequest(1, 321, 1)).error().field, "prompt");
  e.Submit(MakeRequest(2, 300, 22));
  e.Take();
  EXPECT_EQ(e.last.at(2).finish, FinishReason::kError);
  EXPECT_EQ(e.last.at(2).error_code, ErrorCode::kInvalid);
  e.Submit(MakeRequest(3, 300, 21));
  e.Finish();
  EXPECT_EQ(e.tokens[3], 21);
  EXPECT_EQ(e.last.at(3).preemptions, 0);
}

TEST(Scheduler, NamesWhatIsWrongWithARequest) {
  Engine e(Config(100));
  const auto field = [&](const Request& r) { return e.scheduler.Admissible(r).error().field; };
  EXPECT_EQ(field(MakeRequest(1, 0, 1)), "prompt");
  EXPECT_EQ(field(MakeRequest(1, 4096, 1)), "prompt");
  EXPECT_TRUE(e.scheduler.Admissible(MakeRequest(1, 4096, 0)).ok());
  EXPECT_EQ(field(MakeRequest(1, 1, -1)), "max_tokens");
  Request r = MakeRequest(1, 3, 1);
  r.prompt[2] = 100;
  EXPECT_THAT(e.scheduler.Admissible(r).error().message,
              HasSubstr("token 2 is 100, ids go from 0 to 99"));
}

// A client's requests are checked by the API too, those of other engines only here.
TEST(Scheduler, RefusesNumbersThatTheSamplerCannotTake) {
  Engine e(Config(100));
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  using Change = void (*)(Request&);
  const std::pair<const char*, Change> cases[] = {
      {"temperature", [](Request& r) { r.sampling.temperature = -1; }},
      {"temperature", [](Request& r) { r.sampling.temperature = kNan; }},
      {"temperature", [](Request& r) { r.sampling.temperature = kInfinity; }},
      {"temperature", [](Request& r) { r.sampling.temperature = 1e-40f; }},
      {"top_k", [](Request& r) { r.sampling.top_k = -1; }},
      {"top_p", [](Request& r) { r.sampling.top_p = 0; }},
      {"top_p", [](Request& r) { r.sampling.top_p = kNan; }},
      {"min_p", [](Request& r) { r.sampling.min_p = 1.5f; }},
      {"min_p", [](Request& r) { r.sampling.min_p = kNan; }},
      {"repetition_penalty", [](Request& r) { r.sampling.repetition_penalty = 0; }},
      {"repetition_penalty", [](Request& r) { r.sampling.repetition_penalty = kInfinity; }},
      {"presence_penalty", [](Request& r) { r.sampling.presence_penalty = kNan; }},
      {"frequency_penalty", [](Request& r) { r.sampling.frequency_penalty = -kInfinity; }},
      {"logit_bias", [](Request& r) { r.sampling.logit_bias = {{100, 1.0f}}; }},
      {"logit_bias", [](Request& r) { r.sampling.logit_bias = {{-1, 1.0f}}; }},
      {"logit_bias", [](Request& r) { r.sampling.logit_bias = {{1, kNan}}; }},
      {"logit_bias", [](Request& r) { r.sampling.logit_bias.assign(101, {1, 1.0f}); }},
      {"stop_tokens", [](Request& r) { r.stop.stop_tokens = {5, 100}; }},
      {"stop_tokens", [](Request& r) { r.stop.stop_tokens = {-1, 5}; }},
      {"stop_tokens", [](Request& r) { r.stop.stop_tokens = {5, 4}; }},
      {"min_tokens", [](Request& r) { r.stop.new_tokens_min = -1; }},
      {"logprobs", [](Request& r) { r.logprobs = -2; }},
      {"logprobs", [](Request& r) { r.logprobs = 1 << 20; }},
      {"prompt_logprobs", [](Request& r) { r.prompt_logprobs = 1 << 20; }},
      {"draft_tokens", [](Request& r) { r.draft_tokens = -2; }},
      {"priority", [](Request& r) { r.priority = std::numeric_limits<int32_t>::min(); }},
      {"grammar_after", [](Request& r) { r.grammar_after = 100; }},
      {"thinking_budget", [](Request& r) { r.thinking.tokens_max = -2; }},
      {"the token that opens a thought", [](Request& r) { r.thinking.open = 100; }},
      {"the token that closes a thought", [](Request& r) { r.thinking.close = 100; }},
      {"the token that closes a thought", [](Request& r) { r.thinking.tokens_max = 5; }},
  };
  int32_t at = 0;
  for (const auto& [field, change] : cases) {
    Request r = MakeRequest(1, 3, 1);
    change(r);
    const Status status = e.scheduler.Admissible(r);
    ASSERT_FALSE(status.ok()) << "case " << at << ", " << field;
    EXPECT_EQ(status.error().field, field) << "case " << at;
    ++at;
  }
  Request r = MakeRequest(1, 3, 1);
  r.sampling = {.temperature = 100,
                .top_k = 1000,
                .top_p = 0.01f,
                .min_p = 1,
                .repetition_penalty = 0.1f,
                .presence_penalty = -2,
                .frequency_penalty = 2,
                .logit_bias = {{0, -100.0f}, {99, 100.0f}}};
  r.stop.stop_tokens = {0, 99};
  r.logprobs = r.prompt_logprobs = 20;
  r.grammar_after = 99;
  r.thinking = {.tokens_max = 0, .open = 99, .close = 99};
  EXPECT_TRUE(e.scheduler.Admissible(r).ok());
}

TEST(Scheduler, C5_74_TheSecondWaitsUntilTheFirstHasEnded) {
  Engine e(Config(3 + 3));
  e.Submit(MakeRequest(1, 150, 10));
  e.Submit(MakeRequest(2, 150, 10));
  EXPECT_THAT(Requests(e.Step()), ElementsAre(1));
  EXPECT_EQ(e.scheduler.stats().waiting, 1);
  e.Finish();
  EXPECT_EQ(e.tokens[2], 10);
}

TEST(Scheduler, RefusesMoreWaitersThanMayWait) {
  SchedulerConfig config = Config(20);
  config.waiting_max = 1;
  Engine e(config);
  e.Submit(MakeRequest(1, 10, 1));
  e.Submit(MakeRequest(2, 10, 1));
  e.Take();
  EXPECT_EQ(e.last.at(2).error_code, ErrorCode::kExhausted);
}

TEST(Scheduler, C7_93_DecodeRowsComeFirstAndChunksShareTheRest) {
  Engine e(Config(60));
  e.Submit(MakeRequest(1, 10, 100));
  e.Step();
  e.Submit(MakeRequest(2, 1000, 10));
  e.Submit(MakeRequest(3, 20, 10));
  const Plan plan = e.Step();
  EXPECT_THAT(Requests(plan), ElementsAre(1, 3, 2));
  EXPECT_EQ(plan.rows[2].token_count, 192);  // 256 - 1 - 20, cut at a block
  EXPECT_FALSE(plan.rows[2].sample);
  EXPECT_TRUE(plan.rows[1].sample);
  e.Finish();
}

TEST(Scheduler, C7_94_TheFirstRankedPrefillKeepsItsShareUnderAFloodOfShortOnes) {
  SchedulerConfig config = Config(400);
  config.running_max = 64;
  Engine e(config);
  e.Submit(MakeRequest(0, 2000, 1));
  int32_t steps = 0;
  for (int64_t id = 1; !e.last.contains(0); ++steps) {
    for (int i = 0; i < 4; ++i) e.Submit(MakeRequest(id++, 64, 1));
    e.Step();
  }
  EXPECT_LE(steps, 2 * 2000 / 256 + 2);
  e.Finish();
}

TEST(Scheduler, C3_29_ChunksNeverExceedTheirLimitAndEndAtBlocksWhereTheyCan) {
  SchedulerConfig config = Config(60);
  config.chunk_tokens_max = 37;
  Engine e(config);
  e.Submit(MakeRequest(1, 100, 1));
  std::vector<int32_t> starts;
  for (Plan plan = e.Step(); !plan.empty(); plan = e.Step()) starts.push_back(plan.rows[0].start);
  EXPECT_THAT(starts, ElementsAre(0, 37, 64));
}

TEST(Scheduler, C6_85_APreemptedRequestReplaysPromptAndOutput) {
  Engine e(Config(10));
  e.Submit(MakeRequest(1, 60, 250));
  e.Submit(MakeRequest(2, 60, 250));
  EXPECT_EQ(e.scheduler.stats().waiting, 2);
  EXPECT_EQ(e.scheduler.stats().waiting_preempted, 0);
  bool replayed = false, waited = false;
  for (int i = 0; i < 1000 && !e.scheduler.idle(); ++i) {
    const int32_t before = e.tokens[2];
    const Plan plan = e.Step();
    const SchedulerStats stats = e.scheduler.stats();
    EXPECT_EQ(stats.waiting_preempted, stats.waiting);
    waited |= stats.waiting_preempted > 0;
    ASSERT_TRUE(e.scheduler.Audit().ok()) << e.scheduler.Audit().error().message;
    for (const Admission& a : plan.admissions) {
      if (a.output.empty()) continue;
      replayed = true;
      EXPECT_EQ(a.request->id, RequestId(2));  // the later one gave way
      EXPECT_EQ(static_cast<int32_t>(a.output.size()), before);
    }
  }
  EXPECT_TRUE(replayed && waited);
  EXPECT_EQ(e.tokens[1], 250);
  EXPECT_EQ(e.tokens[2], 250);
  EXPECT_EQ(e.last.at(1).preemptions, 0);
  EXPECT_EQ(e.last.at(2).preemptions, 1);
}

TEST(Scheduler, ARequestPreemptedOftenComesBackWithAllItNeedsAndStays) {
  SchedulerConfig config = Config(9);
  config.preemptions_max = 2;
  Engine e(config);
  e.Submit(MakeRequest(0, 30, 200));
  // Each newcomer outranks everybody before it and grows.
  for (int64_t id = 1; !e.scheduler.idle() && id < 30; ++id) {
    Request r = MakeRequest(id, 30, 100);
    r.priority = static_cast<int32_t>(id);
    e.Submit(std::move(r));
    for (int i = 0; i < 150; ++i) e.Step();
  }
  e.Finish();
  EXPECT_EQ(e.tokens[0], 200);
  EXPECT_LE(e.last.at(0).preemptions, 2);
}

TEST(Scheduler, C7_100_OverlapFindsTheEndOneRoundLateAndDropsTheExtraToken) {
  Engine e(Config(20));
  Request r = MakeRequest(1, 10, 50);
  r.stop.stop_tokens = {7};
  e.Submit(r);
  e.token = 7;  // the very first token ends it
  const Plan first = e.scheduler.NextPlan();
  const Plan second = e.scheduler.NextPlan();
  EXPECT_THAT(second.tokens, ElementsAre(kSampledInFlight));
  e.scheduler.Apply(e.Result(first));
  e.Take();
  EXPECT_EQ(e.last.at(1).finish, FinishReason::kStop);
  EXPECT_EQ(e.last.at(1).output_tokens, 1);
  EXPECT_FALSE(e.scheduler.idle());
  EXPECT_GT(e.scheduler.stats().pages_used, 0);  // its row is still in flight
  e.scheduler.Apply(e.Result(second));
  e.Finish();
  EXPECT_EQ(e.tokens[1], 1);
}

TEST(Scheduler, C7_98_AnAbortInFlightGivesBackWhenTheStepLands) {
  Engine e(Config(20));
  e.Submit(MakeRequest(1, 100, 50));
  const Plan plan = e.scheduler.NextPlan();
  e.scheduler.Apply(Abort{RequestId(1)});
  e.scheduler.Apply(Abort{RequestId(1)});  // twice, and once after the end
  e.scheduler.Apply(Abort{RequestId(77)});
  e.Take();
  EXPECT_EQ(e.last.at(1).finish, FinishReason::kAbort);
  EXPECT_GT(e.scheduler.stats().pages_used, 0);
  e.scheduler.Apply(e.Result(plan));
  e.scheduler.Apply(Abort{RequestId(1)});
  e.Finish();
}

TEST(Scheduler, StopTokensWaitForTheLeastNumberOfTokens) {
  Engine e(Config(20));
  Request r = MakeRequest(1, 10, 50);
  r.stop.stop_tokens = {5};
  r.stop.new_tokens_min = 3;
  e.Submit(r);
  e.Finish();
  EXPECT_EQ(e.tokens[1], 4);
  EXPECT_EQ(e.last.at(1).finish, FinishReason::kStop);
}

TEST(Scheduler, TheContextsEndFinishesWithLength) {
  SchedulerConfig config = Config(20);
  config.context_tokens_max = 100;
  Engine e(config);
  e.Submit(MakeRequest(1, 90, 50));
  e.Finish();
  EXPECT_EQ(e.tokens[1], 10);
  EXPECT_EQ(e.last.at(1).finish, FinishReason::kLength);
}

TEST(Scheduler, ScoringAPromptSamplesNothingAndReportsEveryPositionOnce) {
  Engine e(Config(20));
  Request r = MakeRequest(1, 700, 0);
  r.prompt_logprobs = 0;
  e.Submit(r);
  e.Finish();
  EXPECT_EQ(e.tokens[1], 0);
  EXPECT_EQ(e.prompt_logprobs[1], 700);
  EXPECT_EQ(e.last.at(1).finish, FinishReason::kLength);
}

TEST(Scheduler, AFailedRowEndsItsRequestOnly) {
  Engine e(Config(20));
  e.Submit(MakeRequest(1, 10, 5));
  e.Submit(MakeRequest(2, 10, 5));
  const Plan plan = e.scheduler.NextPlan();
  StepDone done = e.Result(plan);
  done.rows[0].error = "logits are not finite";
  e.scheduler.Apply(done);
  e.Finish();
  const int64_t failed = plan.rows[0].request.value;
  EXPECT_EQ(e.last.at(failed).finish, FinishReason::kError);
  EXPECT_EQ(e.last.at(failed).error, "logits are not finite");
  EXPECT_EQ(e.tokens[3 - failed], 5);
}

TEST(Scheduler, HigherPrioritiesAreAdmittedFirst) {
  SchedulerConfig config = Config(20);
  config.running_max = 1;
  Engine e(config);
  for (int64_t id = 0; id < 3; ++id) {
    Request r = MakeRequest(id, 10, 1);
    r.priority = id == 2 ? 1 : 0;
    e.Submit(std::move(r));
  }
  EXPECT_THAT(Requests(e.Step()), ElementsAre(2));
  EXPECT_THAT(Requests(e.Step()), ElementsAre(0));
  EXPECT_THAT(Requests(e.Step()), ElementsAre(1));
}

TEST(Phase, AnIllegalTransitionStopsTheProgramWithBothNames) {
  Phase phase = Queued{};
  EXPECT_DEATH(Move(phase, PrefillPlanned{}), "PrefillPlanned in phase Queued");
  phase = Finished{FinishReason::kStop};
  EXPECT_DEATH(Move(phase, Admitted{}), "Admitted in phase Finished");
}

}  // namespace
}  // namespace braid
