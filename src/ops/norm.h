// RMS norms (specs: Zhang & Sennrich 2019; the flavours of the families are data, not code).
#pragma once

#include "ops/op.h"

namespace braid::ops {

// x += delta (when there is one); out = x * rsqrt(mean(x^2) + eps) * (weight_offset + weight), row
// by row. weight_offset is 1 for zero-centred weights and 0 for plain ones.
struct RmsNormArgs {
  Matrix x;                       // [rows, cols], updated when delta is set
  Matrix delta;                   // [rows, cols] or empty (data == nullptr)
  const float* weight = nullptr;  // [cols]
  float weight_offset = 0.0f;
  float eps = 1e-6f;
  Matrix out;  // [rows, cols]; empty: only the residual sum is wanted
};
void RmsNorm(const OpContext& context, const RmsNormArgs& args);

enum class GateActivation : uint8_t { kSilu, kSigmoid };

// Per group of `head_dim` channels: out = x * rsqrt(mean(x^2) + eps) * weight * act(gate).
struct GatedNormArgs {
  Matrix x;                       // [rows, heads * head_dim]
  Matrix gate;                    // [rows, heads * head_dim]
  const float* weight = nullptr;  // [head_dim], or [heads * head_dim] with weight_per_channel
  bool weight_per_channel = false;
  int64_t head_dim = 0;
  GateActivation activation = GateActivation::kSilu;
  float eps = 1e-6f;
  Matrix out;  // [rows, heads * head_dim]; may be x
};
void GatedNorm(const OpContext& context, const GatedNormArgs& args);

}  // namespace braid::ops
