// Tensors of GGUF files as stored weights: one format for every element type.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "base/check.h"
#include "model/checkpoint/formats/gguf_blocks.h"
#include "model/checkpoint/formats/storage_format.h"
#include "ops/weight_format.h"

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

// Columns in another order must move by whole blocks.
bool Fits(const StoredWeight& w) {
  const GgufView& view = *w.main().view;
  const int64_t block = view.type->block_elements;
  return !view.log_of_negative &&
         std::ranges::all_of(view.columns, [&](const GgufView::Columns& columns) {
           return columns.begin % block == 0 && columns.count % block == 0;
         });
}

void KeptRow(const StoredWeight& w, int64_t row, std::byte* codes, std::byte* scales) {
  const GgufView& view = *w.main().view;
  const GgufType& type = *view.type;
  const ops::WeightFormatRow& format = ops::RowOf(*type.kept);
  const std::byte* blocks = RowAt(view, row);
  const auto keep = [&](const GgufView::Columns& columns) {
    const int64_t first = columns.begin / type.block_elements;
    for (int64_t i = 0; i < columns.count / type.block_elements; ++i) {
      type.keep(blocks + (first + i) * type.block_bytes, codes, scales);
      codes += format.CodeBytes(type.block_elements);
      scales += format.ScalesPerRow(type.block_elements) * format.scale_bytes();
    }
  };
  if (view.columns.empty()) return keep({0, w.k});
  for (const GgufView::Columns& columns : view.columns) keep(columns);
}

// The formats of all types, and their kept codes.
struct Formats {
  Formats() {
    for (const GgufType& type : GgufTypes()) {
      if (type.kept) kept.push_back({*type.kept, Fits, KeptRow});
      all.push_back({.name = type.name,
                     .parts = kParts,
                     .problem = Problem,
                     .exact_in_bf16 = ExactInBf16,
                     .decode = Decode,
                     .kept = type.kept ? &kept.back() : nullptr,
                     .row_major = false});
    }
  }
  std::deque<KeptCodes> kept;
  std::vector<StorageFormat> all;
};

}  // namespace

const StorageFormat& GgufFormat(const TensorEntry& tensor) {
  static const Formats kFormats;
  return kFormats.all[static_cast<size_t>(tensor.view->type - GgufTypes().data())];
}

}  // namespace braid
