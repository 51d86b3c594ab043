// Router and mixture of experts.
#pragma once

#include "ops/op.h"
#include "ops/packed.h"

namespace braid::ops {

// Top-k of softmax(logits) over all experts, ties to the smaller id; weights divided by their sum
// when `renormalise`. ids[t][0..k) are ascending: the order in which contributions are added.
struct RouteArgs {
  Matrix logits;  // [tokens, experts]
  int32_t top_k = 0;
  bool renormalise = true;
  int32_t* ids = nullptr;    // [tokens, top_k]
  float* weights = nullptr;  // [tokens, top_k]
};
void Route(const OpContext& context, const RouteArgs& args);

// out[t] = sum over the token's experts, ascending, of weight * down(silu(gate x) * up x), then,
// when there is a shared expert, + sigmoid(shared_gate . x) * shared(x).
struct ExpertsArgs {
  Matrix x;  // [tokens, hidden]
  const PackedMatrix* gate_up =
      nullptr;  // 2 * experts matrices [width, hidden]: gate 0, up 0, gate 1 …
  const PackedMatrix* down = nullptr;  // experts matrices [hidden, width]
  const int32_t* ids = nullptr;        // [tokens, top_k], ascending per token
  const float* weights = nullptr;      // [tokens, top_k]
  int32_t top_k = 0;
  const PackedMatrix* shared_gate_up = nullptr;  // 2 matrices [shared_width, hidden], or null
  const PackedMatrix* shared_down = nullptr;     // 1 matrix [hidden, shared_width]
  const float* shared_weight = nullptr;  // [tokens]: factor of the shared expert, or null: 1
  Matrix out;                            // [tokens, hidden]
};
void Experts(const OpContext& context, const ExpertsArgs& args);

// out[t] = sigmoid(x[t] . w)
struct ScalarGateArgs {
  Matrix x;                       // [tokens, hidden]
  const float* weight = nullptr;  // [hidden]
  float* out = nullptr;           // [tokens]
};
void ScalarGate(const OpContext& context, const ScalarGateArgs& args);

}  // namespace braid::ops
