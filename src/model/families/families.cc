// The list of families and the dispatch on `architectures`.
#include "model/families/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/system/file.h"
#include "model/families/gguf.h"
#include "model/spec.h"

namespace braid {
namespace {

constexpr Family (*kFamilies[])() = {
    Qwen3_5MoeFamily, Qwen3_5Family, Qwen3NextFamily,  KimiLinearFamily,
    Ling3Family,      Ling2Family,   DeepseekV3Family, Qwen3Family,
};

// Far above every published model, and far below where sizes in bytes could overflow.
constexpr int64_t kParametersMax = int64_t{1} << 43;
constexpr size_t kConfigBytesMax = size_t{1} << 20;
constexpr size_t kQuantConfigBytesMax = size_t{1} << 20;

// `modelopt` is the content of hf_quant_config.json, or null.
Result<ModelSpec> SpecOf(HfConfig config, const std::string& source, const json::object* modelopt) {
  std::vector<std::string_view> known;
  for (const Family& family : Families()) {
    for (std::string_view architecture : family.architectures) {
      known.push_back(architecture);
      if (architecture != config.architecture()) continue;
      ModelSpec spec = family.read(config);
      spec.quantization = ReadQuantization(config);
      if (modelopt && spec.quantization.method.empty()) {
        spec.quantization = ReadModelOptFile(*modelopt, config);
      }
      if (const auto offset = spec.quantization.norm_offset) {
        spec.norm.offset = static_cast<float>(*offset);
      }
      RETURN_IF_ERROR(config.Finish());
      spec.family = family.name;
      spec.architecture = architecture;
      if (const int64_t total = ParametersOf(spec).total; total > kParametersMax) {
        return Error{ErrorCode::kInvalid,
                     fmt::format("{}: its sizes make {} parameters; at most {} are accepted",
                                 source, total, kParametersMax),
                     "hidden_size"};
      }
      return spec;
    }
  }
  return Error{ErrorCode::kInvalid,
               fmt::format("{}: the architecture \"{}\" is not known; known are {}", source,
                           config.architecture(), fmt::join(known, ", ")),
               "architectures"};
}

}  // namespace

namespace {

namespace fs = std::filesystem;

constexpr GgufFamily (*kGgufFamilies[])() = {Qwen3Gguf, Qwen3_5Gguf, Qwen3NextGguf, Deepseek2Gguf,
                                             KimiLinearGguf};

bool IsVisionFile(std::string_view name) { return name.find("mmproj") != std::string_view::npos; }

// The names of GGUF files in a directory, in order.
std::vector<std::string> GgufFilesIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, failed)) {
    std::string name = entry.path().filename().string();
    if (name.ends_with(".gguf")) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> VisionFilesIn(const std::string& directory) {
  std::vector<std::string> names = GgufFilesIn(directory);
  std::erase_if(names, [](const std::string& name) { return !IsVisionFile(name); });
  return names;
}

// "-00002-of-00003.gguf" and the like: a part whose first part stands for it.
bool IsLaterPart(std::string_view name) {
  constexpr std::string_view kForm = "-00000-of-00000.gguf";
  if (name.size() <= kForm.size()) return false;
  const std::string_view end = name.substr(name.size() - kForm.size());
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = end[i] >= '0' && end[i] <= '9';
    if (kForm[i] == '0' ? !digit : end[i] != kForm[i]) return false;
  }
  return end.substr(1, 5) != "00001";
}

// Files that belong to a model and are none themselves.
Status CheckIsModel(const GgufFile& gguf, std::string_view architecture) {
  const auto at = gguf.metadata.find("general.type");
  const json::string* type = at == gguf.metadata.end() ? nullptr : at->second.if_string();
  const bool vision = architecture == "clip" || (type && *type == "mmproj");
  if (!vision && (type == nullptr || *type == "model")) return {};
  return Error{ErrorCode::kInvalid,
               fmt::format("{}: is no model but {}; name the model's file", gguf.path(),
                           vision ? "the vision part of one"
                                  : fmt::format("of the type {}", JsonExcerpt(at->second))),
               "general.type"};
}

Result<OpenedModel> OpenGgufAs(GgufFile gguf, const GgufFamily& family,
                               const GgufFamily::Architecture& architecture) {
  const std::string path = gguf.path();
  GgufKeys keys(gguf, std::string(architecture.gguf));
  json::object config = family.config(keys);
  RETURN_IF_ERROR(keys.Finish());
  config["architectures"] = {architecture.hf};
  std::string text = json::serialize(config);
  ASSIGN_OR_RETURN(ModelSpec spec, ParseModelSpec(text, path + ": metadata"));
  GgufNames names(gguf);
  family.map(spec, names);
  names.LeaveOut("v.", "vision");
  names.LeaveOut("mm.", "vision");
  RETURN_IF_ERROR(names.Finish());
  for (const std::string& name : VisionFilesIn(DirectoryOf(path))) {
    names.left_out.push_back(name + ": vision, not used");
  }
  Checkpoint checkpoint = Checkpoint::OfGguf({.parts = std::move(gguf.parts),
                                              .views = std::move(names.views),
                                              .tensors = std::move(names.tensors),
                                              .left_out = std::move(names.left_out),
                                              .config = std::move(text)});
  spec = FitToCheckpoint(std::move(spec), checkpoint);
  return OpenedModel{std::move(spec), std::move(checkpoint), std::move(config)};
}

Result<OpenedModel> OpenGguf(const std::string& path) {
  ASSIGN_OR_RETURN(GgufFile gguf, ReadGguf(path));
  const auto at = gguf.metadata.find("general.architecture");
  const json::string* name = at == gguf.metadata.end() ? nullptr : at->second.if_string();
  RETURN_IF_ERROR(CheckIsModel(gguf, name ? std::string_view(*name) : std::string_view()));
  std::vector<std::string_view> known;
  for (const GgufFamily& family : GgufFamilies()) {
    for (const GgufFamily::Architecture& architecture : family.architectures) {
      known.push_back(architecture.gguf);
      if (name && std::string_view(*name) == architecture.gguf) {
        return OpenGgufAs(std::move(gguf), family, architecture);
      }
    }
  }
  return Error{ErrorCode::kInvalid,
               fmt::format("{}: general.architecture is {}; known are {}", path,
                           name ? JsonExcerpt(at->second) : "absent", fmt::join(known, ", ")),
               "general.architecture"};
}

}  // namespace

ModelSpec FitToCheckpoint(ModelSpec spec, const Checkpoint& checkpoint) {
  if (checkpoint.Find("lm_head.weight") != nullptr) spec.tied_head = false;
  if (spec.draft) {
    const std::string& prefix = spec.draft->prefix;
    const auto at = checkpoint.tensors().lower_bound(prefix);
    if (at == checkpoint.tensors().end() || !at->first.starts_with(prefix)) spec.draft.reset();
  }
  return spec;
}

Result<std::string> FindModel(const std::string& path) {
  if (!IsDirectory(path) || FileExists(path + "/config.json")) return path;
  std::vector<std::string> names = GgufFilesIn(path);
  std::erase_if(names,
                [](const std::string& name) { return IsVisionFile(name) || IsLaterPart(name); });
  if (names.empty()) return path;
  if (names.size() == 1) return fmt::format("{}/{}", path, names.front());
  return Error{ErrorCode::kInvalid, fmt::format("{}: holds {} models: {}; name one of the files",
                                                path, names.size(), fmt::join(names, ", "))};
}

Result<OpenedModel> OpenModel(const std::string& named) {
  ASSIGN_OR_RETURN(const std::string path, FindModel(named));
  if (!IsDirectory(path) && path.ends_with(".gguf")) return OpenGguf(path);
  ASSIGN_OR_RETURN(ModelSpec spec, ReadModelSpec(path));
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(path));
  spec = FitToCheckpoint(std::move(spec), checkpoint);
  ASSIGN_OR_RETURN(const json::value config,
                   ReadJsonFile(path + "/config.json", {.bytes_max = kConfigBytesMax}));
  return OpenedModel{std::move(spec), std::move(checkpoint), config.get_object()};
}

std::vector<GgufFamily> GgufFamilies() {
  std::vector<GgufFamily> families;
  for (GgufFamily (*family)() : kGgufFamilies) families.push_back(family());
  return families;
}

std::vector<Family> Families() {
  std::vector<Family> families;
  for (Family (*family)() : kFamilies) families.push_back(family());
  return families;
}

Result<Family> FindFamily(std::string_view name) {
  std::vector<std::string_view> names;
  for (Family& family : Families()) {
    if (family.name == name) return family;
    names.push_back(family.name);
  }
  return Error{
      ErrorCode::kInvalid,
      fmt::format("the family \"{}\" is not known; known are {}", name, fmt::join(names, ", ")),
      "family"};
}

Result<ModelSpec> ReadModelSpec(const std::string& directory) {
  ASSIGN_OR_RETURN(HfConfig config, HfConfig::Read(directory));
  const std::string beside = directory + "/hf_quant_config.json";
  if (!FileExists(beside)) return SpecOf(std::move(config), directory + "/config.json", nullptr);
  ASSIGN_OR_RETURN(const json::value file,
                   ReadJsonFile(beside, {.bytes_max = kQuantConfigBytesMax}));
  return SpecOf(std::move(config), directory + "/config.json", file.if_object());
}

Result<ModelSpec> ReadModelConfig(const std::string& path) {
  if (IsDirectory(path)) return ReadModelSpec(path);
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kConfigBytesMax));
  return ParseModelSpec(text, path);
}

Result<ModelSpec> ParseModelSpec(std::string_view config_json, const std::string& source) {
  ASSIGN_OR_RETURN(HfConfig config, HfConfig::Parse(config_json, source));
  return SpecOf(std::move(config), source, nullptr);
}

}  // namespace braid
