// NVFP4: 4-bit floats in blocks of 16 along the row, an fp8 scale per block, one fp32 scale for
// all. Two exporters write the last one as reciprocals of each other: compressed-tensors divides
// by weight_global_scale, ModelOpt multiplies by weight_scale_2. A block's scale is rounded to
// fp32 before it meets the codes. Byte j of a row holds elements 2j (low bits) and 2j + 1.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/checkpoint/formats/groups.h"

namespace braid {
namespace {

constexpr FormatPart kPackedParts[] = {{"_packed"}, {"_scale"}, {"_global_scale"}};
constexpr FormatPart kModelOptParts[] = {{""}, {"_scale"}, {"_scale_2"}};
enum : size_t { kCodes, kScale, kGlobal };
constexpr DType kBytes[] = {DType::kU8};
constexpr DType kFp8[] = {DType::kF8E4M3};
constexpr DType kF32[] = {DType::kF32};
constexpr int64_t kBlock = 16;

// One exporter writes amax / 2688, the other its reciprocal. Weights beyond 2688 do not occur, so a
// value on the wrong side of 1 has the other convention.
std::string GlobalProblem(const StoredWeight& w, bool divides) {
  const TensorEntry& global = *w.parts[kGlobal];
  if (global.bytes != 4) {
    return fmt::format("\"{}\" has the shape {}; it must be one number", global.name,
                       ShapeText(global.shape));
  }
  if (std::string text = PartProblem(global, kF32, global.shape); !text.empty()) return text;
  const float value = ElementAt(global, 0);
  const bool plausible = std::isfinite(value) && value > 0 && (divides ? value >= 1 : value <= 1);
  if (plausible) return {};
  return fmt::format("\"{}\" is {}; the weights are {} by it, so it must be above 0 and {} 1",
                     global.name, value, divides ? "divided" : "multiplied",
                     divides ? "at least" : "at most");
}

std::string Problem(const StoredWeight& w) {
  if (w.k % kBlock != 0) {
    return fmt::format("\"{}\" is in blocks of 16 along rows of {}", w.parts[kCodes]->name, w.k);
  }
  std::vector<int64_t> codes = {w.rows, w.k / 2}, scales = {w.rows, w.k / kBlock};
  if (w.matrices > 1) {
    codes.insert(codes.begin(), w.matrices);
    scales.insert(scales.begin(), w.matrices);
  }
  std::string text = PartProblem(*w.parts[kCodes], kBytes, codes);
  if (text.empty()) text = PartProblem(*w.parts[kScale], kFp8, scales);
  return text.empty() ? GlobalProblem(w, w.format == &kNvfp4Packed) : text;
}

template <bool kDivides>
void Decode(const StoredWeight& w, int64_t row, int64_t count, float* out) {
  const float global = ElementAt(*w.parts[kGlobal], 0);
  for (int64_t r = row; r < row + count; ++r) {
    for (int64_t b = 0; b < w.k / kBlock; ++b) {
      const float local = ElementAt(*w.parts[kScale], r * (w.k / kBlock) + b);
      const float scale = kDivides ? local / global : local * global;
      const std::byte* bytes = w.parts[kCodes]->data + (r * w.k + b * kBlock) / 2;
      for (int64_t j = 0; j < kBlock / 2; ++j) {
        const auto pair = static_cast<uint8_t>(bytes[j]);
        *out++ = FloatOfE2M1(pair) * scale;
        *out++ = FloatOfE2M1(static_cast<uint8_t>(pair >> 4)) * scale;
      }
    }
  }
}

bool Fit(const StoredWeight& w) {
  const TensorEntry& scale = *w.parts[kScale];
  return std::none_of(scale.data, scale.data + scale.bytes, [](std::byte code) {
    return std::isnan(FloatOfE4M3(static_cast<uint8_t>(code)));
  });
}

// Codes in memory stand for doubled values, so the scale of all is halved.
template <bool kDivides>
void KeptRow(const StoredWeight& w, int64_t row, std::byte* codes, std::byte* scales) {
  constexpr int64_t kUnit = 256;
  KeepPairs(w.parts[kCodes]->data + row * w.k / 2, w.k, codes);
  const float global = ElementAt(*w.parts[kGlobal], 0) * (kDivides ? 2.0f : 0.5f);
  const std::byte* of_blocks = w.parts[kScale]->data + row * (w.k / kBlock);
  for (int64_t c = 0; c < w.k; c += kUnit, scales += 4 + kUnit / kBlock) {
    std::memcpy(scales, &global, 4);
    const int64_t blocks = std::min(kUnit, w.k - c) / kBlock;
    std::fill_n(std::copy_n(of_blocks + c / kBlock, blocks, scales + 4), kUnit / kBlock - blocks,
                std::byte{0});
  }
}

constexpr KeptCodes kKeptProducts = {ops::WeightFormat::kNvfp4, Fit, KeptRow<false>};
constexpr KeptCodes kKeptQuotients = {ops::WeightFormat::kNvfp4D, Fit, KeptRow<true>};

}  // namespace

const StorageFormat kNvfp4Packed = {.name = "nvfp4",
                                    .parts = kPackedParts,
                                    .types = kBytes,
                                    .problem = Problem,
                                    .decode = Decode<true>,
                                    .kept = &kKeptQuotients};
const StorageFormat kNvfp4ModelOpt = {.name = "nvfp4 (ModelOpt)",
                                      .parts = kModelOptParts,
                                      .types = kBytes,
                                      .problem = Problem,
                                      .decode = Decode<false>,
                                      .kept = &kKeptProducts};

}  // namespace braid
