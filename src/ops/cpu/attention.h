// CPU candidates of ops/attention.h.
#pragma once

#include "ops/attention.h"

namespace braid::ops::cpu {

extern const Impl<WriteKvArgs> kNormRopeWriteKv;
extern const Impl<AttentionArgs> kAttentionAmx;
extern const Impl<AttentionArgs> kAttentionBf16;  // products on AVX512-BF16
extern const Impl<AttentionArgs> kAttention;

}  // namespace braid::ops::cpu
