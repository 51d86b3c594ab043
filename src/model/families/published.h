// The config.json of published models, in the library: what they take and how fast they run can be
// tried without their weights.
#pragma once

#include <span>
#include <string_view>

namespace braid {

struct PublishedConfig {
  std::string_view name;  // "qwen3_5_35b_a3b"
  const std::string_view* json;
};

std::span<const PublishedConfig> PublishedConfigs();

}  // namespace braid
