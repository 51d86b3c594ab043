// x = embed(tokens), then the layers.
#include "model/decoder.h"

#include "model/layer_stack.h"
#include "ops/ranks.h"

namespace braid {

Decoder::Decoder(const ModelSpec& spec, const ModelWeights& weights, const CachePlan& cache,
                 DType kv_dtype)
    : spec_(spec), weights_(weights), cache_(cache), kv_dtype_(kv_dtype) {}

void Decoder::Forward(const ops::OpContext& context, const DecoderInput& input,
                      Matrix states) const {
  WorkspaceScope scope(*context.workspace);
  Matrix x = context.workspace->TakeMatrix(input.sequences.tokens, spec_.hidden);
  ops::DividedEmbed(context, {.table = &weights_.embedding.matrix,
                              .vocabulary = spec_.vocabulary,
                              .ids = input.tokens,
                              .out = x});
  RunLayers(context,
            {.layers = spec_.layers,
             .weights = weights_.layers,
             .slices = cache_.slices,
             .final_norm = weights_.final_norm,
             .norm = spec_.norm,
             .kv_dtype = kv_dtype_,
             .routes = input.routes,
             .watch = input.watch},
            input.sequences, x, states);
}

void Decoder::Logits(const ops::OpContext& context, Matrix states, Matrix logits) const {
  ops::DividedHead(context, {.x = states, .w = &weights_.head.matrix, .y = logits});
}

}  // namespace braid
