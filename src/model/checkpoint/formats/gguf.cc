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
constexpr int64_t kBlockMax = 256;  // elements

std::string Problem(const StoredWeight& w) {
  const TensorEntry& tensor = w.main();
  int64_t elements = 1;
  for (int64_t size : tensor.shape) elements *= size;
  // A vector may come in any dimensions, as long as its elements follow each other.
  const bool vector = w.matrices * w.rows == 1 && tensor.view->rows.size() == 1;
  // Whole blocks are decoded.
  const bool blocks = w.k % tensor.view->type->block_elements == 0;
  if (elements == w.elements() && (tensor.shape.back() == w.k || vector) && blocks) return {};
  if (!blocks) {
    return fmt::format("\"{}\" has rows of {} numbers, which blocks of {} do not divide",
                       tensor.name, w.k, tensor.view->type->name);
  }
  const int64_t want[] = {w.matrices, w.rows, w.k};
  return fmt::format("\"{}\" has the shape {}; it must be {}", tensor.name, ShapeText(tensor.shape),
                     ShapeText(want));
}

DType HoldsAll(const StoredWeight& w) {
  const GgufView& view = *w.main().view;
  if (view.log_of_negative) return DType::kF32;
  return view.type->name == "BF16" ? DType::kBF16
         : view.type->name == "F16" ? DType::kF16
                                    : DType::kF32;
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

// Columns that stay together in memory: a block, or a part of it that has scales of its own.
int64_t UnitOf(const GgufType& type) {
  return std::min(type.block_elements, ops::RowOf(*type.kept).unit());
}

// Columns in another order must move by whole units.
bool Fits(const StoredWeight& w) {
  const GgufView& view = *w.main().view;
  const int64_t unit = UnitOf(*view.type);
  return !view.log_of_negative &&
         std::ranges::all_of(view.columns, [&](const GgufView::Columns& columns) {
           return columns.begin % unit == 0 && columns.count % unit == 0;
         });
}

void KeptRow(const StoredWeight& w, int64_t row, std::byte* codes, std::byte* scales) {
  const GgufView& view = *w.main().view;
  const GgufType& type = *view.type;
  const ops::WeightFormatRow& format = ops::RowOf(*type.kept);
  const std::byte* blocks = RowAt(view, row);
  const int64_t block = type.block_elements;
  std::byte block_codes[kBlockMax], block_scales[kBlockMax];
  const auto keep = [&](const GgufView::Columns& columns) {
    for (int64_t c = columns.begin, end = columns.begin + columns.count; c < end;) {
      const std::byte* from = blocks + c / block * type.block_bytes;
      const int64_t inside = c % block, count = std::min(block - inside, end - c);
      if (count == block) {
        type.keep(from, codes, scales);
      } else {
        type.keep(from, block_codes, block_scales);
        std::copy_n(block_codes + format.CodeBytes(inside), format.CodeBytes(count), codes);
        std::copy_n(block_scales + format.ScaleBytes(inside), format.ScaleBytes(count), scales);
      }
      codes += format.CodeBytes(count);
      scales += format.ScaleBytes(count);
      c += count;
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
                     .holds_all = HoldsAll,
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
