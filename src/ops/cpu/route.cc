// Top-k selection by insertion into a short sorted list, gates by dot products, embedding rows by
// panel.
#include "ops/cpu/route.h"

#include <algorithm>
#include <cmath>

#include "ops/cpu/dispatch.h"

namespace braid::ops::cpu {
namespace {

constexpr int32_t kTopKMax = 64;
constexpr int64_t kTokensPerTask = 16;

// The k best experts of one token, best first, ties by smaller id; then in ascending order of id.
void SelectExperts(const float* logits, int64_t experts, int32_t k, int32_t* ids) {
  int32_t count = 0;
  for (int32_t e = 0; e < experts; ++e) {
    if (count == k && !(logits[e] > logits[ids[k - 1]])) continue;
    int32_t at = count < k ? count++ : k - 1;
    for (; at > 0 && logits[e] > logits[ids[at - 1]]; --at) ids[at] = ids[at - 1];
    ids[at] = e;
  }
  std::sort(ids, ids + k);
}

void RunRoute(const OpContext& context, const RouteArgs& args, std::byte*) {
  const auto& kernels = *KernelsFor(context.device);
  const int64_t experts = args.logits.cols, k = args.top_k;
  const double flops = 20.0 * static_cast<double>(args.logits.rows * experts);
  ForTasks(context, CeilDiv(args.logits.rows, kTokensPerTask), flops, [&](int64_t task, int) {
    const int64_t end = std::min(args.logits.rows, (task + 1) * kTokensPerTask);
    for (int64_t t = task * kTokensPerTask; t < end; ++t) {
      const float* logits = args.logits.row(t);
      int32_t* ids = args.ids + t * k;
      float* weights = args.weights + t * k;
      SelectExperts(logits, experts, args.top_k, ids);
      const float maximum = kernels.max(logits, experts);
      float sum = 0.0f;
      for (int64_t j = 0; j < k; ++j) sum += weights[j] = std::exp(logits[ids[j]] - maximum);
      if (!args.renormalise) sum = kernels.sum_exp(logits, experts, maximum);
      for (int64_t j = 0; j < k; ++j) weights[j] /= sum;
    }
  });
}

void RunScalarGate(const OpContext& context, const ScalarGateArgs& args, std::byte*) {
  const auto& kernels = *KernelsFor(context.device);
  const double flops = 2.0 * static_cast<double>(args.x.rows * args.x.cols);
  ForTasks(context, CeilDiv(args.x.rows, kTokensPerTask), flops, [&](int64_t task, int) {
    const int64_t end = std::min(args.x.rows, (task + 1) * kTokensPerTask);
    for (int64_t t = task * kTokensPerTask; t < end; ++t) {
      const float dot = kernels.dot(args.x.row(t), args.weight, args.x.cols);
      args.out[t] = 1.0f / (1.0f + std::exp(-dot));
    }
  });
}

void RunEmbed(const OpContext& context, const EmbedArgs& args, std::byte*) {
  const PackedMatrix& table = *args.table;
  const double flops = static_cast<double>(args.out.rows * args.out.cols);
  ForTasks(context, CeilDiv(args.out.rows, kTokensPerTask), flops, [&](int64_t task, int) {
    const int64_t end = std::min(args.out.rows, (task + 1) * kTokensPerTask);
    for (int64_t t = task * kTokensPerTask; t < end; ++t) {
      float* out = args.out.row(t);
      const int64_t lane = args.ids[t] % kPanelRows;
      const std::byte* panel = table.panel(0, args.ids[t] / kPanelRows);
      const auto* pairs = reinterpret_cast<const uint16_t*>(panel);
      for (int64_t c = 0; c < table.k; ++c) {
        out[c] = FloatOfBf16(pairs[(c / 2 * kPanelRows + lane) * 2 + c % 2]);
      }
    }
  });
}

const char* WhyNotRoute(const Device& device, const RouteArgs& args) {
  return args.top_k > kTopKMax ? "more than 64 experts per token" : NeedsAvx2(device);
}
const char* WhyNotGate(const Device& device, const ScalarGateArgs&) { return NeedsAvx2(device); }
const char* WhyNotEmbed(const Device&, const EmbedArgs& args) {
  return args.table->format == WeightFormat::kBF16 ? nullptr : "the table is not bf16";
}

}  // namespace

constinit const Impl<RouteArgs> kRoute = {"cpu", WhyNotRoute, nullptr, RunRoute};
constinit const Impl<ScalarGateArgs> kScalarGate = {"cpu", WhyNotGate, nullptr, RunScalarGate};
constinit const Impl<EmbedArgs> kEmbed = {"cpu", WhyNotEmbed, nullptr, RunEmbed};

}  // namespace braid::ops::cpu
