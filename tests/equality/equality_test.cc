// One request, computed in many ways by the real model: alone and cold, from every kind of cached
// prefix, among others, in other chunks, preempted, one step ahead, with drafts. Tokens and
// log-probabilities have the same bits. A row of the table is a model in an arithmetic and a
// request, a column a way.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "model/families/families.h"
#include "tests/equality/rank_subjects.h"
#include "tests/equality/table.h"
#include "tests/equality/with_tier.h"

namespace braid {
namespace {

// A model in an arithmetic, whether its tokens are sampled, and how drafts are made.
using TableRow = std::tuple<Subject, bool, Drafts>;

class EqualityTest : public ::testing::TestWithParam<TableRow> {
 protected:
  // Before the test's own engine starts, for all engines of a model use one arena.
  EqualityTest() : target_(Target(sampled())), want_(Want()) {}

  static bool sampled() { return std::get<1>(GetParam()); }
  static Drafts drafts() { return std::get<2>(GetParam()); }
  static Machine& machine() {
    Subject subject = std::get<0>(GetParam());
    subject.head = ByHead(drafts());
    return MachineOf(subject);
  }
  const Answer& Want() const {
    using Key = std::pair<Subject, bool>;
    static const auto answers = std::make_unique<std::map<Key, Answer>>();
    const Key key(std::get<0>(GetParam()), sampled());
    auto at = answers->find(key);
    if (at == answers->end()) at = answers->emplace(key, Cold(target_)).first;
    return at->second;
  }
  // Of one rank.
  static Answer Cold(const Request& request) {
    Subject alone = std::get<0>(GetParam());
    alone.mesh = {};
    alone.placed = alone.moving = alone.parcels = alone.halves = false;
    Answer answer = braid::Cold(MachineOf(alone), request);
    machine().oracle().Learn(request, answer.tokens);
    return answer;
  }
  // Rounds of experts that have moved.
  static int64_t Swaps() {
    return machine().moves() ? machine().executor().rank(0).mover()->progress().swaps : 0;
  }

  const Request target_;
  const Answer& want_;
  const SchedulerConfig config_ = machine().config(drafts());
};

TEST_P(EqualityTest, ColdWithDraftsInFewerSteps) {
  SchedulerConfig config = config_;
  config.prefix_cache = false;
  Engine run(machine(), config);
  ExpectSame(run.Ask(target_), want_);
  const SchedulerStats stats = run.stats();
  const int32_t most = config.draft_tokens_max;
  EXPECT_LE(stats.drafts_accepted, stats.drafts);
  // The oracle's rows are accepted to every depth, all as often; random text need not repeat
  // itself, and the guesses of random heads are random.
  if (most > 0 && drafts() <= Drafts::kSeven) {
    EXPECT_GT(stats.drafts_accepted * 100, stats.drafts * 30);
  }
  if (ByHead(drafts()) && !config.draft_adapt) {
    EXPECT_GT(run.drafts_checked(), 30);
  }
  EXPECT_EQ(stats.drafts_accepted + stats.steps, 130);  // each step samples one token
}

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

TEST_P(EqualityTest, RestoredFromDiskAndAfterARestart) {
  const std::string directory = fmt::format("{}equality_tier_{}", ::testing::TempDir(), ::getpid());
  std::filesystem::remove_all(directory);
  const auto ask = [&](WithTier& with, int32_t memory, int32_t disk) {
    const Answer& got = with.run->Ask(target_);
    EXPECT_EQ(got.reuse.tokens, memory + disk);
    EXPECT_EQ(got.reuse.stored, disk);
    ExpectSame(got, want_);
  };
  {
    WithTier with(machine(), config_, directory);
    Request first = target_;
    first.id = RequestId(1);
    ExpectSame(with.run->Ask(first), want_);
    with.run->Apply(FlushCache{});
    ask(with, 0, 320);
  }
  {  // from a directory that another run has left
    WithTier with(machine(), config_, directory);
    ask(with, 0, 320);
  }
  {  // the beginning is in memory, computed here; the rest comes
    WithTier with(machine(), config_, directory);
    Request begins = MakeRequest(2, Head(target_.prompt, 133), 1);
    begins.cache_salt = target_.cache_salt;
    with.run->Ask(begins);
    const Answer& got = with.run->Ask(target_);
    EXPECT_EQ(got.reuse.tokens, 320);
    ExpectSame(got, want_);
  }
  if (const int32_t ranks = machine().mesh().ranks(); ranks > 1) {
    {  // as processes with the same directory
      WithTier with(machine(), config_, directory, true);
      ask(with, 0, 320);
    }
    // What one of them has lost is a miss for all.
    const int32_t last = machine().mesh().tp - 1;
    std::filesystem::remove_all(fmt::format("{}/rank-{}", directory, last));
    WithTier with(machine(), config_, directory, true);
    ask(with, 0, 0);
  }
  std::filesystem::remove_all(directory);
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
  for (const Request& choice : choices) {  // without sampling all are the target's answer
    ExpectSame(run.answer(choice.id.value), sampled() ? Cold(choice) : want_);
  }
}

TEST_P(EqualityTest, InChunksOfOtherSizes) {
  for (int32_t chunk : {50, 64, 128, 512}) {
    SchedulerConfig config = config_;
    config.chunk_tokens_max = chunk;
    Engine run(machine(), config);
    ExpectSame(run.Ask(target_), want_);
  }
}

// Beside twelve answers a step of 64 tokens has no room for a block: rows end inside blocks.
TEST_P(EqualityTest, InRowsThatPassOverBoundaries) {
  SchedulerConfig config = config_;
  config.step_tokens_max = kBlockTokens;
  config.running_max = 16;
  Engine run(machine(), config);
  for (int64_t id = 0; id < 12; ++id) {
    run.Submit(MakeRequest(id, Tokens(100 + static_cast<uint64_t>(id), 5), 16));
  }
  run.Step();
  run.Submit(target_);
  run.Submit(MakeRequest(12, Tokens(200, 90), 20));
  run.Drain();
  ExpectSame(run.answer(kTarget), want_);
}

TEST_P(EqualityTest, OneStepAhead) {
  Engine run(machine(), config_, 1);
  Request first = target_;
  first.id = RequestId(1);
  ExpectSame(run.Ask(first), want_);
  ExpectSame(run.Ask(target_), want_);
}

TEST_P(EqualityTest, PreemptedAndResumed) {
  const int64_t swaps = Swaps();
  for (bool prefix_cache : {true, false}) {
    SchedulerConfig config = config_;
    config.prefix_cache = prefix_cache;
    const BlockCounts alone = BlocksOfSequence(config.cache, 450);
    // Room for a second sequence, but not for both at their full length.
    const int32_t states = config.draft_tokens_max > 0 ? 3 : 2;  // of a sequence that decodes
    const int32_t more = machine().has_state() ? states + 1 : 1;
    config.cache.pages = static_cast<int32_t>(PagesFor(config.cache, alone)) + 1 + more;
    Engine run(machine(), config);
    run.Submit(target_);
    while (run.answer(kTarget).tokens.size() < 30) run.Step();
    Request usurper = MakeRequest(1, Tokens(5, 60), 200);
    usurper.priority = 1;
    run.Submit(usurper);
    run.Drain();
    EXPECT_GE(run.answer(kTarget).preemptions, 1);
    ExpectSame(run.answer(kTarget), want_);
  }
  EXPECT_EQ(Swaps() > swaps, machine().moves());
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
  const auto& [subject, sampled, drafts] = row.param;
  const auto& [dp, tp, ep, redundant] = subject.mesh;
  return NameOf(subject.model) + "_" + subject.arithmetic->name +
         (subject.mesh.ranks() > 1 ? fmt::format("_dp{}tp{}ep{}", dp, tp, ep) : "") +
         (redundant > 0 ? fmt::format("r{}", redundant) : "") +
         (subject.moving   ? "_moving"
          : subject.placed ? "_placed"
                           : "") +
         (subject.parcels ? "_parcels" : "") + (subject.halves ? "_halves" : "") +
         (sampled ? "_sampled" : "_greedy") + kDraftsNames[static_cast<size_t>(drafts)];
}

std::vector<Subject> Trained() {
  std::vector<Subject> subjects;
  for (const Arithmetic* here : ArithmeticsHere()) subjects.push_back({Model::kBraidTiny, here});
  return subjects;
}

std::vector<Subject> Random() {
  std::vector<Subject> subjects;
  for (int i = 1; i < std::ssize(ModelNames()); ++i) {
    for (Compute compute : {Compute::kF32, Compute::kBF16}) {
      const Arithmetic* best = BestHere(compute);
      if (best != nullptr) subjects.push_back({static_cast<Model>(i), best});
    }
  }
  return subjects;
}

// Random ones with a draft head.
std::vector<Subject> Headed() {
  std::vector<Subject> subjects = Random();
  std::erase_if(subjects, [](const Subject& subject) { return !HasHead(subject.model); });
  return subjects;
}

// Drafts change nothing that an arithmetic could: the best of each kind have these columns.
std::vector<Subject> Best(std::vector<Subject> subjects) {
  std::erase_if(subjects, [](const Subject& subject) {
    return subject.arithmetic != BestHere(subject.arithmetic->compute);
  });
  return subjects;
}

TEST(PlacedExperts, MoveOnEveryMeshAndInAFormat) {
  const std::vector<Subject> subjects = Placed();
  for (const Mesh& mesh : kPlacedMeshes) {
    EXPECT_TRUE(std::ranges::any_of(
        subjects, [&](const Subject& subject) { return subject.moving && subject.mesh == mesh; }))
        << MeshText(mesh) << " with " << mesh.redundant << " redundant experts";
  }
  EXPECT_TRUE(std::ranges::any_of(subjects,
                                  [](const Subject& subject) {
                                    return subject.moving &&
                                           subject.arithmetic->weights.has_value();
                                  }) ||
              BestIsa(DetectCpu()) == Isa::kBase);
}

class FormatsOnRanks : public EqualityTest {};

TEST_P(FormatsOnRanks, GiveTheAnswersOfOne) {
  SchedulerConfig config = config_;
  config.chunk_tokens_max = 100;
  Engine run(machine(), config);
  for (int64_t id = 0; id < 3; ++id) {
    run.Submit(MakeRequest(id, Tokens(100 + static_cast<uint64_t>(id), 40), 20));
  }
  Request first = target_;
  first.id = RequestId(3);
  run.Submit(first);
  run.Drain();
  ExpectSame(run.answer(3), want_);
  ExpectSame(run.Ask(target_), want_);
  if (!machine().moves()) return;
  const auto progress = [&] { return machine().executor().rank(0).mover()->progress(); };
  // Experts travel beside the steps, in their own time.
  int64_t id = kTarget;
  const auto ask_again = [&] {
    Request again = target_;
    again.id = RequestId(++id);
    ExpectSame(run.Ask(again), want_);
  };
  while (progress().swaps == 0 && id < kTarget + 100) ask_again();
  ask_again();
  const MoveProgress moved = progress();
  EXPECT_GT(moved.swaps, 0);
  EXPECT_EQ(moved.dropped, 0) << moved.failure;
}

// All that a request can ask for: what the first rank of a group decides, the others follow.
class AskedOfRanks : public EqualityTest {};

TEST_P(AskedOfRanks, GiveTheAnswersOfOne) {
  std::vector<Request> requests = ExactingRequests();
  for (Request& request : std::span(requests).subspan(6)) {  // two of those that are only sampled
    if (!sampled()) request.sampling.temperature = 0.0f;
    const Answer want = Cold(request);
    Engine run(machine(), config_);
    Request other = request;
    other.id = RequestId(1);
    other.sampling.seed += 1;
    run.Submit(other);
    run.Submit(request);
    run.Drain();
    const Answer& got = run.answer(kTarget);
    EXPECT_EQ(got.error, want.error);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.logprobs, want.logprobs);
  }
}

constexpr Drafts kByHead[] = {Drafts::kHeadOne, Drafts::kHeadThree, Drafts::kHeadSeven,
                              Drafts::kHeadAuto};
constexpr Drafts kUndrafted[] = {Drafts::kNone};
constexpr Drafts kByOracle[] = {Drafts::kOne, Drafts::kThree, Drafts::kSeven, Drafts::kLookup};

// Every subject with every kind of drafts, sampled and greedy, if BRAID_DEEP is set. Else sampled
// or greedy in turn, and of several kinds every other one: a model has the others in its other
// arithmetic.
std::vector<TableRow> Rows(const std::vector<Subject>& subjects, std::span<const Drafts> kinds) {
  const bool deep = ::getenv("BRAID_DEEP") != nullptr;
  std::vector<TableRow> rows;
  for (size_t i = 0; i < subjects.size(); ++i) {
    for (size_t k = 0; k < kinds.size(); ++k) {
      const bool takes_turns = kinds.size() > 1;
      const bool sampled = (takes_turns ? (i + k) / 2 : i + k) % 2 == 0;
      if (deep || !takes_turns || (i + k) % 2 == 0)
        rows.emplace_back(subjects[i], sampled, kinds[k]);
      if (deep) rows.emplace_back(subjects[i], !sampled, kinds[k]);
    }
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Trained, EqualityTest, ::testing::ValuesIn(Rows(Trained(), kUndrafted)),
                         NameOfRow);
INSTANTIATE_TEST_SUITE_P(Random, EqualityTest, ::testing::ValuesIn(Rows(Random(), kUndrafted)),
                         NameOfRow);
INSTANTIATE_TEST_SUITE_P(TrainedDrafted, EqualityTest,
                         ::testing::ValuesIn(Rows(Best(Trained()), std::span(kByOracle).last(3))),
                         NameOfRow);
INSTANTIATE_TEST_SUITE_P(RandomDrafted, EqualityTest,
                         ::testing::ValuesIn(Rows(Random(), kByOracle)), NameOfRow);

// The device by itself: all families, and the formats on two of them. CTest runs some columns of
// some rows, because a software driver takes its time.
std::vector<Subject> OnDevice() {
  std::vector<Subject> subjects;
  for (const Arithmetic* here : ArithmeticsOnDevice()) {
    for (Model model : {Model::kQwen35Moe, Model::kDeepseekV3}) subjects.push_back({model, here});
    if (here->weights) continue;
    for (Model model :
         {Model::kQwen35, Model::kQwen3Next, Model::kKimiLinear, Model::kLing2, Model::kLing3}) {
      subjects.push_back({model, here});
    }
  }
  return subjects;
}
INSTANTIATE_TEST_SUITE_P(Vulkan, EqualityTest,
                         ::testing::Combine(::testing::ValuesIn(OnDevice()),
                                            ::testing::Values(true),
                                            ::testing::Values(Drafts::kNone, Drafts::kThree)),
                         NameOfRow);

// With experts on the CPU: all families that have some, and the formats on one of them.
std::vector<Subject> HandedOver() {
  std::vector<Subject> subjects;
  for (const Arithmetic* here : ArithmeticsHandedOver()) {
    subjects.push_back({Model::kQwen35Moe, here});
    if (here->weights) continue;
    for (Model model : {Model::kDeepseekV3, Model::kQwen3Next, Model::kKimiLinear, Model::kLing2,
                        Model::kLing3}) {
      subjects.push_back({model, here});
    }
  }
  return subjects;
}
INSTANTIATE_TEST_SUITE_P(VulkanHanded, EqualityTest,
                         ::testing::Combine(::testing::ValuesIn(HandedOver()),
                                            ::testing::Values(true),
                                            ::testing::Values(Drafts::kNone, Drafts::kThree)),
                         NameOfRow);
INSTANTIATE_TEST_SUITE_P(
    VulkanHandedHead, EqualityTest,
    ::testing::Combine(::testing::ValuesIn(HandedOver().empty()
                                               ? std::vector<Subject>()
                                               : std::vector(1, HandedOver().front())),
                       ::testing::Values(true), ::testing::Values(Drafts::kHeadThree)),
    NameOfRow);

// Draft heads there, of every family that has one.
std::vector<Subject> HeadedOnDevice() {
  std::vector<Subject> subjects = OnDevice();
  std::erase_if(subjects, [](const Subject& subject) {
    return !HasHead(subject.model) || subject.arithmetic != ArithmeticsOnDevice()[0];
  });
  return subjects;
}
INSTANTIATE_TEST_SUITE_P(
    VulkanHead, EqualityTest,
    ::testing::Combine(::testing::ValuesIn(HeadedOnDevice()), ::testing::Values(true),
                       ::testing::Values(Drafts::kLookup, Drafts::kHeadOne, Drafts::kHeadThree)),
    NameOfRow);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EqualityTest);

INSTANTIATE_TEST_SUITE_P(Ranks, EqualityTest,
                         ::testing::Combine(::testing::ValuesIn(Divided()), ::testing::Values(true),
                                            ::testing::Values(Drafts::kThree)),
                         NameOfRow);

// Experts that move while a request is in any of the columns, preempted and resumed among them.
INSTANTIATE_TEST_SUITE_P(MovingExperts, EqualityTest,
                         ::testing::Values(TableRow{{.model = Model::kQwen35Moe,
                                                     .arithmetic = BestHere(Compute::kF32),
                                                     .mesh = {.tp = 4, .ep = 2, .redundant = 2},
                                                     .placed = true,
                                                     .moving = true},
                                                    true,
                                                    Drafts::kThree}),
                         NameOfRow);

INSTANTIATE_TEST_SUITE_P(Groups, FormatsOnRanks,
                         ::testing::Combine(::testing::ValuesIn(Grouped()), ::testing::Values(true),
                                            ::testing::Values(Drafts::kThree)),
                         NameOfRow);
INSTANTIATE_TEST_SUITE_P(Ranks, FormatsOnRanks,
                         ::testing::Combine(::testing::ValuesIn(TrainedAndDivided()),
                                            ::testing::Values(true),
                                            ::testing::Values(Drafts::kNone)),
                         NameOfRow);
INSTANTIATE_TEST_SUITE_P(PlacedExperts, FormatsOnRanks,
                         ::testing::Combine(::testing::ValuesIn(Placed()), ::testing::Values(true),
                                            ::testing::Values(Drafts::kThree)),
                         NameOfRow);

INSTANTIATE_TEST_SUITE_P(Heads, FormatsOnRanks,
                         ::testing::Combine(::testing::ValuesIn(HeadedRanks()),
                                            ::testing::Values(true),
                                            ::testing::Values(Drafts::kHeadThree)),
                         NameOfRow);
INSTANTIATE_TEST_SUITE_P(
    SomeOfThem, AskedOfRanks,
    ::testing::Combine(::testing::Values(HeadedRanks()[1], HeadedRanks()[2], HeadedRanks()[3]),
                       ::testing::Bool(), ::testing::Values(Drafts::kLookup, Drafts::kHeadThree)),
    NameOfRow);

INSTANTIATE_TEST_SUITE_P(TrainedHead, EqualityTest,
                         ::testing::ValuesIn(Rows(Best(Trained()),
                                                  std::span(kByHead).subspan(1, 1))),
                         NameOfRow);
INSTANTIATE_TEST_SUITE_P(RandomHead, EqualityTest, ::testing::ValuesIn(Rows(Headed(), kByHead)),
                         NameOfRow);

}  // namespace
}  // namespace braid
