// The residual sum is fused into the next norm.
#include "model/layer_stack.h"

#include <type_traits>
#include <variant>

#include "model/layer_context.h"
#include "ops/norm.h"

namespace braid {

void Norm(const ops::OpContext& context, const NormSpec& norm, const Weight& weight, Matrix x,
          Matrix out) {
  ops::RmsNorm(
      context,
      {.x = x, .weight = weight.vector, .weight_offset = norm.offset, .eps = norm.eps, .out = out});
}

void RunLayers(const ops::OpContext& context, const LayerStack& stack,
               const ops::SequenceIndex& sequences, Matrix x, Matrix states) {
  WorkspaceScope scope(*context.workspace);
  Matrix branch = context.workspace->TakeMatrix(x.rows, x.cols);
  auto norm = [&](const Weight& weight, Matrix delta) {
    ops::RmsNorm(context, {.x = x,
                           .delta = delta,
                           .weight = weight.vector,
                           .weight_offset = stack.norm.offset,
                           .eps = stack.norm.eps,
                           .out = states});
  };
  Matrix delta = {};
  for (size_t i = 0; i < stack.layers.size(); ++i) {
    const LayerWeights& w = stack.weights[i];
    const LayerContext layer{.op = context,
                             .sequences = sequences,
                             .cache = stack.slices[i],
                             .kv_dtype = stack.kv_dtype,
                             .norm = stack.norm,
                             .layer = static_cast<int32_t>(i),
                             .routes = stack.routes};
    auto run = [&](const auto& kind, const auto& weights) {
      using Kind = std::decay_t<decltype(kind)>;
      using Weights = typename Kind::Weights;
      // A rank without tokens has experts that others need.
      if (x.rows == 0 && !std::is_same_v<Kind, MoeFfn>) return;
      ::braid::Forward(kind, std::get<Weights>(weights), layer, states, branch);
    };
    norm(w.input_norm, delta);
    if (stack.watch != nullptr) stack.watch->BeforeMixer(layer.layer);
    std::visit([&](const auto& mixer) { run(mixer, w.mixer); }, stack.layers[i].mixer);
    if (stack.watch != nullptr) stack.watch->AfterMixer(layer.layer);
    norm(w.post_norm, branch);
    std::visit([&](const auto& ffn) { run(ffn, w.ffn); }, stack.layers[i].ffn);
    delta = branch;
  }
  norm(stack.final_norm, delta);
}

}  // namespace braid
