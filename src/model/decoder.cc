// x = embed(tokens); per layer: x += mixer(norm(x)); x += ffn(norm(x)); states = norm(x).
// The residual sum is fused into the next norm.
#include "model/decoder.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include "model/layer_context.h"
#include "ops/norm.h"
#include "ops/ranks.h"

namespace braid {

Decoder::Decoder(const ModelSpec& spec, const ModelWeights& weights, const CachePlan& cache,
                 DType kv_dtype)
    : spec_(spec), weights_(weights), cache_(cache), kv_dtype_(kv_dtype) {}

void Decoder::Forward(const ops::OpContext& context, const DecoderInput& input,
                      Matrix states) const {
  WorkspaceScope scope(*context.workspace);
  Workspace& ws = *context.workspace;
  const int64_t tokens = input.sequences.tokens;
  Matrix x = ws.TakeMatrix(tokens, spec_.hidden);
  Matrix normed = ws.TakeMatrix(tokens, spec_.hidden);
  Matrix branch = ws.TakeMatrix(tokens, spec_.hidden);
  auto norm = [&](const Weight& weight, Matrix delta) {
    ops::RmsNorm(context, {.x = x,
                           .delta = delta,
                           .weight = weight.vector,
                           .weight_offset = spec_.norm.offset,
                           .eps = spec_.norm.eps,
                           .out = normed});
  };
  ops::DividedEmbed(context, {.table = &weights_.embedding.matrix,
                              .vocabulary = spec_.vocabulary,
                              .ids = input.tokens,
                              .out = x});
  Matrix delta = {};
  for (size_t i = 0; i < spec_.layers.size(); ++i) {
    const LayerWeights& w = weights_.layers[i];
    const LayerContext layer{.op = context,
                             .sequences = input.sequences,
                             .cache = cache_.slices[i],
                             .kv_dtype = kv_dtype_,
                             .norm = spec_.norm,
                             .layer = static_cast<int32_t>(i),
                             .routes = input.routes};
    auto run = [&](const auto& kind, const auto& weights) {
      using Weights = typename std::decay_t<decltype(kind)>::Weights;
      ::braid::Forward(kind, std::get<Weights>(weights), layer, normed, branch);
    };
    norm(w.input_norm, delta);
    std::visit([&](const auto& mixer) { run(mixer, w.mixer); }, spec_.layers[i].mixer);
    norm(w.post_norm, branch);
    std::visit([&](const auto& ffn) { run(ffn, w.ffn); }, spec_.layers[i].ffn);
    delta = branch;
  }
  norm(weights_.final_norm, delta);
  for (int32_t i = 0; !ws.measuring() && i < input.count; ++i) {
    std::copy_n(normed.row(input.rows[i]), spec_.hidden, states.row(i));
  }
}

void Decoder::Logits(const ops::OpContext& context, Matrix states, Matrix logits) const {
  ops::DividedHead(context, {.x = states, .w = &weights_.head.matrix, .y = logits});
}

}  // namespace braid
