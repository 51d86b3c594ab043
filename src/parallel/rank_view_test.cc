// Every published model on many meshes: who holds which rows, and that a rank's own model fits
// them. The check of ownership also has to find mistakes that are planted into it.
#include "parallel/rank_view.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <numeric>

#include "parallel/test_models.h"

namespace braid {
namespace {

std::vector<RankView> ViewsOf(const ModelSpec& spec, const Mesh& mesh) {
  std::vector<RankView> views;
  for (int32_t rank = 0; rank < mesh.ranks(); ++rank) {
    Result<RankView> view = ViewOf(spec, mesh, rank);
    CHECK(view, "{}", view.error().message);
    views.push_back(*std::move(view));
  }
  return views;
}

int64_t Sum(const std::vector<RowRange>& rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0},
                         [](int64_t sum, const RowRange& range) { return sum + range.count; });
}

// How many ranks hold each unit.
int64_t HoldersOf(const RowUnits& units, const Mesh& mesh) {
  switch (units.unit) {
    case ShardUnit::kWhole:
      return mesh.ranks();
    case ShardUnit::kExpert:
      return mesh.ranks() / mesh.ep;
    case ShardUnit::kKeyHead:
      return mesh.dp * std::max<int64_t>(1, mesh.tp / units.count);
    default:
      return mesh.dp;
  }
}

using HeldBy = std::function<std::vector<RowRange>(const RankView&, const WeightSpec&)>;
std::vector<RowRange> Held(const RankView& view, const WeightSpec& weight) {
  return view.RowsOf(weight);
}

// What is wrong with who holds the rows of a weight; empty if nothing is.
std::string OwnershipProblem(const WeightSpec& weight, const std::vector<RankView>& views,
                             const HeldBy& held) {
  std::vector<RowUnits> all = weight.units;
  if (all.empty()) all = {{ShardUnit::kWhole, 1, weight.count * weight.n}};
  std::map<int64_t, int64_t> changes;  // of the number of holders, by row; 0 where one follows
  for (const RankView& view : views) {
    int64_t last = 0;
    for (const RowRange& range : held(view, weight)) {
      if (range.begin < last) return weight.name + ": rows are not ascending";
      last = range.begin + range.count;
      ++changes[range.begin];
      --changes[last];
    }
  }
  int64_t first = 0;
  std::map<int64_t, int64_t> expected;
  for (const RowUnits& units : all) {
    const int64_t end = first + units.count * units.rows;
    expected[first] += HoldersOf(units, views[0].mesh);
    expected[end] -= HoldersOf(units, views[0].mesh);
    for (const auto& [row, change] : changes) {
      const bool inside = row > first && row < end;
      if (inside && (row - first) % units.rows != 0) return weight.name + ": a unit is cut";
    }
    first = end;
  }
  std::erase_if(changes, [](const auto& entry) { return entry.second == 0; });
  std::erase_if(expected, [](const auto& entry) { return entry.second == 0; });
  return changes == expected ? "" : weight.name + ": a row has the wrong number of holders";
}

TEST(RankView, EveryRowIsHeldByAsManyRanksAsItsUnitSays) {
  size_t meshes = 0;
  for (const NamedSpec& named : SpecsToDivide()) {
    std::vector<WeightSpec> weights = WeightsOf(named.spec);
    for (WeightSpec& draft : DraftWeightsOf(named.spec)) weights.push_back(std::move(draft));
    for (const Mesh& mesh : MeshesOf(named.spec)) {
      ++meshes;
      const std::vector<RankView> views = ViewsOf(named.spec, mesh);
      for (const WeightSpec& weight : weights) {
        ASSERT_EQ(OwnershipProblem(weight, views, Held), "") << named.name << MeshText(mesh);
      }
    }
  }
  EXPECT_GT(meshes, 150u);
}

// A rank's model has the rows that it holds: of all weights but those whose rows are outputs or
// experts of the whole model.
TEST(RankView, ARanksModelFitsTheRowsThatItHolds) {
  for (const NamedSpec& named : SpecsToDivide()) {
    const std::vector<WeightSpec> weights = WeightsOf(named.spec);
    for (const Mesh& mesh : MeshesOf(named.spec)) {
      if (mesh.dp > 1) continue;  // groups are alike
      for (const RankView& view : ViewsOf(named.spec, mesh)) {
        if (view.rank != 0 && view.rank + 1 != mesh.ranks()) continue;
        const std::vector<WeightSpec> own = WeightsOf(view.spec);
        ASSERT_EQ(own.size(), weights.size());
        for (size_t i = 0; i < weights.size(); ++i) {
          const WeightSpec& weight = weights[i];
          const int64_t held = Sum(view.RowsOf(weight));
          const auto& units = weight.units;
          const bool outputs = units.size() == 1 && (units[0].unit == ShardUnit::kRow ||
                                                     units[0].unit == ShardUnit::kExpert);
          if (outputs) {
            const Share share = units[0].unit == ShardUnit::kRow ? view.tensor() : view.experts();
            ASSERT_EQ(held, share.Of(units[0].count).count * units[0].rows) << weight.name;
          } else {
            ASSERT_EQ(held, own[i].count * own[i].n) << named.name << weight.name << MeshText(mesh);
          }
        }
      }
    }
  }
}

// Value heads read the keys that they read in the whole model.
template <class F>
void ExpectSameKeys(const RankView& view, int64_t whole_heads, int64_t whole_keys, F own) {
  const RowRange heads = view.tensor().Of(whole_heads);
  const RowRange keys = view.tensor().OfShared(whole_keys);
  const auto [own_heads, own_keys] = own;
  ASSERT_EQ(own_heads, heads.count);
  ASSERT_EQ(own_keys, keys.count);
  for (int64_t h = 0; h < own_heads; ++h) {
    const int64_t whole = (heads.begin + h) / (whole_heads / whole_keys);
    ASSERT_EQ(keys.begin + h / (own_heads / own_keys), whole);
  }
}

TEST(RankView, EveryHeadReadsTheKeysOfTheWholeModel) {
  for (const NamedSpec& named : SpecsToDivide()) {
    for (const Mesh& mesh : MeshesOf(named.spec)) {
      for (const RankView& view : ViewsOf(named.spec, mesh)) {
        for (size_t i = 0; i < named.spec.layers.size(); ++i) {
          const Mixer &whole = named.spec.layers[i].mixer, &own = view.spec.layers[i].mixer;
          if (const auto* m = std::get_if<FullAttention>(&whole)) {
            const auto& part = std::get<FullAttention>(own);
            ExpectSameKeys(view, m->heads, m->kv_heads, std::pair(part.heads, part.kv_heads));
          } else if (const auto* l = std::get_if<LinearAttention>(&whole)) {
            const auto& part = std::get<LinearAttention>(own);
            ExpectSameKeys(view, l->value_heads, l->key_heads,
                           std::pair(part.value_heads, part.key_heads));
            ASSERT_EQ(part.norm_groups, view.tensor().Of(l->norm_groups).count) << named.name;
          }
        }
      }
    }
  }
}

TEST(RankView, ConstantDecaysAreThoseOfTheRanksHeads) {
  size_t seen = 0;
  for (const NamedSpec& named : SpecsToDivide()) {
    const Mesh mesh{.tp = 2};
    if (!CheckMesh(named.spec, mesh)) continue;
    const std::vector<RankView> views = ViewsOf(named.spec, mesh);
    for (size_t i = 0; i < named.spec.layers.size(); ++i) {
      const auto* whole = std::get_if<LinearAttention>(&named.spec.layers[i].mixer);
      if (whole == nullptr || whole->constant_decay.empty()) continue;
      std::vector<float> joined;
      for (const RankView& view : views) {
        const auto& part = std::get<LinearAttention>(view.spec.layers[i].mixer).constant_decay;
        joined.insert(joined.end(), part.begin(), part.end());
      }
      EXPECT_EQ(joined, whole->constant_decay);
      ++seen;
    }
  }
  EXPECT_GT(seen, 0u);
}

// Memory is known before anything is loaded: parts of a group add up to the whole model, and
// replicas count once for each rank that has them.
TEST(RankView, MemoryOfAllRanksIsTheModelAndItsReplicas) {
  for (const NamedSpec& named : SpecsToDivide()) {
    for (const Mesh& mesh : MeshesOf(named.spec)) {
      const std::vector<RankView> views = ViewsOf(named.spec, mesh);
      int64_t held = 0, expected = 0, whole = 0;
      for (const WeightSpec& weight : WeightsOf(named.spec)) {
        whole += weight.count * weight.n * weight.k;
        for (const RankView& view : views) held += Sum(view.RowsOf(weight)) * weight.k;
        std::vector<RowUnits> all = weight.units;
        if (all.empty()) all = {{ShardUnit::kWhole, 1, weight.count * weight.n}};
        for (const RowUnits& units : all) {
          expected += units.count * units.rows * weight.k * HoldersOf(units, mesh);
        }
      }
      EXPECT_EQ(held, expected) << named.name << " " << MeshText(mesh);
      EXPECT_GE(held, whole);
      EXPECT_LE(held, whole * mesh.ranks());
    }
  }
}

TEST(RankView, CachesOfAGroupAddUpToTheModelsAndItsReplicas) {
  for (const NamedSpec& named : SpecsToDivide()) {
    for (const Mesh& mesh : MeshesOf(named.spec)) {
      for (size_t i = 0; i < named.spec.layers.size(); ++i) {
        auto bytes = [&](const ModelSpec& spec) {
          return std::visit([](const auto& m) { return CacheOf(m, DType::kBF16).block_bytes; },
                            spec.layers[i].mixer);
        };
        int64_t sum = 0;
        for (const RankView& view : ViewsOf(named.spec, {.tp = mesh.tp})) sum += bytes(view.spec);
        const Mixer& mixer = named.spec.layers[i].mixer;
        int64_t copies = 1;
        if (std::holds_alternative<LatentAttention>(mixer)) copies = mesh.tp;
        if (const auto* full = std::get_if<FullAttention>(&mixer)) {
          copies = std::max(1, mesh.tp / full->kv_heads);
        }
        if (const auto* linear = std::get_if<LinearAttention>(&mixer)) {
          if (mesh.tp > linear->key_heads) continue;  // windows of shared keys are held twice
        }
        ASSERT_EQ(sum, copies * bytes(named.spec)) << named.name << " " << MeshText(mesh);
      }
    }
  }
}

// A placement says which experts a rank has, in the order of its slots; neighbours are one range.
TEST(RankView, RowsOfExpertsAreThoseOfTheSlotsOfItsPlacement) {
  ModelSpec spec;
  Mesh mesh{.dp = 2, .ep = 2, .redundant = 2};
  WeightSpec experts;
  for (const NamedSpec& named : SpecsToDivide()) {
    for (const WeightSpec& weight : WeightsOf(named.spec)) {
      if (weight.part != "experts" || weight.units[0].count < 16) continue;
      if (!CheckMesh(named.spec, mesh)) continue;
      spec = named.spec;
      experts = weight;
    }
  }
  ASSERT_EQ(experts.units.size(), 1u);
  const int64_t count = experts.units[0].count, rows = experts.units[0].rows;
  const ExpertShape shape = mesh.SlotsOf(count);
  const int32_t half = shape.slots_per_rank();
  // In order but that the first expert of the second rank is also the first rank's second.
  LayerSlots slots = InOrder(shape);
  slots[0] = 5;
  slots[1] = slots[static_cast<size_t>(half)];
  std::vector<LayerSlots> placement(static_cast<size_t>(experts.layer) + 1);
  placement.back() = slots;
  const RankView first = *ViewOf(spec, mesh, 0, placement);
  EXPECT_EQ(first.SlotsOf(experts.layer, count), slots);
  const std::vector<RowRange> held = first.RowsOf(experts);
  ASSERT_EQ(held.size(), 3u);
  EXPECT_EQ(held[0].begin, 5 * rows);
  EXPECT_EQ(held[0].count, rows);
  EXPECT_EQ(held[1].begin, half * rows);
  EXPECT_EQ(held[1].count, rows);
  EXPECT_EQ(held[2].begin, 2 * rows);
  EXPECT_EQ(held[2].count, (half - 2) * rows);
  const std::vector<RowRange> others = ViewOf(spec, mesh, 1, placement)->RowsOf(experts);
  ASSERT_EQ(others.size(), 2u) << "the redundant ones are the first experts again";
  EXPECT_EQ(others[0].begin, half * rows);
  EXPECT_EQ(others[1].begin, 0);
  EXPECT_EQ(others[1].count, 2 * rows);
  // Layers of which the placement says nothing, and those of a draft head.
  EXPECT_EQ(first.SlotsOf(experts.layer + 1, count), InOrder(shape));
  EXPECT_EQ(first.SlotsOf(-1, count), InOrder(shape));
  EXPECT_EQ(ViewOf(spec, mesh, 0)->SlotsOf(experts.layer, count), InOrder(shape));
  placement.back().clear();
  EXPECT_EQ(ViewOf(spec, mesh, 0, placement)->SlotsOf(experts.layer, count), InOrder(shape));
}

TEST(RankView, AMeshThatDoesNotDivideTheModelHasNoView) {
  const ModelSpec spec = SpecsToDivide().front().spec;
  const Mesh mesh{.tp = 4095};
  const Result<RankView> view = ViewOf(spec, mesh, 0);
  ASSERT_FALSE(view);
  EXPECT_EQ(view.error().message, CheckMesh(spec, mesh).error().message);
}

TEST(RankView, OneRankHoldsEverything) {
  for (const NamedSpec& named : SpecsToDivide()) {
    const RankView view = *ViewOf(named.spec, {}, 0);
    for (const WeightSpec& weight : WeightsOf(named.spec)) {
      EXPECT_EQ(Sum(view.RowsOf(weight)), weight.count * weight.n);
    }
    EXPECT_EQ(CachePlanOf(view.spec, DType::kBF16).groups[0].block_bytes,
              CachePlanOf(named.spec, DType::kBF16).groups[0].block_bytes);
  }
}

// ---------------------------------------------------------------- planted mistakes

ModelSpec SpecNamed(std::string_view name) {
  for (NamedSpec& named : SpecsToDivide()) {
    if (named.name == name) return std::move(named.spec);
  }
  CHECK(false, "{}", name);
}

// The problems of a model whose rows are held as `mistake` says.
std::vector<std::string> ProblemsWith(const Mesh& mesh, const HeldBy& mistake) {
  const ModelSpec spec = SpecNamed("qwen3_5_35b_a3b");
  const std::vector<RankView> views = ViewsOf(spec, mesh);
  std::vector<std::string> problems;
  for (const WeightSpec& weight : WeightsOf(spec)) {
    std::string problem = OwnershipProblem(weight, views, mistake);
    if (!problem.empty()) problems.push_back(std::move(problem));
  }
  return problems;
}

bool Has(const std::vector<std::string>& problems, std::string_view part) {
  return std::ranges::any_of(problems,
                             [&](const std::string& p) { return p.find(part) != p.npos; });
}

TEST(Ownership, SeesAHeadThatIsCut) {
  // Two heads of keys over four ranks, by rows.
  const auto by_rows = [](const RankView& view, const WeightSpec& weight) {
    if (weight.units.empty()) return view.RowsOf(weight);
    std::vector<RowRange> rows;
    int64_t first = 0;
    for (const RowUnits& units : weight.units) {
      RowRange part = view.tensor().Of(units.count * units.rows);
      part.begin += first;
      rows.push_back(part);
      first += units.count * units.rows;
    }
    return rows;
  };
  EXPECT_TRUE(Has(ProblemsWith({.tp = 4, .ep = 4}, by_rows), "qkv: a unit is cut"));
}

TEST(Ownership, SeesAReplicaCountedTwiceAndALostOne) {
  const auto twice = [](const RankView& view, const WeightSpec& weight) {
    std::vector<RowRange> rows = view.RowsOf(weight);
    if (weight.part == "experts" && view.rank == 1) rows[0].begin = 0;
    return rows;
  };
  EXPECT_TRUE(Has(ProblemsWith({.tp = 2, .ep = 2}, twice), "experts.gate_up: a row has the wrong"));
  // Keys and values as if each rank had its own.
  const auto lost = [](const RankView& view, const WeightSpec& weight) {
    std::vector<RowRange> rows = view.RowsOf(weight);
    if (weight.units.size() == 3 && view.rank == 3) rows[1].count = 0;
    return rows;
  };
  EXPECT_TRUE(Has(ProblemsWith({.tp = 4, .ep = 4}, lost), "qkv: a row has the wrong number"));
}

TEST(Ownership, SeesADividedWeightThatAllNeed) {
  const auto divided = [](const RankView& view, const WeightSpec& weight) {
    if (!weight.units.empty()) return view.RowsOf(weight);
    return std::vector<RowRange>{view.tensor().Of(weight.count * weight.n)};
  };
  EXPECT_TRUE(Has(ProblemsWith({.tp = 2}, divided), "input_layernorm: "));
  EXPECT_TRUE(Has(ProblemsWith({.tp = 2}, divided), "mlp.gate: "));
}

}  // namespace
}  // namespace braid
