// Proof that the rows of several ranks can see: with each mistake of ranks.toml, and with none but
// those, some answer of ranks differs from that of one. A process for each, because a mistake may
// end it, or leave ranks waiting for each other.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/equality/table.h"
#include "tests/mistakes/each_found.h"

namespace braid {
namespace {

constexpr Mistake kMistakes[] = {
#include "ranks.inc"
};

// Prompts that two ranks and four cut in the middle, alone and together, then from the cache.
bool RanksChangeNothing() {
  struct Row {
    Model model;
    Mesh mesh;
    bool moving = false, parcels = false;
  };
  const Arithmetic* best = BestHere(Compute::kF32);
  for (const auto& [model, mesh, moving, parcels] :
       {Row{Model::kQwen35Moe, {.tp = 4, .ep = 2}}, Row{Model::kQwen3Next, {.tp = 4, .ep = 4}},
        Row{Model::kLing2, {.tp = 2, .ep = 2}, false, true},
        Row{Model::kQwen35Moe, {.tp = 4, .ep = 2, .redundant = 2}, true},
        Row{Model::kDeepseekV3, {.tp = 2, .ep = 2}}}) {
    Machine alone({model, best}), ranks({.model = model,
                                         .arithmetic = best,
                                         .mesh = mesh,
                                         .placed = moving,
                                         .moving = moving,
                                         .parcels = parcels});
    Engine run(ranks, ranks.config(Drafts::kThree));
    std::vector<Answer> wanted;
    for (int64_t id = 0; id < 3; ++id) {
      Request request = MakeRequest(id, Tokens(static_cast<uint64_t>(id), 70), 40);
      request.sampling.temperature = 0.8f;
      wanted.push_back(Cold(alone, request));
      ranks.oracle().Learn(request, wanted.back().tokens);
      run.Submit(request);
    }
    run.Drain();
    for (int64_t id = 0; id < 3; ++id) {
      const Answer &got = run.answer(id), &want = wanted[static_cast<size_t>(id)];
      if (!got.error.empty() || got.tokens != want.tokens || got.logprobs != want.logprobs) {
        return false;
      }
    }
  }
  return true;
}

// A head whose ranks need each other's experts, and draw for a part of the sequences each. The
// machine compares what it proposes.
bool HeadsOfRanksProposeTheSame() {
  Machine machine({.model = Model::kDeepseekV3,
                   .arithmetic = BestHere(Compute::kF32),
                   .mesh = {.dp = 2, .tp = 2, .ep = 4},
                   .head = true});
  Engine run(machine, machine.config(Drafts::kHeadThree));
  for (int64_t id = 0; id < 3; ++id) {
    Request request = MakeRequest(id == 0 ? kTarget : id, Tokens(static_cast<uint64_t>(id), 70),
                                  10 + 10 * static_cast<int32_t>(id));
    request.sampling.temperature = 0.8f;
    run.Submit(request);
  }
  run.Drain();
  return run.drafts_checked() > 0 && !::testing::Test::HasFailure();
}

TEST(RankMistakes, AreFound) {
  ExpectEachFound(kMistakes, [] { return RanksChangeNothing() && HeadsOfRanksProposeTheSame(); });
}

}  // namespace
}  // namespace braid
