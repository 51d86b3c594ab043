// One request, computed in many ways by the real model: alone and cold, from every kind of cached
// prefix, among others, in other chunks, preempted, one step ahead. Tokens and log-probabilities
// have the same bits. A row of the table is a model in an arithmetic and a request, a column a way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "base/rng.h"
#include "base/system/thread_pool.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/test_directory.h"
#include "model/families/families.h"
#include "model/loading/load_weights.h"
#include "model/loading/make_model.h"
#include "model/loading/memory_plan.h"
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
  std::string error;
};

// Which model. Random ones have one of every kind of layer that their family knows.
enum class Model : uint8_t {
  kBraidTiny,
  kDeepseekV3,
  kKimiLinear,
  kLing2,
  kLing3,
  kQwen35,
  kQwen35Moe,
  kQwen3Next,
};
constexpr const char* kModelNames[] = {"braid_tiny", "deepseek_v3", "kimi_linear", "ling_2",
                                       "ling_3",     "qwen3_5",     "qwen3_5_moe", "qwen3_next"};
constexpr int kModels = static_cast<int>(std::size(kModelNames));

struct Arithmetic {
  const char* name;
  Isa isa;
  Compute compute;
  std::optional<ops::WeightFormat> weights;
  DType kv_dtype;
};
constexpr Arithmetic kArithmetics[] = {
    {"avx2_fp32", Isa::kAvx2, Compute::kF32, {}, DType::kF32},
    {"avx512_fp32", Isa::kAvx512, Compute::kF32, {}, DType::kF32},
    {"avx512_bf16", Isa::kAvx512, Compute::kBF16, {}, DType::kBF16},
    {"amx_bf16", Isa::kAmx, Compute::kBF16, {}, DType::kBF16},
    {"avx2_int8", Isa::kAvx2, Compute::kF32, ops::WeightFormat::kI8, DType::kI8},
    {"amx_int8", Isa::kAmx, Compute::kBF16, ops::WeightFormat::kI8, DType::kBF16},
    {"avx512_fp8", Isa::kAvx512, Compute::kBF16, ops::WeightFormat::kF8, DType::kBF16},
    {"avx512_int4", Isa::kAvx512, Compute::kBF16, ops::WeightFormat::kI4, DType::kI8},
    {"avx512_q8_0", Isa::kAvx512, Compute::kBF16, ops::WeightFormat::kQ8_0, DType::kBF16},
};

struct Subject {
  Model model;
  const Arithmetic* arithmetic;
  auto operator<=>(const Subject&) const = default;
};

// What this machine can compute; at least the plain loops in fp32.
std::vector<const Arithmetic*> ArithmeticsHere() {
  static constexpr Arithmetic kPlain = {"base_fp32", Isa::kBase, Compute::kF32, {}, DType::kF32};
  std::vector<const Arithmetic*> here;
  for (const Arithmetic& arithmetic : kArithmetics) {
    if (arithmetic.isa <= BestIsa(DetectCpu())) here.push_back(&arithmetic);
  }
  if (here.empty()) here.push_back(&kPlain);
  return here;
}

// The best arithmetic of a kind that this machine has, or null.
const Arithmetic* BestHere(Compute compute) {
  const Arithmetic* best = nullptr;
  for (const Arithmetic* arithmetic : ArithmeticsHere()) {
    if (arithmetic->compute == compute && !arithmetic->weights) best = arithmetic;
  }
  return best;
}

// A fault injected for tests: whatever reads this token computes with NaN from there on.
constexpr TokenId kNanTokenForTest = 7;

void InjectNanForTest(ModelWeights& weights) {
  const ops::PackedMatrix& embedding = weights.embedding.matrix;
  CHECK(embedding.format == ops::WeightFormat::kBF16);
  constexpr uint16_t kNan = 0x7fc0;
  // One element, as packed.h lays them out: panel[k / 2][16][2].
  const int64_t row = kNanTokenForTest % ops::kPanelRows;
  std::byte* panel = embedding.data + kNanTokenForTest / ops::kPanelRows * embedding.panel_bytes();
  std::memcpy(panel + row * 2 * static_cast<int64_t>(sizeof(kNan)), &kNan, sizeof(kNan));
  CHECK(std::isnan(embedding.At(0, kNanTokenForTest, 0)));
}

// One executor, for loading takes longest; each run has a scheduler, and so a cache, of its own.
class Machine {
 public:
  explicit Machine(const Subject& subject, bool inject_nan_for_test = false) {
    const auto& [model, arithmetic] = subject;
    // A step of a random model is too short to be worth a second thread.
    const int threads = model == Model::kBraidTiny ? 2 : 1;
    ThreadPool pool(threads);
    const TestDirectory made;
    std::string directory = BRAID_SOURCE_DIR "/models/braid-tiny";
    if (model != Model::kBraidTiny) {
      directory = made.path() + "/model";
      Must(MakeModel({.directory = directory,
                      .family = kModelNames[static_cast<size_t>(model)],
                      .shape = {"tiny"},
                      .seed = 1,
                      .progress = {}},
                     pool));
    }
    const OpenedModel opened = Must(OpenModel(directory));
    spec_ = opened.spec;
    const Device device = DeviceOf(DetectCpu(), arithmetic->isa, arithmetic->compute);
    const WeightChoice choice{.format = arithmetic->weights, .head = true};
    ModelWeights weights =
        Must(LoadWeights(Must(BindWeights(spec_, opened.checkpoint, choice)), pool));
    if (inject_nan_for_test) InjectNanForTest(weights);
    const MemoryRequest request{.kv_dtype = arithmetic->kv_dtype,
                                .arena_bytes = model == Model::kBraidTiny ? 256 << 20 : 32 << 20,
                                .model_len_max = 2048,
                                .running_max = 17};
    MemoryPlan plan = Must(PlanMemory(spec_, request));
    // A parent per block: small arenas are then exact.
    for (GroupGeometry& group : plan.geometry.groups) {
      group.blocks_per_page = 1;
      has_state_ |= group.kind == GroupKind::kState;
    }
    config_ = {.cache = plan.geometry,
               .context_tokens_max = request.model_len_max,
               .step_tokens_max = kStepTokens,
               .running_max = 17,
               .vocabulary = spec_.vocabulary,
               .report_freed = true};
    const ModelExecutorConfig executor{.cache = plan.geometry,
                                       .running_max = 17,
                                       .step_tokens_max = kStepTokens,
                                       .context_tokens_max = request.model_len_max,
                                       .kv_dtype = request.kv_dtype,
                                       .device = device,
                                       .threads = threads,
                                       .poison_freed = true};
    executor_ = std::make_unique<ModelExecutor>(spec_, std::move(weights), executor);
  }

  const SchedulerConfig& config() const { return config_; }
  ModelExecutor& executor() { return *executor_; }
  bool has_state() const { return has_state_; }

 private:
  template <class T>
  static T Must(Result<T> result) {
    CHECK(result.ok(), "{}", result.error().message);
    return *std::move(result);
  }

  ModelSpec spec_;
  SchedulerConfig config_;
  bool has_state_ = false;
  std::unique_ptr<ModelExecutor> executor_;
};

// Made when first asked for, kept to the end.
Machine& MachineOf(const Subject& subject) {
  static const auto machines = std::make_unique<std::map<Subject, std::unique_ptr<Machine>>>();
  std::unique_ptr<Machine>& machine = (*machines)[subject];
  if (machine == nullptr) machine = std::make_unique<Machine>(subject);
  return *machine;
}

class Engine {
 public:
  Engine(Machine& machine, const SchedulerConfig& config, int32_t depth = 0)
      : executor_(machine.executor()), scheduler_(*Scheduler::Create(config)), depth_(depth) {}

  void Submit(const Request& request) { scheduler_.Apply(braid::Submit{request}); }
  SchedulerStats stats() const { return scheduler_.stats(); }
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
      a.error = o.error;
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
  ModelExecutor& executor_;
  Scheduler scheduler_;
  const int32_t depth_;
  int32_t in_flight_ = 0;
  std::map<int64_t, Answer> answers_;
};

// Ids that every model has.
std::vector<TokenId> Tokens(uint64_t seed, int32_t count) {
  constexpr int64_t kVocabulary = 512;
  Rng rng(seed);
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(rng.Below(kVocabulary)));
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

Answer Cold(Machine& machine, const Request& request) {
  SchedulerConfig config = machine.config();
  config.prefix_cache = false;
  return Engine(machine, config).Ask(request);
}

std::vector<TokenId> Head(const std::vector<TokenId>& tokens, int32_t count) {
  return {tokens.begin(), tokens.begin() + count};
}

void ExpectSame(const Answer& got, const Answer& want) {
  EXPECT_EQ(got.error, "");
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.logprobs, want.logprobs);
}

// A model in an arithmetic, and whether its tokens are sampled.
using TableRow = std::tuple<Subject, bool>;

class EqualityTest : public ::testing::TestWithParam<TableRow> {
 protected:
  // Before the test's own engine starts, for all engines of a model use one arena.
  EqualityTest() : target_(Target(sampled())), want_(Want()) {}

  static bool sampled() { return std::get<1>(GetParam()); }
  static Machine& machine() { return MachineOf(std::get<0>(GetParam())); }
  const Answer& Want() const {
    static const auto answers = std::make_unique<std::map<TableRow, Answer>>();
    auto at = answers->find(GetParam());
    if (at == answers->end()) at = answers->emplace(GetParam(), Cold(target_)).first;
    return at->second;
  }
  static Answer Cold(const Request& request) { return braid::Cold(machine(), request); }

  const Request target_;
  const Answer& want_;
  const SchedulerConfig& config_ = machine().config();
};

TEST_P(EqualityTest, WarmTheSamePromptAgain) {
  Engine run(machine(), config_);
  Request first = target_;
  first.id = RequestId(1);
  ExpectSame(run.Ask(first), want_);
  const Answer& again = run.Ask(target_);
  EXPECT_EQ(again.reuse.tokens, 320);  // the last boundary of the prompt
  ExpectSame(again, want_);
}

TEST_P(EqualityTest, WarmFromEveryBoundaryThatAPromptCanEndAt) {
  for (int32_t length = 64; length <= 320; length += 64) {
    Engine run(machine(), config_);
    run.Ask(MakeRequest(1, Head(target_.prompt, length + 5), 1));
    const Answer& warm = run.Ask(target_);
    EXPECT_EQ(warm.reuse.tokens, length);
    ExpectSame(warm, want_);
  }
}

TEST_P(EqualityTest, WarmFromTheEndOfAChunk) {
  SchedulerConfig config = config_;
  config.chunk_tokens_max = 128;
  Engine run(machine(), config);
  std::vector<TokenId> other = Head(target_.prompt, 256);
  other.resize(400, 3);
  run.Ask(MakeRequest(1, other, 1));
  const Answer& warm = run.Ask(target_);
  EXPECT_EQ(warm.reuse.tokens, 256);
  ExpectSame(warm, want_);
}

TEST_P(EqualityTest, WarmFromABranchThatASecondRequestRevealed) {
  Engine run(machine(), config_);
  for (int64_t id : {1, 2}) {
    std::vector<TokenId> other = Head(target_.prompt, 192);
    other.resize(400, static_cast<TokenId>(id));
    // Without recurrent state the branch needs no revealing.
    const int32_t reused = id == 2 && !machine().has_state() ? 192 : 0;
    EXPECT_EQ(run.Ask(MakeRequest(id, other, 1)).reuse.tokens, reused);
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
  Engine run(machine(), config_);
  ExpectSame(run.Ask(first), turn);
  const Answer& got = run.Ask(second);
  EXPECT_EQ(got.reuse.tokens, 256);  // 100 + 200 - 1 tokens were stored
  ExpectSame(got, want);
}

TEST_P(EqualityTest, BatchedWithFifteenOthers) {
  Engine run(machine(), config_);
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

TEST_P(EqualityTest, EightChoicesOfOnePromptAreEightRequests) {
  Engine run(machine(), config_);
  std::vector<Request> choices(8, target_);
  for (size_t i = 0; i < 8; ++i) {
    choices[i].id = RequestId(static_cast<int64_t>(i));
    choices[i].sampling.seed += i;
    run.Submit(choices[i]);
  }
  run.Drain();
  EXPECT_EQ(run.stats().prefill_tokens, 333 + 7 * (333 - 320));
  for (const Request& choice : choices) ExpectSame(run.answer(choice.id.value), Cold(choice));
}

TEST_P(EqualityTest, InChunksOfOtherSizes) {
  for (int32_t chunk : {50, 64, 128, 512}) {
    SchedulerConfig config = config_;
    config.chunk_tokens_max = chunk;
    Engine run(machine(), config);
    ExpectSame(run.Ask(target_), want_);
  }
}

TEST_P(EqualityTest, OneStepAhead) {
  Engine run(machine(), config_, 1);
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
    const int32_t more = machine().has_state() ? 3 : 1;
    config.cache.pages = static_cast<int32_t>(PagesFor(config.cache, alone)) + 1 + more;
    Engine run(machine(), config);
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
  Engine run(machine(), config_);
  run.Ask(MakeRequest(1, target_.prompt, 1));
  const Answer& got = run.Ask(scored);
  EXPECT_EQ(got.reuse.tokens, 0);
  EXPECT_EQ(got.reuse.stop, ReuseStop::kOff);
  EXPECT_EQ(got.prompt_logprobs, want.prompt_logprobs);
  ExpectSame(got, want_);
}

std::string NameOfRow(const ::testing::TestParamInfo<TableRow>& row) {
  const auto& [subject, sampled] = row.param;
  return std::string(kModelNames[static_cast<size_t>(subject.model)]) + "_" +
         subject.arithmetic->name + (sampled ? "_sampled" : "_greedy");
}

std::vector<Subject> Trained() {
  std::vector<Subject> subjects;
  for (const Arithmetic* here : ArithmeticsHere()) subjects.push_back({Model::kBraidTiny, here});
  return subjects;
}

std::vector<Subject> Random() {
  std::vector<Subject> subjects;
  for (int i = 1; i < kModels; ++i) {
    for (Compute compute : {Compute::kF32, Compute::kBF16}) {
      const Arithmetic* best = BestHere(compute);
      if (best != nullptr) subjects.push_back({static_cast<Model>(i), best});
    }
  }
  return subjects;
}

INSTANTIATE_TEST_SUITE_P(Trained, EqualityTest,
                         ::testing::Combine(::testing::ValuesIn(Trained()), ::testing::Bool()),
                         NameOfRow);
INSTANTIATE_TEST_SUITE_P(Random, EqualityTest,
                         ::testing::Combine(::testing::ValuesIn(Random()), ::testing::Bool()),
                         NameOfRow);

class NonFiniteTest : public ::testing::TestWithParam<Model> {
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
  Machine machine({GetParam(), BestHere(Compute::kF32)}, /*inject_nan_for_test=*/true);
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
  Machine machine({GetParam(), BestHere(Compute::kF32)}, /*inject_nan_for_test=*/true);
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
  Machine machine({GetParam(), BestHere(Compute::kF32)});
  SchedulerConfig config = machine.config();
  config.prefix_cache = false;
  Scheduler scheduler = *Scheduler::Create(config);
  const Request request = MakeRequest(1, Tokens(3, 64), 2);
  scheduler.Apply(Submit{request});
  const Plan first = scheduler.NextPlan();
  const auto run = [&](const Plan& plan) {
    machine.executor().Launch(plan);
    return machine.executor().Wait();
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

INSTANTIATE_TEST_SUITE_P(Kinds, NonFiniteTest,
                         ::testing::Values(Model::kQwen3Next, Model::kKimiLinear, Model::kLing2,
                                           Model::kDeepseekV3),
                         [](const auto& row) {
                           return std::string(kModelNames[static_cast<size_t>(row.param)]);
                         });

// A family without a row in the table is a mistake.
TEST(EqualityTable, HasARowForEveryFamily) {
  std::vector<std::string> names(kModelNames + 1, kModelNames + kModels);
  std::vector<std::string> families;
  for (const Family& family : Families()) families.emplace_back(family.name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(families));
}

}  // namespace
}  // namespace braid
