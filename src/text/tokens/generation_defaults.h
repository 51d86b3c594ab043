// The sampling settings that a checkpoint recommends, from its generation_config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace braid {

// Absent: the file says nothing. With do_sample = false the others do not apply: decode greedily.
struct GenerationDefaults {
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int32_t> top_k;
};

// No generation_config.json: all absent. A value of a wrong type or range is an Error that names
// it.
Result<GenerationDefaults> ReadGenerationDefaults(const std::string& model_dir);

}  // namespace braid
