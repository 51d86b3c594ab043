// y = x W^T on the CPU: rows packed once, then tasks over groups of panels, each streaming its
// weights once (PlanLinear). Row-wise ops are one task per few rows.
#include "ops/cpu/gemm/linear.h"

#include <algorithm>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/gemm/gemm.h"

namespace braid::ops::cpu {
namespace {

// Bytes of weights per task of few rows: large enough to stream, small enough to share out.
constexpr int64_t kTaskBytes = 256 << 10;
// The same for many rows: a task's rows stay in a second-level cache while its panels pass by, and
// tasks that share panels follow each other.
constexpr int64_t kPanelsMax = 32;
constexpr int64_t kTaskRows = 384;
// Rows of a task are a multiple of this: whole blocks of every activation layout.
constexpr int64_t kWholeRows = 48;
static_assert(kWholeRows % kFloatRows == 0 && kWholeRows % kDotRows == 0);
// So many rows are few: reading the weights takes the time.
constexpr int64_t kFewRows = 96;
// How much longer than an equal part the fullest member may work.
constexpr double kImbalanceMax = 1.2;

// Few rows: every task streams its weights once. Where members have only some tasks each, they have
// equally many; of a small matrix, such as a router's, every member takes a part.
LinearPlan PlanOfFewRows(int64_t members, int64_t panels, int64_t panel_bytes) {
  const int64_t by_bytes = std::max<int64_t>(1, kTaskBytes / panel_bytes);
  int64_t each = std::min<int64_t>({64, RoundUp(by_bytes, 4), CeilDiv(panels, members)});
  const int64_t rounds = CeilDiv(CeilDiv(panels, each), members);
  if (rounds <= 4) each = CeilDiv(panels, rounds * members);
  return {.panels = each, .rows = kFewRows};
}

// Many rows: the widest tasks that keep all members busy, else those that come closest to it.
LinearPlan PlanOfManyRows(int64_t members, int64_t rows, int64_t panels) {
  LinearPlan best;
  double least = 0;
  for (int64_t each = kPanelsMax; each >= 1; each /= 2) {
    for (int64_t of :
         {kTaskRows, int64_t{288}, int64_t{192}, int64_t{144}, int64_t{96}, kWholeRows}) {
      const int64_t tasks = CeilDiv(panels, each) * CeilDiv(rows, of);
      const int64_t fullest = CeilDiv(tasks, members) * std::min(each, panels) * std::min(of, rows);
      const double imbalance =
          static_cast<double>(fullest * members) / static_cast<double>(panels * rows);
      const LinearPlan plan = {.panels = each, .rows = of};
      if (tasks >= 2 * members && imbalance <= kImbalanceMax) return plan;
      if (best.panels == 0 || imbalance < least) {
        best = plan;
        least = imbalance;
      }
    }
  }
  return best;
}

PackedActivations Operand(const OpContext& context, const LinearArgs& args, std::byte* data) {
  return {.kernel = &GemmKernelFor(context.device, args.w->format, args.exact),
          .data = data,
          .rows = args.x.rows,
          .k = args.w->k,
          .order = args.w->order(0)};
}

int64_t LinearScratch(const OpContext& context, const LinearArgs& args) {
  NoteGemmKernel(context, args.w->format, args.exact);
  return Operand(context, args, nullptr).bytes();
}

void RunLinear(const OpContext& context, const LinearArgs& args, std::byte* scratch) {
  const PackedActivations x = Operand(context, args, scratch);
  ForTasks(context, x.blocks(), static_cast<double>(x.rows * x.k) * 4,
           [&](int64_t b, int) { x.PackBlock(b, args.x, nullptr); });
  const LinearPlan plan =
      PlanLinear(context.pool->threads(), x.rows, args.w->panels(), args.w->panel_bytes());
  const double flops = 2.0 * static_cast<double>(x.rows * args.w->n * args.w->k);
  const bool past_caches = PastCaches(args.y);
  const int64_t nodes = std::ssize(context.pool->nodes());
  auto node_of = [&](int64_t i) { return args.w->PartOf(0, i / plan.parts * plan.panels, nodes); };
  ForPlacedTasks(context, plan.groups * plan.parts, flops, node_of, [&](int64_t i, int) {
    const int64_t group = i / plan.parts, row = i % plan.parts * plan.rows;
    GemmTask task = TaskOf(x, *args.w, 0, row, std::min(plan.rows, x.rows - row));
    task.panel_begin = group * plan.panels;
    task.panel_end = std::min(task.panel_end, (group + 1) * plan.panels);
    task.y = args.y.row(row) + task.panel_begin * kPanelRows;
    task.y_stride = args.y.stride;
    task.past_caches = past_caches;
    const int64_t next = NextPlacedTask(context, i) / plan.parts;
    if (next > group && next < plan.groups) task.next = args.w->panel(0, next * plan.panels);
    x.kernel->run(task);
  });
}

template <class F>
void ForRows(const OpContext& context, int64_t rows, int64_t cols, const F& f) {
  const int64_t each = RowsPerTask(context.pool->threads(), rows);
  const double flops = 8.0 * static_cast<double>(rows * cols);
  ForTasks(context, CeilDiv(rows, each), flops, [&](int64_t i, int) {
    const int64_t end = std::min(rows, (i + 1) * each);
    for (int64_t r = i * each; r < end; ++r) f(r);
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

const char* WhyNotLinear(const Device& device, const LinearArgs& args) {
  if (FindGemmKernel(device, args.w->format, args.exact)) return nullptr;
  return "no GEMM kernel for the weights";
}

template <class Args>
const char* WhyNotRows(const Device& device, const Args&) {
  return NeedsAvx2(device);
}

}  // namespace

LinearPlan PlanLinear(int64_t members, int64_t rows, int64_t panels, int64_t panel_bytes) {
  LinearPlan plan = rows > kFewRows ? PlanOfManyRows(members, rows, panels)
                                    : PlanOfFewRows(members, panels, panel_bytes);
  plan.groups = CeilDiv(panels, plan.panels);
  plan.parts = CeilDiv(rows, plan.rows);
  return plan;
}

int64_t RowsPerTask(int64_t members, int64_t rows) {
  return std::clamp<int64_t>(rows / (4 * members), 1, 16);
}

constinit const Impl<LinearArgs> kLinear = {"cpu", WhyNotLinear, LinearScratch, RunLinear};
constinit const Impl<SwigluArgs> kSwiglu = {"cpu", WhyNotRows, nullptr, RunSwiglu};
constinit const Impl<RmsNormArgs> kRmsNorm = {"cpu", WhyNotRows, nullptr, RunRmsNorm};
constinit const Impl<GatedNormArgs> kGatedNorm = {"cpu", WhyNotRows, nullptr, RunGatedNorm};

}  // namespace braid::ops::cpu
