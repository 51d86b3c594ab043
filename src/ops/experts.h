// Router and mixture of experts.
#pragma once

#include "ops/op.h"
#include "ops/packed.h"

namespace braid::ops {

enum class RouterScore : uint8_t { kSoftmax, kSigmoid };

// How a router scores and selects. An expert's score is softmax or sigmoid of its logit. Selected
// are the top k of score + bias (ties to the smaller id) among the `groups_kept` groups whose two
// best such sums add up to most; bias and groups go with sigmoid only. Weights are the scores
// without the bias, divided by their sum when `renormalise`, times `scale`.
struct RouterRule {
  RouterScore score = RouterScore::kSoftmax;
  bool renormalise = true;
  int32_t groups = 1;  // divides the number of experts; more than one: each of at least two experts
  int32_t groups_kept = 1;
  float scale = 1.0f;
};

// ids[t][0..k) are ascending: the order in which contributions are added.
struct RouteArgs {
  Matrix logits;  // [tokens, experts]
  int32_t top_k = 0;
  RouterRule rule;
  const float* bias = nullptr;  // [experts] or null
  int32_t* ids = nullptr;       // [tokens, top_k]
  float* weights = nullptr;     // [tokens, top_k]
};
void Route(const OpContext& context, const RouteArgs& args);

// out[t] = sum over the token's experts, ascending, of weight * down(silu(gate x) * up x), then,
// when there is a shared expert, + sigmoid(shared_gate . x) * shared(x).
struct ExpertsArgs {
  Matrix x;  // [tokens, hidden]
  // [tokens]: the row of x that a token has, of fewer rows than tokens; null: its own. Rows are
  // then packed once, however many tokens have them.
  const int32_t* x_at = nullptr;
  const PackedMatrix* gate_up =
      nullptr;  // 2 * experts matrices [width, hidden]: gate 0, up 0, gate 1 …, where gate and
                // up have one order of columns
  const PackedMatrix* down = nullptr;  // experts matrices [hidden, width]
  const int32_t* ids = nullptr;        // [tokens, top_k], ascending per token
  const float* weights = nullptr;      // [tokens, top_k]
  int32_t top_k = 0;
  const PackedMatrix* shared_gate_up = nullptr;  // 2 matrices [shared_width, hidden], or null
  const PackedMatrix* shared_down = nullptr;     // 1 matrix [hidden, shared_width]
  const float* shared_weight = nullptr;  // [tokens]: factor of the shared expert, or null: 1
  float limit = 0.0f;  // of the activation, 0: none (SwigluArgs::limit); of the shared expert below
  float shared_limit = 0.0f;
  Matrix out;  // [tokens, hidden]
};
void Experts(const OpContext& context, const ExpertsArgs& args);

// out[t] = (add ? out[t] : 0) + sum over j, ascending, of weights[t][j] * rows[at[t][j]]: how
// Experts adds.
struct AddRowsArgs {
  Matrix rows;                     // [any, cols]
  const int32_t* at = nullptr;     // [out.rows, k]; null: t * k + j
  const float* weights = nullptr;  // [out.rows, k]; null: 1
  int64_t k = 1;
  bool add = false;
  Matrix out;  // [tokens, cols]
};
void AddRows(const OpContext& context, const AddRowsArgs& args);

// out[t] = sigmoid(x[t] . w)
struct ScalarGateArgs {
  Matrix x;                       // [tokens, hidden]
  const float* weight = nullptr;  // [hidden]
  float* out = nullptr;           // [tokens]
  bool beside = false;            // as of a product (ops/linear.h)
};
void ScalarGate(const OpContext& context, const ScalarGateArgs& args);

}  // namespace braid::ops
