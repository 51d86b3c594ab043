// One request, computed in many ways by the real model: alone and cold, from every kind of cached
// prefix, among others, in other chunks, preempted, one step ahead. Tokens and log-probabilities
// must be the same bits. A row of the table is a request and an arithmetic (instruction set,
// compute, format of the weights), a column a way; one thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "model/checkpoint.h"
#include "model/families/families.h"
#include "model/memory_plan.h"
#include "model/weights.h"
#include "runtime/model_executor.h"
#include "scheduler/scheduler.h"

namespace braid {
namespace {

constexpr int64_t kTarget = 1000;  // the id of the request whose answer is compared
constexpr int32_t kStepTokens = 512;

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs, prompt_logprobs;
  Reuse reuse;
  int32_t preemptions = 0;
};

struct Arithmetic {
  const char* name;
  Isa isa;
  Compute compute;
  std::optional<ops::WeightFormat> weights;
};
constexpr Arithmetic kArithmetics[] = {
    {"Avx2Fp32", Isa::kAvx2, Compute::kF32, {}},
    {"Avx512Fp32", Isa::kAvx512, Compute::kF32, {}},
    {"Avx512Bf16", Isa::kAvx512, Compute::kBF16, {}},
    {"AmxBf16", Isa::kAmx, Compute::kBF16, {}},
    {"Avx2Int8", Isa::kAvx2, Compute::kF32, ops::WeightFormat::kI8},
    {"AmxInt8", Isa::kAmx, Compute::kBF16, ops::WeightFormat::kI8},
    {"Avx512Int4", Isa::kAvx512, Compute::kBF16, ops::WeightFormat::kI4},
};
constexpr size_t kArithmeticCount = std::size(kArithmetics);

// An executor per arithmetic, for loading takes longest; each run has a scheduler, and so a cache,
// of its own.
class Machine {
 public:
  explicit Machine(const Arithmetic& arithmetic) {
    const std::string directory = BRAID_SOURCE_DIR "/models/braid-tiny";
    auto spec = ReadModelSpec(directory);
    CHECK(spec.ok(), "{}", spec.error().message);
    auto checkpoint = Checkpoint::Open(directory);
    CHECK(checkpoint.ok(), "{}", checkpoint.error().message);
    spec_ = FitToCheckpoint(*std::move(spec), *checkpoint);
    ThreadPool pool(2);
    const Device device = DeviceOf(DetectCpu(), arithmetic.isa, arithmetic.compute);
    const LoadOptions load{.weights = {.format = arithmetic.weights, .head = true}, .progress = {}};
    auto weights = LoadWeights(spec_, *checkpoint, pool, load, nullptr);
    CHECK(weights.ok(), "{}", weights.error().message);
    MemoryRequest request{.kv_dtype = DType::kF32,
                          .arena_bytes = 256 << 20,
                          .model_len_max = 4096,
                          .running_max = 17};
    auto plan = PlanMemory(spec_, request);
    CHECK(plan.ok(), "{}", plan.error().message);
    // A parent per block: small arenas are then exact.
    for (GroupGeometry& group : plan->geometry.groups) group.blocks_per_parent = 1;
    config_ = {.cache = plan->geometry,
               .context_tokens_max = 4096,
               .step_tokens_max = kStepTokens,
               .running_max = 17,
               .vocabulary = spec_.vocabulary};
    executor_ = std::make_unique<ModelExecutor>(spec_, *std::move(weights),
                                                ModelExecutorConfig{.cache = plan->geometry,
                                                                    .running_max = 17,
                                                                    .step_tokens_max = kStepTokens,
                                                                    .context_tokens_max = 4096,
                                                                    .kv_dtype = request.kv_dtype,
                                                                    .device = device,
                                                                    .threads = 2});
  }

  const SchedulerConfig& config() const { return config_; }
  ModelExecutor& executor() { return *executor_; }

 private:
  ModelSpec spec_;
  SchedulerConfig config_;
  std::unique_ptr<ModelExecutor> executor_;
};

// Of all tests, which run one after the other.
struct Shared {
  size_t chosen = 0;  // the arithmetic of the running test
  std::unique_ptr<Machine> machines[kArithmeticCount];
};
Shared& TheShared() {
  static const auto shared = std::make_unique<Shared>();
  return *shared;
}
const Arithmetic& Chosen() { return kArithmetics[TheShared().chosen]; }
bool ChosenIsHere() { return Chosen().isa <= BestIsa(DetectCpu()); }
Machine& TheMachine() {
  std::unique_ptr<Machine>& machine = TheShared().machines[TheShared().chosen];
  if (!machine) machine = std::make_unique<Machine>(Chosen());
  return *machine;
}

class Engine {
 public:
  explicit Engine(const SchedulerConfig& config, int32_t depth = 0)
      : scheduler_(*Scheduler::Create(config)), depth_(depth) {}

  void Submit(const Request& request) { scheduler_.Apply(braid::Submit{request}); }
  bool Step() {
    Plan plan = scheduler_.NextPlan();
    const bool launched = !plan.empty();
    if (launched) {
      executor_.Launch(std::move(plan));
      ++in_flight_;
    }
    while (in_flight_ > (launched ? depth_ : 0)) {
      scheduler_.Apply(executor_.Wait());
      --in_flight_;
    }
    for (Output& o : scheduler_.TakeOutputs()) {
      Answer& a = answers_[o.id.value];
      const auto move = [](auto& from, auto& to) { to.insert(to.end(), from.begin(), from.end()); };
      move(o.tokens, a.tokens);
      move(o.logprobs, a.logprobs);
      move(o.prompt_logprobs, a.prompt_logprobs);
      a.reuse = o.reuse;
      a.preemptions = o.preemptions;
      if (o.finish == FinishReason::kError) ADD_FAILURE() << o.error;
    }
    return launched;
  }
  void Drain() {
    while (!scheduler_.idle()) Step();
    EXPECT_TRUE(scheduler_.Audit().ok());
  }
  // To its end, and then the next.
  const Answer& Ask(const Request& request) {
    Submit(request);
    Drain();
    return answers_[request.id.value];
  }
  const Answer& answer(int64_t id) { return answers_[id]; }

 private:
  ModelExecutor& executor_ = TheMachine().executor();
  Scheduler scheduler_;
  const int32_t depth_;
  int32_t in_flight_ = 0;
  std::map<int64_t, Answer> answers_;
};

std::vector<TokenId> Tokens(uint64_t seed, int32_t count) {
  Rng rng(seed);
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(rng.Below(TheMachine().config().vocabulary)));
  }
  return tokens;
}

Request MakeRequest(int64_t id, std::vector<TokenId> prompt, int32_t new_tokens) {
  Request r;
  r.id = RequestId(id);
  r.prompt = std::move(prompt);
  r.stop.new_tokens_max = new_tokens;
  r.logprobs = 3;
  return r;
}

// The rows of the table.
Request Target(bool sampled) {
  Request r = MakeRequest(kTarget, Tokens(1, 333), 130);
  if (sampled) {
    r.sampling.temperature = 0.9f;
    r.sampling.top_p = 0.95f;
    r.sampling.repetition_penalty = 1.1f;
    r.sampling.seed = 77;
  }
  return r;
}

Answer Cold(const Request& request) {
  SchedulerConfig config = TheMachine().config();
  config.prefix_cache = false;
  Engine run(config);
  return run.Ask(request);
}

std::vector<TokenId> Head(const std::vector<TokenId>& tokens, int32_t count) {
  return {tokens.begin(), tokens.begin() + count};
}

void ExpectSame(const Answer& got, const Answer& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.logprobs, want.logprobs);
}

using Row = std::tuple<size_t, bool>;  // arithmetic, sampled

class EqualityTest : public ::testing::TestWithParam<Row> {
 protected:
  // Before the test's own engine starts, for all engines of an arithmetic use one arena. Where this
  // machine cannot compute so, nothing is made.
  EqualityTest() {
    TheShared().chosen = std::get<0>(GetParam());
    if (!ChosenIsHere()) return;
    config_ = TheMachine().config();
    target_ = Target(std::get<1>(GetParam()));
    want_ = Cold(target_);
  }
  void SetUp() override {
    if (!ChosenIsHere()) GTEST_SKIP() << "no " << Chosen().name << " here";
  }
  Request target_;
  Answer want_;
  SchedulerConfig config_;
};

TEST_P(EqualityTest, WarmTheSamePromptAgain) {
  Engine run(config_);
  Request first = target_;
  first.id = RequestId(1);
  ExpectSame(run.Ask(first), want_);
  const Answer& again = run.Ask(target_);
  EXPECT_EQ(again.reuse.tokens, 320);  // the last boundary of the prompt
  ExpectSame(again, want_);
}

TEST_P(EqualityTest, WarmFromEveryBoundaryThatAPromptCanEndAt) {
  for (int32_t length = 64; length <= 320; length += 64) {
    Engine run(config_);
    run.Ask(MakeRequest(1, Head(target_.prompt, length + 5), 1));
    const Answer& warm = run.Ask(target_);
    EXPECT_EQ(warm.reuse.tokens, length);
    ExpectSame(warm, want_);
  }
}

TEST_P(EqualityTest, WarmFromTheEndOfAChunk) {
  SchedulerConfig config = config_;
  config.chunk_tokens_max = 128;
  Engine run(config);
  std::vector<TokenId> other = Head(target_.prompt, 256);
  other.resize(400, 3);
  run.Ask(MakeRequest(1, other, 1));
  const Answer& warm = run.Ask(target_);
  EXPECT_EQ(warm.reuse.tokens, 256);
  ExpectSame(warm, want_);
}

TEST_P(EqualityTest, WarmFromABranchThatASecondRequestRevealed) {
  Engine run(config_);
  for (int64_t id : {1, 2}) {
    std::vector<TokenId> other = Head(target_.prompt, 192);
    other.resize(400, static_cast<TokenId>(id));
    EXPECT_EQ(run.Ask(MakeRequest(id, other, 1)).reuse.tokens, 0);
  }
  const Answer& warm = run.Ask(target_);
  EXPECT_EQ(warm.reuse.tokens, 192);
  ExpectSame(warm, want_);
}

TEST_P(EqualityTest, WarmFromABlockThatDecodingCrossed) {
  Request first = MakeRequest(1, Head(target_.prompt, 100), 200);
  first.sampling = target_.sampling;
  const Answer turn = Cold(first);
  std::vector<TokenId> prompt = first.prompt;
  prompt.insert(prompt.end(), turn.tokens.begin(), turn.tokens.end());
  const std::vector<TokenId> question = Tokens(9, 50);
  prompt.insert(prompt.end(), question.begin(), question.end());
  Request second = MakeRequest(kTarget, prompt, 100);
  second.sampling = target_.sampling;
  const Answer want = Cold(second);
  Engine run(config_);
  ExpectSame(run.Ask(first), turn);
  const Answer& got = run.Ask(second);
  EXPECT_EQ(got.reuse.tokens, 256);  // 100 + 200 - 1 tokens were stored
  ExpectSame(got, want);
}

TEST_P(EqualityTest, BatchedWithFifteenOthers) {
  Engine run(config_);
  for (int64_t id = 0; id < 15; ++id) {
    Request other = MakeRequest(
        id, Tokens(100 + static_cast<uint64_t>(id), 17 + 23 * static_cast<int32_t>(id)), 60);
    if (id % 3 == 0) other.prompt = Head(target_.prompt, 200 + static_cast<int32_t>(id));
    run.Submit(other);
    if (id == 7) run.Submit(target_);
  }
  run.Drain();
  ExpectSame(run.answer(kTarget), want_);
}

TEST_P(EqualityTest, InChunksOfOtherSizes) {
  for (int32_t chunk : {50, 64, 128, 512}) {
    SchedulerConfig config = config_;
    config.chunk_tokens_max = chunk;
    Engine run(config);
    ExpectSame(run.Ask(target_), want_);
  }
}

TEST_P(EqualityTest, OneStepAhead) {
  Engine run(config_, 1);
  Request first = target_;
  first.id = RequestId(1);
  ExpectSame(run.Ask(first), want_);
  ExpectSame(run.Ask(target_), want_);
}

TEST_P(EqualityTest, PreemptedAndResumed) {
  for (bool prefix_cache : {true, false}) {
    SchedulerConfig config = config_;
    config.prefix_cache = prefix_cache;
    const BlockCounts alone = BlocksOfSequence(config.cache, 450);
    // Room for a second sequence, but not for both at their full length.
    config.cache.parents = static_cast<int32_t>(ParentsFor(config.cache, alone)) + 1 + 3;
    Engine run(config);
    run.Submit(target_);
    for (int step = 0; step < 30; ++step) run.Step();
    Request usurper = MakeRequest(1, Tokens(5, 60), 400);
    usurper.priority = 1;
    run.Submit(usurper);
    run.Drain();
    EXPECT_GE(run.answer(kTarget).preemptions, 1);
    ExpectSame(run.answer(kTarget), want_);
  }
}

TEST_P(EqualityTest, PromptLogprobsOfAWarmPromptAreThoseOfACold) {
  Request scored = target_;
  scored.prompt_logprobs = 2;
  const Answer want = Cold(scored);
  Engine run(config_);
  run.Ask(MakeRequest(1, target_.prompt, 1));
  const Answer& got = run.Ask(scored);
  EXPECT_EQ(got.reuse.tokens, 0);
  EXPECT_EQ(got.reuse.stop, ReuseStop::kOff);
  EXPECT_EQ(got.prompt_logprobs, want.prompt_logprobs);
  ExpectSame(got, want_);
}

// Sampling does not know the arithmetic: one of them is sampled too.
std::vector<Row> Rows() {
  std::vector<Row> rows = {{0, true}};
  for (size_t i = 0; i < kArithmeticCount; ++i) rows.emplace_back(i, false);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Rows, EqualityTest, ::testing::ValuesIn(Rows()), [](const auto& row) {
  return std::string(kArithmetics[std::get<0>(row.param)].name) +
         (std::get<1>(row.param) ? "Sampled" : "Greedy");
});

}  // namespace
}  // namespace braid
