// MXFP4 (OCP microscaling): 4-bit floats in blocks of 32 along the row, a power of two per block.
// Byte j of a row holds elements 2j (low bits) and 2j + 1. Three exporters name the two parts
// differently; stacked experts come with their blocks as a dimension of its own.
#include <fmt/format.h>

#include "model/checkpoint/formats/groups.h"

namespace braid {
namespace {

constexpr FormatPart kPackedParts[] = {{"_packed"}, {"_scale"}};
constexpr FormatPart kInverseParts[] = {{""}, {"_scale_inv"}};
constexpr FormatPart kBlockParts[] = {{"_blocks"}, {"_scales"}};
enum : size_t { kCodes, kScale };
constexpr DType kBytes[] = {DType::kU8, DType::kI8};
constexpr DType kScaleTypes[] = {DType::kU8, DType::kF8E8M0};
constexpr int64_t kBlock = 32;

std::string Problem(const StoredWeight& w) {
  const TensorEntry& codes = *w.parts[kCodes];
  if (w.k % kBlock != 0) {
    return fmt::format("\"{}\" is in blocks of 32 along rows of {}", codes.name, w.k);
  }
  const int64_t blocks = w.k / kBlock;
  std::vector<int64_t> code_shape = {w.rows, w.k / 2}, scale_shape = {w.rows, blocks};
  if (w.format == &kMxfp4Blocks) code_shape = {w.rows, blocks, kBlock / 2};
  if (w.matrices > 1 || codes.shape.size() == code_shape.size() + 1) {
    code_shape.insert(code_shape.begin(), w.matrices);
    scale_shape.insert(scale_shape.begin(), w.matrices);
  }
  std::string text = PartProblem(codes, kBytes, code_shape);
  return text.empty() ? PartProblem(*w.parts[kScale], kScaleTypes, scale_shape) : text;
}

DType HoldsAll(const StoredWeight& w) {
  const TensorEntry& scale = *w.parts[kScale];
  for (int64_t i = 0; i < scale.bytes; ++i) {
    const auto exponent = static_cast<uint8_t>(scale.data[i]);
    if (exponent < 27 || exponent > 227) return DType::kF32;
  }
  return DType::kBF16;
}

void Decode(const StoredWeight& w, int64_t row, int64_t count, float* out) {
  const int64_t blocks = w.k / kBlock;
  for (int64_t b = row * blocks; b < (row + count) * blocks; ++b) {
    const float scale = FloatOfE8M0(static_cast<uint8_t>(w.parts[kScale]->data[b]));
    const std::byte* bytes = w.parts[kCodes]->data + b * kBlock / 2;
    for (int64_t j = 0; j < kBlock / 2; ++j) {
      const auto pair = static_cast<uint8_t>(bytes[j]);
      *out++ = FloatOfE2M1(pair) * scale;
      *out++ = FloatOfE2M1(static_cast<uint8_t>(pair >> 4)) * scale;
    }
  }
}

bool Fit(const StoredWeight&) { return true; }

void KeptRow(const StoredWeight& w, int64_t row, std::byte* codes, std::byte* scales) {
  KeepPairs(w.parts[kCodes]->data + row * w.k / 2, w.k, codes);
  std::memcpy(scales, w.parts[kScale]->data + row * (w.k / kBlock),
              static_cast<size_t>(w.k / kBlock));
}

constexpr KeptCodes kKept = {ops::WeightFormat::kMxfp4, Fit, KeptRow};

constexpr StorageFormat With(std::span<const FormatPart> parts) {
  return {.name = "mxfp4",
          .parts = parts,
          .types = kBytes,
          .problem = Problem,
          .holds_all = HoldsAll,
          .decode = Decode,
          .kept = &kKept};
}

}  // namespace

const StorageFormat kMxfp4Packed = With(kPackedParts);
const StorageFormat kMxfp4Inverse = With(kInverseParts);
const StorageFormat kMxfp4Blocks = With(kBlockParts);

}  // namespace braid
