// Drafts change no answer: the columns k = 1, 3, 7, lookup and head for what a request can ask of
// every token, for runs that cross a boundary at each of their steps, that an end, an error or
// another request's prefix falls into, and for many sampled answers.
#include <gmock/gmock.h>

#include <cstdlib>
#include <functional>

#include "tests/equality/table.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

class DraftsTest : public ::testing::TestWithParam<Model> {
 protected:
  Machine& machine() { return MachineOf({GetParam(), BestHere(Compute::kF32)}); }
  Answer ColdAnswer(const Request& request) { return Cold(machine(), request); }
  Machine& MachineFor(Drafts drafts) {
    return MachineOf(
        {.model = GetParam(), .arithmetic = BestHere(Compute::kF32), .head = ByHead(drafts)});
  }
  Answer Drafted(const Request& request, Drafts drafts) {
    SchedulerConfig config = MachineFor(drafts).config(drafts);
    config.prefix_cache = false;
    return Engine(MachineFor(drafts), config).Ask(request);
  }
  // Kimi-Linear has no draft head.
  static std::vector<Drafts> Columns() {
    std::vector<Drafts> columns = {Drafts::kOne, Drafts::kThree, Drafts::kSeven, Drafts::kLookup};
    if (GetParam() != Model::kKimiLinear) columns.push_back(Drafts::kHeadThree);
    return columns;
  }
  // The answer is that without drafts; returns it.
  Answer ExpectNothingChanges(const Request& request) {
    const Answer want = ColdAnswer(request);
    for (const Drafts drafts : Columns()) {
      SCOPED_TRACE(kDraftsNames[static_cast<size_t>(drafts)]);
      const Answer got = Drafted(request, drafts);
      EXPECT_EQ(got.tokens, want.tokens);
      EXPECT_EQ(got.logprobs, want.logprobs);
      EXPECT_EQ(got.error, want.error);
    }
    return want;
  }
  static Request Sampled(uint64_t seed) {
    Request r = MakeRequest(kTarget, Tokens(2, 50), 90);
    r.sampling.temperature = 0.8f;
    r.sampling.seed = seed;
    return r;
  }
};

TEST_P(DraftsTest, PenaltiesBiasAndMinPAreThoseOfEachPosition) {
  Request r = Sampled(3);
  r.sampling.repetition_penalty = 1.2f;
  r.sampling.presence_penalty = 0.5f;
  r.sampling.frequency_penalty = 0.4f;
  r.sampling.min_p = 0.02f;
  r.sampling.logit_bias = {{40, 4.0f}, {41, -2.0f}};
  ExpectNothingChanges(r);
  r.sampling.temperature = 0.0f;
  ExpectNothingChanges(r);
}

TEST_P(DraftsTest, AStopTokenInsideAnAcceptedRunEndsTheAnswer) {
  const Answer whole = ColdAnswer(Sampled(4));
  for (const size_t at : {1u, 2u, 3u, 5u, 8u, 13u, 30u}) {
    Request r = Sampled(4);
    r.stop.stop_tokens = {whole.tokens[at]};
    const Answer want = ExpectNothingChanges(r);
    EXPECT_LE(want.tokens.size(), at + 1);
    r.stop.new_tokens_min = static_cast<int32_t>(at) + 4;  // the stop token cannot come so early
    EXPECT_GT(ExpectNothingChanges(r).tokens.size(), at + 1);
  }
}

TEST_P(DraftsTest, TheLastTokenIsTheLastWhereverARunIsThen) {
  for (int32_t most = 1; most <= 18; ++most) {
    Request r = Sampled(5);
    r.stop.new_tokens_max = most;
    EXPECT_EQ(ExpectNothingChanges(r).tokens.size(), static_cast<size_t>(most));
  }
}

TEST_P(DraftsTest, AThoughtEndsAtItsBudget) {
  for (int32_t most = 0; most <= 12; ++most) {
    Request r = Sampled(6);
    r.stop.new_tokens_max = 40;
    r.thinking = {.tokens_max = most, .open = -1, .close = 499};
    const Answer want = ExpectNothingChanges(r);
    EXPECT_EQ(want.tokens[static_cast<size_t>(most)], 499);
  }
}

// Single choices, that are forced, occur as well as wide ones.
TEST_P(DraftsTest, AGrammarHoldsAtEveryPosition) {
  for (const char* grammar : {"rewinds", "begins anew"}) {
    for (const TokenId after : {-1, 30}) {
      Request r = Sampled(7);
      r.grammar = grammar;
      r.grammar_after = after;
      r.sampling.logit_bias = {{30, 3.0f}};
      r.stop.stop_tokens = {kEndForTest};
      const Answer want = ExpectNothingChanges(r);
      EXPECT_EQ(want.error, "");
      EXPECT_GT(want.tokens.size(), 10u);
      r.sampling.temperature = 0.0f;
      ExpectNothingChanges(r);
    }
  }
}

// Without anything else that proposes: what the grammar forces is computed in fewer steps.
TEST_P(DraftsTest, WhatAGrammarForcesIsDrafted) {
  Request r = Sampled(8);
  r.grammar = "rewinds";
  r.stop.stop_tokens = {kEndForTest};
  SchedulerConfig config = machine().config(Drafts::kSeven);
  config.draft_head = false;
  Engine run(machine(), config);
  const Answer want = ColdAnswer(r);
  ExpectSame(run.Ask(r), want);
  EXPECT_GT(run.stats().drafts, 0);
  EXPECT_EQ(run.stats().drafts_accepted, run.stats().drafts) << "they are certain";
}

TEST_P(DraftsTest, AnErrorInsideARunComesAfterAllGoodTokens) {
  Request r = Sampled(9);
  r.grammar = "fails after 12";
  const Answer want = ExpectNothingChanges(r);
  EXPECT_THAT(want.error, HasSubstr("twelve"));
  EXPECT_EQ(want.tokens.size(), 12u);
}

// The prompt's length moves the boundary through the runs; then another request takes over what
// they wrote.
TEST_P(DraftsTest, ABoundaryMayFallOnEachStepOfARunAndItsBlockIsReused) {
  for (int32_t length = 48; length <= 63; ++length) {
    Request r = MakeRequest(1, Tokens(10, length), 90);
    const Answer want = ColdAnswer(r);
    Request next = MakeRequest(2, r.prompt, 30);
    next.prompt.insert(next.prompt.end(), want.tokens.begin(), want.tokens.end() - 1);
    next.prompt.push_back(9);
    const Answer then = ColdAnswer(next);
    for (const Drafts drafts : Columns()) {
      Engine run(MachineFor(drafts), MachineFor(drafts).config(drafts));
      ExpectSame(run.Ask(r), want);
      const Answer& got = run.Ask(next);
      EXPECT_EQ(got.reuse.tokens, 128);
      ExpectSame(got, then);
    }
  }
}

TEST_P(DraftsTest, SixtyFourSequencesDraftBesideEachOther) {
  std::vector<Request> requests;
  std::vector<Answer> want;
  for (int64_t id = 0; id < 64; ++id) {
    Request r = MakeRequest(id, Tokens(static_cast<uint64_t>(id), 20 + static_cast<int32_t>(id)),
                            20 + static_cast<int32_t>(id % 7));
    r.sampling.temperature = id % 2 == 0 ? 0.0f : 0.7f;
    r.sampling.seed = static_cast<uint64_t>(id);
    r.draft_tokens = static_cast<int32_t>(id % 5) - 1;
    want.push_back(ColdAnswer(r));
    requests.push_back(std::move(r));
  }
  for (const Drafts drafts : Columns()) {
    Engine run(MachineFor(drafts), MachineFor(drafts).config(drafts));
    for (const Request& r : requests) run.Submit(r);
    run.Drain();
    for (const Request& r : requests) {
      ExpectSame(run.answer(r.id.value), want[static_cast<size_t>(r.id.value)]);
    }
  }
}

// BRAID_ANSWERS=1000 asks for so many of each.
TEST_P(DraftsTest, SampledAnswersAreTheSameWithThreeDrafts) {
  const char* asked = std::getenv("BRAID_ANSWERS");
  const int64_t answers = asked != nullptr ? std::atoll(asked) : 24;
  for (const float temperature : {0.3f, 0.7f, 1.0f, 1.5f}) {
    Engine plain(machine(), machine().config());
    std::vector<Request> requests;
    for (int64_t id = 0; id < answers; ++id) {
      Request r = MakeRequest(id, Tokens(static_cast<uint64_t>(id), 12), 24);
      r.sampling = {.temperature = temperature,
                    .top_k = id % 3 == 0 ? 40 : 0,
                    .top_p = id % 2 == 0 ? 0.9f : 1.0f,
                    .min_p = id % 5 == 0 ? 0.05f : 0.0f,
                    .seed = static_cast<uint64_t>(id)};
      requests.push_back(r);
      plain.Submit(r);
    }
    plain.Drain();
    for (const Request& r : requests) machine().oracle().Learn(r, plain.answer(r.id.value).tokens);
    Engine drafted(machine(), machine().config(Drafts::kThree));
    for (const Request& r : requests) drafted.Submit(r);
    drafted.Drain();
    for (const Request& r : requests) {
      ExpectSame(drafted.answer(r.id.value), plain.answer(r.id.value));
    }
    EXPECT_GT(drafted.stats().drafts_accepted, answers * 5);
    machine().oracle().Forget();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DraftsTest,
                         ::testing::Values(Model::kDeepseekV3, Model::kKimiLinear, Model::kLing2,
                                           Model::kLing3, Model::kQwen35Moe, Model::kQwen3Next),
                         [](const auto& row) { return NameOf(row.param); });

}  // namespace
}  // namespace braid
