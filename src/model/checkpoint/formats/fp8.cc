// 8-bit codes times scales: one for a block of rows and columns (weight_scale_inv, which is
// multiplied in spite of its name), for a row, or for all (weight_scale). Blocks at an edge
// may be partial. Blocks count from the first row of each matrix.
#include <fmt/format.h>

#include <algorithm>

#include "base/math.h"
#include "model/checkpoint/formats/quantization.h"
#include "model/checkpoint/formats/storage_format.h"
#include "ops/weight_format.h"

namespace braid {
namespace {

constexpr FormatPart kBlockParts[] = {{""}, {"_scale_inv"}};
constexpr FormatPart kScaledParts[] = {{""}, {"_scale"}};
constexpr DType kFp8[] = {DType::kF8E4M3};
constexpr DType kInt8[] = {DType::kI8};
constexpr DType kScaleTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E8M0};

// Rows and columns that one scale covers, and how many scales a row of blocks has.
struct Grid {
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t across = 1;
  int64_t of_matrix = 1;  // scales of one matrix
};

Grid BlockGrid(const StoredWeight& w) {
  const QuantizationSpec& q = *w.quantization;
  const int64_t across = CeilDiv(w.k, q.block_columns);
  return {q.block_rows, q.block_columns, across, CeilDiv(w.rows, q.block_rows) * across};
}

// The grid that the shape of weight_scale tells; `across` is 0 when it tells none.
Grid ScaledGrid(const StoredWeight& w) {
  const std::vector<int64_t>& shape = w.parts[1]->shape;
  int64_t scales = 1;
  for (int64_t dim : shape) scales *= dim;
  if (scales == w.matrices) return {w.rows, w.k, 1, 1};
  if (scales == w.matrices * w.rows && (shape.back() == 1 || shape.size() == 1)) {
    return {1, w.k, 1, w.rows};
  }
  if (w.quantization->block_rows > 0) {
    const Grid grid = BlockGrid(w);
    if (scales == w.matrices * grid.of_matrix && shape.back() == grid.across) return grid;
  }
  return {.across = 0};
}

std::vector<int64_t> WithMatrices(const StoredWeight& w, int64_t a, int64_t b) {
  if (w.matrices > 1 || w.parts[0]->shape.size() == 3) return {w.matrices, a, b};
  return {a, b};
}

std::string CodesProblem(const StoredWeight& w, std::span<const DType> types) {
  return PartProblem(*w.parts[0], types, WithMatrices(w, w.rows, w.k));
}

std::string BlocksProblem(const StoredWeight& w) {
  if (std::string text = CodesProblem(w, kFp8); !text.empty()) return text;
  const Grid grid = BlockGrid(w);
  return PartProblem(*w.parts[1], kScaleTypes,
                     WithMatrices(w, grid.of_matrix / grid.across, grid.across));
}

std::string ScaledProblem(const StoredWeight& w) {
  if (std::string text = CodesProblem(w, w.format->types); !text.empty()) return text;
  const TensorEntry& scale = *w.parts[1];
  if (std::string text = PartProblem(scale, kScaleTypes, scale.shape); !text.empty()) return text;
  if (ScaledGrid(w).across > 0) return {};
  return fmt::format("\"{}\" has the shape {}; it must be {} for a scale per row, or [1]",
                     scale.name, ShapeText(scale.shape), ShapeText(WithMatrices(w, w.rows, 1)));
}

// Codes have four significant bits: times a power of two they are bf16 numbers.
DType HoldsAll(const StoredWeight& w) {
  const TensorEntry& scale = *w.parts[1];
  const int64_t count = scale.bytes / SizeOf(scale.dtype);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(ElementAt(scale, i));
    const uint32_t exponent = bits >> 23;
    if ((bits & 0x807fffffu) != 0 || exponent < 27 || exponent > 227) return DType::kF32;
  }
  return DType::kBF16;
}

float Fp8Code(std::byte code) { return FloatOfE4M3(static_cast<uint8_t>(code)); }
float Int8Code(std::byte code) { return static_cast<float>(static_cast<int8_t>(code)); }

template <float (*CodeOf)(std::byte), Grid (*GridOf)(const StoredWeight&)>
void Decode(const StoredWeight& w, int64_t row, int64_t count, float* out) {
  const Grid grid = GridOf(w);
  for (int64_t r = row; r < row + count; ++r, out += w.k) {
    const std::byte* codes = w.parts[0]->data + r * w.k;
    const int64_t first = r / w.rows * grid.of_matrix + r % w.rows / grid.rows * grid.across;
    for (int64_t block = 0; block < grid.across; ++block) {
      const float scale = ElementAt(*w.parts[1], first + block);
      const int64_t end = std::min(w.k, (block + 1) * grid.columns);
      for (int64_t c = block * grid.columns; c < end; ++c) out[c] = CodeOf(codes[c]) * scale;
    }
  }
}

// Of fp8 blocks are as wide as the engine's or multiples; of int8 a scale holds for the row.
template <Grid (*GridOf)(const StoredWeight&), ops::WeightFormat kFormat>
bool ScalesFit(const StoredWeight& w) {
  const Grid grid = GridOf(w);
  if (grid.across == 1) return true;
  return kFormat == ops::WeightFormat::kF8 && grid.columns % ops::kFp8Columns == 0;
}

template <Grid (*GridOf)(const StoredWeight&), ops::WeightFormat kFormat>
void KeptRow(const StoredWeight& w, int64_t row, std::byte* codes, std::byte* scales) {
  const Grid grid = GridOf(w);
  std::copy_n(w.parts[0]->data + row * w.k, w.k, codes);
  const int64_t first = row / w.rows * grid.of_matrix + row % w.rows / grid.rows * grid.across;
  for (int64_t i = 0; i < ops::RowOf(kFormat).ScaleBytes(w.k) / 4; ++i) {
    const float scale = ElementAt(*w.parts[1], first + i * ops::kFp8Columns / grid.columns);
    std::memcpy(scales + 4 * i, &scale, sizeof scale);
  }
}

template <Grid (*GridOf)(const StoredWeight&), ops::WeightFormat kFormat>
constexpr KeptCodes kKept = {kFormat, ScalesFit<GridOf, kFormat>, KeptRow<GridOf, kFormat>};

}  // namespace

const StorageFormat kFp8Blocks = {.name = "fp8 in blocks",
                                  .parts = kBlockParts,
                                  .types = kFp8,
                                  .problem = BlocksProblem,
                                  .holds_all = HoldsAll,
                                  .decode = Decode<Fp8Code, BlockGrid>,
                                  .kept = &kKept<BlockGrid, ops::WeightFormat::kF8>};
const StorageFormat kFp8Scaled = {.name = "fp8 with scales",
                                  .parts = kScaledParts,
                                  .types = kFp8,
                                  .problem = ScaledProblem,
                                  .holds_all = HoldsAll,
                                  .decode = Decode<Fp8Code, ScaledGrid>,
                                  .kept = &kKept<ScaledGrid, ops::WeightFormat::kF8>};
const StorageFormat kInt8Scaled = {.name = "int8 with scales",
                                   .parts = kScaledParts,
                                   .types = kInt8,
                                   .problem = ScaledProblem,
                                   .holds_all = HoldsAll,
                                   .decode = Decode<Int8Code, ScaledGrid>,
                                   .kept = &kKept<ScaledGrid, ops::WeightFormat::kI8>};

}  // namespace braid
