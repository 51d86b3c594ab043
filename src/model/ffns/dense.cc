// SwiGLU feed-forward: down(silu(gate x) * up x), gate and up as one matrix.
#include <string>
#include <vector>

#include "model/layer_context.h"
#include "ops/linear.h"
#include "ops/ranks.h"

namespace braid {

void ListWeights(const DenseFfn& f, const LayerPlace& place, DenseFfnWeights& w, WeightList& list) {
  const std::string name = place.prefix + f.modules.front();
  std::vector<std::vector<Piece>> gate_up, down;
  for (const std::string& module : f.modules) {
    const std::string base = place.prefix + module;
    gate_up.push_back({{base + "gate_proj.weight", {f.width, place.hidden}, {}},
                       {base + "up_proj.weight", {f.width, place.hidden}, {}}});
    down.push_back({{base + "down_proj.weight", {place.hidden, f.width}, {}}});
  }
  list.push_back({&w.gate_up,
                  {.name = name + "gate_up",
                   .n = 2 * int64_t{f.width},
                   .k = place.hidden,
                   .units = {{ShardUnit::kRow, f.width}, {ShardUnit::kRow, f.width}},
                   .sources = std::move(gate_up)}});
  list.push_back({&w.down,
                  {.name = name + "down_proj",
                   .n = place.hidden,
                   .k = f.width,
                   .units = {{ShardUnit::kRow, place.hidden}},
                   .sources = std::move(down)}});
}

std::vector<Cost> CostsOf(const DenseFfn& f, int64_t hidden, const StepShape& shape) {
  const double weights = 3.0 * static_cast<double>(hidden) * f.width;
  return {{.flops = 2 * weights * static_cast<double>(shape.tokens),
           .bytes = shape.bytes_per_weight * weights,
           .weight_bytes = shape.bytes_per_weight * weights,
           .part = "feed-forward"}};
}

void Forward(const DenseFfn& f, const DenseFfnWeights& w, const LayerContext& c, Matrix x,
             Matrix out) {
  WorkspaceScope scope(*c.op.workspace);
  Matrix gate_up = c.op.workspace->TakeMatrix(x.rows, 2 * int64_t{f.width});
  Matrix hidden = c.op.workspace->TakeMatrix(x.rows, f.width);
  ops::Linear(c.op, {.x = x, .w = &w.gate_up.matrix, .y = gate_up});
  ops::Swiglu(c.op, {.gate_up = gate_up, .out = hidden, .limit = f.limit});
  ops::DividedLinear(c.op, {.x = hidden, .w = &w.down.matrix, .y = out});
}

}  // namespace braid
