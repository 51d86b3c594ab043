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

// Requests that ask for everything which a position of a row may get wrong.
std::vector<Request> Requests() {
  std::vector<Request> requests;
  const auto add = [&](uint64_t seed) -> Request& {
    requests.push_back(MakeRequest(kTarget, Tokens(seed, 56 + static_cast<int32_t>(seed)), 80));
    requests.back().sampling.temperature = 0.8f;
    requests.back().sampling.seed = seed;
    return requests.back();
  };
  for (uint64_t seed = 0; seed < 8; ++seed) add(seed);
  Request& penalties = add(20);
  penalties.sampling.repetition_penalty = 1.3f;
  penalties.sampling.frequency_penalty = 0.5f;
  add(21).thinking = {.tokens_max = 9, .open = -1, .close = 499};
  Request& stops = add(22);
  stops.stop.stop_tokens = Tokens(5, 300);
  std::sort(stops.stop.stop_tokens.begin(), stops.stop.stop_tokens.end());
  stops.stop.new_tokens_min = 11;
  for (const char* grammar : {"rewinds", "begins anew", "fails after 12"}) {
    for (const TokenId after : {-1, 30}) {
      Request& r = add(23);
      r.grammar = grammar;
      r.grammar_after = after;
      r.sampling.logit_bias = {{30, 4.0f}};
      r.stop.stop_tokens = {kEndForTest};
    }
  }
  return requests;
}

bool DraftsChangeNothing() {
  for (const Model model : {Model::kDeepseekV3, Model::kQwen3Next}) {
    Machine machine({model, BestHere(Compute::kF32)});
    for (const Request& request : Requests()) {
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
