// Detection: the method, then the method's own way of saying which format.
#include "model/checkpoint/formats/quantization.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/checkpoint/formats/storage_format.h"
#include "ops/layout_digest.h"

namespace braid {
namespace {

constexpr std::string_view kKey = "quantization_config";

// One object of the config, whose problems go to the config under its path.
class Section {
 public:
  Section(const json::object& object, std::string path, HfConfig& config)
      : object_(object), path_(std::move(path)), config_(config) {}

  std::string Word(std::string_view key) const {
    const json::value* value = Find(key);
    if (value == nullptr) return {};
    if (value->is_string()) return std::string(value->get_string());
    Wrong(key, *value, "a word");
    return {};
  }
  int64_t Int(std::string_view key, IntRange range, int64_t otherwise) const {
    const json::value* value = Find(key);
    if (value == nullptr) return otherwise;
    const int64_t* number = value->if_int64();
    if (number && *number >= range.low && *number <= range.high) return *number;
    Wrong(key, *value, fmt::format("an integer from {} to {}", range.low, range.high));
    return otherwise;
  }
  bool Bool(std::string_view key, bool otherwise) const {
    const json::value* value = Find(key);
    if (value == nullptr) return otherwise;
    if (value->is_bool()) return value->get_bool();
    Wrong(key, *value, "true or false");
    return otherwise;
  }
  void AppendWords(std::string_view key, std::vector<std::string>& words) const {
    const json::value* value = Find(key);
    if (value == nullptr) return;
    const json::array* list = value->if_array();
    if (list == nullptr || !std::ranges::all_of(*list, [](auto& v) { return v.is_string(); })) {
      return Wrong(key, *value, "a list of names");
    }
    for (const json::value& item : *list) words.emplace_back(item.get_string());
  }
  const json::value* Find(std::string_view key) const {
    const json::value* value = object_.if_contains(key);
    return value && !value->is_null() ? value : nullptr;
  }
  void Wrong(std::string_view key, const json::value& found, std::string_view right) const {
    Fail(key, fmt::format("is {}; it must be {}", JsonExcerpt(found), right));
  }
  void Fail(std::string_view key, const std::string& problem) const {
    config_.Fail(fmt::format("{}.{}", path_, key), problem);
  }
  // The word must be one of `allowed`.
  void Require(std::string_view key, const std::string& word, std::string_view allowed) const {
    Fail(key, fmt::format("is \"{}\"; known are {}", word, allowed));
  }
  Section Inner(const json::object& object, std::string_view key) const {
    return {object, fmt::format("{}.{}", path_, key), config_};
  }
  const json::object& object() const { return object_; }

 private:
  const json::object& object_;
  std::string path_;
  HfConfig& config_;
};

void Add(QuantizationSpec& q, const StorageFormat& format) {
  if (std::ranges::count(q.formats, &format) == 0) q.formats.push_back(&format);
}

void ReadBlocks(const Section& s, std::string_view key, QuantizationSpec& q) {
  const json::value* value = s.Find(key);
  if (value == nullptr) return;
  const json::array* pair = value->if_array();
  auto side = [&](size_t i) { return pair->at(i).is_int64() ? pair->at(i).get_int64() : 0; };
  if (pair == nullptr || pair->size() != 2 || side(0) < 1 || side(1) < 1 || side(0) > 65536 ||
      side(1) > 65536) {
    return s.Wrong(key, *value, "two integers from 1 to 65536");
  }
  q.block_rows = side(0);
  q.block_columns = side(1);
}

void ReadFp8(const Section& s, QuantizationSpec& q) {
  if (std::string fmt_word = s.Word("fmt"); !fmt_word.empty() && fmt_word != "e4m3") {
    s.Require("fmt", fmt_word, "\"e4m3\"");
  }
  if (std::string scale = s.Word("scale_fmt");
      !scale.empty() && scale != "ue8m0" && scale != "float") {
    s.Require("scale_fmt", scale, "\"ue8m0\"");
  }
  ReadBlocks(s, "weight_block_size", q);
  Add(q, q.block_rows > 0 ? kFp8Blocks : kFp8Scaled);
  if (std::string experts = s.Word("routed_experts_quant_method"); experts == "mxfp4") {
    Add(q, kMxfp4Inverse);
  } else if (!experts.empty() && experts != "fp8") {
    s.Require("routed_experts_quant_method", experts, "\"fp8\", \"mxfp4\"");
  }
}

struct PackedFormat {
  std::string_view name;
  const StorageFormat* format;
  int64_t bits;
  std::string_view type;
};
constexpr PackedFormat kPackedFormats[] = {{"float-quantized", &kFp8Scaled, 8, "float"},
                                           {"int-quantized", &kInt8Scaled, 8, "int"},
                                           {"pack-quantized", &kInt4Packed, 4, "int"},
                                           {"nvfp4-pack-quantized", &kNvfp4Packed, 4, "float"},
                                           {"mxfp4-pack-quantized", &kMxfp4Packed, 4, "float"}};

const PackedFormat* FindPackedFormat(const Section& s, const std::string& name) {
  const auto* at = std::ranges::find(kPackedFormats, name, &PackedFormat::name);
  if (at != std::end(kPackedFormats)) return at;
  std::vector<std::string_view> known;
  for (const PackedFormat& format : kPackedFormats) known.push_back(format.name);
  s.Require("format", name, fmt::format("{}", fmt::join(known, ", ")));
  return nullptr;
}

void ReadGroup(const Section& group, const std::string& format_of_all, QuantizationSpec& q) {
  std::string name = group.Word("format");
  if (name.empty()) name = format_of_all;
  const PackedFormat* format = FindPackedFormat(group, name);
  const json::value* value = group.Find("weights");
  if (format == nullptr || value == nullptr) return;  // a group for activations alone
  if (!value->is_object()) return group.Wrong("weights", *value, "an object");
  const Section weights = group.Inner(value->get_object(), "weights");
  const int64_t bits = weights.Int("num_bits", {1, 64}, format->bits);
  const bool packed = format->format == &kInt4Packed;
  if (bits != format->bits && !(packed && bits == 8)) {
    weights.Fail("num_bits", fmt::format("is {}; with \"{}\" it must be {}{}", bits, format->name,
                                         format->bits, packed ? " or 8" : ""));
  }
  if (std::string type = weights.Word("type"); !type.empty() && type != format->type) {
    weights.Fail("type", fmt::format("is \"{}\"; with \"{}\" it must be \"{}\"", type, format->name,
                                     format->type));
  }
  const std::string strategy = weights.Word("strategy");
  constexpr std::string_view kStrategies[] = {"",      "tensor",       "channel",
                                              "block", "tensor_group", "group"};
  if (std::ranges::count(kStrategies, strategy) == 0) {
    weights.Require("strategy", strategy, "tensor, channel, block, group, tensor_group");
  }
  if (strategy == "block") ReadBlocks(weights, "block_structure", q);
  const int64_t size = weights.Int("group_size", {-1, 1 << 20}, 0);
  if (packed) q.group = std::max<int64_t>(size, 0);
  Add(q, *format->format);
}

void ReadCompressedTensors(const Section& s, QuantizationSpec& q) {
  const std::string format = s.Word("format");
  if (const json::value* sparsity = s.Find("sparsity_config"); sparsity && sparsity->is_object()) {
    const Section inner = s.Inner(sparsity->get_object(), "sparsity_config");
    if (std::string kind = inner.Word("format"); !kind.empty() && kind != "dense") {
      inner.Require("format", kind, "\"dense\"");
    }
  }
  const json::value* groups = s.Find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->get_object().empty()) {
    return s.Fail("config_groups", "is missing; it must say how weights are quantised");
  }
  for (const auto& [name, group] : groups->get_object()) {
    const std::string path = fmt::format("config_groups.{}", std::string_view(name));
    if (!group.is_object()) {
      s.Wrong(path, group, "an object");
      continue;
    }
    ReadGroup(s.Inner(group.get_object(), path), format, q);
  }
  s.AppendWords("ignore", q.ignored);
}

void ReadModelOpt(const Section& s, QuantizationSpec& q) {
  const std::string algorithm = s.Word("quant_algo");
  if (algorithm == "NVFP4") {
    if (const int64_t size = s.Int("group_size", {1, 1 << 20}, 16); size != 16) {
      s.Fail("group_size", fmt::format("is {}; NVFP4 has blocks of 16", size));
    }
    Add(q, kNvfp4ModelOpt);
  } else if (algorithm == "FP8") {
    Add(q, kFp8Scaled);
  } else {
    s.Require("quant_algo", algorithm, "\"NVFP4\", \"FP8\"");
  }
  s.AppendWords("ignore", q.ignored);
  s.AppendWords("exclude_modules", q.ignored);
}

void ReadIntegers(const Section& s, QuantizationSpec& q) {
  const bool awq = q.method == "awq";
  if (const int64_t bits = s.Int("bits", {1, 64}, 4); bits != 4 && (awq || bits != 8)) {
    s.Fail("bits", fmt::format("is {}; it must be 4{}", bits, awq ? "" : " or 8"));
  }
  q.group = std::max<int64_t>(0, s.Int("group_size", {-1, 1 << 20}, 128));
  // Newer writers say "format"; where both keys stand, readers take the older one.
  const std::string_view older = awq ? "version" : "checkpoint_format";
  const std::string_view key = s.Find(older) != nullptr ? older : "format";
  const std::string layout = s.Word(key);
  if (awq) {
    if (!layout.empty() && layout != "gemm" && layout != "GEMM") {
      s.Require(key, layout, "\"gemm\"");
    }
    if (!s.Bool("zero_point", true)) s.Fail("zero_point", "is false; it must be true");
  } else {
    if (!layout.empty() && layout != "gptq" && layout != "gptq_v2") {
      s.Require(key, layout, "\"gptq\", \"gptq_v2\"");
    }
    q.zero_off_by_one = layout != "gptq_v2";
  }
  Add(q, awq ? kAwq : kGptq);
}

// The layouts must be those of this version: kernels read the panels where they lie.
void ReadPanels(const Section& s, QuantizationSpec& q) {
  if (const json::value* offset = s.Find("norm_offset")) {
    if (!offset->is_number()) s.Wrong("norm_offset", *offset, "a number");
    if (offset->is_number()) q.norm_offset = offset->to_number<double>();
  }
  const json::value* layouts = s.Find("layouts");
  if (layouts == nullptr || !layouts->is_object()) {
    return s.Fail("layouts", "is missing; it must say how the panels of every format lie");
  }
  for (const auto& [name, digest] : layouts->get_object()) {
    const auto format = ops::FindWeightFormat(std::string_view(name));
    if (format && digest == json::value(ops::LayoutDigest(*format))) {
      Add(q, PanelFormat(*format));
      continue;
    }
    s.Fail(fmt::format("layouts.{}", std::string_view(name)),
           fmt::format("{}: another version of Braid has written this checkpoint; convert the "
                       "original again with `braid convert --mapped`",
                       format ? fmt::format("is {} and must be \"{}\"", JsonExcerpt(digest),
                                            ops::LayoutDigest(*format))
                              : "is a format that is not known"));
  }
}

}  // namespace

QuantizationSpec ReadQuantization(HfConfig& config) {
  QuantizationSpec q;
  const bool renamed = !config.Has(kKey) && config.Has("compression_config");
  const std::string key(renamed ? "compression_config" : kKey);
  const json::object* object = config.Object(key);
  if (object == nullptr || object->empty()) return q;
  const Section s(*object, key, config);
  q.method = s.Word("quant_method");
  if (q.method.empty() && s.Find("quant_algo")) q.method = "modelopt";
  if (q.method == "fp8") {
    ReadFp8(s, q);
  } else if (q.method == "compressed-tensors") {
    ReadCompressedTensors(s, q);
  } else if (q.method == "modelopt") {
    ReadModelOpt(s, q);
  } else if (q.method == "mxfp4") {
    Add(q, kMxfp4Blocks);
    Add(q, kMxfp4Packed);
  } else if (q.method == "awq" || q.method == "gptq") {
    ReadIntegers(s, q);
  } else if (q.panels()) {
    ReadPanels(s, q);
  } else {
    s.Require("quant_method", q.method,
              "\"fp8\", \"compressed-tensors\", \"modelopt\", \"mxfp4\", \"awq\", \"gptq\", "
              "\"braid-panels\"");
  }
  s.AppendWords("ignored_layers", q.ignored);
  s.AppendWords("modules_to_not_convert", q.ignored);
  return q;
}

QuantizationSpec ReadModelOptFile(const json::object& file, HfConfig& config) {
  QuantizationSpec q{.method = "modelopt"};
  const json::value* inner = file.if_contains("quantization");
  if (inner == nullptr || !inner->is_object()) {
    config.Fail("hf_quant_config.json", "has no object \"quantization\"");
    return q;
  }
  ReadModelOpt(Section(inner->get_object(), "hf_quant_config.json", config), q);
  return q;
}

// A name on the list stands for the module, for those below it, and, as exporters shorten names,
// for every module whose name ends with it.
bool IsIgnored(const QuantizationSpec& quantization, std::string_view module, int64_t& steps_left) {
  return std::ranges::any_of(quantization.ignored, [&](std::string_view item) {
    if (--steps_left < 0) return false;
    if (item.starts_with("re:")) return MatchesPattern(item.substr(3), module, steps_left);
    if (!item.empty() && item.back() == '*')
      return module.starts_with(item.substr(0, item.size() - 1));
    if (!module.starts_with(item)) {
      return module.ends_with(item) && module[module.size() - item.size() - 1] == '.';
    }
    return module.size() == item.size() || module[item.size()] == '.';
  });
}

}  // namespace braid
