// y = x W^T on the CPU: rows packed once, then tasks over groups of panels, each streaming its
// weights once. Row-wise ops are one task per few rows.
#include "ops/cpu/linear.h"

#include <algorithm>

#include "ops/cpu/dispatch.h"

namespace braid::ops::cpu {
namespace {

using braid::cpu::GemmTask;
using braid::cpu::KernelTable;

// Bytes of weights per task: large enough to stream, small enough to share out.
constexpr int64_t kTaskBytes = 256 << 10;
// Panels that one task walks for many rows: its slabs fill half of a second-level cache.
constexpr int64_t kPanelsMax = 8;

int64_t PanelsPerTask(const LinearArgs& args) {
  const int64_t by_bytes = std::max<int64_t>(1, kTaskBytes / args.w->panel_bytes());
  const int64_t cap = args.x.rows > braid::cpu::kRowBlock ? kPanelsMax : 64;
  return std::min(cap, RoundUp(by_bytes, 4));
}

int64_t LinearScratch(const OpContext&, const LinearArgs& args) {
  return 4 * args.x.rows * PaddedDepth(args.w->k);
}

void RunLinear(const OpContext& context, const LinearArgs& args, std::byte* scratch) {
  const KernelTable& kernels = *KernelsFor(context.device);
  const PackedRows x{reinterpret_cast<float*>(scratch), args.x.rows, PaddedDepth(args.w->k)};
  const bool round = context.device.compute == Compute::kBF16 && !args.exact;
  ForTasks(context, x.blocks(), static_cast<double>(x.floats()) * 4,
           [&](int64_t b, int) { PackRowBlock(x, b, args.x, nullptr, round); });
  const int64_t group = PanelsPerTask(args);
  const double flops = 2.0 * static_cast<double>(x.rows * args.w->n * args.w->k);
  ForTasks(context, CeilDiv(args.w->panels(), group), flops, [&](int64_t i, int) {
    GemmTask task = TaskOf(x, *args.w, 0);
    task.panel_begin = i * group;
    task.panel_end = std::min(task.panel_end, (i + 1) * group);
    task.y = args.y.data + task.panel_begin * kPanelRows;
    task.y_stride = args.y.stride;
    kernels.gemm(task);
  });
}

// Row-wise loops take a few rows per task.
template <class F>
void ForRows(const OpContext& context, int64_t rows, int64_t cols, const F& f) {
  constexpr int64_t kRowsPerTask = 16;
  const double flops = 8.0 * static_cast<double>(rows * cols);
  ForTasks(context, CeilDiv(rows, kRowsPerTask), flops, [&](int64_t i, int) {
    const int64_t end = std::min(rows, (i + 1) * kRowsPerTask);
    for (int64_t r = i * kRowsPerTask; r < end; ++r) f(r);
  });
}

void RunSwiglu(const OpContext& context, const SwigluArgs& args, std::byte*) {
  const KernelTable& kernels = *KernelsFor(context.device);
  ForRows(context, args.out.rows, args.out.cols, [&](int64_t r) {
    const float* gate = args.gate_up.row(r);
    kernels.swiglu(gate, gate + args.out.cols, args.out.row(r), args.out.cols, args.limit);
  });
}

void RunRmsNorm(const OpContext& context, const RmsNormArgs& args, std::byte*) {
  const KernelTable& kernels = *KernelsFor(context.device);
  ForRows(context, args.x.rows, args.x.cols, [&](int64_t r) {
    kernels.rms_norm({.x = args.x.row(r),
                      .delta = args.delta.data ? args.delta.row(r) : nullptr,
                      .weight = args.weight,
                      .weight_offset = args.weight_offset,
                      .eps = args.eps,
                      .out = args.out.data ? args.out.row(r) : nullptr,
                      .cols = args.x.cols});
  });
}

void RunGatedNorm(const OpContext& context, const GatedNormArgs& args, std::byte*) {
  const KernelTable& kernels = *KernelsFor(context.device);
  ForRows(context, args.x.rows, args.x.cols, [&](int64_t r) {
    for (int64_t c = 0; c < args.x.cols; c += args.head_dim) {
      kernels.gated_norm({.x = args.x.row(r) + c,
                          .gate = args.gate.row(r) + c,
                          .weight = args.weight + (args.weight_per_channel ? c : 0),
                          .eps = args.eps,
                          .sigmoid = args.activation == GateActivation::kSigmoid,
                          .out = args.out.row(r) + c,
                          .cols = args.head_dim});
    }
  });
}

template <class Args>
const char* WhyNot(const Device& device, const Args&) {
  return NeedsAvx2(device);
}

}  // namespace

constinit const Impl<LinearArgs> kLinear = {"cpu", WhyNot, LinearScratch, RunLinear};
constinit const Impl<SwigluArgs> kSwiglu = {"cpu", WhyNot, nullptr, RunSwiglu};
constinit const Impl<RmsNormArgs> kRmsNorm = {"cpu", WhyNot, nullptr, RunRmsNorm};
constinit const Impl<GatedNormArgs> kGatedNorm = {"cpu", WhyNot, nullptr, RunGatedNorm};

}  // namespace braid::ops::cpu
