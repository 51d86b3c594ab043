// References of the router and of the experts.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/reference/reference.h"

namespace braid::ops::reference {
namespace {

// Selection compares logits, which order as their softmax does; only the weights need exponentials.
void RunRoute(const OpContext&, const RouteArgs& args, std::byte*) {
  const int64_t experts = args.logits.cols, k = args.top_k;
  std::vector<int32_t> order(static_cast<size_t>(experts));
  for (int64_t t = 0; t < args.logits.rows; ++t) {
    const float* logits = args.logits.row(t);
    std::iota(order.begin(), order.end(), 0);
    auto better = [&](int32_t a, int32_t b) {
      return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
    };
    std::partial_sort(order.begin(), order.begin() + k, order.end(), better);
    std::sort(order.begin(), order.begin() + k);
    const double maximum = *std::max_element(logits, logits + experts);
    double all = 0, chosen = 0;
    for (int64_t e = 0; e < experts; ++e) all += std::exp(logits[e] - maximum);
    for (int64_t j = 0; j < k; ++j)
      chosen += std::exp(logits[order[static_cast<size_t>(j)]] - maximum);
    for (int64_t j = 0; j < k; ++j) {
      const int32_t e = order[static_cast<size_t>(j)];
      args.ids[t * k + j] = e;
      args.weights[t * k + j] =
          static_cast<float>(std::exp(logits[e] - maximum) / (args.renormalise ? chosen : all));
    }
  }
}

// y += scale * down(silu(gate x) * up x)
void AddExpert(bool round, const float* x, const PackedMatrix& gate_up, int64_t gate,
               const PackedMatrix& down, int64_t matrix, double scale, std::vector<double>& y) {
  auto operand = [round](double v) {
    return round ? double{RoundToBf16(static_cast<float>(v))} : v;
  };
  std::vector<double> h(static_cast<size_t>(gate_up.n));
  for (int64_t i = 0; i < gate_up.n; ++i) {
    double g = 0, u = 0;
    for (int64_t k = 0; k < gate_up.k; ++k) {
      g += operand(x[k]) * gate_up.At(gate, i, k);
      u += operand(x[k]) * gate_up.At(gate + 1, i, k);
    }
    h[static_cast<size_t>(i)] = operand(Silu(g) * u);
  }
  for (int64_t n = 0; n < down.n; ++n) {
    double sum = 0;
    for (int64_t k = 0; k < down.k; ++k) sum += h[static_cast<size_t>(k)] * down.At(matrix, n, k);
    y[static_cast<size_t>(n)] += scale * sum;
  }
}

void RunExperts(const OpContext& context, const ExpertsArgs& a, std::byte*) {
  const bool round = context.device.compute == Compute::kBF16;
  for (int64_t t = 0; t < a.x.rows; ++t) {
    std::vector<double> y(static_cast<size_t>(a.out.cols));
    for (int64_t j = 0; j < a.top_k; ++j) {
      const int64_t e = a.ids[t * a.top_k + j];
      AddExpert(round, a.x.row(t), *a.gate_up, 2 * e, *a.down, e, a.weights[t * a.top_k + j], y);
    }
    if (a.shared_down) {
      AddExpert(round, a.x.row(t), *a.shared_gate_up, 0, *a.shared_down, 0,
                a.shared_weight ? a.shared_weight[t] : 1.0f, y);
    }
    for (int64_t c = 0; c < a.out.cols; ++c) {
      a.out.row(t)[c] = static_cast<float>(y[static_cast<size_t>(c)]);
    }
  }
}

}  // namespace

constinit const Impl<RouteArgs> kRoute = {"reference", Accepts, nullptr, RunRoute};
constinit const Impl<ExpertsArgs> kExperts = {"reference", Accepts, nullptr, RunExperts};

}  // namespace braid::ops::reference
