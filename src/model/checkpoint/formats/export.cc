// Parts, their bytes, and the words of quantization_config.
#include "model/checkpoint/formats/export.h"

#include <cstring>

#include "base/check.h"
#include "base/math.h"
#include "ops/weight_codes.h"

namespace braid {
namespace {

using ops::WeightFormat;

// Elements as `type`; rounding to bf16 is to nearest even.
std::vector<std::byte> PlainRows(const StoredWeight& stored, int64_t row, int64_t count,
                                 DType type) {
  const int64_t first = row * stored.k, elements = count * stored.k;
  std::vector<std::byte> out(static_cast<size_t>(elements * SizeOf(type)));
  if (type == stored.dtype || type == DType::kF32) {
    stored.Read(first, elements, type, out.data());
    return out;
  }
  std::vector<float> values(static_cast<size_t>(elements));
  stored.Read(first, elements, DType::kF32, reinterpret_cast<std::byte*>(values.data()));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = Bf16OfFloat(values[i]);
    std::memcpy(out.data() + 2 * i, &bits, 2);
  }
  return out;
}

json::object CompressedTensors(std::string_view name, json::object weights) {
  weights["type"] = "int";
  weights["symmetric"] = true;
  weights["dynamic"] = false;
  json::object group = {{"targets", json::array{"Linear"}}, {"weights", std::move(weights)}};
  return {{"quant_method", "compressed-tensors"},
          {"format", name},
          {"quantization_status", "compressed"},
          {"config_groups", {{"group_0", std::move(group)}}}};
}

}  // namespace

void WeightExport::AddPart(std::string_view suffix, DType type, int64_t columns) {
  std::vector<int64_t> shape = {stored_->rows, columns};
  if (stored_->matrices > 1) shape.insert(shape.begin(), stored_->matrices);
  parts_.push_back(
      {{stored_->name + std::string(suffix), type, std::move(shape)}, columns * SizeOf(type)});
}

WeightExport WeightExport::Plain(const StoredWeight& stored, DType plain) {
  WeightExport e(stored);
  e.AddPart("", plain, stored.k);
  if (stored.format == nullptr) e.parts_[0].plan.shape = stored.main().shape;
  return e;
}

WeightExport WeightExport::Quantised(const StoredWeight& stored, ops::WeightFormat format) {
  WeightExport e(stored);
  e.format_ = format;
  const KeptCodes* kept = stored.format ? stored.format->kept : nullptr;
  e.kept_ = kept && kept->format == format && kept->fit(stored);
  const int64_t scales = ops::ScalesPerRow(format, stored.k);
  if (format == WeightFormat::kI4) {
    e.AddPart("_packed", DType::kI32, CeilDiv(stored.k, ops::kCodesPerWord));
    e.AddPart("_scale", DType::kF16, scales);
  } else {
    const bool fp8 = format == WeightFormat::kF8;
    e.AddPart("", fp8 ? DType::kF8E4M3 : DType::kI8, stored.k);
    e.AddPart(fp8 ? "_scale_inv" : "_scale", DType::kF32, scales);
  }
  return e;
}

std::vector<std::vector<std::byte>> WeightExport::Rows(int64_t row, int64_t count) const {
  if (!quantised()) return {PlainRows(*stored_, row, count, parts_[0].plan.dtype)};
  std::vector<std::vector<std::byte>> bytes;
  for (const ExportPart& part : parts_) {
    bytes.emplace_back(static_cast<size_t>(count * part.row_bytes));
  }
  const int64_t k = stored_->k;
  std::vector<float> x(static_cast<size_t>(k));
  for (int64_t r = 0; r < count; ++r) {
    std::byte* codes = bytes[0].data() + r * parts_[0].row_bytes;
    std::byte* scales = bytes[1].data() + r * parts_[1].row_bytes;
    if (kept_) {
      stored_->format->kept->row(*stored_, row + r, codes, scales);
    } else {
      stored_->Read((row + r) * k, k, DType::kF32, reinterpret_cast<std::byte*>(x.data()));
      ops::QuantiseRow(format_, x.data(), k, codes, scales);
    }
  }
  return bytes;
}

json::object QuantizationConfigOf(ops::WeightFormat format, const std::vector<std::string>& plain) {
  const json::value names = json::value_from(plain);
  json::object config;
  if (format == WeightFormat::kF8) {
    return {{"quant_method", "fp8"},
            {"fmt", "e4m3"},
            {"activation_scheme", "dynamic"},
            {"weight_block_size", {1, ops::kFp8Columns}},
            {"modules_to_not_convert", names}};
  }
  if (format == WeightFormat::kI8) {
    config = CompressedTensors("int-quantized", {{"num_bits", 8}, {"strategy", "channel"}});
    config["config_groups"].get_object()["group_0"].get_object()["input_activations"] = {
        {"num_bits", 8},
        {"type", "int"},
        {"symmetric", true},
        {"dynamic", true},
        {"strategy", "token"}};
  } else {
    CHECK(format == WeightFormat::kI4);
    config = CompressedTensors(
        "pack-quantized",
        {{"num_bits", 4}, {"strategy", "group"}, {"group_size", ops::kInt4Columns}});
  }
  config["ignore"] = names;
  return config;
}

}  // namespace braid
