// Tensors of GGUF files as stored weights: one format for every element type.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "model/checkpoint/formats/gguf_blocks.h"
#include "model/checkpoint/formats/storage_format.h"
#include "ops/weight_codes.h"

namespace braid {
namespace {

constexpr FormatPart kParts[] = {{""}};

std::string Problem(const StoredWeight& w) {
  const TensorEntry& tensor = w.main();
  int64_t elements = 1;
  for (int64_t size : tensor.shape) elements *= size;
  // A vector may come in any dimensions, as long as its elements follow each other.
  const bool vector = w.matrices * w.rows == 1 && tensor.view->rows.size() == 1;
  if (elements == w.elements() && (tensor.shape.back() == w.k || vector)) return {};
  const int64_t want[] = {w.matrices, w.rows, w.k};
  return fmt::format("\"{}\" has the shape {}; it must be {}", tensor.name, ShapeText(tensor.shape),
                     ShapeText(want));
}

bool ExactInBf16(const StoredWeight& w) {
  return w.main().view->type->name == "BF16" && !w.main().view->log_of_negative;
}

const std::byte* RowAt(const GgufView& view, int64_t row) {
  for (const GgufView::Rows& rows : view.rows) {
    if (row < rows.count) return rows.first + row * view.row_bytes;
    row -= rows.count;
  }
  CHECK(false, "row {} past the end of a view", row);
  return nullptr;
}

void DecodeRow(const GgufView& view, const std::byte* from, int64_t k, float* out) {
  const GgufType& type = *view.type;
  for (int64_t c = 0; c < k; c += type.block_elements, from += type.block_bytes) {
    type.decode(from, out + c);
  }
}

void Decode(const StoredWeight& w, int64_t row, int64_t count, float* out) {
  const GgufView& view = *w.main().view;
  std::vector<float> stored(static_cast<size_t>(w.k));
  for (int64_t r = row; r < row + count; ++r, out += w.k) {
    DecodeRow(view, RowAt(view, r), w.k, view.columns.empty() ? out : stored.data());
    float* to = out;
    for (const GgufView::Columns& columns : view.columns) {
      to = std::copy_n(stored.data() + columns.begin, columns.count, to);
    }
    for (int64_t c = 0; view.log_of_negative && c < w.k; ++c) out[c] = std::log(-out[c]);
  }
}

// Q4_0 has the groups, scales and codes of the engine's int4. Columns in another order must move by
// whole groups.
bool Q4Fits(const StoredWeight& w) {
  const GgufView& view = *w.main().view;
  return !view.log_of_negative &&
         std::ranges::all_of(view.columns, [](const GgufView::Columns& columns) {
           return columns.begin % ops::kInt4Columns == 0 && columns.count % ops::kInt4Columns == 0;
         });
}

void KeptQ4Row(const StoredWeight& w, int64_t row, std::byte* codes, std::byte* scales) {
  const GgufView& view = *w.main().view;
  const std::byte* blocks = RowAt(view, row);
  const auto keep = [&](const GgufView::Columns& columns) {
    const int64_t first = columns.begin / ops::kInt4Columns;
    for (int64_t i = 0; i < columns.count / ops::kInt4Columns; ++i) {
      KeepQ4_0(blocks + (first + i) * view.type->block_bytes, codes, scales);
      codes += ops::kInt4Columns / 2;
      scales += 2;
    }
  };
  if (view.columns.empty()) return keep({0, w.k});
  for (const GgufView::Columns& columns : view.columns) keep(columns);
}

constexpr KeptCodes kKeptQ4 = {ops::WeightFormat::kI4, Q4Fits, KeptQ4Row};

constexpr StorageFormat Named(std::string_view name, const KeptCodes* kept = nullptr) {
  return {.name = name,
          .parts = kParts,
          .problem = Problem,
          .exact_in_bf16 = ExactInBf16,
          .decode = Decode,
          .kept = kept,
          .row_major = false};
}

constexpr std::array kFormats = {
    Named("F32"),  Named("F16"),  Named("BF16"), Named("Q4_0", &kKeptQ4),
    Named("Q8_0"), Named("Q4_K"), Named("Q6_K")};

}  // namespace

const StorageFormat& GgufFormat(const TensorEntry& tensor) {
  const auto at = std::ranges::find(kFormats, tensor.view->type->name, &StorageFormat::name);
  CHECK(at != kFormats.end(), "{}", tensor.view->type->name);
  return *at;
}

}  // namespace braid
