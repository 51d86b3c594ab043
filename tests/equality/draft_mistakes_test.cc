// Proof that the drafts' columns can see: with each mistake of drafts.toml, and with none but
// those, some answer with drafts differs from that without, or a head proposes something else. A
// process for each, because a mistake may end it.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/equality/table.h"
#include "tests/mistakes/each_found.h"

namespace braid {
namespace {

constexpr Mistake kMistakes[] = {
#include "drafts.inc"
};

bool DraftsChangeNothing() {
  for (const Model model : {Model::kDeepseekV3, Model::kQwen3Next}) {
    Machine machine({model, BestHere(Compute::kF32)});
    for (const Request& request : ExactingRequests()) {
      const Answer want = Cold(machine, request);
      for (const Drafts drafts : {Drafts::kThree, Drafts::kSeven, Drafts::kLookup}) {
        Engine run(machine, machine.config(drafts));
        const Answer& got = run.Ask(request);
        if (got.tokens != want.tokens || got.logprobs != want.logprobs || got.error != want.error) {
          return false;
        }
      }
    }
  }
  return true;
}

// The machines compare what their heads propose for the target: alone in chunks, and beside others
// of which some have fewer drafts, on blocks that an earlier request left.
bool HeadsProposeWhatTheyShould() {
  for (const Model model : {Model::kDeepseekV3, Model::kQwen3Next}) {
    Machine machine({.model = model, .arithmetic = BestHere(Compute::kF32), .head = true});
    SchedulerConfig config = machine.config(Drafts::kHeadThree);
    config.chunk_tokens_max = 50;
    Request target = MakeRequest(kTarget, Tokens(1, 150), 80);
    target.sampling = {.temperature = 0.8f, .seed = 77};
    Engine(machine, config).Ask(target);
    Request whole_blocks = target;
    whole_blocks.prompt.resize(128);
    Engine(machine, config).Ask(whole_blocks);
    Engine run(machine, config);
    Request first = target;
    first.id = RequestId(1);
    run.Ask(first);
    for (int64_t id = 2; id < 8; ++id) {
      Request other =
          MakeRequest(id, Tokens(static_cast<uint64_t>(id), 30 + 9 * static_cast<int32_t>(id)), 90);
      other.draft_tokens = static_cast<int32_t>(id % 4);
      run.Submit(other);
      if (id == 5) run.Submit(target);
    }
    run.Drain();
  }
  return !::testing::Test::HasFailure();
}

TEST(DraftMistakes, AreFound) {
  ExpectEachFound(kMistakes, [] { return HeadsProposeWhatTheyShould() && DraftsChangeNothing(); });
}

}  // namespace
}  // namespace braid
