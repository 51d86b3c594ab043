// x = projection [norm(embed(token)) | norm(state before)], then the head's layers.
#include "model/draft_head.h"

#include "base/check.h"
#include "model/layer_stack.h"
#include "ops/ranks.h"

namespace braid {

DraftHead::DraftHead(const ModelSpec& spec, const ModelWeights& weights, const CachePlan& cache,
                     DType kv_dtype)
    : spec_(spec), weights_(weights), cache_(cache), kv_dtype_(kv_dtype) {
  CHECK(spec.draft && spec.draft->used);
}

void DraftHead::Forward(const ops::OpContext& context, const DraftHeadInput& input,
                        Matrix states) const {
  WorkspaceScope scope(*context.workspace);
  const DraftWeights& w = weights_.draft;
  const int64_t tokens = input.sequences.tokens, hidden = spec_.hidden;
  Matrix x = context.workspace->TakeMatrix(tokens, hidden);
  {
    WorkspaceScope both_scope(*context.workspace);
    Matrix both = context.workspace->TakeMatrix(tokens, 2 * hidden);
    ops::DividedEmbed(context, {.table = &weights_.embedding.matrix,
                                .vocabulary = spec_.vocabulary,
                                .ids = input.tokens,
                                .out = x});
    Norm(context, spec_.norm, w.embedding_norm, x, both.columns(0, hidden));
    Norm(context, spec_.norm, w.hidden_norm, input.before, both.columns(hidden, hidden));
    ops::DividedHead(context,
                     {.x = both, .w = &w.projection.matrix, .y = x, .root = ops::kEveryRank});
  }
  RunLayers(context,
            {.layers = spec_.draft->layers,
             .weights = w.layers,
             .slices = cache_.draft.layers,
             .final_norm = w.final_norm,
             .norm = spec_.norm,
             .kv_dtype = kv_dtype_},
            input.sequences, x, states);
}

}  // namespace braid
