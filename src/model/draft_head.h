// A draft head: a layer that guesses what comes after the next token (multi-token prediction). It
// sees a token together with the model's state of the token before, runs a layer with a cache of
// its own and shares embedding and output head with the model.
//
// Its cache has the entry of a token at that token's position, so it depends on the same tokens as
// the model's own entry there: blocks of both are complete, shared and taken over together
// (docs/decisions/019-draft-heads.md). The first token follows no state: its entry holds a zero
// state, and no later token attends to it.
#pragma once

#include "model/spec.h"
#include "model/weights.h"
#include "ops/op.h"
#include "ops/sequence.h"

namespace braid {

struct DraftHeadInput {
  const TokenId* tokens = nullptr;  // [sequences.tokens]
  Matrix before;  // [tokens, hidden]: the normed state of the token before each; zero: of none
  ops::SequenceIndex sequences;
};

class DraftHead {
 public:
  // The spec, whose draft head is used, the weights and the plan must outlive the head.
  DraftHead(const ModelSpec& spec, const ModelWeights& weights, const CachePlan& cache,
            DType kv_dtype);

  // Writes the head's normed states to `states` [tokens, hidden]. Decoder::Logits makes guesses of
  // them, at what comes after each token; as `before` of that guess they make the next guess.
  void Forward(const ops::OpContext& context, const DraftHeadInput& input, Matrix states) const;

 private:
  const ModelSpec& spec_;
  const ModelWeights& weights_;
  const CachePlan& cache_;
  DType kv_dtype_;
};

}  // namespace braid
