// A weight that is fused from quantised and plain parts keeps every number of both.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "base/system/thread_pool.h"
#include "model/checkpoint/formats/storage_format.h"
#include "model/checkpoint/safetensors_writer.h"
#include "model/checkpoint/test_directory.h"
#include "model/families/families.h"
#include "model/writing/make_model.h"
#include "model/loading/test_loaded_model.h"

namespace braid {
namespace {

const std::string kFp8Name = "model.layers.1.linear_attn.in_proj_qkv.weight";
const std::string kZ = "model.layers.1.linear_attn.in_proj_z.weight";

// The tiny model whose qkv projection of layer 1 is fp8 in one block with the scale `scale`.
class MixedParts : public ::testing::Test {
 protected:
  ModelWeights Load(float scale) {
    ThreadPool pool(1);
    const std::string made = dir_.path() + "/made", mixed = dir_.path() + "/mixed";
    CHECK(MakeModel({.directory = made, .family = "qwen3_5_moe", .shape = {"tiny"}, .progress = {}},
                    pool));
    Result<Checkpoint> source = Checkpoint::Open(made);
    std::vector<TensorPlan> plans;
    for (const auto& [name, entry] : source->tensors()) {
      plans.push_back({name, name == kFp8Name ? DType::kF8E4M3 : entry.dtype, entry.shape});
    }
    plans.push_back({kFp8Name + "_scale_inv", DType::kF32, {1, 1}});
    std::filesystem::create_directories(mixed);
    Result<SafetensorsWriter> writer =
        SafetensorsWriter::Create(mixed + "/model.safetensors", plans);
    CHECK(writer.ok());
    for (size_t i = 0; i < plans.size(); ++i) {
      std::vector<std::byte> data(static_cast<size_t>(plans[i].bytes()));
      if (plans[i].name == kFp8Name) {
        Rng rng(3);
        for (std::byte& code : data) code = static_cast<std::byte>(rng.Below(0x70));
        codes_ = data;
      } else if (plans[i].name == kFp8Name + "_scale_inv") {
        std::memcpy(data.data(), &scale, sizeof scale);
      } else {
        std::memcpy(data.data(), source->Find(plans[i].name)->data, data.size());
      }
      if (plans[i].name == kZ) z_ = data;
      CHECK(writer->Write(i, 0, data).ok());
    }
    CHECK(writer->Finish().ok());
    Result<ModelSpec> spec = ReadModelSpec(made);
    CHECK(spec.ok());
    spec->quantization.method = "fp8";
    spec->quantization.formats = {&kFp8Blocks};
    spec->quantization.block_rows = spec->quantization.block_columns = 128;
    Result<Checkpoint> checkpoint = Checkpoint::Open(mixed);
    CHECK(checkpoint.ok(), "{}", checkpoint.error().message);
    const ModelSpec fitted = FitToCheckpoint(*spec, *checkpoint);
    Result<Binding> binding = BindWeights(fitted, *checkpoint);
    CHECK(binding.ok(), "{}", binding.error().message);
    return *LoadWeights(*std::move(binding), pool);
  }

  TestDirectory dir_;
  std::vector<std::byte> codes_, z_;
};

TEST_F(MixedParts, AFusedWeightIsFp32WhereBf16WouldRoundAPart) {
  const float scale = 0.01f;
  const ModelWeights weights = Load(scale);
  const ops::PackedMatrix& in = MixerOf<LinearAttention>(weights, 1).in.matrix;
  EXPECT_EQ(in.format, ops::WeightFormat::kF32);
  const int64_t qkv_rows = static_cast<int64_t>(codes_.size()) / in.k;
  ASSERT_GT(in.n, qkv_rows);
  for (int64_t row = 0; row < qkv_rows; row += 5) {
    for (int64_t c = 0; c < in.k; ++c) {
      const auto code = static_cast<uint8_t>(codes_[static_cast<size_t>(row * in.k + c)]);
      ASSERT_EQ(in.At(0, row, c), FloatOfE4M3(code) * scale) << row << " " << c;
    }
  }
  for (int64_t c = 0; c < in.k; ++c) {
    uint16_t bits;
    std::memcpy(&bits, z_.data() + 2 * c, 2);
    ASSERT_EQ(in.At(0, qkv_rows, c), FloatOfBf16(bits)) << c;
  }
}

TEST_F(MixedParts, AFusedWeightIsBf16WhereThatHoldsEveryPart) {
  EXPECT_EQ(MixerOf<LinearAttention>(Load(0.25f), 1).in.matrix.format, ops::WeightFormat::kBF16);
}

}  // namespace
}  // namespace braid
