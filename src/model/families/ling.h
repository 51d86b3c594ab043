// What Ling-2.5 and Ling-3 have together: tensor names, the pattern of full-attention layers, the
// feed-forward parts, the draft head. They share a model_type and differ in their linear layers.
#pragma once

#include <string>
#include <vector>

#include "model/families/latent_moe.h"

namespace braid {

struct LingTraits {
  bool head_gate = false;               // on full attention
  bool full_tail = false;               // layers behind the last whole group are full
  std::vector<LinearAttention> linear;  // of each layer, used where it is not full
};

// A model without layers; their number; and the layers, once the family knows its linear ones.
ModelSpec ReadLingModel(HfConfig& config);
int32_t ReadLingLayerCount(HfConfig& config);
void ReadLingLayers(HfConfig& config, const LingTraits& traits, ModelSpec& spec);

// A config.json without "architectures" and what only one of them reads.
json::object LingExample(ExampleSize size);

}  // namespace braid
