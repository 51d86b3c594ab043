// Rotation by position (Su et al. 2021), alone or after a norm per head. Angles are
// position * inverse_frequency in fp32; cos and sin are scaled by `scale`.
#pragma once

#include "ops/op.h"
#include "ops/sequence.h"

namespace braid::ops {

struct Rotation {
  const float* inverse_frequency = nullptr;  // [pairs]
  int32_t pairs = 0;                         // 0: nothing is rotated
  float scale = 1.0f;
  bool interleaved = false;  // channels 2 j and 2 j + 1 form pair j, else j and j + pairs
};

// Each head of `head_dim` channels in place: x * rsqrt(mean(x^2) + eps) * weight, then its first
// 2 * pairs channels are rotated by the token's position.
struct HeadNormRotateArgs {
  SequenceIndex sequences;
  Matrix x;  // [tokens, heads * head_dim]
  int64_t head_dim = 0;
  const float* weight = nullptr;  // [head_dim]
  float eps = 1e-6f;
  Rotation rotation;
};
void HeadNormRotate(const OpContext& context, const HeadNormRotateArgs& args);

}  // namespace braid::ops
