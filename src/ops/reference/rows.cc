// References of the row-wise ops: embedding, norms, products, gates.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/reference/activation_row.h"
#include "ops/reference/reference.h"

namespace braid::ops::reference {

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double Silu(double x) { return x * Sigmoid(x); }
double GatedUnit(double gate, double up, double limit) {
  if (limit <= 0) return Silu(gate) * up;
  return std::min(Silu(gate), limit) * std::clamp(up, -limit, limit);
}

namespace {

void RunEmbed(const OpContext&, const EmbedArgs& args, std::byte*) {
  for (int64_t t = 0; t < args.out.rows; ++t) {
    for (int64_t c = 0; c < args.out.cols; ++c) {
      args.out.row(t)[c] = args.table->At(0, args.ids[t], c);
    }
  }
}

double InverseRms(const float* x, int64_t cols, float eps) {
  double squares = 0;
  for (int64_t c = 0; c < cols; ++c) squares += double{x[c]} * x[c];
  return 1.0 / std::sqrt(squares / static_cast<double>(cols) + eps);
}

void RunRmsNorm(const OpContext&, const RmsNormArgs& args, std::byte*) {
  for (int64_t r = 0; r < args.x.rows; ++r) {
    float* x = args.x.row(r);
    for (int64_t c = 0; args.delta.data && c < args.x.cols; ++c) x[c] += args.delta.row(r)[c];
    if (!args.out.data) continue;
    const double scale = InverseRms(x, args.x.cols, args.eps);
    for (int64_t c = 0; c < args.x.cols; ++c) {
      args.out.row(r)[c] =
          static_cast<float>(x[c] * scale * (double{args.weight_offset} + args.weight[c]));
    }
  }
}

void RunGatedNorm(const OpContext&, const GatedNormArgs& args, std::byte*) {
  for (int64_t r = 0; r < args.x.rows; ++r) {
    for (int64_t head = 0; head < args.x.cols; head += args.head_dim) {
      const float* x = args.x.row(r) + head;
      const double scale = InverseRms(x, args.head_dim, args.eps);
      const float* weight = args.weight + (args.weight_per_channel ? head : 0);
      for (int64_t c = 0; c < args.head_dim; ++c) {
        const double gate = args.gate.row(r)[head + c];
        const double act = args.activation == GateActivation::kSilu ? Silu(gate) : Sigmoid(gate);
        args.out.row(r)[head + c] = static_cast<float>(x[c] * scale * weight[c] * act);
      }
    }
  }
}

void RunLinear(const OpContext& context, const LinearArgs& args, std::byte*) {
  std::vector<ActivationRow> rows;
  for (int64_t r = 0; r < args.x.rows; ++r) {
    rows.emplace_back(context.device, args.w->format, args.exact, args.x.row(r), args.w->k);
  }
  for (int64_t n = 0; n < args.w->n; ++n) {
    const WeightRow w(*args.w, 0, n);
    for (int64_t r = 0; r < args.x.rows; ++r) {
      args.y.row(r)[n] = static_cast<float>(rows[static_cast<size_t>(r)].Times(w));
    }
  }
}

void RunSwiglu(const OpContext&, const SwigluArgs& args, std::byte*) {
  for (int64_t r = 0; r < args.out.rows; ++r) {
    const float* gate = args.gate_up.row(r);
    for (int64_t c = 0; c < args.out.cols; ++c) {
      args.out.row(r)[c] =
          static_cast<float>(GatedUnit(gate[c], gate[args.out.cols + c], args.limit));
    }
  }
}

void RunScalarGate(const OpContext&, const ScalarGateArgs& args, std::byte*) {
  for (int64_t r = 0; r < args.x.rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < args.x.cols; ++c) sum += double{args.x.row(r)[c]} * args.weight[c];
    args.out[r] = static_cast<float>(Sigmoid(sum));
  }
}

}  // namespace

constinit const Impl<EmbedArgs> kEmbed = {"reference", Accepts, nullptr, RunEmbed};
constinit const Impl<RmsNormArgs> kRmsNorm = {"reference", Accepts, nullptr, RunRmsNorm};
constinit const Impl<GatedNormArgs> kGatedNorm = {"reference", Accepts, nullptr, RunGatedNorm};
constinit const Impl<LinearArgs> kLinear = {"reference", Accepts, nullptr, RunLinear};
constinit const Impl<SwigluArgs> kSwiglu = {"reference", Accepts, nullptr, RunSwiglu};
constinit const Impl<ScalarGateArgs> kScalarGate = {"reference", Accepts, nullptr, RunScalarGate};

}  // namespace braid::ops::reference
