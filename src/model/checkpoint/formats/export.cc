// Parts, their bytes, and the words of quantization_config.
#include "model/checkpoint/formats/export.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/math.h"
#include "ops/weight_format.h"

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

json::object Fp8Config() {
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"activation_scheme", "dynamic"},
          {"weight_block_size", {1, ops::kFp8Columns}}};
}

json::object Int8Config() {
  json::object config =
      CompressedTensors("int-quantized", {{"num_bits", 8}, {"strategy", "channel"}});
  config["config_groups"].get_object()["group_0"].get_object()["input_activations"] = {
      {"num_bits", 8},
      {"type", "int"},
      {"symmetric", true},
      {"dynamic", true},
      {"strategy", "token"}};
  return config;
}

json::object Int4Config() {
  return CompressedTensors(
      "pack-quantized",
      {{"num_bits", 4}, {"strategy", "group"}, {"group_size", ops::kInt4Columns}});
}

// The tensors and the quantization_config of weights in a format.
struct QuantisedExport {
  WeightFormat format;
  std::string_view code_suffix;
  DType code_type;
  int64_t codes_per_element;
  std::string_view scale_suffix;
  std::string_view plain_key;  // of the list of modules that stay plain
  json::object (*config)();
};
constexpr QuantisedExport kExports[] = {
    {WeightFormat::kF8, "", DType::kF8E4M3, 1, "_scale_inv", "modules_to_not_convert", Fp8Config},
    {WeightFormat::kI8, "", DType::kI8, 1, "_scale", "ignore", Int8Config},
    {WeightFormat::kI4, "_packed", DType::kI32, ops::kCodesPerWord, "_scale", "ignore", Int4Config},
};

const QuantisedExport& ExportOf(WeightFormat format) {
  const auto* at = std::ranges::find(kExports, format, &QuantisedExport::format);
  CHECK(at != std::end(kExports), "weights in {} cannot be written", NameOf(format));
  return *at;
}

}  // namespace

std::vector<std::string> ExportableFormats() {
  std::vector<std::string> names;
  for (const ops::WeightFormatRow& row : ops::WeightFormats()) {
    const bool known = std::ranges::count(kExports, row.format, &QuantisedExport::format) > 0;
    if (!row.quantised() || known) names.emplace_back(row.name);
  }
  return names;
}

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
  e.kept_ = stored.kept && stored.kept->format == format;
  const QuantisedExport& to = ExportOf(format);
  const ops::WeightFormatRow& row = ops::RowOf(format);
  e.AddPart(to.code_suffix, to.code_type, CeilDiv(stored.k, to.codes_per_element));
  const DType scale = row.numbers[0].type == ops::NumberType::kF32 ? DType::kF32 : DType::kF16;
  e.AddPart(to.scale_suffix, scale, row.ScaleBytes(stored.k) / SizeOf(scale));
  return e;
}

std::vector<std::vector<std::byte>> WeightExport::EmptyRows(int64_t count) const {
  std::vector<std::vector<std::byte>> bytes;
  for (const ExportPart& part : parts_) {
    bytes.emplace_back(static_cast<size_t>(count * part.row_bytes));
  }
  return bytes;
}

std::vector<std::vector<std::byte>> WeightExport::RowsOf(const float* values, int64_t count) const {
  CHECK(quantised());
  std::vector<std::vector<std::byte>> bytes = EmptyRows(count);
  for (int64_t r = 0; r < count; ++r) {
    ops::QuantiseRow(format_, values + r * stored_->k, stored_->k,
                     bytes[0].data() + r * parts_[0].row_bytes,
                     bytes[1].data() + r * parts_[1].row_bytes);
  }
  return bytes;
}

std::vector<std::vector<std::byte>> WeightExport::Rows(int64_t row, int64_t count) const {
  if (!quantised()) return {PlainRows(*stored_, row, count, parts_[0].plan.dtype)};
  std::vector<std::vector<std::byte>> bytes = EmptyRows(count);
  const int64_t k = stored_->k;
  std::vector<float> x(static_cast<size_t>(k));
  for (int64_t r = 0; r < count; ++r) {
    std::byte* codes = bytes[0].data() + r * parts_[0].row_bytes;
    std::byte* scales = bytes[1].data() + r * parts_[1].row_bytes;
    if (kept_) {
      stored_->kept->row(*stored_, row + r, codes, scales);
    } else {
      stored_->Read((row + r) * k, k, DType::kF32, reinterpret_cast<std::byte*>(x.data()));
      ops::QuantiseRow(format_, x.data(), k, codes, scales);
    }
  }
  return bytes;
}

std::vector<std::string> PlainModules(const std::vector<TensorPlan>& plain) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<std::string> modules;
  for (const TensorPlan& plan : plain) {
    if (plan.shape.size() < 2 || !plan.name.ends_with(kWeight)) continue;
    modules.push_back(plan.name.substr(0, plan.name.size() - kWeight.size()));
  }
  return modules;
}

json::object QuantizationConfigOf(ops::WeightFormat format, const std::vector<std::string>& plain) {
  const QuantisedExport& to = ExportOf(format);
  json::object config = to.config();
  config[to.plain_key] = json::value_from(plain);
  return config;
}

}  // namespace braid
