// The forward pass of a model: walks the layers of its spec over one step's tokens.
#pragma once

#include <cstdint>

#include "model/spec.h"
#include "model/weights.h"
#include "ops/op.h"
#include "ops/sequence.h"

namespace braid {

struct RouteSink;   // model/layer_context.h
struct LayerWatch;  // model/layer_stack.h

struct DecoderInput {
  const TokenId* tokens = nullptr;  // [sequences.tokens]
  ops::SequenceIndex sequences;
  RouteSink* routes = nullptr;  // hears of every layer with experts; null: nobody does
  LayerWatch* watch = nullptr;  // or null
};

class Decoder {
 public:
  // The spec, the weights and the plan must outlive the decoder.
  Decoder(const ModelSpec& spec, const ModelWeights& weights, const CachePlan& cache,
          DType kv_dtype);

  // Runs all layers and writes every token's normed state to `states` [tokens, hidden].
  // With a measuring workspace nothing runs and the workspace's peak tells what a step of this
  // shape needs.
  void Forward(const ops::OpContext& context, const DecoderInput& input, Matrix states) const;
  // logits [rows, vocabulary] of normed states [rows, hidden]; of several ranks the first has them.
  void Logits(const ops::OpContext& context, Matrix states, Matrix logits) const;

 private:
  const ModelSpec& spec_;
  const ModelWeights& weights_;
  const CachePlan& cache_;
  DType kv_dtype_;
};

}  // namespace braid
