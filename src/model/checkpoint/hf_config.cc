// Lookup in two levels, ranges, and the three classes of keys.
#include "model/checkpoint/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/system/file.h"

namespace braid {
namespace {

constexpr size_t kConfigBytesMax = size_t{1} << 20;
constexpr size_t kProblemsMax = 32;

// Keys of any family that cannot change what a text model computes: how it was trained or saved,
// what a tokenizer or a generation loop does, and the parts for pictures and sound.
constexpr std::string_view kHarmless[] = {
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "auto_map",
    "bos_token_id",
    "chunk_size_feed_forward",
    "dtype",
    "eos_token_id",
    "id2label",
    "image_token_id",
    "initializer_range",
    "is_encoder_decoder",
    "label2id",
    "mamba_ssm_dtype",
    "max_window_layers",
    "model_type",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "problem_type",
    "return_dict",
    "router_aux_loss_coef",
    "router_z_loss_coef",
    "task_specific_params",
    "text_config",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "use_cache",
    "video_token_id",
    "vision_config",
    "vision_end_token_id",
    "vision_start_token_id",
};

bool IsNeutral(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return true;
    case json::kind::bool_:
      return !value.get_bool();
    case json::kind::int64:
      return value.get_int64() == 0;
    case json::kind::uint64:
      return value.get_uint64() == 0;
    case json::kind::double_:
      return value.get_double() == 0;
    case json::kind::string:
      return value.get_string().empty();
    case json::kind::array:
      return value.get_array().empty();
    case json::kind::object:
      return value.get_object().empty();
  }
  return false;
}

std::string Quoted(std::initializer_list<std::string_view> words) {
  std::string list;
  for (std::string_view word : words) {
    list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", word);
  }
  return list;
}

const json::value* FindPath(const json::object& object, std::string_view path) {
  const size_t dot = path.find('.');
  const json::value* value = object.if_contains(path.substr(0, dot));
  if (value == nullptr || value->is_null()) return nullptr;
  if (dot == std::string_view::npos) return value;
  const json::object* inner = value->if_object();
  return inner ? FindPath(*inner, path.substr(dot + 1)) : nullptr;
}

Result<std::string> ReadArchitecture(const json::object& root, const std::string& source) {
  const json::value* value = root.if_contains("architectures");
  const json::array* list = value ? value->if_array() : nullptr;
  if (list == nullptr || list->size() != 1 || !list->front().is_string()) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: \"architectures\" is {}; it must be a list of one name, "
                             "the class of transformers that computes the model",
                             source, value ? JsonExcerpt(*value) : "absent"),
                 "architectures"};
  }
  return std::string(list->front().get_string());
}

}  // namespace

Result<HfConfig> HfConfig::Read(const std::string& directory) {
  const std::string path = directory + "/config.json";
  if (!IsDirectory(directory)) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is not a directory; a model is a directory with config.json and "
                             "safetensors files, or a file whose name ends with .gguf",
                             directory)};
  }
  if (!FileExists(path)) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{}: no such file; a model directory holds config.json", path)};
  }
  ASSIGN_OR_RETURN(std::string text, ReadFile(path, kConfigBytesMax));
  return Parse(text, path);
}

Result<HfConfig> HfConfig::Parse(std::string_view text, const std::string& source) {
  ASSIGN_OR_RETURN(json::value value, ParseJson(text, source, {.bytes_max = kConfigBytesMax}));
  if (!value.is_object()) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: {}; it must be an object", source, JsonKindName(value))};
  }
  HfConfig config;
  config.source_ = source;
  config.root_ = std::move(value.get_object());
  const json::value* inner = config.root_.if_contains("text_config");
  if (inner && !inner->is_null() && !inner->is_object()) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: \"text_config\" is {}; it must be an object", source,
                             JsonKindName(*inner)),
                 "text_config"};
  }
  ASSIGN_OR_RETURN(config.architecture_, ReadArchitecture(config.root_, source));
  return config;
}

const json::value* HfConfig::Find(std::string_view key) const {
  const json::value* inner = root_.if_contains("text_config");
  if (inner && inner->is_object()) {
    if (const json::value* value = FindPath(inner->get_object(), key)) return value;
  }
  return FindPath(root_, key);
}

const json::value* HfConfig::Use(std::string_view key) {
  used_.emplace(key);
  return Find(key);
}

void HfConfig::Fail(std::string_view key, const std::string& problem) {
  if (problems_.empty()) first_field_ = key;
  problems_.push_back(fmt::format("\"{}\" {}", key, problem));
}

void HfConfig::Wrong(std::string_view key, const json::value& found, const std::string& right) {
  Fail(key, fmt::format("is {}; it must be {}", JsonExcerpt(found), right));
}

int32_t HfConfig::IntOf(std::string_view key, const json::value& value, IntRange range) {
  const int64_t* number = value.if_int64();
  if (number == nullptr || *number < range.low || *number > range.high) {
    Wrong(key, value, fmt::format("an integer from {} to {}", range.low, range.high));
    return static_cast<int32_t>(range.low);
  }
  return static_cast<int32_t>(*number);
}

int32_t HfConfig::Int(std::string_view key, IntRange range) {
  if (const json::value* value = Use(key)) return IntOf(key, *value, range);
  Fail(key, fmt::format("is missing; it must be an integer from {} to {}", range.low, range.high));
  return static_cast<int32_t>(range.low);
}

int32_t HfConfig::IntOr(std::string_view key, IntRange range, int32_t otherwise) {
  const json::value* value = Use(key);
  return value ? IntOf(key, *value, range) : otherwise;
}

double HfConfig::NumberOf(std::string_view key, const json::value& value, NumberRange range) {
  const double number = value.is_number() ? value.to_number<double>() : std::nan("");
  if (number >= range.low && number <= range.high) return number;
  Wrong(key, value, fmt::format("a number from {} to {}", range.low, range.high));
  return range.low;
}

double HfConfig::Number(std::string_view key, NumberRange range) {
  if (const json::value* value = Use(key)) return NumberOf(key, *value, range);
  Fail(key, fmt::format("is missing; it must be a number from {} to {}", range.low, range.high));
  return range.low;
}

double HfConfig::NumberOr(std::string_view key, NumberRange range, double otherwise) {
  const json::value* value = Use(key);
  return value ? NumberOf(key, *value, range) : otherwise;
}

bool HfConfig::BoolOr(std::string_view key, bool otherwise) {
  const json::value* value = Use(key);
  if (value == nullptr) return otherwise;
  if (value->is_bool()) return value->get_bool();
  Wrong(key, *value, "true or false");
  return otherwise;
}

std::string HfConfig::Word(std::string_view key, std::initializer_list<std::string_view> allowed) {
  const json::value* value = Use(key);
  if (value == nullptr) return std::string(*allowed.begin());
  const json::string* word = value->if_string();
  if (word && std::ranges::count(allowed, std::string_view(*word)) > 0) return std::string(*word);
  Wrong(key, *value, (allowed.size() > 1 ? "one of " : "") + Quoted(allowed));
  return std::string(*allowed.begin());
}

std::vector<std::string> HfConfig::Words(std::string_view key, int64_t count,
                                         std::initializer_list<std::string_view> allowed) {
  const json::value* value = Use(key);
  if (value == nullptr) return {};
  const json::array* list = value->if_array();
  if (list == nullptr || static_cast<int64_t>(list->size()) != count) {
    Wrong(key, *value,
          fmt::format("a list of {} words{}", count,
                      list ? fmt::format(", and has {}", list->size()) : ""));
    return {};
  }
  std::vector<std::string> words;
  for (const json::value& item : *list) {
    const json::string* word = item.if_string();
    if (word == nullptr || std::ranges::count(allowed, std::string_view(*word)) == 0) {
      Wrong(fmt::format("{}[{}]", key, words.size()), item, "one of " + Quoted(allowed));
      return {};
    }
    words.emplace_back(*word);
  }
  return words;
}

std::vector<int32_t> HfConfig::Ints(std::string_view key, IntRange range) {
  const json::value* value = Use(key);
  if (value == nullptr) return {};
  const json::array* list = value->if_array();
  if (list == nullptr) {
    Wrong(key, *value, "a list of integers");
    return {};
  }
  std::vector<int32_t> numbers;
  for (const json::value& item : *list) {
    numbers.push_back(IntOf(fmt::format("{}[{}]", key, numbers.size()), item, range));
  }
  return numbers;
}

std::vector<double> HfConfig::Numbers(std::string_view key, int64_t count, NumberRange range) {
  const json::value* value = Use(key);
  if (value == nullptr) return {};
  const json::array* list = value->if_array();
  if (list == nullptr || static_cast<int64_t>(list->size()) < count) {
    Wrong(key, *value, fmt::format("a list of {} numbers or more", count));
    return {};
  }
  std::vector<double> numbers;
  for (const json::value& item : *list) {
    const std::string name = fmt::format("{}[{}]", key, numbers.size());
    numbers.push_back(item.is_null() ? 0.0 : NumberOf(name, item, range));
  }
  return numbers;
}

const json::object* HfConfig::Object(std::string_view key) {
  const json::value* value = Use(key);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) Wrong(key, *value, "an object");
  return value->if_object();
}

void HfConfig::MustBeNeutral(std::string_view key, std::string_view meaning) {
  const json::value* value = Use(key);
  if (value && !IsNeutral(*value)) {
    Fail(key, fmt::format("is {}, which asks for {}: that is not supported, it must be absent or "
                          "false",
                          JsonExcerpt(*value), meaning));
  }
}

void HfConfig::Ignore(std::initializer_list<std::string_view> keys) {
  for (std::string_view key : keys) used_.emplace(key);
}

void HfConfig::FindUnknown(const json::object& object, const std::string& path,
                           std::vector<std::string>& problems) const {
  for (const auto& [key, value] : object) {
    const std::string full = path + std::string(key);
    if (IsNeutral(value) || used_.contains(full)) continue;
    if (path.empty() && std::ranges::count(kHarmless, std::string_view(key)) > 0) continue;
    // An object of which some members are understood is judged member by member.
    const auto member = used_.lower_bound(full + ".");
    if (value.is_object() && member != used_.end() && member->starts_with(full + ".")) {
      FindUnknown(value.get_object(), full + ".", problems);
      continue;
    }
    problems.push_back(
        fmt::format("\"{}\" is {}: this key is not known for {}, and it may change "
                    "the mathematics; it must be absent or null",
                    full, JsonExcerpt(value), architecture_));
  }
}

Status HfConfig::Finish() const {
  std::vector<std::string> problems = problems_;
  FindUnknown(root_, "", problems);
  const json::value* inner = root_.if_contains("text_config");
  if (inner && inner->is_object()) FindUnknown(inner->get_object(), "", problems);
  if (problems.empty()) return {};
  std::string field = first_field_;
  if (field.empty()) field = problems[0].substr(1, problems[0].find('"', 1) - 1);
  const size_t more = problems.size() > kProblemsMax ? problems.size() - kProblemsMax : 0;
  problems.resize(problems.size() - more);
  std::string text = problems.size() == 1
                         ? fmt::format("{}: {}", source_, problems[0])
                         : fmt::format("{}:\n  {}", source_, fmt::join(problems, "\n  "));
  if (more > 0) text += fmt::format("\n  and {} more", more);
  return Error{ErrorCode::kInvalid, std::move(text), std::move(field)};
}

}  // namespace braid
