// CPU candidates of ops/linear_attention.h.
#pragma once

#include "ops/linear_attention.h"

namespace braid::ops::cpu {

extern const Impl<ConvArgs> kCausalConv;
extern const Impl<LinearAttentionArgs> kLinearAttentionAmx;
extern const Impl<LinearAttentionArgs> kLinearAttentionBf16;  // products on AVX512-BF16
extern const Impl<LinearAttentionArgs> kLinearAttention;

}  // namespace braid::ops::cpu
