// CPU candidates of ops/attention.h.
#pragma once

#include "ops/attention.h"

namespace braid::ops::cpu {

extern const Impl<WriteKvArgs> kNormRopeWriteKv;
extern const Impl<AttentionArgs> kAttentionTiles;  // products on AMX
extern const Impl<AttentionArgs> kAttention;

}  // namespace braid::ops::cpu
