// The list of families and the dispatch on `architectures`.
#include "model/families/families.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/system/file.h"
#include "model/families/gguf.h"
#include "model/spec.h"

namespace braid {
namespace {

constexpr Family (*kFamilies[])() = {
    Qwen3_5MoeFamily, Qwen3_5Family, Qwen3NextFamily,  KimiLinearFamily,
    Ling3Family,      Ling2Family,   DeepseekV3Family,
};

// Far above every published model, and far below where sizes in bytes could overflow.
constexpr int64_t kParametersMax = int64_t{1} << 43;
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

constexpr GgufFamily (*kGgufFamilies[])() = {Qwen3_5Gguf, Qwen3NextGguf, Deepseek2Gguf,
                                             KimiLinearGguf};

Result<OpenedModel> OpenGgufAs(GgufFile gguf, const GgufFamily& family,
                               const GgufFamily::Architecture& architecture) {
  const std::string path = gguf.file.path();
  GgufKeys keys(gguf, std::string(architecture.gguf));
  json::object config = family.config(keys);
  RETURN_IF_ERROR(keys.Finish());
  config["architectures"] = {architecture.hf};
  ASSIGN_OR_RETURN(ModelSpec spec, ParseModelSpec(json::serialize(config), path + ": metadata"));
  GgufNames names(gguf);
  family.map(spec, names);
  RETURN_IF_ERROR(names.Finish());
  Checkpoint checkpoint =
      Checkpoint::OfGguf(std::move(gguf.file), std::move(names.views), std::move(names.tensors));
  spec = FitToCheckpoint(std::move(spec), checkpoint);
  return OpenedModel{std::move(spec), std::move(checkpoint)};
}

Result<OpenedModel> OpenGguf(const std::string& path) {
  ASSIGN_OR_RETURN(GgufFile gguf, ReadGguf(path));
  const auto at = gguf.metadata.find("general.architecture");
  const json::string* name = at == gguf.metadata.end() ? nullptr : at->second.if_string();
  std::vector<std::string_view> known;
  for (const auto& make : kGgufFamilies) {
    const GgufFamily family = make();
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

Result<OpenedModel> OpenModel(const std::string& path) {
  if (!IsDirectory(path) && path.ends_with(".gguf")) return OpenGguf(path);
  ASSIGN_OR_RETURN(ModelSpec spec, ReadModelSpec(path));
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(path));
  spec = FitToCheckpoint(std::move(spec), checkpoint);
  return OpenedModel{std::move(spec), std::move(checkpoint)};
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

Result<ModelSpec> ParseModelSpec(std::string_view config_json, const std::string& source) {
  ASSIGN_OR_RETURN(HfConfig config, HfConfig::Parse(config_json, source));
  return SpecOf(std::move(config), source, nullptr);
}

}  // namespace braid
