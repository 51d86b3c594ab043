// How a checkpoint stores a weight: as one plain tensor, or as several ("parts") that a format
// turns into rows of numbers. Formats are plain data, one decoder in a file of its own each; which
// of them a checkpoint may use comes from its config (quantization.h). Pure; any thread.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint/checkpoint.h"
#include "ops/packed.h"

namespace braid {

struct QuantizationSpec;
struct StoredWeight;

struct FormatPart {
  std::string_view suffix;
  bool optional = false;
};

// Codes that the engine's own quantised formats hold as they are (ops/weight_format.h).
struct KeptCodes {
  ops::WeightFormat format = ops::WeightFormat::kF8;
  // Whether this weight's scales and zero points are such as the format has.
  bool (*fit)(const StoredWeight& stored) = nullptr;
  // One row's ops::CodeBytes and its scales, in the form that ops/weight_format.h gives them.
  void (*row)(const StoredWeight& stored, int64_t row, std::byte* codes,
              std::byte* scales) = nullptr;
  const KeptCodes* next = nullptr;  // takes what does not fit here
};

struct StorageFormat {
  std::string_view name;  // "fp8 in blocks": for tables and messages
  // A part is called by the weight's name and its suffix ("X.weight" + "_scale"). The suffixes of
  // some formats stand in place of ".weight" ("X" + ".qweight").
  bool replaces_weight = false;
  std::span<const FormatPart> parts;  // the first is the one that tells the format
  std::span<const DType> types;       // that the first part may have
  // The problem of a weight whose required parts are present; empty if it has none.
  std::string (*problem)(const StoredWeight& stored) = nullptr;
  // A type that holds every value: fp32 or one of 2 bytes. Null: fp32.
  DType (*holds_all)(const StoredWeight& stored) = nullptr;
  // out[count][k]: rows [row, row + count) of the weight. Products of code and scale are fp32.
  void (*decode)(const StoredWeight& stored, int64_t row, int64_t count, float* out) = nullptr;
  const KeptCodes* kept = nullptr;  // null: codes of another kind
  bool row_major = true;            // the first part's bytes are in the order of the weight's rows
  // The part that says the group of every column.
  std::optional<size_t> groups_part = {};
};

// A weight [matrices, rows, k]; matrices are 1 but for stacked experts. Rows are counted through
// all matrices.
struct StoredWeight {
  std::string name;                       // of the plain tensor that this stands for
  const StorageFormat* format = nullptr;  // null: plain, parts[0] is the tensor
  const QuantizationSpec* quantization = nullptr;
  std::array<const TensorEntry*, 5> parts = {};  // as in format->parts; null: absent
  int64_t matrices = 1;
  int64_t rows = 0;  // of one matrix
  int64_t k = 0;
  DType dtype = DType::kBF16;       // of what Read delivers
  // The stored column that each kept one is, where groups of columns do not follow each other
  // (OrderOfGroups). Empty: the same.
  std::vector<uint16_t> order;
  const KeptCodes* kept = nullptr;  // the first of the format's that fits
  // Whether everything that is made of it may be quantised along its rows, and whether embedding or
  // head is among that.
  bool quantisable = false;
  bool head = false;

  int64_t elements() const { return matrices * rows * k; }
  int64_t bytes() const;  // of all parts
  std::string_view format_name() const;
  const TensorEntry& main() const { return *parts[0]; }
  // Elements [first, first + count) as `dtype`. Of a format: whole rows only.
  void Read(int64_t first, int64_t count, DType as, std::byte* out) const;
};

// What StoredWeight::order is: columns sorted by their groups, those of a group ascending.
std::vector<uint16_t> OrderOfGroups(const StoredWeight& stored);
// What StoredWeight::kept is, which looks at all of the weight's scales; `order` is known.
const KeptCodes* KeptBy(const StoredWeight& stored);

// The format of a tensor of a GGUF file, by its element type.
const StorageFormat& GgufFormat(const TensorEntry& tensor);
// The format of panels as kernels read them, by the format that they have in memory.
const StorageFormat& PanelFormat(ops::WeightFormat format);
// The panels of such a weight, in the file; none of a weight of another format.
std::optional<ops::PackedMatrix> PanelsOf(const StoredWeight& stored);
// The shape of its tensor: of matrices that have an order of columns [count, bytes of one].
std::vector<int64_t> PanelShape(const ops::PackedMatrix& matrix);
// The order of the columns in which codes of the row are kept; empty: as they are stored.
std::span<const uint16_t> OrderOf(const StoredWeight& stored, int64_t row);

// "X.weight" and a suffix; empty when the format cannot name a part of this weight.
std::string PartName(const StorageFormat& format, std::string_view weight, std::string_view suffix);

// Element i of a part as fp32: scales of any float type.
float ElementAt(const TensorEntry& part, int64_t i);

// Of a tensor with a number that is infinite in fp16.
Error BeyondF16(std::string_view tensor);
// Of a tensor with a number that is NaN or infinite as it is stored.
Error NotFinite(std::string_view tensor, int64_t row);

// "[64, 2]".
std::string ShapeText(std::span<const int64_t> shape);
// Empty if `part` has one of `types` and the shape; else the problem.
std::string PartProblem(const TensorEntry& part, std::span<const DType> types,
                        std::span<const int64_t> shape);

extern const StorageFormat kFp8Blocks;      // weight, weight_scale_inv
extern const StorageFormat kFp8Scaled;      // weight, weight_scale
extern const StorageFormat kInt8Scaled;     // weight, weight_scale
extern const StorageFormat kInt4Packed;     // weight_packed, weight_scale, …
extern const StorageFormat kNvfp4Packed;    // weight_packed, weight_scale, weight_global_scale
extern const StorageFormat kNvfp4ModelOpt;  // weight, weight_scale, weight_scale_2
extern const StorageFormat kMxfp4Packed;    // weight_packed, weight_scale
extern const StorageFormat kMxfp4Inverse;   // weight, weight_scale_inv
extern const StorageFormat kMxfp4Blocks;    // X_blocks, X_scales
extern const StorageFormat kAwq;            // qweight, qzeros, scales
extern const StorageFormat kGptq;           // qweight, qzeros, scales, g_idx

}  // namespace braid
