// The rules by kinds of tensors. Those for attention's values count the tensors that have them;
// those for the feed-forwards go by the number of the block.
#include "model/writing/gguf_mixtures.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace braid {
namespace {

constexpr GgufMixture kMixtures[] = {
    {"q4_0", "Q4_0", 2, "Q4_0"},        {"q4_1", "Q4_1", 3, "Q4_1"},
    {"q8_0", "Q8_0", 7, "Q8_0"},        {"q5_0", "Q5_0", 8, "Q5_0"},
    {"q5_1", "Q5_1", 9, "Q5_1"},        {"q2_k", "Q2_K", 10, "Q2_K"},
    {"q3_k_s", "Q3_K_S", 11, "Q3_K"},   {"q3_k_m", "Q3_K_M", 12, "Q3_K"},
    {"q3_k_l", "Q3_K_L", 13, "Q3_K"},   {"q4_k_s", "Q4_K_S", 14, "Q4_K"},
    {"q4_k_m", "Q4_K_M", 15, "Q4_K"},   {"q5_k_s", "Q5_K_S", 16, "Q5_K"},
    {"q5_k_m", "Q5_K_M", 17, "Q5_K"},   {"q6_k", "Q6_K", 18, "Q6_K"},
    {"iq4_nl", "IQ4_NL", 25, "IQ4_NL"}, {"iq4_xs", "IQ4_XS", 30, "IQ4_XS"},
    {"gguf_bf16", "BF16", 32, "BF16"},  {"gguf_f16", "F16", 1, "F16"},
    {"mxfp4_moe", "MXFP4_MOE", 38, "MXFP4"},
};

const GgufType& TypeOf(std::string_view name) {
  const std::span<const GgufType> types = GgufTypes();
  const auto at = std::ranges::find(types, name, &GgufType::name);
  CHECK(at != types.end(), "no type {}", name);
  return *at;
}

bool Has(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

// The number in "blk.12.ffn_down.weight"; -1 for a tensor of no block.
int64_t BlockOf(std::string_view name) {
  int64_t block = -1;
  constexpr std::string_view kPrefix = "blk.";
  if (name.starts_with(kPrefix)) {
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), block);
  }
  return block;
}

// The converter keeps vectors and these matrices in F32, and the quantiser leaves them alone.
bool IsPlain(const GgufTensorSizes& tensor) {
  const std::string& name = tensor.name;
  int64_t outer = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) outer *= tensor.shape[i];
  return outer == 1 || !name.ends_with(".weight") || name.ends_with("_norm.weight") ||
         Has(name, "ffn_gate_inp") || Has(name, "ssm_conv1d");
}

class Chooser {
 public:
  Chooser(const GgufMixture& mixture, const GgufModelSizes& model,
          std::span<const GgufTensorSizes> tensors)
      : mixture_(mixture), model_(model) {
    values_ = std::ranges::count_if(
        tensors, [](const GgufTensorSizes& tensor) { return IsValues(tensor.name); });
  }

  const GgufType& Choose(const GgufTensorSizes& tensor);

 private:
  // Tensors of attention's values, which lose most.
  static bool IsValues(std::string_view name) {
    return Has(name, "attn_v.weight") || Has(name, "attn_qkv.weight");
  }
  bool Is(std::initializer_list<std::string_view> names) const {
    return std::ranges::count(names, mixture_.file_name) > 0;
  }
  static bool MoreBits(int64_t i, int64_t of) {
    return i < of / 8 || i >= 7 * of / 8 || (i - of / 8) % 3 == 2;
  }
  std::string_view Named(const GgufTensorSizes& tensor);
  std::string_view ForHead(const GgufTensorSizes& tensor) const;
  std::string_view ForValues();
  std::string_view ForDown(int64_t block) const;
  std::string_view ForOutput() const;

  const GgufMixture& mixture_;
  const GgufModelSizes& model_;
  int64_t values_ = 0;  // tensors of values
  int64_t value_ = 0;   // the next of them
};

std::string_view Chooser::ForHead(const GgufTensorSizes& tensor) const {
  const bool divided = tensor.shape.back() % TypeOf(mixture_.type).block_elements == 0;
  return Is({"MXFP4_MOE", "Q8_0"}) || !divided ? "Q8_0" : "Q6_K";
}

std::string_view Chooser::ForValues() {
  const int64_t i = value_++;
  const bool shared = model_.heads_per_kv_head >= 4;
  if (model_.experts == 8) return "Q8_0";
  if (Is({"Q2_K"})) return shared ? "Q4_K" : "Q3_K";
  if (Is({"Q3_K_M"})) return i < 2 ? "Q5_K" : "Q4_K";
  if (Is({"Q3_K_L"})) return "Q5_K";
  if (Is({"IQ4_NL", "IQ4_XS"}) && shared) return "Q5_K";
  if (Is({"Q4_K_M", "Q5_K_M"}) && MoreBits(i, values_)) return "Q6_K";
  if (Is({"Q4_K_S"}) && i < 4) return "Q5_K";
  return mixture_.type;
}

std::string_view Chooser::ForDown(int64_t block) const {
  const bool first = block < model_.blocks / 8;
  if (Is({"Q2_K"})) return "Q3_K";
  if (Is({"Q3_K_M"})) return block < model_.blocks / 16 ? "Q5_K" : "Q4_K";
  if (Is({"Q3_K_L"})) return "Q5_K";
  if (Is({"Q4_K_M", "Q5_K_M"}) && MoreBits(block, model_.blocks)) return "Q6_K";
  if (Is({"IQ4_NL", "IQ4_XS", "Q4_K_S"}) && first) return "Q5_K";
  return mixture_.type;
}

std::string_view Chooser::ForOutput() const {
  if (model_.experts == 8) {
    const bool few = Is({"Q2_K", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ4_XS"});
    return few ? "Q5_K" : mixture_.type;
  }
  if (Is({"Q2_K"})) return "Q3_K";
  if (Is({"Q3_K_M"})) return "Q4_K";
  if (Is({"Q3_K_L"})) return "Q5_K";
  return mixture_.type;
}

std::string_view Chooser::Named(const GgufTensorSizes& tensor) {
  const std::string& name = tensor.name;
  if (Is({"BF16", "F16"})) return mixture_.type;
  if (name == "output.weight" || (model_.tied && name == "token_embd.weight")) {
    return ForHead(tensor);
  }
  if (Is({"MXFP4_MOE"})) {
    return tensor.shape.size() == 3 && tensor.shape.front() > 1 ? "MXFP4" : "Q8_0";
  }
  if (name == "token_embd.weight") return mixture_.type;
  if (IsValues(name)) return ForValues();
  if (Has(name, "attn_k.weight") && model_.experts == 8) return "Q8_0";
  if (Has(name, "ffn_down")) return ForDown(BlockOf(name));
  if (Has(name, "attn_output.weight")) return ForOutput();
  return mixture_.type;
}

// What blocks of 32 hold where those of 256 do not divide a row.
std::string_view Narrower(std::string_view type) {
  if (type == "IQ4_XS") return "IQ4_NL";
  if (type == "Q2_K" || type == "Q3_K") return "Q4_0";
  if (type == "Q4_K") return "Q5_0";
  if (type == "Q5_K") return "Q5_1";
  if (type == "Q6_K") return "Q8_0";
  return "F16";
}

const GgufType& Chooser::Choose(const GgufTensorSizes& tensor) {
  if (IsPlain(tensor)) return TypeOf("F32");
  const GgufType* type = &TypeOf(Named(tensor));
  while (tensor.shape.back() % type->block_elements != 0) type = &TypeOf(Narrower(type->name));
  return *type;
}

}  // namespace

std::span<const GgufMixture> GgufMixtures() { return kMixtures; }

std::vector<std::string> GgufMixtureNames() {
  std::vector<std::string> names;
  for (const GgufMixture& mixture : kMixtures) names.emplace_back(mixture.name);
  return names;
}

const GgufMixture* FindGgufMixture(std::string_view name) {
  const auto* at = std::ranges::find(kMixtures, name, &GgufMixture::name);
  return at == std::end(kMixtures) ? nullptr : at;
}

std::vector<const GgufType*> GgufTypesOf(const GgufMixture& mixture, const GgufModelSizes& model,
                                         std::span<const GgufTensorSizes> tensors) {
  Chooser chooser(mixture, model, tensors);
  std::vector<const GgufType*> types;
  for (const GgufTensorSizes& tensor : tensors) types.push_back(&chooser.Choose(tensor));
  return types;
}

}  // namespace braid
