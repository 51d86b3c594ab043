// What the Qwen families have together: the config keys, the
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

// Of heads of `head_dim` channels, of which the part `partial` turns if the config does not say.
RotarySpec ReadQwenRotary(HfConfig& config, int32_t head_dim, double partial);
// Query heads must be a multiple of key and value heads.
void CheckQwenHeads(HfConfig& config, const FullAttention& mixer);
// `moe` holds the defaults; without a shared width in it, no shared expert is read.
MoeFfn ReadQwenMoe(HfConfig& config, int32_t layers, MoeFfn moe);
// The feed-forward part of each layer: dense where there are no experts, in `mlp_only_layers`, and
// off the grid of `decoder_sparse_step`.
std::vector<Ffn> ReadQwenFfns(HfConfig& config, const MoeFfn& moe, int32_t layers);

ModelSpec ReadQwenHybrid(HfConfig& config, QwenHybridTraits traits);

// A config.json without "architectures" and "model_type".
json::object QwenHybridExample(ExampleSize size);

}  // namespace braid
