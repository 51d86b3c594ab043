// Steps of a small model: what comes back for each row, whatever else is in the batch, and what is
// refused.
#include "runtime/model_executor.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "model/families/families.h"
#include "model/loading/load_weights.h"
#include "model/loading/memory_plan.h"
#include "scheduler/inbox.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kStepTokens = 192, kSlots = 3, kContext = 512;

template <class T>
T Must(Result<T> result) {
  CHECK(result.ok(), "{}", result.error().message);
  return *std::move(result);
}

// Proposes threes in the model's head's place, and notes what it is asked.
class NotedDrafter final : public Drafter {
 public:
  void Reset(SlotId id) override { resets.push_back(id); }
  void Propose(const DraftStep& step) override {
    asked.clear();
    for (const DraftWish& wish : step.rows) {
      asked.push_back(wish);
      wish.drafts->insert(wish.drafts->end(), static_cast<size_t>(wish.count), TokenId(3));
    }
  }
  std::vector<SlotId> resets;
  std::vector<DraftWish> asked;
};

class ModelExecutorTest : public ::testing::Test {
 protected:
  explicit ModelExecutorTest(const ModelExecutorConfig& config = {.poison_freed = true}) {
    Build("qwen3_5_a", config);
  }
  // An executor of a golden model, with what is given and sizes of its own.
  void Build(const std::string& model, ModelExecutorConfig config) {
    executor_.reset();
    const OpenedModel opened = Must(OpenModel(BRAID_SOURCE_DIR "/tests/golden/" + model));
    spec_ = std::make_unique<ModelSpec>(opened.spec);
    PlanState(*spec_, config.draft_tokens_max, DType::kF32);
    ThreadPool pool(1);
    ModelWeights weights = Must(LoadWeights(Must(BindWeights(*spec_, opened.checkpoint)), pool));
    MemoryPlan plan = Must(PlanMemory(*spec_, {.kv_dtype = DType::kF32,
                                               .arena_bytes = 8 << 20,
                                               .model_len_max = kContext,
                                               .running_max = kSlots}));
    for (GroupGeometry& group : plan.geometry.groups) group.blocks_per_page = 1;
    config.cache = plan.geometry;
    config.running_max = kSlots;
    config.step_tokens_max = kStepTokens;
    config.context_tokens_max = kContext;
    config.device = DeviceOf(DetectCpu(), Isa::kBase, Compute::kF32);
    config.threads = 2;
    executor_ = std::make_unique<ModelExecutor>(*spec_, std::move(weights), config);
    geometry_ = plan.geometry;
    CHECK(geometry_.pages > 6 * kSlots);
  }
  Request Make(int32_t tokens, TokenId first = 1) {
    Request r;
    r.id = RequestId(next_id_++);
    r.prompt.resize(static_cast<size_t>(tokens));
    for (size_t i = 0; i < r.prompt.size(); ++i) {
      r.prompt[i] = static_cast<TokenId>((static_cast<size_t>(first) + i * 7) %
                                         static_cast<size_t>(spec_->vocabulary));
    }
    return r;
  }
  // A page per block, so groups have pages of their own.
  static BlockId BlockOf(SlotId slot, size_t group, int32_t index) {
    return BlockId(1 + (static_cast<int32_t>(group) * kSlots + slot.value) * 3 + index);
  }
  // With blocks for 192 tokens.
  void Admit(Plan& plan, SlotId slot, const Request& r) {
    plan.admissions.push_back({.slot = slot, .request = &r, .output = {}});
    for (size_t g = 0; g < geometry_.groups.size(); ++g) {
      for (int32_t i = 0; i < 3; ++i) {
        plan.tables.push_back({slot, GroupId(static_cast<int32_t>(g)), i, BlockOf(slot, g, i)});
      }
    }
  }
  static void AddRow(Plan& plan, SlotId slot, const Request& r, int32_t begin, int32_t end,
                     bool sample) {
    plan.rows.push_back({.slot = slot,
                         .request = r.id,
                         .token_begin = static_cast<int32_t>(plan.tokens.size()),
                         .token_count = end - begin,
                         .start = begin,
                         .sample = sample,
                         .prompt_logprobs = r.prompt_logprobs >= 0});
    for (int32_t p = begin; p < end; ++p) {
      plan.tokens.push_back(static_cast<size_t>(p) < r.prompt.size()
                                ? r.prompt[static_cast<size_t>(p)]
                                : kSampledInFlight);
    }
  }
  StepDone Run(Plan plan) {
    plan.step = StepId(steps_++);
    executor_->Launch(std::move(plan), ended_);
    StepDone done = ended_.AwaitStep();
    EXPECT_EQ(done.step, StepId(steps_ - 1));
    return done;
  }
  // The tokens of a request that runs alone in slot 0, with a prompt cut at `cut`.
  std::vector<TokenId> Greedy(const Request& r, int32_t tokens, int32_t cut = 0) {
    const auto length = static_cast<int32_t>(r.prompt.size());
    Plan plan;
    Admit(plan, SlotId(0), r);
    std::vector<TokenId> out;
    if (cut > 0) {
      AddRow(plan, SlotId(0), r, 0, cut, false);
      const StepDone done = Run(std::exchange(plan, {}));
      EXPECT_EQ(done.rows[0].token, -1);
    }
    AddRow(plan, SlotId(0), r, cut, length, true);
    for (int32_t i = 0; i < tokens; ++i) {
      const StepDone done = Run(std::exchange(plan, {}));
      EXPECT_EQ(done.rows[0].error, "");
      out.push_back(done.rows[0].token);
      AddRow(plan, SlotId(0), r, length + i, length + i + 1, true);
    }
    return out;
  }

  std::unique_ptr<ModelSpec> spec_;
  NotedDrafter drafter_;
  std::unique_ptr<ModelExecutor> executor_;
  Inbox ended_;
  CacheGeometry geometry_;
  int64_t next_id_ = 0, steps_ = 0;
};

TEST_F(ModelExecutorTest, ARowsTokensAreThoseOfItsRequestAloneHoweverItIsCut) {
  const Request r = Make(100);
  const std::vector<TokenId> whole = Greedy(r, 12);
  EXPECT_EQ(Greedy(r, 12, 64), whole);
  EXPECT_EQ(Greedy(r, 12, 37), whole);
  const Request other = Make(100, 2);
  EXPECT_NE(Greedy(other, 12), whole);
}

TEST_F(ModelExecutorTest, RowsOfABatchComeBackInOrderAndAlike) {
  const Request a = Make(70), b = Make(50, 3), c = Make(60, 5);
  const TokenId alone[] = {Greedy(a, 1)[0], Greedy(b, 1)[0], Greedy(c, 1)[0]};
  Plan plan;
  Admit(plan, SlotId(2), a);
  Admit(plan, SlotId(0), b);
  Admit(plan, SlotId(1), c);
  AddRow(plan, SlotId(2), a, 0, 70, true);
  AddRow(plan, SlotId(0), b, 0, 50, true);
  AddRow(plan, SlotId(1), c, 0, 60, true);
  const StepDone done = Run(plan);
  ASSERT_EQ(done.rows.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(done.rows[i].request, plan.rows[i].request);
    EXPECT_EQ(done.rows[i].token, alone[i]);
  }
}

TEST_F(ModelExecutorTest, ARowThatDoesNotSampleHasNoToken) {
  const Request r = Make(40);
  Plan plan;
  Admit(plan, SlotId(0), r);
  AddRow(plan, SlotId(0), r, 0, 30, false);
  const StepDone done = Run(plan);
  EXPECT_EQ(done.rows[0].token, -1);
  EXPECT_EQ(done.rows[0].error, "");
  EXPECT_TRUE(done.rows[0].prompt_logprobs.empty());
}

// More distributions than are in memory at once (64).
TEST_F(ModelExecutorTest, EveryPromptPositionIsDescribedAndTheLastOneSampled) {
  Request r = Make(150);
  r.prompt_logprobs = 2;
  r.logprobs = 1;
  Plan plan;
  Admit(plan, SlotId(1), r);
  AddRow(plan, SlotId(1), r, 0, 150, true);
  const StepDone done = Run(plan);
  const RowResult& row = done.rows[0];
  ASSERT_EQ(row.prompt_logprobs.size(), 150u);
  for (size_t p = 0; p < 150; ++p) {
    const TokenLogprob& described = row.prompt_logprobs[p];
    EXPECT_EQ(described.token, p + 1 < 150 ? r.prompt[p + 1] : -1) << p;
    ASSERT_EQ(described.top.size(), 2u);
    EXPECT_GE(described.top[0].second, described.top[1].second);
    EXPECT_LE(described.token < 0 ? -100.0f : described.logprob, described.top[0].second) << p;
  }
  EXPECT_EQ(row.logprob.token, row.token);
  // Greedy: what is sampled is what the last distribution has on top.
  EXPECT_EQ(row.token, row.prompt_logprobs.back().top[0].first);
  EXPECT_EQ(row.logprob.logprob, row.prompt_logprobs.back().top[0].second);
}

TEST_F(ModelExecutorTest, PromptPositionsAreTheSameWhenThePromptIsCut) {
  Request r = Make(100);
  r.prompt_logprobs = 0;
  Plan whole;
  Admit(whole, SlotId(0), r);
  AddRow(whole, SlotId(0), r, 0, 100, true);
  const StepDone once = Run(whole);
  Plan first, second;
  Admit(first, SlotId(0), r);
  AddRow(first, SlotId(0), r, 0, 33, false);
  AddRow(second, SlotId(0), r, 33, 100, true);
  std::vector<TokenLogprob> cut = Run(first).rows[0].prompt_logprobs;
  const StepDone rest = Run(second);
  for (const TokenLogprob& p : rest.rows[0].prompt_logprobs) cut.push_back(p);
  EXPECT_EQ(cut, once.rows[0].prompt_logprobs);
}

TEST_F(ModelExecutorTest, AFreedBlockThatIsReadMakesItsRowsFail) {
  const Request bad = Make(100), good = Make(40, 3);
  Plan plan;
  Admit(plan, SlotId(0), bad);
  Admit(plan, SlotId(1), good);
  AddRow(plan, SlotId(0), bad, 0, 64, false);
  AddRow(plan, SlotId(1), good, 0, 39, false);
  EXPECT_EQ(Run(plan).rows[0].error, "");
  const TokenId right = Greedy(good, 1)[0];
  plan = {};
  Admit(plan, SlotId(0), bad);
  AddRow(plan, SlotId(0), bad, 0, 64, false);
  Run(plan);
  plan = {};
  for (size_t g = 0; g < geometry_.groups.size(); ++g) {
    plan.freed.push_back({DpRankId(0), GroupId(static_cast<int32_t>(g)), BlockOf(SlotId(0), g, 0)});
  }
  AddRow(plan, SlotId(0), bad, 64, 99, false);
  AddRow(plan, SlotId(1), good, 39, 40, true);
  const StepDone done = Run(plan);
  EXPECT_THAT(done.rows[0].error, HasSubstr("states are not finite"));
  EXPECT_EQ(done.rows[1].error, "");
  EXPECT_EQ(done.rows[1].token, right);
  plan = {};
  AddRow(plan, SlotId(0), bad, 99, 100, true);
  EXPECT_THAT(Run(plan).rows[0].error, HasSubstr("logits are not finite"));
}

TEST_F(ModelExecutorTest, AGrammarWithoutATokenizerIsTheRequestsError) {
  Request r = Make(20);
  r.grammar = "root ::= \"a\"";
  Plan plan;
  Admit(plan, SlotId(0), r);
  AddRow(plan, SlotId(0), r, 0, 20, true);
  const StepDone done = Run(plan);
  EXPECT_EQ(done.rows[0].token, -1);
  EXPECT_EQ(done.rows[0].error_code, ErrorCode::kInvalid);
  EXPECT_EQ(done.rows[0].error, "the request's grammar: constrained output needs a tokenizer");
}

TEST_F(ModelExecutorTest, APlanWithoutRowsIsAStep) {
  Plan plan;
  plan.released.push_back(SlotId(2));
  EXPECT_TRUE(Run(plan).rows.empty());
}

TEST_F(ModelExecutorTest, StepsBelowItsBudgetTakeNoMoreMemoryThanWasMeasured) {
  const int64_t measured = executor_->workspace_bytes();
  EXPECT_GT(measured, 0);
  Request r = Make(kStepTokens);
  r.prompt_logprobs = 1;
  Plan plan;
  Admit(plan, SlotId(0), r);
  AddRow(plan, SlotId(0), r, 0, kStepTokens, true);
  EXPECT_EQ(Run(plan).rows[0].error, "");
  EXPECT_EQ(executor_->workspace_bytes(), measured);
  EXPECT_THAT(executor_->ExplainOps(), HasSubstr("linear"));
  EXPECT_EQ(executor_->arena_bytes(), geometry_.page_bytes * geometry_.pages);
}

// Of every token of every step, and nothing else.
TEST_F(ModelExecutorTest, ExpertsOfTheTokensAreCounted) {
  Build("qwen3_5_moe_a", {});
  const MoeFfn* moe = nullptr;
  ExpertLoads header{.model = "m"};
  for (size_t i = 0; i < spec_->layers.size(); ++i) {
    moe = std::get_if<MoeFfn>(&spec_->layers[i].ffn);
    if (moe == nullptr) continue;
    header.layers.push_back(static_cast<int32_t>(i));
    header.experts = moe->experts;
    header.top_k = moe->top_k;
  }
  ASSERT_FALSE(header.layers.empty());
  ExpertRecorder recorder(header);
  Build("qwen3_5_moe_a", {.experts = &recorder});
  const Request r = Make(40);
  Greedy(r, 10);
  const LoadWindow window = recorder.last();
  EXPECT_EQ(window.passes, 10);
  EXPECT_EQ(window.tokens, 40 + 9);
  ASSERT_EQ(window.counts.size(), header.layers.size());
  for (const auto& layer : window.counts) {
    EXPECT_EQ(std::accumulate(layer.begin(), layer.end(), int64_t{0}), 49 * header.top_k);
  }
}

TEST_F(ModelExecutorTest, OneRankHasNoGroupThatCouldEnd) {
  EXPECT_TRUE(executor_->group_status().ok());
  EXPECT_EQ(executor_->mover(), nullptr);
  EXPECT_EQ(executor_->rank_counts(), nullptr);
}

class DraftingExecutorTest : public ModelExecutorTest {
 protected:
  DraftingExecutorTest() : ModelExecutorTest({.draft_tokens_max = 4, .draft_head = &drafter_}) {
    request_ = Make(70);
    request_.logprobs = 1;
  }
  // The answer without drafts; then computes the prompt again, so that its first token is known.
  void Prompt() {
    whole_ = Greedy(request_, 8);
    Plan plan;
    Admit(plan, SlotId(1), request_);
    AddRow(plan, SlotId(1), request_, 0, 70, true);
    ASSERT_EQ(Run(plan).rows[0].token, whole_[0]);
  }
  // Verifies drafts after the first `known` tokens of the answer.
  RowResult Verify(int32_t known, const std::vector<TokenId>& drafts) {
    Plan plan;
    const int32_t start = 69 + known;
    AddRow(plan, SlotId(1), request_, start, start + 1, true);
    plan.tokens.insert(plan.tokens.end(), drafts.begin(), drafts.end());
    plan.rows[0].token_count += static_cast<int32_t>(drafts.size());
    plan.rows[0].drafts = static_cast<int32_t>(drafts.size());
    return Run(plan).rows[0];
  }

  Request request_;
  std::vector<TokenId> whole_;
};

TEST_F(DraftingExecutorTest, DraftsAreAcceptedAsFarAsTheyAreWhatIsSampled) {
  Prompt();
  const TokenId wrong = whole_[3] == 5 ? 6 : 5;
  const RowResult some = Verify(1, {whole_[1], whole_[2], wrong, whole_[4]});
  EXPECT_EQ(some.error, "");
  EXPECT_EQ(some.accepted, 2);
  EXPECT_EQ(some.token, whole_[3]);
  ASSERT_EQ(some.accepted_logprobs.size(), 2u);
  EXPECT_EQ(some.accepted_logprobs[0].token, whole_[1]);
  EXPECT_EQ(some.accepted_logprobs[1].token, whole_[2]);
  EXPECT_EQ(some.accepted_logprobs[1].top.size(), 1u);
  EXPECT_EQ(some.logprob.token, whole_[3]);
  // What was rejected has left nothing behind.
  const RowResult none = Verify(4, {wrong == whole_[4] ? wrong + 1 : wrong});
  EXPECT_EQ(none.accepted, 0);
  EXPECT_EQ(none.token, whole_[4]);
  EXPECT_TRUE(none.accepted_logprobs.empty());
  const RowResult all = Verify(5, {whole_[5], whole_[6]});
  EXPECT_EQ(all.accepted, 2);
  EXPECT_EQ(all.token, whole_[7]);
}

// The first source that has drafts gives them, each at most as many as the row wants of it.
TEST_F(DraftingExecutorTest, ARowsDraftsComeFromTheFirstSourceThatHasSome) {
  const auto source = [](DraftSource of) { return static_cast<size_t>(of); };
  Request repeated = Make(20), errs = Make(20, 4);
  for (size_t i = 0; i < 20; ++i) repeated.prompt[i] = static_cast<TokenId>(7 + i % 2);
  repeated.sampling.logit_bias = {{7, 1000.0f}};
  errs.grammar = "root";
  Plan plan;
  Admit(plan, SlotId(0), repeated);
  Admit(plan, SlotId(1), request_);
  Admit(plan, SlotId(2), errs);
  AddRow(plan, SlotId(0), repeated, 0, 20, true);
  AddRow(plan, SlotId(1), request_, 0, 70, true);
  AddRow(plan, SlotId(2), errs, 0, 20, true);
  for (Row& row : plan.rows) {
    row.propose[source(DraftSource::kGrammar)] = 4;
    row.propose[source(DraftSource::kHead)] = 3;
  }
  plan.rows[0].propose[source(DraftSource::kLookup)] = 2;
  drafter_.resets.clear();
  const StepDone done = Run(plan);
  EXPECT_THAT(drafter_.resets, ::testing::ElementsAre(SlotId(0), SlotId(1), SlotId(2)));
  ASSERT_EQ(done.rows[0].token, 7) << done.rows[0].error;
  EXPECT_EQ(done.rows[0].drafts, (std::vector<TokenId>{8, 7})) << "as it went on before";
  EXPECT_EQ(done.rows[0].drafts_of, DraftSource::kLookup);
  ASSERT_EQ(drafter_.asked.size(), 2u) << "a row with an error has no drafts";
  EXPECT_EQ(drafter_.asked[0].count, 0) << "it has some";
  EXPECT_EQ(drafter_.asked[1].id, SlotId(1));
  EXPECT_EQ(drafter_.asked[1].begin, 0);
  EXPECT_EQ(drafter_.asked[1].end, 70);
  EXPECT_EQ(drafter_.asked[1].state, 20);
  EXPECT_EQ(drafter_.asked[1].count, 3);
  EXPECT_EQ(done.rows[1].drafts, std::vector<TokenId>(3, 3));
  EXPECT_EQ(done.rows[1].drafts_of, DraftSource::kHead);
  EXPECT_NE(done.rows[2].error, "");
  EXPECT_TRUE(done.rows[2].drafts.empty());
}

// Token n may follow n - 1 and nothing else; after as many tokens as the grammar has letters 9.
class Numbers final : public TokenConstraint {
 public:
  explicit Numbers(TokenId last) : last_(last) {}
  Status Mask(std::span<uint32_t> words) override {
    std::ranges::fill(words, 0u);
    words[0] = 1u << Next(next_);
    return {};
  }
  Status Accept(TokenId token) override {
    if (token != Next(next_)) return Error{ErrorCode::kInvalid, "not the next number"};
    ++next_;
    return {};
  }
  Status Rewind(size_t count) override {
    next_ -= static_cast<TokenId>(count);
    return {};
  }
  Result<size_t> Forced(std::span<TokenId> tokens) override {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = Next(next_ + static_cast<TokenId>(i));
    return tokens.size();
  }

 private:
  TokenId Next(TokenId at) const { return at > last_ ? 9 : at; }
  TokenId last_, next_ = 0;
};

class NumbersSource final : public ConstraintSource {
 public:
  Result<std::unique_ptr<TokenConstraint>> Start(std::string_view grammar, bool) override {
    return std::unique_ptr<TokenConstraint>(new Numbers(static_cast<TokenId>(grammar.size()) - 1));
  }
  TokenId end_token() const override { return 9; }
};

// The slot's next request has a grammar of its own, and what a grammar forces is drafted first.
TEST_F(ModelExecutorTest, AGrammarDecidesTheTokensAndTheirDrafts) {
  NumbersSource source;
  Build("qwen3_5_a", {.constraints = &source, .draft_tokens_max = 4, .draft_head = &drafter_});
  Request r = Make(20), next = Make(20, 2);
  r.grammar = "three";
  next.grammar = "no";
  EXPECT_EQ(Greedy(r, 3), (std::vector<TokenId>{0, 1, 2}));
  EXPECT_EQ(Greedy(next, 4), (std::vector<TokenId>{0, 1, 9, 9}));
  Plan plan;
  Admit(plan, SlotId(1), r);
  AddRow(plan, SlotId(1), r, 0, 20, true);
  plan.rows[0].propose = {3, 2, 2};
  const RowResult first = Run(plan).rows[0];
  EXPECT_EQ(first.token, 0);
  EXPECT_EQ(first.drafts, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(first.drafts_of, DraftSource::kGrammar);
  EXPECT_EQ(drafter_.asked[0].count, 0) << "there are some";
  plan = {};
  AddRow(plan, SlotId(1), r, 20, 21, true);
  plan.tokens.insert(plan.tokens.end(), {1, 2, 7});
  plan.rows[0].token_count += 3;
  plan.rows[0].drafts = 3;
  const RowResult verified = Run(plan).rows[0];
  EXPECT_EQ(verified.accepted, 2);
  EXPECT_EQ(verified.token, 3);
}

TEST_F(ModelExecutorTest, AGrammarThatCannotBeUsedNowIsNotTheRequestsFault) {
  struct Refusing final : ConstraintSource {
    Result<std::unique_ptr<TokenConstraint>> Start(std::string_view, bool) override {
      return Error{code, "why"};
    }
    TokenId end_token() const override { return 9; }
    ErrorCode code = ErrorCode::kUnavailable;
  } source;
  Build("qwen3_5_a", {.constraints = &source});
  const auto code_of = [&](SlotId slot) {
    Request r = Make(20);
    r.grammar = "three";
    Plan plan;
    Admit(plan, slot, r);
    AddRow(plan, slot, r, 0, 20, true);
    return Run(plan).rows[0].error_code;
  };
  EXPECT_EQ(code_of(SlotId(0)), ErrorCode::kUnavailable);
  source.code = ErrorCode::kExhausted;  // its budget
  EXPECT_EQ(code_of(SlotId(1)), ErrorCode::kInvalid);
}

// A row that does not sample has no token that drafts could follow.
TEST_F(DraftingExecutorTest, NothingIsDraftedBehindAPartOfAPrompt) {
  Plan plan;
  Admit(plan, SlotId(1), request_);
  AddRow(plan, SlotId(1), request_, 0, 64, false);
  plan.rows[0].propose = {4, 4, 4};
  const StepDone done = Run(plan);
  EXPECT_TRUE(done.rows[0].drafts.empty());
  ASSERT_EQ(drafter_.asked.size(), 1u);
  EXPECT_EQ(drafter_.asked[0].count, 0);
  EXPECT_EQ(drafter_.asked[0].end, 64);
}

using ModelExecutorDeathTest = ModelExecutorTest;

TEST_F(ModelExecutorDeathTest, PlansThatNoSchedulerMakesStopTheProgram) {
  const Request r = Make(kStepTokens + 1);
  Plan long_step;
  Admit(long_step, SlotId(0), r);
  AddRow(long_step, SlotId(0), r, 0, kStepTokens + 1, true);
  EXPECT_DEATH(Run(long_step), "193 tokens in a step of at most 192");
  Plan unknown;
  Admit(unknown, SlotId(0), r);
  AddRow(unknown, SlotId(0), r, 193, 194, true);
  EXPECT_DEATH(Run(unknown), "position 193 of a sequence of 193 known tokens");
  Plan stranger;
  Admit(stranger, SlotId(0), r);
  AddRow(stranger, SlotId(0), r, 0, 5, true);
  stranger.rows[0].request = RequestId(99);
  EXPECT_DEATH(Run(stranger), "slot 0 belongs to request");
}

TEST(ModelExecutor, RefusesWhatItCannotCarryOutByName) {
  SchedulerConfig config;
  EXPECT_TRUE(ModelExecutor::CanRun(config).ok());
  const auto refused = [&](auto change) {
    SchedulerConfig changed = config;
    change(changed);
    const Status status = ModelExecutor::CanRun(changed);
    return status.ok() ? std::string("nothing") : status.error().field;
  };
  EXPECT_EQ(refused([](auto& c) { c.dp_ranks = 2; }), "dp_ranks");
  EXPECT_EQ(refused([](auto& c) { c.draft_tokens_max = 7; }), "nothing");
  EXPECT_EQ(refused([](auto& c) { c.handoff = true; }), "handoff");
}

}  // namespace
}  // namespace braid
