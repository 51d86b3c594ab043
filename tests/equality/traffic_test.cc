// What ranks send each other in a step, in bytes: exactly what the formulas say, for each kind of
// layer. Traffic is what a mesh costs beside memory, so a copy that is sent twice is a mistake.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "forecast/formulas.h"
#include "ops/weight_format.h"
#include "tests/equality/table.h"

namespace braid {
namespace {

constexpr double kFloat = sizeof(float);

// Columns that the ranks which share tokens gather in a layer: what its last product reads, and
// what it writes.
double InnerWidth(const FullAttention& m) { return static_cast<double>(m.heads) * m.head_dim; }
double InnerWidth(const LatentAttention& m) { return static_cast<double>(m.heads) * m.value_dim; }
double InnerWidth(const LinearAttention& m) {
  return static_cast<double>(m.value_heads) * m.value_dim;
}
double InnerWidth(const DenseFfn& f) { return f.width; }
double InnerWidth(const MoeFfn& f) { return f.shared_width; }
// The sums of the experts, and the shared one as a dense feed-forward.
double OuterWidth(const MoeFfn& f, double hidden) {
  return hidden + (f.shared_width > 0 ? hidden : 0);
}
double OuterWidth(const auto&, double hidden) { return hidden; }

bool Integers(const Arithmetic& arithmetic) {
  return arithmetic.weights && ops::RowOf(*arithmetic.weights).integers;
}

double TensorBytes(const ModelSpec& spec, const Arithmetic& arithmetic, double tokens,
                   double logits_rows, int32_t tp) {
  const double hidden = spec.hidden;
  // Few rows do not travel as codes, which need the largest number of each row on all ranks.
  const bool codes = Integers(arithmetic) && tokens >= 32;
  const double rounded = !Integers(arithmetic) && arithmetic.compute == Compute::kBF16 ? 2 : kFloat;
  double bytes = GatherBytes(tokens, hidden, kFloat, tp);  // rows of the embedding
  for (const LayerSpec& layer : spec.layers) {
    const auto add = [&](const auto& kind) {
      const double inner = InnerWidth(kind);
      bytes += GatherBytes(tokens, OuterWidth(kind, hidden), kFloat, tp);
      bytes += GatherBytes(tokens, inner, codes ? 1 : rounded, tp);
      if (codes && inner > 0) bytes += tokens * kFloat * (tp - 1);
    };
    std::visit(add, layer.mixer);
    std::visit(add, layer.ffn);
  }
  // All ranks send their part to all others; of logits, to the first only.
  return tp * bytes + GatherBytes(logits_rows, spec.vocabulary, kFloat, tp);
}

// What a row takes on its way to experts: as their products read it.
double SentBytes(const Arithmetic& arithmetic, double hidden) {
  if (Integers(arithmetic)) return RoutedBytes(1, 1, hidden, 1, hidden);
  return RoutedBytes(1, 1, hidden, arithmetic.compute == Compute::kBF16 ? 2 : kFloat);
}

// Parcels, of which a rank sends one to each other rank: rows, their slots, a word.
double ParcelBytes(const ModelSpec& spec, const Arithmetic& arithmetic, double rows, int32_t ep) {
  double bytes = 0;
  for (const LayerSpec& layer : spec.layers) {
    const MoeFfn* moe = std::get_if<MoeFfn>(&layer.ffn);
    if (moe == nullptr) continue;
    const double record = SentBytes(arithmetic, spec.hidden) + moe->top_k * kFloat;
    bytes += ep * (ep - 1) * (kFloat + rows * record);
  }
  return bytes;
}

// What all ranks have sent in the tensor groups, and in those that share experts.
struct Sent {
  double tensor = 0, experts = 0;
};
Sent SentBy(Machine& machine, const Mesh& mesh) {
  Sent sent;
  for (int32_t rank = 0; rank < mesh.ranks(); ++rank) {
    const ops::Ranks groups = machine.executor().groups(rank);
    sent.tensor += static_cast<double>(groups.tensor->traffic().bytes);
    sent.experts += static_cast<double>(groups.experts->traffic().bytes);
  }
  return sent;
}

// The bytes of one request with a prompt of so many tokens, whose only step it is.
Sent BytesOfAPrompt(Machine& machine, const Mesh& mesh, int32_t tokens) {
  const Sent before = SentBy(machine, mesh);
  SchedulerConfig config = machine.config();
  config.prefix_cache = false;
  EXPECT_EQ(Engine(machine, config).Ask(MakeRequest(1, Tokens(7, tokens), 1)).error, "");
  const Sent after = SentBy(machine, mesh);
  return {after.tensor - before.tensor, after.experts - before.experts};
}

// One of each kind in which rows travel.
std::vector<const Arithmetic*> KindsOfRows() {
  std::map<std::pair<Compute, bool>, const Arithmetic*> kinds;
  for (const Arithmetic* arithmetic : ArithmeticsHere()) {
    kinds[{arithmetic->compute, Integers(*arithmetic)}] = arithmetic;
  }
  std::vector<const Arithmetic*> all;
  for (const auto& [kind, arithmetic] : kinds) all.push_back(arithmetic);
  return all;
}

void ExpectTensorBytes(Model model, const Arithmetic& arithmetic, const Mesh& mesh) {
  Machine machine({model, &arithmetic, mesh});
  for (const int32_t tokens : {4, 64, 200}) {
    EXPECT_EQ(BytesOfAPrompt(machine, mesh, tokens).tensor,
              TensorBytes(TinySpec(model), arithmetic, tokens, 1, mesh.tp))
        << NameOf(model) << ", " << arithmetic.name << ", " << tokens << " tokens";
  }
}

TEST(Traffic, OfRanksThatShareTokensIsWhatTheFormulasSay) {
  for (const auto& [model, mesh] :
       {std::pair{Model::kQwen35, Mesh{.tp = 2}}, std::pair{Model::kQwen35Moe, Mesh{.tp = 4}},
        std::pair{Model::kDeepseekV3, Mesh{.tp = 2, .ep = 2}},
        std::pair{Model::kLing2, Mesh{.tp = 2}}}) {
    ExpectTensorBytes(model, *BestHere(Compute::kF32), mesh);
  }
  for (const Arithmetic* arithmetic : KindsOfRows()) {
    ExpectTensorBytes(Model::kQwen35Moe, *arithmetic, {.tp = 2});
  }
}

// The rows that come back depend on the router: at least one, at most top_k of each token.
TEST(Traffic, OfRanksThatShareExpertsIsThatOfParcelsAndOfRowsThatReturn) {
  constexpr Mesh kMesh{.tp = 2, .ep = 2};
  const ModelSpec spec = TinySpec(Model::kQwen35Moe);
  for (const Arithmetic* arithmetic : KindsOfRows()) {
    Machine machine({Model::kQwen35Moe, arithmetic, kMesh});
    for (const int32_t tokens : {2, 8, 32}) {
      const double rows = BytesOfAPrompt(machine, kMesh, tokens).experts -
                          ParcelBytes(spec, *arithmetic, tokens / kMesh.tp, kMesh.ep);
      const double row = spec.hidden * kFloat;
      double most = 0;
      for (const LayerSpec& layer : spec.layers) {
        const MoeFfn* moe = std::get_if<MoeFfn>(&layer.ffn);
        if (moe != nullptr) most += tokens * moe->top_k;
      }
      EXPECT_EQ(std::fmod(rows, row), 0) << arithmetic->name << ", " << tokens;
      EXPECT_GT(rows, 0.2 * most * row) << tokens;
      EXPECT_LT(rows, 0.8 * most * row) << tokens;  // half of the experts are on the own rank
    }
  }
}

// The exception: each rank adds up its experts' rows. Fewer bytes; log-probabilities that differ by
// roundings; still a function of the tokens, whatever is beside them.
TEST(ReduceFast, SendsFewerBytesForADifferenceOfRoundings) {
  constexpr Mesh kMesh{.dp = 2, .tp = 2, .ep = 2};
  Machine exact({Model::kQwen35Moe, BestHere(Compute::kF32), kMesh});
  Machine fast({.model = Model::kQwen35Moe,
                .arithmetic = BestHere(Compute::kF32),
                .mesh = kMesh,
                .sums = true});
  const double bytes = BytesOfAPrompt(exact, kMesh, 200).experts;
  EXPECT_LT(BytesOfAPrompt(fast, kMesh, 200).experts, 0.9 * bytes);

  Request scored = MakeRequest(kTarget, Tokens(3, 150), 1);
  scored.prompt_logprobs = 1;
  const Answer want = Cold(exact, scored), got = Cold(fast, scored);
  ASSERT_EQ(got.error, "");
  ASSERT_EQ(got.prompt_logprobs.size(), want.prompt_logprobs.size());
  double most = 0;
  for (size_t i = 0; i < want.prompt_logprobs.size(); ++i) {
    most = std::max<double>(
        most, std::abs(got.prompt_logprobs[i].logprob - want.prompt_logprobs[i].logprob));
  }
  fmt::print("log-probabilities differ by {:.2e} at most\n", most);
  EXPECT_GT(most, 0);
  EXPECT_LT(most, 1e-4);

  const Request target = MakeRequest(kTarget, Tokens(1, 130), 40);
  const Answer alone = Cold(fast, target);
  Engine run(fast, fast.config());
  for (int64_t id = 0; id < 6; ++id) {
    run.Submit(MakeRequest(id, Tokens(static_cast<uint64_t>(id), 20 + 31 * int32_t(id)), 30));
  }
  run.Submit(target);
  run.Drain();
  ExpectSame(run.answer(kTarget), alone);

  Machine halves({.model = Model::kQwen35Moe,
                  .arithmetic = BestHere(Compute::kF32),
                  .mesh = kMesh,
                  .sums = true,
                  .halves = true});
  ExpectSame(Cold(halves, scored), got);
}

}  // namespace
}  // namespace braid
