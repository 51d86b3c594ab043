// What the Qwen families that mix linear and full attention have together: the config keys, the
// layer pattern, the feed-forward parts, the draft head. A family adds its names and its weight
// layout.
#pragma once

#include <string>
#include <vector>

#include "model/families/families.h"

namespace braid {

struct QwenHybridTraits {
  DeltaLayout layout = DeltaLayout::kSeparate;
  std::vector<std::string> prefixes;
  std::vector<std::string> skip_prefixes;
};

ModelSpec ReadQwenHybrid(HfConfig& config, QwenHybridTraits traits);

// A config.json without "architectures" and "model_type".
json::object QwenHybridExample(ExampleSize size);

}  // namespace braid
