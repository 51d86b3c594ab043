// The cases of products and experts, for the tests of every device's candidates.
#pragma once

#include <algorithm>
#include <tuple>
#include <vector>

#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/testing/test_context.h"

namespace braid::ops {

struct LinearCase {
  int64_t rows, n, k;
  WeightFormat format;
};

inline std::vector<LinearCase> LinearCases() {
  std::vector<LinearCase> cases = {
      {1, 16, 2, WeightFormat::kBF16},     {1, 64, 256, WeightFormat::kBF16},
      {1, 97, 40, WeightFormat::kBF16},    {2, 33, 513, WeightFormat::kBF16},
      {3, 160, 64, WeightFormat::kF32},    {4, 48, 1000, WeightFormat::kBF16},
      {5, 15, 7, WeightFormat::kF32},      {6, 80, 300, WeightFormat::kBF16},
      {7, 17, 259, WeightFormat::kF32},    {13, 300, 255, WeightFormat::kBF16},
      {25, 37, 100, WeightFormat::kF32},   {49, 100, 33, WeightFormat::kF32},
      {64, 129, 770, WeightFormat::kBF16}, {250, 49, 300, WeightFormat::kBF16},
      {17, 33, 4500, WeightFormat::kI8}};
  for (const WeightFormatRow& format : WeightFormats()) {
    if (!format.quantised()) continue;
    for (auto [rows, n, k] : {std::tuple(1, 100, 130), {5, 16, 31}, {19, 50, 1000}, {40, 64, 64}}) {
      cases.push_back({rows, n, k, format.format});
    }
  }
  return cases;
}

struct ExpertsCase {
  int64_t tokens, hidden, experts, width, shared_width;
  WeightFormat format = WeightFormat::kBF16;
  WeightFormat shared_format = format;
  float limit = 0, shared_limit = 0;
};
inline std::vector<ExpertsCase> ExpertsCases() {
  std::vector<ExpertsCase> cases = {
      {1, 64, 8, 32, 48},
      {5, 40, 7, 40, 24},
      {4, 40, 16, 24, 0},  // fewer rows than two an expert
      {2, 130, 9, 40, 0, WeightFormat::kI8},
      {33, 48, 5, 24, 0},
      {70, 256, 16, 64, 128},
      {401, 40, 2, 72, 8},
      {9, 131, 1, 65, 17},
      {33, 130, 5, 72, 40, WeightFormat::kI8},
      {12, 130, 5, 72, 40, WeightFormat::kI8},
      {37, 130, 5, 72, 40, WeightFormat::kI8, WeightFormat::kBF16},
      {5, 40, 7, 40, 24, WeightFormat::kBF16, WeightFormat::kBF16, 0.5f, 0.1f},
      {33, 48, 5, 24, 40, WeightFormat::kBF16, WeightFormat::kBF16, 0.0f, 0.2f},
      {33, 48, 5, 24, 40, WeightFormat::kI8, WeightFormat::kI8, 0.2f, 0.0f}};
  for (const WeightFormatRow& format : WeightFormats()) {
    if (!format.quantised()) continue;
    // In turn: neighbours in the table share their kernels.
    if (cases.size() % 2 == 0) {
      cases.push_back({21, 130, 5, 96, 40, format.format});
    } else {
      cases.push_back({37, 192, 5, 96, 40, format.format, WeightFormat::kI8});
    }
  }
  return cases;
}

// One mixture with everything an ExpertsArgs points to.
struct Mixture {
  explicit Mixture(const ExpertsCase& c)
      : rng(static_cast<uint64_t>(c.tokens * 31 + c.hidden)),
        gate_up(rng, c.format, 2 * c.experts, c.width, c.hidden),
        down(rng, c.format, c.experts, c.hidden, c.width),
        shared_gate_up(rng, c.shared_format, 2, std::max<int64_t>(c.shared_width, 1), c.hidden),
        shared_down(rng, c.shared_format, 1, c.hidden, std::max<int64_t>(c.shared_width, 1)),
        x(rng, c.tokens, c.hidden),
        shared_weight(rng, 1, c.tokens) {
    top_k = static_cast<int32_t>(std::min<int64_t>(3, c.experts));
    OwnedMatrix logits(rng, c.tokens, c.experts);
    ids.resize(static_cast<size_t>(c.tokens * top_k));
    weights.resize(ids.size());
    TestContext base(Isa::kBase);
    Route(base.context,
          {.logits = logits.view, .top_k = top_k, .ids = ids.data(), .weights = weights.data()});
    args = {.x = x.view,
            .gate_up = &gate_up.matrix,
            .down = &down.matrix,
            .ids = ids.data(),
            .weights = weights.data(),
            .top_k = top_k,
            .limit = c.limit,
            .shared_limit = c.shared_limit};
    if (c.shared_width > 0) {
      args.shared_gate_up = &shared_gate_up.matrix;
      args.shared_down = &shared_down.matrix;
      args.shared_weight = shared_weight.view.data;
    }
  }
  // One token's, alone.
  ExpertsArgs Token(int64_t t, const Matrix& out) const {
    ExpertsArgs one = args;
    one.x = RowsOf(x.view, t, 1);
    one.ids += t * top_k;
    one.weights += t * top_k;
    if (one.shared_weight) one.shared_weight += t;
    one.out = out;
    return one;
  }
  Rng rng;
  OwnedWeights gate_up, down, shared_gate_up, shared_down;
  OwnedMatrix x, shared_weight;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  int32_t top_k;
  ExpertsArgs args;
};

}  // namespace braid::ops
