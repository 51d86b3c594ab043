// What ranks load of a checkpoint: the products of the parts are rows of the whole weight's
// product, bit for bit, in every format of weights.
#include <gtest/gtest.h>

#include <vector>

#include "model/families/families.h"
#include "model/loading/keep_rows.h"
#include "model/loading/load_weights.h"
#include "ops/linear.h"
#include "ops/testing/test_context.h"
#include "parallel/rank_view.h"

namespace braid {
namespace {

// Weights in memory with the specs that say what they are.
struct Loaded {
  ModelWeights model;
  std::vector<WeightSpec> specs;
  std::vector<const Weight*> weights;
  int64_t packed_bytes = 0;  // as reported before anything was loaded
};

Loaded Load(const OpenedModel& opened, const WeightChoice& choice, const HeldRows& held) {
  Result<Binding> binding = BindWeights(opened.spec, opened.checkpoint, choice);
  CHECK(binding, "{}", binding.error().message);
  if (held) KeepRows(held, *binding);
  Loaded loaded;
  // Weights of layers stay where they are when the model moves; the others move with it.
  const auto* begin = reinterpret_cast<const std::byte*>(binding->model.get());
  std::vector<ptrdiff_t> offsets;
  for (const BoundWeight& bound : binding->weights) {
    loaded.specs.push_back(bound.spec);
    loaded.weights.push_back(bound.weight);
    offsets.push_back(reinterpret_cast<const std::byte*>(bound.weight) - begin);
  }
  for (const WeightStorage& storage : binding->report.weights) {
    loaded.packed_bytes += storage.packed_bytes;
  }
  ThreadPool pool(2);
  Result<ModelWeights> model = LoadWeights(*std::move(binding), pool);
  CHECK(model, "{}", model.error().message);
  loaded.model = *std::move(model);
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] < 0 || offsets[i] >= static_cast<ptrdiff_t>(sizeof(ModelWeights))) continue;
    loaded.weights[i] = reinterpret_cast<const Weight*>(
        reinterpret_cast<const std::byte*>(&loaded.model) + offsets[i]);
  }
  return loaded;
}

// y [rows, count * n] = x W^T of all matrices of a weight.
ops::OwnedMatrix Products(ops::TestContext& test, const ops::PackedMatrix& all, Matrix x) {
  ops::OwnedMatrix y(x.rows, all.count * all.n);
  for (int64_t m = 0; m < all.count; ++m) {
    ops::PackedMatrix one = all;
    one.count = 1;
    one.data += m * all.matrix_bytes();
    ops::Linear(test.context, {.x = x, .w = &one, .y = y.view.columns(m * all.n, all.n)});
  }
  return y;
}

// Compares a rank's part of a weight with the rows of the whole that the view says it holds.
void ExpectPart(ops::TestContext& test, const WeightSpec& spec, const Weight& whole,
                const Weight& part, const std::vector<RowRange>& rows) {
  if (spec.use == WeightUse::kVector) {
    int64_t at = 0;
    const int64_t whole_rows = spec.count * spec.n;
    int64_t part_rows = 0;
    for (const RowRange& range : rows) part_rows += range.count;
    for (const RowRange& range : rows) {
      for (int64_t r = 0; r < range.count; ++r, ++at) {
        for (int64_t c = 0; c < spec.k; ++c) {
          // A transposed vector lies column by column (the taps of a convolution).
          const int64_t from =
              spec.transpose ? c * whole_rows + range.begin + r : (range.begin + r) * spec.k + c;
          const int64_t to = spec.transpose ? c * part_rows + at : at * spec.k + c;
          ASSERT_EQ(whole.vector[from], part.vector[to]) << spec.name << " row " << at;
        }
      }
    }
    return;
  }
  ASSERT_EQ(part.matrix.format, whole.matrix.format) << spec.name;
  Rng rng(7);
  const ops::OwnedMatrix x(rng, 3, whole.matrix.k);
  const ops::OwnedMatrix all = Products(test, whole.matrix, x.view);
  const ops::OwnedMatrix own = Products(test, part.matrix, x.view);
  for (int64_t i = 0; i < 3; ++i) {
    int64_t at = 0;
    for (const RowRange& range : rows) {
      ASSERT_TRUE(ops::SameBits(all.view.row(i) + range.begin, own.view.row(i) + at, range.count))
          << spec.name << ", rows from " << range.begin;
      at += range.count;
    }
    ASSERT_EQ(at, part.matrix.count * part.matrix.n) << spec.name;
  }
}

// Of every mesh of two to four ranks that divides the model. Returns how many there were.
int ExpectParts(const std::string& directory, const WeightChoice& choice) {
  Result<OpenedModel> opened = OpenModel(directory);
  CHECK(opened, "{}", opened.error().message);
  const Loaded whole = Load(*opened, choice, {});
  ops::TestContext test(BestIsa(DetectCpu()), 2, Compute::kBF16);
  int meshes = 0;
  for (const Mesh& mesh : {Mesh{.tp = 2}, Mesh{.tp = 2, .ep = 2}, Mesh{.dp = 2, .ep = 2},
                           Mesh{.tp = 3}, Mesh{.tp = 4}, Mesh{.dp = 2, .tp = 2, .ep = 4}}) {
    if (!CheckMesh(opened->spec, mesh)) continue;
    ++meshes;
    for (const int32_t rank : {0, mesh.ranks() - 1}) {
      const Result<RankView> view = ViewOf(opened->spec, mesh, rank);
      CHECK(view, "{}", view.error().message);
      const auto held = [&](const WeightSpec& weight) { return view->RowsOf(weight); };
      const Loaded part = Load(*opened, choice, held);
      EXPECT_LT(part.packed_bytes, whole.packed_bytes);
      EXPECT_EQ(part.specs.size(), whole.specs.size());
      for (size_t i = 0; i < whole.specs.size(); ++i) {
        ExpectPart(test, whole.specs[i], *whole.weights[i], *part.weights[i],
                   view->RowsOf(whole.specs[i]));
        if (::testing::Test::HasFatalFailure()) {
          ADD_FAILURE() << directory << ", rank " << rank << " of " << MeshText(mesh);
          return meshes;
        }
      }
    }
  }
  return meshes;
}

TEST(LoadParts, EveryFamilysPartsGiveTheRowsOfTheWhole) {
  for (const char* family :
       {"qwen3_5", "qwen3_5_moe", "qwen3_next", "kimi_linear", "ling_2", "ling_3", "deepseek_v3"}) {
    int meshes = 0;
    for (const char* variant : {"_a", "_b", "_c"}) {
      meshes += ExpectParts(std::string(BRAID_SOURCE_DIR "/tests/golden/") + family + variant, {});
    }
    EXPECT_GT(meshes, 0) << family;
  }
}

TEST(LoadParts, EveryFormatsPartsGiveTheRowsOfTheWhole) {
  for (const ops::WeightFormatRow& row : ops::WeightFormats()) {
    if (row.quantised() && row.quantise == nullptr) continue;  // not from these weights
    EXPECT_GT(ExpectParts(BRAID_SOURCE_DIR "/models/braid-tiny", {.format = row.format}), 0)
        << row.name;
  }
}

}  // namespace
}  // namespace braid
