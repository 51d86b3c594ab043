// Finds the template's source, makes the context and leaves the rest to the Rust library.
#include "text/chat/chat_template.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/system/file.h"
#include "text/rust_library.h"

namespace braid {
namespace {

constexpr size_t kSourceBytesMax = size_t{1} << 20;

using TemplateHandle = RustHandle<braid_text_template, braid_text_template_free>;

Result<TemplateHandle> Compile(std::string_view source) {
  braid_text_buffer error = {};
  TemplateHandle handle(braid_text_template_compile(RustView(source), &error));
  if (handle == nullptr) {
    return Error{ErrorCode::kInvalid, "the chat template does not parse: " + TakeRustText(error)};
  }
  return handle;
}

// Instructions, and what they make, grow with the input; a real conversation needs a hundredth of
// this.
braid_text_render_limits LimitsFor(size_t context_bytes) {
  return {.fuel = 2'000'000 + 64 * static_cast<uint64_t>(context_bytes),
          .output_bytes = std::max<uint64_t>(uint64_t{16} << 20, 4 * context_bytes),
          .wall_ms = 1000 * ChatTemplate::kRenderSecondsMax};
}

// {"bos_token": …, "eos_token": …}: those that the config names, as strings.
json::object SpecialTokens(const json::object& config) {
  constexpr std::array<std::string_view, 7> kNames = {
      "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
  json::object tokens;
  for (std::string_view name : kNames) {
    const json::value* token = config.if_contains(name);
    if (token != nullptr && token->is_object()) token = token->get_object().if_contains("content");
    if (token != nullptr && token->is_string()) tokens[name] = token->get_string();
  }
  return tokens;
}

// Whether the checkpoint's own tokenizer class sorts the keys of tools before it renders them.
bool SortsTools(const json::object& config) {
  const json::value* name = config.if_contains("tokenizer_class");
  return name != nullptr && *name == "TikTokenTokenizer";
}

// With each object's keys in the order of their code points, as Python sorts them.
json::value Sorted(const json::value& value) {
  if (const json::array* items = value.if_array()) {
    json::array sorted;
    for (const json::value& item : *items) sorted.push_back(Sorted(item));
    return sorted;
  }
  const json::object* fields = value.if_object();
  if (fields == nullptr) return value;
  std::map<std::string_view, const json::value*> ordered;
  for (const auto& field : *fields) ordered.emplace(field.key(), &field.value());
  json::object sorted;
  for (const auto& [key, field] : ordered) sorted[key] = Sorted(*field);
  return sorted;
}

struct Sources {
  std::string main;
  std::string with_tools;
};

// "chat_template" of tokenizer_config.json: a string or a list of {name, template}.
Result<Sources> SourcesFrom(const json::value& value) {
  if (value.is_string()) return Sources{.main = std::string(value.get_string())};
  Sources sources;
  const json::array none;
  for (const json::value& item : value.is_array() ? value.get_array() : none) {
    const json::object* entry = item.if_object();
    const json::value* name = entry != nullptr ? entry->if_contains("name") : nullptr;
    const json::value* source = entry != nullptr ? entry->if_contains("template") : nullptr;
    if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string())
      continue;
    if (name->get_string() == "default") sources.main = std::string(source->get_string());
    if (name->get_string() == "tool_use") sources.with_tools = std::string(source->get_string());
  }
  if (!sources.main.empty()) return sources;
  return Error{ErrorCode::kInvalid,
               "tokenizer_config.json: chat_template is " + JsonExcerpt(value) +
                   ", expected a string or a list of {name, template} with a \"default\"",
               "chat_template"};
}

}  // namespace

Result<ChatTemplate> ChatTemplate::Load(const std::string& model_dir) {
  json::object config;
  const std::string config_path = model_dir + "/tokenizer_config.json";
  if (FileExists(config_path)) {
    ASSIGN_OR_RETURN(json::value value, ReadJsonFile(config_path));
    if (!value.is_object()) {
      return Error{ErrorCode::kInvalid, config_path + " is " + std::string(JsonKindName(value)) +
                                            ", expected an object"};
    }
    config = std::move(value.get_object());
  }
  Sources sources;
  const std::string path = model_dir + "/chat_template.jinja";
  if (FileExists(path)) {
    ASSIGN_OR_RETURN(sources.main, ReadFile(path, kSourceBytesMax));
    // Where the list of tokenizer_config.json had one of its own for tools.
    const std::string tools = model_dir + "/additional_chat_templates/tool_use.jinja";
    if (FileExists(tools)) {
      ASSIGN_OR_RETURN(sources.with_tools, ReadFile(tools, kSourceBytesMax));
    }
  } else if (const json::value* value = config.if_contains("chat_template");
             value != nullptr && !value->is_null()) {
    ASSIGN_OR_RETURN(sources, SourcesFrom(*value));
  } else {
    return Error{ErrorCode::kNotFound, model_dir +
                                           " has no chat template: neither chat_template.jinja nor "
                                           "chat_template in tokenizer_config.json"};
  }
  ASSIGN_OR_RETURN(ChatTemplate out, FromSource(std::move(sources.main), SpecialTokens(config),
                                                SortsTools(config)));
  if (!sources.with_tools.empty()) {
    ASSIGN_OR_RETURN([[maybe_unused]] const TemplateHandle handle, Compile(sources.with_tools));
    out.tool_source_ = std::move(sources.with_tools);
  }
  return out;
}

Result<ChatTemplate> ChatTemplate::FromSource(std::string source, json::object special_tokens,
                                              bool sorts_tools) {
  ASSIGN_OR_RETURN([[maybe_unused]] const TemplateHandle handle, Compile(source));
  ChatTemplate out;
  out.source_ = std::move(source);
  out.special_tokens_ = std::move(special_tokens);
  out.sorts_tools_ = sorts_tools;
  return out;
}

Result<std::string> ChatTemplate::Render(const json::value& context) const {
  if (!context.is_object()) {
    return Error{
        ErrorCode::kInvalid,
        "the template's context is " + std::string(JsonKindName(context)) + ", expected an object"};
  }
  json::object all = special_tokens_;
  all["tools"] = nullptr;
  all["documents"] = nullptr;
  all["add_generation_prompt"] = false;
  for (const auto& [key, value] : context.get_object()) all[key] = value;
  if (sorts_tools_) all["tools"] = Sorted(all["tools"]);
  const bool tool_use = !tool_source_.empty() && !all["tools"].is_null();
  const std::string text = json::serialize(all);
  ASSIGN_OR_RETURN(const TemplateHandle handle, Compile(tool_use ? tool_source_ : source_));
  braid_text_buffer output = {};
  braid_text_buffer error = {};
  if (braid_text_template_render(handle.get(), RustView(text), LimitsFor(text.size()), &output,
                                 &error) != 0) {
    return Error{ErrorCode::kInvalid, TakeRustText(error), "messages"};
  }
  return TakeRustText(output);
}

}  // namespace braid
