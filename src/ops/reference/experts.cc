// References of the router and of the experts.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "ops/reference/activation_row.h"
#include "ops/reference/reference.h"

namespace braid::ops::reference {
namespace {

// What experts are chosen by: score + bias, minus infinity outside the kept groups. Without a bias
// logits order as their scores do.
std::vector<double> Choices(const RouteArgs& args, const float* logits) {
  const int64_t experts = args.logits.cols, groups = args.rule.groups, size = experts / groups;
  std::vector<double> choice(logits, logits + experts);
  for (int64_t e = 0; e < experts && args.rule.score == RouterScore::kSigmoid; ++e) {
    // fp32 by definition, because rounding decides ties.
    const float score = 1.0f / (1.0f + std::exp(-logits[e]));
    choice[static_cast<size_t>(e)] = score + (args.bias ? args.bias[e] : 0.0f);
  }
  if (groups == 1) return choice;
  std::vector<std::pair<float, int64_t>> sums;  // negated: the best first, ties by smaller group
  for (int64_t g = 0; g < groups; ++g) {
    std::vector<double> members(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::partial_sort(members.begin(), members.begin() + 2, members.end(), std::greater<>());
    sums.push_back({-(static_cast<float>(members[0]) + static_cast<float>(members[1])), g});
  }
  std::sort(sums.begin(), sums.end());
  for (int64_t i = args.rule.groups_kept; i < groups; ++i) {
    std::fill_n(choice.begin() + sums[static_cast<size_t>(i)].second * size, size, -INFINITY);
  }
  return choice;
}

void RunRoute(const OpContext&, const RouteArgs& args, std::byte*) {
  const int64_t experts = args.logits.cols, k = args.top_k;
  const bool sigmoid = args.rule.score == RouterScore::kSigmoid;
  std::vector<int32_t> order(static_cast<size_t>(experts));
  for (int64_t t = 0; t < args.logits.rows; ++t) {
    const float* logits = args.logits.row(t);
    const std::vector<double> choice = Choices(args, logits);
    std::iota(order.begin(), order.end(), 0);
    auto better = [&](int32_t a, int32_t b) {
      const double x = choice[static_cast<size_t>(a)], y = choice[static_cast<size_t>(b)];
      return x > y || (x == y && a < b);
    };
    std::partial_sort(order.begin(), order.begin() + k, order.end(), better);
    std::sort(order.begin(), order.begin() + k);
    const double maximum = *std::max_element(logits, logits + experts);
    auto score = [&](int64_t e) {
      return sigmoid ? Sigmoid(logits[e]) : std::exp(logits[e] - maximum);
    };
    double sum = sigmoid ? 1e-20 : 0.0;
    if (args.rule.renormalise) {
      for (int64_t j = 0; j < k; ++j) sum += score(order[static_cast<size_t>(j)]);
    } else if (sigmoid) {
      sum = 1.0;
    } else {
      for (int64_t e = 0; e < experts; ++e) sum += score(e);
    }
    for (int64_t j = 0; j < k; ++j) {
      const int32_t e = order[static_cast<size_t>(j)];
      args.ids[t * k + j] = e;
      args.weights[t * k + j] = static_cast<float>(score(e) / sum * args.rule.scale);
    }
  }
}

// y += scale * down(silu(gate x) * up x). Experts' rows are fp32, so that ranks may send them.
void AddExpert(const Device& device, const float* x, const PackedMatrix& gate_up, int64_t gate,
               const PackedMatrix& down, int64_t matrix, float scale, double limit, float* y) {
  const ActivationRow in(device, gate_up.format, false, x, gate_up.k);
  std::vector<float> h(static_cast<size_t>(gate_up.n));
  for (int64_t i = 0; i < gate_up.n; ++i) {
    const double g = in.Times({gate_up, gate, i}), u = in.Times({gate_up, gate + 1, i});
    h[static_cast<size_t>(i)] = static_cast<float>(GatedUnit(g, u, limit));
  }
  const ActivationRow hidden(device, down.format, false, h.data(), down.k);
  for (int64_t n = 0; n < down.n; ++n) {
    y[n] = std::fma(scale, static_cast<float>(hidden.Times({down, matrix, n})), y[n]);
  }
}

void RunExperts(const OpContext& context, const ExpertsArgs& a, std::byte*) {
  for (int64_t t = 0; t < a.out.rows; ++t) {
    const float* x = a.x.row(a.x_at ? a.x_at[t] : t);
    float* y = a.out.row(t);
    std::fill_n(y, a.out.cols, 0.0f);
    for (int64_t j = 0; j < a.top_k; ++j) {
      const int64_t e = a.ids[t * a.top_k + j];
      AddExpert(context.device, x, *a.gate_up, 2 * e, *a.down, e, a.weights[t * a.top_k + j],
                a.limit, y);
    }
    if (a.shared_down) {
      AddExpert(context.device, x, *a.shared_gate_up, 0, *a.shared_down, 0,
                a.shared_weight ? a.shared_weight[t] : 1.0f, a.shared_limit, y);
    }
  }
}

void RunAddRows(const OpContext&, const AddRowsArgs& a, std::byte*) {
  for (int64_t t = 0; t < a.out.rows; ++t) {
    float* y = a.out.row(t);
    if (!a.add) std::fill_n(y, a.out.cols, 0.0f);
    for (int64_t i = t * a.k; i < (t + 1) * a.k; ++i) {
      const float* row = a.rows.row(a.at ? a.at[i] : i);
      const float weight = a.weights ? a.weights[i] : 1.0f;
      for (int64_t c = 0; c < a.out.cols; ++c) y[c] = std::fma(weight, row[c], y[c]);
    }
  }
}

}  // namespace

constinit const Impl<RouteArgs> kRoute = {"reference", Accepts, nullptr, RunRoute};
constinit const Impl<AddRowsArgs> kAddRows = {"reference", Accepts, nullptr, RunAddRows};
constinit const Impl<ExpertsArgs> kExperts = {"reference", Accepts, nullptr, RunExperts};

}  // namespace braid::ops::reference
