// The loader on real checkpoints: which numbers of the file end where.
#include "model/loading/load_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/system/test_page_policy.h"
#include "base/system/thread_pool.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/test_directory.h"
#include "model/families/families.h"
#include "model/loading/test_loaded_model.h"
#include "model/writing/make_model.h"

namespace braid {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kTiny = BRAID_SOURCE_DIR "/models/braid-tiny";

// Element `index` of a bf16 or f32 tensor of the file.
float Stored(const LoadedModel& model, const std::string& name, int64_t index) {
  const TensorEntry* entry = model.opened.checkpoint.Find(name);
  CHECK(entry != nullptr, "{}", name);
  if (entry->dtype == DType::kF32) {
    float value;
    std::memcpy(&value, entry->data + 4 * index, 4);
    return value;
  }
  CHECK(entry->dtype == DType::kBF16);
  uint16_t bits;
  std::memcpy(&bits, entry->data + 2 * index, 2);
  return FloatOfBf16(bits);
}

TEST(LoadWeights, BraidTinyHoldsEveryTensorOfTheFile) {
  Result<LoadedModel> model = LoadModel(kTiny);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->opened.checkpoint.tensors().size(), 159u);
  ASSERT_EQ(model->report.draft.size(), 1u);
  EXPECT_THAT(model->report.draft[0], HasSubstr("mtp.*: 19 tensors"));
  EXPECT_TRUE(model->report.skipped.empty());
  EXPECT_EQ(model->weights.head.matrix.data, model->weights.embedding.matrix.data);

  const ops::PackedMatrix& embedding = model->weights.embedding.matrix;
  for (int64_t row : {0, 17, 4095}) {
    for (int64_t col : {0, 1, 255}) {
      EXPECT_EQ(embedding.At(0, row, col),
                Stored(*model, "model.embed_tokens.weight", row * 256 + col));
    }
  }
}

TEST(LoadWeights, RowsOfAllSourcesOfAProjectionFollowEachOther) {
  Result<LoadedModel> model = LoadModel(kTiny);
  ASSERT_TRUE(model) << model.error().message;
  // Layer 0: q k v (512 rows), z (256); b (8), a (8).
  const LinearAttentionWeights& mixer = MixerOf<LinearAttention>(model->weights, 0);
  const ops::PackedMatrix& in = mixer.in.matrix;
  const ops::PackedMatrix& gates = mixer.gates.matrix;
  ASSERT_EQ(in.n, 512 + 256);
  ASSERT_EQ(gates.n, 8 + 8);
  const std::string base = "model.layers.0.linear_attn.";
  EXPECT_EQ(in.At(0, 511, 3), Stored(*model, base + "in_proj_qkv.weight", 511 * 256 + 3));
  EXPECT_EQ(in.At(0, 512, 3), Stored(*model, base + "in_proj_z.weight", 3));
  EXPECT_EQ(gates.At(0, 7, 5), Stored(*model, base + "in_proj_b.weight", 7 * 256 + 5));
  EXPECT_EQ(gates.At(0, 8 + 2, 9), Stored(*model, base + "in_proj_a.weight", 2 * 256 + 9));
  // The convolution is stored tap by tap.
  const float* conv = mixer.conv.vector;
  EXPECT_EQ(conv[3 * 512 + 100], Stored(*model, base + "conv1d.weight", 100 * 4 + 3));
  EXPECT_EQ(mixer.a_log.vector[5], Stored(*model, base + "A_log", 5));
}

TEST(LoadWeights, ExpertsAlternateGateAndUp) {
  Result<LoadedModel> model = LoadModel(kTiny);
  ASSERT_TRUE(model) << model.error().message;
  const ops::PackedMatrix& gate_up = FfnOf<MoeFfn>(model->weights, 2).gate_up.matrix;
  ASSERT_EQ(gate_up.count, 32);
  ASSERT_EQ(gate_up.n, 64);
  const std::string name = "model.layers.2.mlp.experts.gate_up_proj";
  for (int64_t expert : {0, 7, 15}) {
    const int64_t rows = expert * 128;
    EXPECT_EQ(gate_up.At(2 * expert, 63, 255), Stored(*model, name, (rows + 63) * 256 + 255));
    EXPECT_EQ(gate_up.At(2 * expert + 1, 0, 1), Stored(*model, name, (rows + 64) * 256 + 1));
  }
}

TEST(LoadWeights, QuantisesProjectionsAndExpertsButNotWhatDecides) {
  for (auto format : {ops::WeightFormat::kF8, ops::WeightFormat::kI8, ops::WeightFormat::kI4}) {
    for (bool head : {false, true}) {
      Result<LoadedModel> model = LoadModel(kTiny, {.format = format, .head = head});
      ASSERT_TRUE(model) << model.error().message;
      const ModelWeights& w = model->weights;
      const LinearAttentionWeights& mixer = MixerOf<LinearAttention>(w, 0);
      const MoeFfnWeights& ffn = FfnOf<MoeFfn>(w, 0);
      for (const Weight* weight : {&mixer.in, &mixer.out, &ffn.gate_up, &ffn.down,
                                   &ffn.shared_gate_up, &ffn.shared_down}) {
        EXPECT_EQ(weight->matrix.format, format);
      }
      for (const Weight* weight : {&mixer.gates, &ffn.router}) {
        EXPECT_EQ(weight->matrix.format, ops::WeightFormat::kBF16);
      }
      EXPECT_EQ(w.head.matrix.format, head ? format : ops::WeightFormat::kBF16);
      // The largest weight of an output is kept up to rounding of its scale.
      const std::string name = "model.layers.0.linear_attn.in_proj_qkv.weight";
      float largest = 0, kept = 0;
      for (int64_t c = 0; c < 256; ++c) {
        const float stored = Stored(*model, name, 3 * 256 + c);
        if (std::abs(stored) <= std::abs(largest)) continue;
        largest = stored;
        kept = mixer.in.matrix.At(0, 3, c);
      }
      EXPECT_NEAR(kept / largest, 1.0f, 1e-3f);
      const RunningFormats running = RunningFormatsOf(model->report);
      EXPECT_EQ(running.layers, format);
      EXPECT_EQ(running.head, w.head.matrix.format);
      const auto bytes = WeightBytesOf(model->report);
      int64_t planned = 0;
      for (const auto& [kind, size] : bytes) planned += size;
      EXPECT_GT(bytes.at(ops::NameOf(format)), planned / 4);
      EXPECT_NEAR(static_cast<double>(planned) / static_cast<double>(w.bytes), 1.0, 0.01);
    }
  }
}

// Makes a number in row 3 of a tensor infinite or NaN.
void SpoilRow3(const TestDirectory& directory, const std::string& name, bool infinite) {
  const Result<OpenedModel> opened = OpenModel(directory.path());
  ASSERT_TRUE(opened) << opened.error().message;
  const TensorEntry* entry = opened->checkpoint.Find(name);
  ASSERT_NE(entry, nullptr);
  const bool wide = entry->dtype == DType::kF32;
  std::string file = directory.Read("model.safetensors");
  const int64_t k = entry->shape.back(), size = wide ? 4 : 2;
  const std::string stored(reinterpret_cast<const char*>(entry->data), 64);
  const size_t at = file.find(stored) + static_cast<size_t>((3 * k + 5) * size);
  const uint32_t bits = infinite ? 0xff800000u : 0x7fc00000u;
  std::memcpy(file.data() + at, reinterpret_cast<const char*>(&bits) + (wide ? 0 : 2),
              static_cast<size_t>(size));
  directory.Write("model.safetensors", file);
}

// Of a weight that runs as stored, and of one that runs transposed; whichever format it would run
// in: fp16's own message is about numbers that others can hold.
TEST(LoadWeights, ANumberThatIsNotFiniteIsAnErrorThatNamesItsTensorAndRow) {
  const std::pair<const char*, const char*> tensors[] = {
      {"qwen3_5_a", "model.layers.1.mlp.up_proj.weight"},
      {"deepseek_v3_a", "model.layers.1.self_attn.kv_b_proj.weight"}};
  for (const auto& [golden, name] : tensors) {
    for (const bool infinite : {false, true}) {
      const TestDirectory copy;
      std::filesystem::copy(fmt::format("{}/tests/golden/{}", BRAID_SOURCE_DIR, golden),
                            copy.path(), std::filesystem::copy_options::recursive);
      SpoilRow3(copy, name, infinite);
      for (const WeightChoice& choice :
           {WeightChoice{}, WeightChoice{.format = ops::WeightFormat::kF16},
            WeightChoice{.format = ops::WeightFormat::kI8}}) {
        const Result<LoadedModel> model = LoadModel(copy.path(), choice);
        ASSERT_FALSE(model);
        EXPECT_THAT(
            model.error().message,
            HasSubstr(fmt::format("\"{}\" has a number that is NaN or infinite in row 3", name)));
      }
    }
  }
}

TEST(LoadWeights, ReportsProgressUpToOne) {
  Result<OpenedModel> opened = OpenModel(kTiny);
  ASSERT_TRUE(opened);
  ThreadPool pool(2);
  std::vector<double> seen;
  ASSERT_TRUE(LoadWeights(*BindWeights(opened->spec, opened->checkpoint), pool,
                          [&](double f) { seen.push_back(f); }));
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::ranges::is_sorted(seen));
  EXPECT_EQ(seen.back(), 1.0);
}

TEST(LoadWeights, PrefixesPerExpertTensorsShardsAndSkippedPartsOfAMultimodalCheckpoint) {
  Result<LoadedModel> model = LoadModel(BRAID_SOURCE_DIR "/tests/golden/qwen3_5_moe_b");
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_EQ(model->report.skipped.size(), 1u);
  EXPECT_THAT(model->report.skipped[0], HasSubstr("model.visual.*: 1 tensors"));
  const MoeFfnWeights& ffn = FfnOf<MoeFfn>(model->weights, 3);
  const ops::PackedMatrix& gate_up = ffn.gate_up.matrix;
  const std::string base = "model.language_model.layers.3.mlp.experts.5.";
  EXPECT_EQ(gate_up.At(10, 23, 63), Stored(*model, base + "gate_proj.weight", 23 * 64 + 63));
  EXPECT_EQ(gate_up.At(11, 2, 1), Stored(*model, base + "up_proj.weight", 2 * 64 + 1));
  EXPECT_EQ(ffn.down.matrix.At(5, 63, 23), Stored(*model, base + "down_proj.weight", 63 * 24 + 23));
}

// Of two nodes the second is one that no machine has: the kernel refuses what is meant for it.
TEST(LoadWeights, EachNodeGetsThePanelsThatItsMembersTakeFirst) {
  const TestDirectory directory;
  const ThreadPlaces places = {.cpus = {}, .nodes = {0, 1000}};
  ThreadPool pool(2, places);
  ASSERT_TRUE(MakeModel({.directory = directory.path() + "/made",
                         .family = "qwen3_5_moe",
                         .shape = {"tiny", "vocab_size=65536", "num_hidden_layers=1"},
                         .progress = {}},
                        pool)
                  .ok());
  Result<OpenedModel> opened = OpenModel(directory.path() + "/made");
  Result<ModelWeights> weights = LoadWeights(*BindWeights(opened->spec, opened->checkpoint), pool);
  ASSERT_TRUE(weights.ok());
  const ops::PackedMatrix& matrix = weights->embedding.matrix;
  if (PagePolicyAt(matrix.data) < 0) GTEST_SKIP() << "the kernel tells no policies";
  constexpr int64_t kHugePage = int64_t{2} << 20, kPage = 4096;
  ASSERT_GT(matrix.bytes(), 3 * kHugePage);
  int64_t of[2] = {};
  for (int64_t p = 0; p < matrix.panels(); ++p) {
    const int64_t at = matrix.panel(0, p) - matrix.data, boundary = matrix.bytes() / 2;
    // The first and last page may be a neighbour's, and boundaries are moved up to a huge page's.
    if (at < kPage || at > matrix.bytes() - 2 * kPage) continue;
    if (at >= boundary - kPage && at < boundary + kHugePage) continue;
    const int64_t node = matrix.PartOf(0, p, 2);
    ++of[node];
    ASSERT_EQ(PagePolicyAt(matrix.panel(0, p)), node == 0 ? MPOL_PREFERRED : MPOL_DEFAULT)
        << "panel " << p << " of " << matrix.panels();
  }
  EXPECT_GT(of[0], 100);
  EXPECT_GT(of[1], 100);
}

TEST(LoadWeights, EveryGoldenCheckpointOfTheFamilyLoads) {
  for (const char* name : {"a", "b", "c", "full_only", "linear_only"}) {
    Result<LoadedModel> model =
        LoadModel(std::string(BRAID_SOURCE_DIR "/tests/golden/qwen3_5_moe_") + name);
    ASSERT_TRUE(model) << name << ": " << model.error().message;
    EXPECT_EQ(model->weights.head.matrix.data == model->weights.embedding.matrix.data,
              model->opened.spec.tied_head);
  }
}

}  // namespace
}  // namespace braid
