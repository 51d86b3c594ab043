// Parts, their bytes, and the words of quantization_config.
#include "model/checkpoint/formats/export.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "ops/weight_format.h"

namespace braid {
namespace {

using ops::WeightFormat;

// Elements as `type`; rounding is to nearest even.
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
    const uint16_t bits = type == DType::kF16 ? F16OfFloat(values[i]) : Bf16OfFloat(values[i]);
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

json::object Nvfp4Config() {
  return {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {"group_size", 16}};
}

json::object Mxfp4Config() {
  json::object config = CompressedTensors(
      "mxfp4-pack-quantized",
      {{"num_bits", 4}, {"strategy", "group"}, {"group_size", 32}, {"scale_dtype", "uint8"}});
  config["config_groups"].get_object()["group_0"].get_object()["weights"].get_object()["type"] =
      "float";
  return config;
}

// A row of weights as a row of codes and one of scales, those times `scale`.
using RowCoder = void (*)(const float* x, int64_t k, float scale, std::byte* codes,
                          std::byte* scales);

// Codes of a byte each become pairs, the first in the low bits.
void PutPairs(const std::byte* codes, int64_t k, std::byte* pairs) {
  for (int64_t i = 0; i < k / 2; ++i) pairs[i] = codes[2 * i] | codes[2 * i + 1] << 4;
}

void CodeMxfp4(const float* x, int64_t k, float, std::byte* pairs, std::byte* scales) {
  std::vector<std::byte> codes(static_cast<size_t>(k));
  ops::QuantiseRow(WeightFormat::kMxfp4, x, k, codes.data(), scales);
  PutPairs(codes.data(), k, pairs);
}

// The nearest 4-bit float, ties to the even code.
std::byte E2M1OfFloat(float x) {
  constexpr float kMiddles[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const float magnitude = std::abs(x);
  int code = 0;
  for (int i = 0; i < 7; ++i) {
    code += magnitude > kMiddles[i] || (magnitude == kMiddles[i] && i % 2 == 1) ? 1 : 0;
  }
  return static_cast<std::byte>(code | (x < 0 && code > 0 ? 8 : 0));
}

constexpr int64_t kNvfp4Block = 16;
constexpr float kE2M1Most = 6.0f, kE4M3Most = 448.0f;

void CodeNvfp4(const float* x, int64_t k, float scale, std::byte* pairs, std::byte* scales) {
  std::byte codes[kNvfp4Block];
  for (int64_t c = 0; c < k; c += kNvfp4Block, x += kNvfp4Block) {
    float most = 0;
    for (int64_t i = 0; i < kNvfp4Block; ++i) most = std::max(most, std::abs(x[i]));
    const uint8_t local = E4M3OfFloat(std::min(most / kE2M1Most / scale, kE4M3Most));
    const float step = FloatOfE4M3(local) * scale;
    const float factor = step > 0 ? 1.0f / step : 0.0f;
    for (int64_t i = 0; i < kNvfp4Block; ++i) codes[i] = E2M1OfFloat(x[i] * factor);
    PutPairs(codes, kNvfp4Block, pairs + c / 2);
    scales[c / kNvfp4Block] = std::byte{local};
  }
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
  // Of formats that only drawn weights are written in: columns of a scale, its type, the coder, and
  // the suffix of a scale of all, if there is one.
  int64_t columns = 1;
  DType scale_type = DType::kF32;
  RowCoder code = nullptr;
  std::string_view whole_suffix = "";
};
constexpr QuantisedExport kExports[] = {
    {WeightFormat::kF8, "", DType::kF8E4M3, 1, "_scale_inv", "modules_to_not_convert", Fp8Config},
    {WeightFormat::kI8, "", DType::kI8, 1, "_scale", "ignore", Int8Config},
    {WeightFormat::kI4, "_packed", DType::kI32, ops::kCodesPerWord, "_scale", "ignore", Int4Config},
    {WeightFormat::kNvfp4, "", DType::kU8, 2, "_scale", "ignore", Nvfp4Config, kNvfp4Block,
     DType::kF8E4M3, CodeNvfp4, "_scale_2"},
    {WeightFormat::kMxfp4, "_packed", DType::kU8, 2, "_scale", "ignore", Mxfp4Config, 32,
     DType::kU8, CodeMxfp4},
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
    const auto* at = std::ranges::find(kExports, row.format, &QuantisedExport::format);
    if (!row.quantised() || (at != std::end(kExports) && !at->code)) names.emplace_back(row.name);
  }
  return names;
}

std::vector<std::string> DrawableFormats() {
  std::vector<std::string> names;
  for (const QuantisedExport& row : kExports) {
    if (row.code) names.emplace_back(NameOf(row.format));
  }
  return names;
}

int64_t ExportColumns(WeightFormat format) { return ExportOf(format).columns; }

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

WeightExport WeightExport::Quantised(const StoredWeight& stored, ops::WeightFormat format,
                                     float largest) {
  WeightExport e(stored);
  e.format_ = format;
  e.kept_ = stored.kept && stored.kept->format == format && stored.order.empty();
  const QuantisedExport& to = ExportOf(format);
  const ops::WeightFormatRow& row = ops::RowOf(format);
  e.AddPart(to.code_suffix, to.code_type, CeilDiv(stored.k, to.codes_per_element));
  if (to.code) {
    e.AddPart(to.scale_suffix, to.scale_type, stored.k / to.columns);
    if (to.whole_suffix.empty()) return e;
    e.scale_ = largest / (kE2M1Most * kE4M3Most);
    const auto bits = std::bit_cast<std::array<std::byte, 4>>(e.scale_);
    ExportPart whole;
    whole.plan.name = stored.name + std::string(to.whole_suffix);
    whole.plan.dtype = DType::kF32;
    whole.plan.shape = {1};
    whole.whole.assign(bits.begin(), bits.end());
    e.parts_.push_back(std::move(whole));
    return e;
  }
  const DType scale = row.numbers[0].type == ops::NumberType::kF32 ? DType::kF32 : DType::kF16;
  e.AddPart(to.scale_suffix, scale, row.ScaleBytes(stored.k) / SizeOf(scale));
  return e;
}

std::vector<std::vector<std::byte>> WeightExport::EmptyRows(int64_t count) const {
  std::vector<std::vector<std::byte>> bytes;
  for (const ExportPart& part : parts_) {
    if (!part.whole.empty()) continue;
    bytes.emplace_back(static_cast<size_t>(count * part.row_bytes));
  }
  return bytes;
}

std::vector<std::vector<std::byte>> WeightExport::RowsOf(const float* values, int64_t count) const {
  CHECK(quantised());
  const RowCoder code = ExportOf(format_).code;
  const int64_t k = stored_->k;
  std::vector<std::vector<std::byte>> bytes = EmptyRows(count);
  for (int64_t r = 0; r < count; ++r, values += k) {
    std::byte* codes = bytes[0].data() + r * parts_[0].row_bytes;
    std::byte* scales = bytes[1].data() + r * parts_[1].row_bytes;
    if (code) {
      code(values, k, scale_, codes, scales);
    } else {
      ops::QuantiseRow(format_, values, k, codes, scales);
    }
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
