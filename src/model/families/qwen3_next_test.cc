// Qwen3-Next: what differs from its sibling is the row order of two tensors and which layers are
// dense.
#include <gtest/gtest.h>

#include <cstring>

#include "base/system/thread_pool.h"
#include "model/checkpoint/test_directory.h"
#include "model/families/families.h"
#include "model/loading/test_loaded_model.h"
#include "model/writing/make_model.h"

namespace braid {
namespace {

const std::string kGolden = BRAID_SOURCE_DIR "/tests/golden/qwen3_next_a";

TEST(Qwen3Next, LayersFollowTheIntervalTheSparseStepAndTheListOfDenseOnes) {
  Result<ModelSpec> spec = ReadModelSpec(kGolden);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->family, "qwen3_next");
  ASSERT_EQ(spec->layers.size(), 6u);
  const bool full[] = {false, false, true, false, false, true};
  const bool dense[] = {true, false, true, true, true, false};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(std::holds_alternative<FullAttention>(spec->layers[i].mixer), full[i]) << i;
    EXPECT_EQ(std::holds_alternative<DenseFfn>(spec->layers[i].ffn), dense[i]) << i;
  }
}

TEST(Qwen3Next, FusedRowsComeOutByComponent) {
  Result<LoadedModel> model = LoadModel(kGolden);
  ASSERT_TRUE(model) << model.error().message;
  const LinearAttentionWeights& mixer = MixerOf<LinearAttention>(model->weights, 0);
  // 2 key heads 24 wide, 4 value heads 16 wide: blocks of 24 q, 24 k, 32 v, 32 z; then 2 b, 2 a.
  constexpr int64_t kBlock = 112, kHidden = 48, kQ = 0, kK = 48, kV = 96, kZ = 160, kB = 0, kA = 4;
  const ops::PackedMatrix& in = mixer.in.matrix;
  const ops::PackedMatrix& gates = mixer.gates.matrix;
  ASSERT_EQ(in.n, 224);
  ASSERT_EQ(gates.n, 8);
  auto stored = [&](const char* name, int64_t row) {
    const TensorEntry* entry = model->opened.checkpoint.Find(name);
    CHECK(entry != nullptr && entry->dtype == DType::kBF16);
    uint16_t bits;
    std::memcpy(&bits, entry->data + 2 * (row * kHidden + 7), 2);
    return FloatOfBf16(bits);
  };
  const char* qkvz = "model.layers.0.linear_attn.in_proj_qkvz.weight";
  const char* ba = "model.layers.0.linear_attn.in_proj_ba.weight";
  EXPECT_EQ(in.At(0, kQ + 24 + 5, 7), stored(qkvz, kBlock + 5));            // q of key head 1
  EXPECT_EQ(in.At(0, kK + 3, 7), stored(qkvz, 24 + 3));                     // k of key head 0
  EXPECT_EQ(in.At(0, kV + 16 + 1, 7), stored(qkvz, 48 + 16 + 1));           // v of value head 1
  EXPECT_EQ(in.At(0, kV + 32 + 2, 7), stored(qkvz, kBlock + 48 + 2));       // v of value head 2
  EXPECT_EQ(in.At(0, kZ + 48 + 9, 7), stored(qkvz, kBlock + 80 + 16 + 9));  // z of value head 3
  EXPECT_EQ(gates.At(0, kB + 2, 7), stored(ba, 4));                         // b of value head 2
  EXPECT_EQ(gates.At(0, kA + 1, 7), stored(ba, 2 + 1));                     // a of value head 1
}

TEST(Qwen3Next, AMadeModelLoads) {
  TestDirectory dir;
  ThreadPool pool(2);
  Result<MadeModel> made =
      MakeModel({.directory = dir.path(),
                 .family = "qwen3_next",
                 .shape = {"tiny", "decoder_sparse_step=2", "intermediate_size=48"},
                 .seed = 3,
                 .progress = {}},
                pool);
  ASSERT_TRUE(made) << made.error().message;
  Result<LoadedModel> model = LoadModel(dir.path());
  ASSERT_TRUE(model) << model.error().message;
}

}  // namespace
}  // namespace braid
