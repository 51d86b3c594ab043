// What conversions of checkpoints share: the directory that they write, the files that they copy,
// and the words of config.json that they change.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "model/spec.h"

namespace braid {

// An error for a checkpoint of panels: their weights are those of the one that they came from.
Status CheckIsOriginal(const ModelSpec& spec, const std::string& from);
// Makes the directory; it must be new or empty.
Status MakeEmptyDirectory(const std::string& directory);
// The files of a checkpoint directory beside its config and tensors: tokenizer, template, …
Status CopyOtherFiles(const std::string& from, const std::string& to);
// Puts `quantization` in the place of what the config says of quantised weights.
void SetQuantization(std::optional<json::object> quantization, json::object& config);
// Changes a key wherever the config has it, at its root or in "text_config".
void SetWhereFound(std::string_view key, const json::value& value, json::object& config);

}  // namespace braid
