// Blocks are put together from what the readers take apart, and coded numbers come back close.
#include "model/writing/gguf_encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "model/checkpoint/test_tensors.h"
#include "ops/weight_format.h"

namespace braid {
namespace {

// Random blocks of every type.
constexpr char kBlocks[] = BRAID_SOURCE_DIR "/tests/formats/layouts/gguf_blocks.safetensors";

// What a block shares, from what the engine keeps of it: blocks of 256 are kept as halves, with the
// same fp16 numbers in both.
GgufCoded CodedOf(const GgufType& type, const std::byte* block) {
  GgufCoded coded;
  std::byte kept[64] = {};
  type.keep(block, coded.codes, kept);
  const ops::WeightFormatRow& row = ops::RowOf(*type.kept);
  const int64_t halves = type.block_elements / row.unit();
  std::byte* to = coded.numbers;
  int64_t at = 0;
  for (const ops::SharedNumber& number : row.numbers) {
    if (number.type == ops::NumberType::kNone) continue;
    const int64_t bytes = row.unit() / number.columns * number.bytes();
    const int64_t parts = halves > 1 && number.type == ops::NumberType::kF16 ? 1 : halves;
    for (int64_t part = 0; part < parts; ++part) {
      std::memcpy(to, kept + part * row.UnitBytes() + at, static_cast<size_t>(bytes));
      to += bytes;
    }
    at += bytes;
  }
  return coded;
}

TEST(GgufEncode, PacksWhatReadersTakeApart) {
  const auto blocks = TensorsOf(kBlocks);
  int packed = 0;
  for (const GgufType& type : GgufTypes()) {
    const GgufPacker pack = GgufPackerOf(type);
    if (pack == nullptr) continue;
    ++packed;
    const std::vector<std::byte>& all = blocks.at(std::string(type.name));
    const auto bytes = static_cast<size_t>(type.block_bytes);
    ASSERT_GT(all.size(), 8 * bytes) << type.name;
    for (size_t at = 0; at < all.size(); at += bytes) {
      std::vector<std::byte> again(bytes, std::byte{0xff});
      pack(CodedOf(type, all.data() + at), again.data());
      ASSERT_EQ(std::memcmp(again.data(), all.data() + at, bytes), 0) << type.name << " at " << at;
    }
  }
  EXPECT_EQ(packed, 13);
}

std::vector<float> Decoded(const GgufType& type, const std::vector<float>& x) {
  const int64_t blocks = std::ssize(x) / type.block_elements;
  std::vector<std::byte> bytes(static_cast<size_t>(blocks * type.block_bytes));
  EncodeGgufRow(type, x.data(), std::ssize(x), bytes.data());
  std::vector<float> out(x.size());
  for (int64_t b = 0; b < blocks; ++b) {
    type.decode(bytes.data() + b * type.block_bytes, out.data() + b * type.block_elements);
  }
  return out;
}

const GgufType& Named(std::string_view name) {
  for (const GgufType& type : GgufTypes()) {
    if (type.name == name) return type;
  }
  CHECK(false, "no type {}", name);
  return GgufTypes().front();
}

// The root of the mean square error of numbers with a deviation of one. A code's step is the range
// of 16 or 32 numbers over 2^bits, and the error a step over the root of 12.
TEST(GgufEncode, NumbersComeBackWithTheErrorOfTheirBits) {
  const std::pair<std::string_view, double> kMost[] = {
      {"Q8_0", 0.006},  {"Q6_K", 0.023},  {"Q5_K", 0.05},  {"Q5_1", 0.05},
      {"Q5_0", 0.05},   {"Q4_K", 0.095},  {"Q4_1", 0.09},  {"Q4_0", 0.10},
      {"IQ4_NL", 0.09}, {"IQ4_XS", 0.09}, {"MXFP4", 0.17}, {"Q3_K", 0.20},
      {"Q2_K", 0.38},   {"BF16", 0.003},  {"F16", 0.0004}, {"F32", 1e-12}};
  Rng rng(3);
  std::vector<float> x(64 * 256);
  for (float& value : x) value = static_cast<float>(rng.Normal());
  for (const auto& [name, most] : kMost) {
    const std::vector<float> y = Decoded(Named(name), x);
    double squares = 0;
    for (size_t i = 0; i < x.size(); ++i) squares += (x[i] - y[i]) * (x[i] - y[i]);
    const double error = std::sqrt(squares / static_cast<double>(x.size()));
    EXPECT_LE(error, most) << name;
    // A bound far above the error would be none.
    EXPECT_TRUE(most < 0.005 || error >= most / 4) << name << ": " << error;
  }
}

// Rows that scales of few bits could spoil: a large group beside small ones, a constant, zeros.
TEST(GgufEncode, EveryGroupReachesItsExtremes) {
  for (const GgufType& type : GgufTypes()) {
    if (GgufPackerOf(type) == nullptr) continue;
    std::vector<float> x(512);
    for (size_t i = 0; i < 256; ++i) x[i] = (i / 16 == 5 ? 100.0f : 4.0f) * (i % 2 ? 1.0f : -1.0f);
    const std::vector<float> y = Decoded(type, x);
    for (size_t i = 0; i < 512; ++i) {
      const float size = i < 256 ? 100.0f : 0.0f;
      ASSERT_TRUE(std::isfinite(y[i])) << type.name;
      EXPECT_NEAR(x[i], y[i], 0.13f * size) << type.name << " at " << i;
    }
  }
}

}  // namespace
}  // namespace braid
