// Mixture of experts with an optional shared expert, which may be gated. Each expert has two
// matrices, gate and up, side by side, and one down.
#include <cmath>
#include <string>
#include <vector>

#include "model/layer_context.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/ranks.h"

namespace braid {
namespace {

// Per-expert tensors as alternatives to the stacked ones.
std::vector<Piece> ExpertPieces(const MoeFfn& f, const std::string& base, int64_t hidden,
                                bool down) {
  std::vector<Piece> pieces;
  for (int32_t e = 0; e < f.experts; ++e) {
    const std::string expert = base + "experts." + std::to_string(e) + ".";
    if (down) {
      pieces.push_back({expert + f.names.down + ".weight", {hidden, f.width}, {}});
    } else {
      pieces.push_back({expert + f.names.gate + ".weight", {f.width, hidden}, {}});
      pieces.push_back({expert + f.names.up + ".weight", {f.width, hidden}, {}});
    }
  }
  return pieces;
}

void ListShared(const MoeFfn& f, const std::string& base, int64_t hidden, MoeFfnWeights& w,
                WeightList& list) {
  const std::string shared = base + f.names.shared;
  const int64_t width = f.shared_width;
  list.push_back({&w.shared_gate_up,
                  {.name = shared + "gate_up",
                   .count = 2,
                   .n = width,
                   .k = hidden,
                   .units = {{ShardUnit::kRow, width}, {ShardUnit::kRow, width}},
                   .sources = {{{shared + "gate_proj.weight", {width, hidden}, {}},
                                {shared + "up_proj.weight", {width, hidden}, {}}}}}});
  list.push_back({&w.shared_down,
                  {.name = shared + "down_proj",
                   .n = hidden,
                   .k = width,
                   .units = {{ShardUnit::kRow, hidden}},
                   .sources = {{{shared + "down_proj.weight", {hidden, width}, {}}}}}});
  if (!f.shared_gate) return;
  list.push_back({&w.shared_gate,
                  {.name = base + "shared_expert_gate",
                   .use = WeightUse::kVector,
                   .n = hidden,
                   .sources = {{{base + "shared_expert_gate.weight", {1, hidden}, {}}}}}});
}

double DistinctExperts(const MoeFfn& f, int64_t tokens) {
  const double untouched = 1.0 - static_cast<double>(f.top_k) / f.experts;
  return f.experts * (1.0 - std::pow(untouched, static_cast<double>(tokens)));
}

struct Routed {
  Matrix x;
  int32_t* ids = nullptr;
  float* weights = nullptr;
};

Routed RouteTokens(const MoeFfn& f, const MoeFfnWeights& w, const LayerContext& c, Matrix x) {
  Workspace& ws = *c.op.workspace;
  Routed routed{.x = x,
                .ids = ws.Take<int32_t>(x.rows * f.top_k),
                .weights = ws.Take<float>(x.rows * f.top_k)};
  Matrix logits = ws.TakeMatrix(x.rows, f.experts);
  if (x.rows == 0) return routed;
  ops::Linear(c.op, {.x = x, .w = &w.router.matrix, .y = logits, .exact = true});
  ops::Route(c.op, {.logits = logits,
                    .top_k = f.top_k,
                    .rule = f.router,
                    .bias = w.bias.vector,
                    .ids = routed.ids,
                    .weights = routed.weights});
  if (c.routes != nullptr) {
    c.routes->OnRoute(c.layer, {routed.ids, static_cast<size_t>(x.rows * f.top_k)});
  }
  return routed;
}

// The factor of each token's shared expert; null: 1.
float* SharedWeight(const MoeFfn& f, const MoeFfnWeights& w, const LayerContext& c, Matrix x,
                    bool beside) {
  if (!f.shared_gate) return nullptr;
  float* weight = c.op.workspace->Take<float>(x.rows);
  ops::ScalarGate(c.op, {.x = x, .weight = w.shared_gate.vector, .out = weight, .beside = beside});
  return weight;
}

// out += the shared expert, which ranks divide like a dense feed-forward.
void AddShared(const MoeFfn& f, const MoeFfnWeights& w, const LayerContext& c, Matrix x,
               Matrix out) {
  if (x.rows == 0) return;
  Workspace& ws = *c.op.workspace;
  const int64_t width = f.shared_width;
  Matrix gate_up = ws.TakeMatrix(x.rows, 2 * width);
  Matrix hidden = ws.TakeMatrix(x.rows, width);
  Matrix shared = ws.TakeMatrix(x.rows, out.cols);
  for (int64_t part = 0; part < 2; ++part) {
    ops::PackedMatrix one = w.shared_gate_up.matrix;
    one.count = 1;
    if (one.data) one.data += part * one.matrix_bytes();  // none while memory is measured
    ops::Linear(c.op, {.x = x, .w = &one, .y = gate_up.columns(part * width, width)});
  }
  ops::Swiglu(c.op, {.gate_up = gate_up, .out = hidden, .limit = f.shared_limit});
  ops::DividedLinear(c.op, {.x = hidden, .w = &w.shared_down.matrix, .y = shared});
  ops::AddRows(
      c.op, {.rows = shared, .weights = SharedWeight(f, w, c, x, false), .add = true, .out = out});
}

}  // namespace

void ListWeights(const MoeFfn& f, const LayerPlace& place, MoeFfnWeights& w, WeightList& list) {
  const std::string base = place.prefix + f.names.module;
  const int64_t experts = f.experts, width = f.width, hidden = place.hidden;
  list.push_back({&w.router,
                  {.name = base + "gate",
                   .n = experts,
                   .k = hidden,
                   .quantisable = Quantisable::kNever,
                   .sources = {{{base + "gate.weight", {experts, hidden}, {}}}}}});
  list.push_back({&w.gate_up,
                  {.name = base + "experts.gate_up",
                   .count = 2 * experts,
                   .n = width,
                   .k = hidden,
                   .units = {{ShardUnit::kExpert, experts, 2 * width}},
                   .sources = {{{base + "experts.gate_up_proj", {experts, 2 * width, hidden}, {}}},
                               ExpertPieces(f, base, hidden, false)}}});
  list.push_back({&w.down,
                  {.name = base + "experts.down",
                   .count = experts,
                   .n = hidden,
                   .k = width,
                   .units = {{ShardUnit::kExpert, experts, hidden}},
                   .sources = {{{base + "experts.down_proj", {experts, hidden, width}, {}}},
                               ExpertPieces(f, base, hidden, true)}}});
  if (f.shared_width > 0) ListShared(f, base, hidden, w, list);
  if (f.names.bias.empty()) return;
  WeightSpec bias{.name = base + f.names.bias.front(), .use = WeightUse::kVector, .n = experts};
  for (const std::string& name : f.names.bias) {
    bias.sources.push_back({{base + name, {experts}, {}}});
  }
  list.push_back({&w.bias, std::move(bias)});
}

Cost ExpertCost(const MoeFfn& f, int64_t hidden, double rows, double experts,
                double bytes_per_weight) {
  const double expert = 3.0 * static_cast<double>(hidden) * f.width;
  const double bytes = bytes_per_weight * experts * expert;
  return {.flops = 2 * rows * expert, .bytes = bytes, .weight_bytes = bytes, .part = "experts"};
}

std::vector<Cost> CostsOf(const MoeFfn& f, int64_t hidden, const StepShape& shape) {
  const double shared = 3.0 * static_cast<double>(hidden) * f.shared_width;
  const double router = static_cast<double>(hidden) * f.experts;
  const int64_t routed = shape.routed_tokens > 0 ? shape.routed_tokens : shape.tokens;
  const double rows =
      static_cast<double>(routed) * f.top_k * shape.expert_share * shape.expert_load;
  const double experts = DistinctExperts(f, routed) * shape.expert_share;
  Cost cost = ExpertCost(f, hidden, rows, experts, shape.bytes_per_weight);
  const double bytes = shape.bytes_per_weight * shared + 2 * router;
  cost.flops += 2 * static_cast<double>(shape.tokens) * (shared + router);
  cost.bytes += bytes;
  cost.weight_bytes += bytes;
  return {cost};
}

void Forward(const MoeFfn& f, const MoeFfnWeights& w, const LayerContext& c, Matrix x, Matrix out) {
  WorkspaceScope scope(*c.op.workspace);
  // Ranks that share the work on a token make the sums of some tokens each.
  const Routed routed = RouteTokens(f, w, c, ops::OwnRows(c.op, x));
  if (c.op.ranks != nullptr) {
    ops::DividedExperts(c.op, {.x = routed.x,
                               .gate_up = &w.gate_up.matrix,
                               .down = &w.down.matrix,
                               .slot_of = w.slot_of.empty() ? nullptr : w.slot_of.data(),
                               .ids = routed.ids,
                               .weights = routed.weights,
                               .top_k = f.top_k,
                               .limit = f.limit,
                               .out = ops::OwnRows(c.op, out)});
    ops::GatherRows(c.op, out);
    if (f.shared_width > 0) AddShared(f, w, c, x, out);
    return;
  }
  const bool shared = f.shared_width > 0;
  ops::Experts(c.op, {.x = x,
                      .gate_up = &w.gate_up.matrix,
                      .down = &w.down.matrix,
                      .ids = routed.ids,
                      .weights = routed.weights,
                      .top_k = f.top_k,
                      .shared_gate_up = shared ? &w.shared_gate_up.matrix : nullptr,
                      .shared_down = shared ? &w.shared_down.matrix : nullptr,
                      .shared_weight = SharedWeight(f, w, c, x, true),
                      .limit = f.limit,
                      .shared_limit = f.shared_limit,
                      .out = out});
}

}  // namespace braid
