// The model families: each turns a config.json into a ModelSpec. Dispatch is on `architectures`,
// never on model_type. A new family of known kinds is a file of its own, a declaration here and an
// entry in the list of families.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/hf_config.h"
#include "model/spec.h"

namespace braid {

// kTiny is for tests, kMid is large enough that a step is bound by the memory's bandwidth.
enum class ExampleSize : uint8_t { kTiny, kMid };

struct Family {
  std::string_view name;                                // "qwen3_5_moe"
  std::vector<std::string_view> architectures;          // the first is the one that examples name
  ModelSpec (*read)(HfConfig& config) = nullptr;        // problems are noted in `config`
  json::object (*example)(ExampleSize size) = nullptr;  // the config.json of a small model
};

Family DeepseekV3Family();
Family KimiLinearFamily();
Family Ling2Family();
Family Ling3Family();
Family Qwen3Family();
Family Qwen3_5Family();
Family Qwen3_5MoeFamily();
Family Qwen3NextFamily();

class GgufKeys;
class GgufNames;

// How a family's models look in GGUF files.
struct GgufFamily {
  struct Architecture {
    std::string_view gguf;  // general.architecture
    std::string_view hf;    // the architecture of config.json that it stands for
  };
  std::vector<Architecture> architectures;
  json::object (*config)(GgufKeys& keys) = nullptr;  // without "architectures"
  // Gives the tensors their names; may adapt the spec to how the files store values.
  void (*map)(ModelSpec& spec, GgufNames& names) = nullptr;
  // The metadata that `config` reads, without the architecture's name before the keys; an error for
  // a model that they cannot describe.
  Result<json::object> (*metadata)(const ModelSpec& spec) = nullptr;
};
GgufFamily Deepseek2Gguf();
GgufFamily KimiLinearGguf();
GgufFamily Qwen3Gguf();
GgufFamily Qwen3_5Gguf();
GgufFamily Qwen3NextGguf();
std::vector<GgufFamily> GgufFamilies();

std::vector<Family> Families();
// By name; the error lists the names that exist.
Result<Family> FindFamily(std::string_view name);

// The file or directory that holds the model: a directory without config.json stands for the one
// GGUF model in it. Vision parts (names with "mmproj") are left out, and a split file's first part
// stands for all; an error lists the models of a directory with several.
Result<std::string> FindModel(const std::string& path);

// A model of either kind: a Hugging Face directory or a GGUF file, as FindModel finds it.
struct OpenedModel {
  ModelSpec spec;  // as FitToCheckpoint gives it
  Checkpoint checkpoint;
  json::object config;  // of config.json, or what the metadata of a GGUF file stands for
};
Result<OpenedModel> OpenModel(const std::string& path);
// The spec as this checkpoint fills it: a stored lm_head.weight is used although config.json ties
// the head, and a draft head without tensors is dropped.
ModelSpec FitToCheckpoint(ModelSpec spec, const Checkpoint& checkpoint);

// Reads `directory`/config.json. An unknown architecture, a missing or absurd value and an unknown
// key are errors that name the key.
Result<ModelSpec> ReadModelSpec(const std::string& directory);
// The same of what a command names that needs no weights: such a directory, or a config.json alone.
Result<ModelSpec> ReadModelConfig(const std::string& path);
// The same for a config.json in memory; `source` names it in messages.
Result<ModelSpec> ParseModelSpec(std::string_view config_json, const std::string& source);

}  // namespace braid
