// Files and config keys.
#include "model/writing/convert_files.h"

#include <fmt/core.h>

#include <filesystem>

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kCopyBytesMax = uintmax_t{256} << 20;

// f(object) for the config and the text model's part of it.
template <class F>
void ForEachObject(json::object& config, F f) {
  f(config);
  json::value* inner = config.if_contains("text_config");
  if (inner && inner->is_object()) f(inner->get_object());
}

}  // namespace

Status CheckIsOriginal(const ModelSpec& spec, const std::string& from) {
  if (!spec.quantization.panels()) return {};
  return Error{
      ErrorCode::kInvalid,
      fmt::format("{} is a mapped checkpoint; convert the one that it was made from", from)};
}

Status MakeEmptyDirectory(const std::string& directory) {
  std::error_code failed;
  fs::create_directories(directory, failed);
  if (failed) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: cannot make the directory: {}", directory, failed.message())};
  }
  if (!fs::is_empty(directory, failed)) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} is not empty; name a new directory", directory)};
  }
  return {};
}

Status CopyOtherFiles(const std::string& from, const std::string& to) {
  std::error_code failed;
  // Of folders only that of chat templates is a part of the model.
  const std::string templates = "/additional_chat_templates";
  if (fs::is_directory(from + templates, failed)) {
    fs::create_directory(to + templates, failed);
    RETURN_IF_ERROR(CopyOtherFiles(from + templates, to + templates));
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(from, failed)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name == "config.json" || name == "hf_quant_config.json" ||
                      name.ends_with(".safetensors") || name.ends_with(".index.json") ||
                      name == "SHA256SUMS";
    if (ours || !entry.is_regular_file(failed) || entry.file_size(failed) > kCopyBytesMax) continue;
    fs::copy_file(entry.path(), to + "/" + name, failed);
    if (failed) {
      return Error{ErrorCode::kInternal, fmt::format("{}: cannot copy it to {}: {}",
                                                     entry.path().string(), to, failed.message())};
    }
  }
  return {};
}

void SetQuantization(std::optional<json::object> quantization, json::object& config) {
  ForEachObject(config, [](json::object& object) {
    object.erase("quantization_config");
    object.erase("compression_config");
  });
  if (quantization) config["quantization_config"] = *std::move(quantization);
}

void SetWhereFound(std::string_view key, const json::value& value, json::object& config) {
  ForEachObject(config, [&](json::object& object) {
    if (object.contains(key)) object[key] = value;
  });
}

}  // namespace braid
