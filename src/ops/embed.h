// Rows of the embedding table: out[t, :] = table[ids[t], :].
#pragma once

#include "base/ids.h"
#include "ops/op.h"
#include "ops/packed.h"

namespace braid::ops {

struct EmbedArgs {
  const PackedMatrix* table = nullptr;  // [vocabulary, hidden]
  const TokenId* ids = nullptr;         // [out.rows], each in [0, vocabulary)
  Matrix out;                           // [tokens, hidden]
};
void Embed(const OpContext& context, const EmbedArgs& args);

}  // namespace braid::ops
