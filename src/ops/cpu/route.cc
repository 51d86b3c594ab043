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
void SelectExperts(const float* choice, int64_t experts, int32_t k, int32_t* ids) {
  int32_t count = 0;
  for (int32_t e = 0; e < experts; ++e) {
    if (count == k && !(choice[e] > choice[ids[k - 1]])) continue;
    int32_t at = count < k ? count++ : k - 1;
    for (; at > 0 && choice[e] > choice[ids[at - 1]]; --at) ids[at] = ids[at - 1];
    ids[at] = e;
  }
  std::sort(ids, ids + k);
}

// Minus infinity for the members of all groups but the best `groups_kept`. `sums` is scratch.
void MaskGroups(const RouterRule& rule, int64_t experts, float* choice, float* sums) {
  const int64_t size = experts / rule.groups;
  for (int64_t g = 0; g < rule.groups; ++g) {
    const float* c = choice + g * size;
    float first = std::max(c[0], c[1]), second = std::min(c[0], c[1]);
    for (int64_t i = 2; i < size; ++i) {
      second = std::max(second, std::min(first, c[i]));
      first = std::max(first, c[i]);
    }
    sums[g] = first + second;
  }
  for (int64_t g = 0; g < rule.groups; ++g) {
    int64_t better = 0;
    for (int64_t h = 0; h < rule.groups; ++h) {
      better += sums[h] > sums[g] || (sums[h] == sums[g] && h < g);
    }
    if (better >= rule.groups_kept) std::fill_n(choice + g * size, size, -INFINITY);
  }
}

// One token's experts and weights. `choice` is scratch for experts + groups floats.
void RouteToken(const RouteArgs& args, const float* logits, float* choice, int32_t* ids,
                float* weights) {
  const int64_t experts = args.logits.cols, k = args.top_k;
  for (int64_t e = 0; e < experts; ++e) {
    choice[e] = 1.0f / (1.0f + std::exp(-logits[e])) + (args.bias ? args.bias[e] : 0.0f);
  }
  if (args.rule.groups > 1) MaskGroups(args.rule, experts, choice, choice + experts);
  SelectExperts(choice, experts, args.top_k, ids);
  float sum = 1e-20f;
  for (int64_t j = 0; j < k; ++j) sum += weights[j] = 1.0f / (1.0f + std::exp(-logits[ids[j]]));
  const float scale = args.rule.renormalise ? args.rule.scale / sum : args.rule.scale;
  for (int64_t j = 0; j < k; ++j) weights[j] *= scale;
}

void SoftmaxToken(const KernelTable& kernels, const RouteArgs& args, const float* logits,
                  int32_t* ids, float* weights) {
  const int64_t experts = args.logits.cols, k = args.top_k;
  SelectExperts(logits, experts, args.top_k, ids);
  const float maximum = kernels.max(logits, experts);
  float sum = 0.0f;
  for (int64_t j = 0; j < k; ++j) sum += weights[j] = std::exp(logits[ids[j]] - maximum);
  if (!args.rule.renormalise) sum = kernels.sum_exp(logits, experts, maximum, 1.0f);
  for (int64_t j = 0; j < k; ++j) weights[j] = weights[j] / sum * args.rule.scale;
}

int64_t RouteScratch(const OpContext& context, const RouteArgs& args) {
  return 4 * (args.logits.cols + args.rule.groups) * context.pool->threads();
}

void RunRoute(const OpContext& context, const RouteArgs& args, std::byte* scratch) {
  const auto& kernels = *KernelsFor(context.device);
  const int64_t experts = args.logits.cols, k = args.top_k;
  const double flops = 20.0 * static_cast<double>(args.logits.rows * experts);
  ForTasks(
      context, CeilDiv(args.logits.rows, kTokensPerTask), flops, [&](int64_t task, int member) {
        float* choice = reinterpret_cast<float*>(scratch) + member * (experts + args.rule.groups);
        const int64_t end = std::min(args.logits.rows, (task + 1) * kTokensPerTask);
        for (int64_t t = task * kTokensPerTask; t < end; ++t) {
          int32_t* ids = args.ids + t * k;
          float* weights = args.weights + t * k;
          if (args.rule.score == RouterScore::kSigmoid) {
            RouteToken(args, args.logits.row(t), choice, ids, weights);
          } else {
            SoftmaxToken(kernels, args, args.logits.row(t), ids, weights);
          }
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

void RunAddRows(const OpContext& context, const AddRowsArgs& args, std::byte*) {
  const KernelTable& kernels = *KernelsFor(context.device);
  const double flops = 2.0 * static_cast<double>(args.out.rows * args.k * args.out.cols);
  ForTasks(context, CeilDiv(args.out.rows, kTokensPerTask), flops, [&](int64_t task, int) {
    const int64_t end = std::min(args.out.rows, (task + 1) * kTokensPerTask);
    for (int64_t t = task * kTokensPerTask; t < end; ++t) {
      if (!args.add) std::fill_n(args.out.row(t), args.out.cols, 0.0f);
      for (int64_t i = t * args.k; i < (t + 1) * args.k; ++i) {
        kernels.add_scaled(args.rows.row(args.at ? args.at[i] : i),
                           args.weights ? args.weights[i] : 1.0f, args.out.row(t), args.out.cols);
      }
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
      if (table.format != WeightFormat::kBF16) {
        table.ReadRow(0, args.ids[t], out);
        continue;
      }
      const std::byte* panel = table.panel(0, args.ids[t] / kPanelRows);
      const auto* pairs = reinterpret_cast<const uint16_t*>(panel);
      for (int64_t c = 0; c < table.k; ++c) {
        out[c] = FloatOfBf16(pairs[(c / 2 * kPanelRows + lane) * 2 + c % 2]);
      }
    }
  });
}

const char* WhyNotRoute(const Device& device, const RouteArgs& args) {
  if (args.top_k > kTopKMax) return "more than 64 experts per token";
  return NeedsAvx2(device);
}
const char* WhyNotGate(const Device& device, const ScalarGateArgs&) { return NeedsAvx2(device); }
const char* WhyNotAddRows(const Device& device, const AddRowsArgs&) { return NeedsAvx2(device); }
const char* WhyNotEmbed(const Device&, const EmbedArgs&) { return nullptr; }

}  // namespace

constinit const Impl<RouteArgs> kRoute = {"cpu", WhyNotRoute, RouteScratch, RunRoute};
constinit const Impl<ScalarGateArgs> kScalarGate = {"cpu", WhyNotGate, nullptr, RunScalarGate};
constinit const Impl<AddRowsArgs> kAddRows = {"cpu", WhyNotAddRows, nullptr, RunAddRows};
constinit const Impl<EmbedArgs> kEmbed = {"cpu", WhyNotEmbed, nullptr, RunEmbed};

}  // namespace braid::ops::cpu
