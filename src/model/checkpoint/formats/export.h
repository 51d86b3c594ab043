// How a checkpoint's weight is written: as one plain tensor, or as the tensors of one of the
// engine's quantised formats, which loading keeps as they are (KeptCodes). Pure.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "model/checkpoint/formats/storage_format.h"
#include "model/checkpoint/safetensors_writer.h"

namespace braid {

// A tensor to write, a run of bytes for every row of the weight, or all of its bytes.
struct ExportPart {
  TensorPlan plan;
  int64_t row_bytes = 0;
  std::vector<std::byte> whole = {};
};

class WeightExport {
 public:
  // `plain` is the type where the weight is not quantised.
  static WeightExport Plain(const StoredWeight& stored, DType plain);
  // `format` is quantised and one of ExportableFormats(). Codes that the weight already has in it
  // are copied. With a format of DrawableFormats() alone the numbers must be given (RowsOf); the
  // largest magnitude of them all is `largest`.
  static WeightExport Quantised(const StoredWeight& stored, ops::WeightFormat format,
                                float largest = 0);

  const std::vector<ExportPart>& parts() const { return parts_; }
  bool quantised() const { return ops::IsQuantised(format_); }
  // Bytes of rows [row, row + count), counted through all matrices, of every part that has rows.
  std::vector<std::vector<std::byte>> Rows(int64_t row, int64_t count) const;
  // The same of quantised weights from numbers [count][k] instead of the stored ones.
  std::vector<std::vector<std::byte>> RowsOf(const float* values, int64_t count) const;

 private:
  std::vector<std::vector<std::byte>> EmptyRows(int64_t count) const;
  explicit WeightExport(const StoredWeight& stored) : stored_(&stored) {}
  void AddPart(std::string_view suffix, DType type, int64_t columns);

  const StoredWeight* stored_;
  ops::WeightFormat format_ = ops::WeightFormat::kBF16;
  float scale_ = 0;  // of all of the weight, where the format has one
  bool kept_ = false;
  std::vector<ExportPart> parts_;
};

// Names of the formats in which weights can be written, and of those in which only weights whose
// largest number is known beforehand can be.
std::vector<std::string> ExportableFormats();
std::vector<std::string> DrawableFormats();
// Columns of a scale that must divide a row; 1 where any row can be written.
int64_t ExportColumns(ops::WeightFormat format);

// The modules ("model.layers.0.mlp.gate") of plain tensors that are matrices.
std::vector<std::string> PlainModules(const std::vector<TensorPlan>& plain);

// quantization_config of a checkpoint whose quantised weights are in this format.
json::object QuantizationConfigOf(ops::WeightFormat format, const std::vector<std::string>& plain);

}  // namespace braid
