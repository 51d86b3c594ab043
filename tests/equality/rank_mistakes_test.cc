// Proof that the rows of several ranks can see: with each mistake of ranks.toml, and with none but
// those, some answer of ranks differs from that of one. A process for each, because a mistake may
// end it, or leave ranks waiting for each other.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/equality/table.h"
#include "tests/mistakes/each_found.h"

namespace braid {
namespace {

constexpr Mistake kMistakes[] = {
#include "ranks.inc"
};

// Rows then travel as codes.
const Arithmetic* OfIntegers() {
  for (const Arithmetic* arithmetic : ArithmeticsHere()) {
    if (arithmetic->weights == ops::WeightFormat::kI8) return arithmetic;
  }
  return BestHere(Compute::kF32);
}

// Prompts that two ranks and four cut in the middle, one that halves of a batch cut, alone and
// together, then from the cache.
bool RanksChangeNothing() {
  struct Row {
    Model model;
    Mesh mesh;
    bool moving = false, parcels = false, integers = false, halves = false;
  };
  for (const auto& [model, mesh, moving, parcels, integers, halves] :
       {Row{Model::kQwen35Moe, {.tp = 4, .ep = 2}},
        Row{.model = Model::kQwen3Next, .mesh = {.tp = 4, .ep = 4}, .halves = true},
        Row{Model::kLing2, {.tp = 2, .ep = 2}, false, true},
        Row{Model::kQwen35Moe, {.tp = 4, .ep = 2, .redundant = 2}, true},
        Row{Model::kDeepseekV3, {.tp = 2, .ep = 2}, false, false, true}}) {
    const Arithmetic* best = integers ? OfIntegers() : BestHere(Compute::kF32);
    Machine alone({model, best}), ranks({.model = model,
                                         .arithmetic = best,
                                         .mesh = mesh,
                                         .placed = moving,
                                         .moving = moving,
                                         .parcels = parcels,
                                         .halves = halves});
    Engine run(ranks, ranks.config(Drafts::kThree));
    std::vector<Answer> wanted;
    for (int64_t id = 0; id < 3; ++id) {
      Request request = MakeRequest(id, Tokens(static_cast<uint64_t>(id), id == 1 ? 200 : 70), 40);
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

// Damages what rank 3, of the second group, is sent of experts that move.
class DamagedLink final : public Communicator {
 public:
  DamagedLink(Communicator& link, bool damages)
      : Communicator(link.rank(), link.size()), link_(link), damages_(damages) {}

 private:
  Status Exchange(std::span<const Bytes> send, std::span<const MutableBytes> receive) override {
    const Status status = link_.AllToAllV(send, receive);
    for (const MutableBytes part : receive) {
      if (damages_ && !part.empty()) part.back() ^= std::byte{4};
    }
    return status;
  }

  Communicator& link_;
  const bool damages_;
};

// Two groups hold all experts each, and what comes to one of them is damaged: none moves.
bool GroupsKeepTheSamePlacement() {
  int32_t links = 0;
  Machine machine(
      {.model = Model::kQwen35Moe,
       .arithmetic = BestHere(Compute::kF32),
       .mesh = {.tp = 4, .ep = 2, .redundant = 2},
       .placed = true,
       .moving = true},
      [&](Communicator& link) { return std::make_unique<DamagedLink>(link, links++ == 3); },
      MoverLimits{.step_bytes = 64 << 10}, kRankDeadline);
  const ExpertMover& first = *machine.executor().rank(0).mover();
  for (int i = 0; i < 20 && first.progress().dropped == 0; ++i) {
    Engine(machine, machine.config()).Ask(MakeRequest(0, Tokens(1, 70), 40));
  }
  for (int32_t rank = 1; rank < 4; ++rank) {
    if (machine.executor().rank(rank).mover()->placement() != first.placement()) return false;
  }
  return first.progress().dropped > 0;
}

// Every token of the same steps once for each expert that it chooses, and every such row on some
// rank.
bool RanksCountWhatOneCounts() {
  Machine alone({Model::kQwen35Moe, BestHere(Compute::kF32)}),
      ranks({.model = Model::kQwen35Moe,
             .arithmetic = BestHere(Compute::kF32),
             .mesh = {.tp = 4, .ep = 2, .redundant = 2},
             .placed = true,
             .moving = true});
  for (Machine* machine : {&alone, &ranks}) {
    Engine run(*machine, machine->config());
    for (int64_t id = 0; id < 3; ++id) {
      run.Submit(MakeRequest(id, Tokens(static_cast<uint64_t>(id), 70), 40));
    }
    run.Drain();
  }
  const LoadWindow window = ranks.executor().counted().last();
  const RankRows rows = ranks.executor().rank(0).rank_counts()->last(0);
  if (window.passes != 10 || window != alone.executor().counted().last()) return false;
  const int64_t choices = window.tokens * ranks.executor().counted().header().top_k;
  for (size_t layer = 0; layer < window.counts.size(); ++layer) {
    const auto sum = [&](const std::vector<int64_t>& of) {
      return std::accumulate(of.begin(), of.end(), int64_t{0});
    };
    if (sum(window.counts[layer]) != choices || sum(rows.rows[layer]) != choices) return false;
  }
  return true;
}

TEST(RankMistakes, AreFound) {
  ExpectEachFound(kMistakes, [] {
    return RanksCountWhatOneCounts() && RanksChangeNothing() && HeadsOfRanksProposeTheSame() &&
           GroupsKeepTheSamePlacement();
  });
}

}  // namespace
}  // namespace braid
