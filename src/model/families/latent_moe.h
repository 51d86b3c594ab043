// What the families with latent attention and a sigmoid router have together: their config keys under
// all the names that exporters write.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "model/families/families.h"

namespace braid {

inline constexpr IntRange kHeadsRange{1, 1024};
inline constexpr IntRange kDimRange{1, 1 << 16};

// The value under any of its names; where there are several they must agree.
int32_t IntUnder(HfConfig& config, std::initializer_list<std::string_view> keys, IntRange range);
int32_t IntUnderOr(HfConfig& config, std::initializer_list<std::string_view> keys, IntRange range,
                   int32_t otherwise);

// Sizes, norm, head and context of the model; no layers.
ModelSpec ReadLatentModel(HfConfig& config);

// Theta and YaRN from rope_parameters, or from rope_theta and rope_scaling.
struct RotaryReading {
  RotarySpec rotary;
  float score_factor = 1.0f;  // of queries times keys
};
RotaryReading ReadRotary(HfConfig& config, int32_t dims);

// `rotated`: the shared key has positions.
LatentAttention ReadLatentAttention(HfConfig& config, const std::string& module, bool rotated);

// The names are the family's.
MoeFfn ReadSigmoidMoe(HfConfig& config, int32_t layers, MoeNames names);

// Whether the feed-forward part of each layer is dense.
std::vector<bool> ReadDenseLayers(HfConfig& config, int32_t layers);

}  // namespace braid
