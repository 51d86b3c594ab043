// The fused mixture of experts: rows sorted by expert, gate and up panels together with SiLU on the
// tile, then the down product, by column groups or by expert (PlanDown); every output adds the
// experts in ascending order. The shared expert is the last expert, with every token as a row.
// Weight panels stream from memory once per step and task.
#include "ops/cpu/experts.h"

#include <algorithm>
#include <vector>

#include "base/system/file.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/gemm/gemm.h"

namespace braid::ops::cpu {
namespace {

constexpr int64_t kPassRows = 192;  // rows of one temporary tile: whole blocks of every form
constexpr int64_t kUpCols = 64;     // most columns of gate and of up per task
constexpr int64_t kDownCols = 128;  // most columns of the output per task
constexpr int64_t kTileFloats = kPassRows * 128;
constexpr int64_t kTasksPerMember = 2;
constexpr int64_t kUpTasksPerMember = 3;
// By expert: the most rows of an expert on average, and the most outputs of the down product that
// are stored (16 MiB).
constexpr int64_t kFewRows = 16;
constexpr int64_t kDownFloatsMax = int64_t{1} << 22;
static_assert(kPassRows % kFloatRows == 0 && kPassRows % kDotRows == 0);
static_assert(kPackRows % kDotRows == 0);
static_assert(2 * kUpCols <= 128 && kDownCols <= 128);

// One expert's share of the step.
struct Share {
  const PackedMatrix* gate_up = nullptr;
  const PackedMatrix* down = nullptr;
  int64_t gate = 0;         // index of the gate matrix; up is the next one
  int64_t matrix = 0;       // index of the down matrix
  int64_t first = 0;        // of its rows among all rows
  float limit = 0;          // of the activation
  PackedActivations x;      // packed inputs [rows, hidden]
  PackedActivations h;      // packed activations [rows, width]
  float* staged = nullptr;  // [rows, width], where h can only be packed by whole rows
};

int64_t RowBytes(const Device& device, const PackedMatrix& w) {
  return PackedActivations{&GemmKernelFor(device, w.format, false), nullptr, 1, w.k}.row_bytes();
}
bool Staged(const Device& device, const PackedMatrix& down) {
  return GemmKernelFor(device, down.format, false).layout->integers;
}

int64_t RowsOf(const ExpertsArgs& args) {
  return args.out.rows * (args.top_k + (args.shared_down ? 1 : 0));
}

// The step's rows sorted by expert: tokens and weights, and where each expert's rows begin.
struct Sorted {
  int32_t* tokens = nullptr;
  int32_t* inputs = nullptr;  // rows of x; those of the tokens if each has its own
  float* weights = nullptr;
  int64_t* begins = nullptr;   // [experts + 1]
  Share* shares = nullptr;     // those with rows
  std::byte* alone = nullptr;  // [x.rows] inputs of the routed experts, each packed by itself
  std::byte* x = nullptr;
  std::byte* h = nullptr;
  float* staged = nullptr;
  int64_t staged_floats = 0;
  float* tiles = nullptr;      // [threads][kTileFloats]
  float* down_rows = nullptr;  // [rows][out_cols] of the down product by expert
};

int64_t DownFloats(const ExpertsArgs& args) { return RowsOf(args) * args.out.cols; }

// Lays the scratch out from address `base`; returns its size.
int64_t Lay(const OpContext& context, const ExpertsArgs& args, uintptr_t base, Sorted& s) {
  uintptr_t used = 0;
  auto take = [&]<class T>(T*& out, int64_t count) {
    out = reinterpret_cast<T*>(base + used);
    used += static_cast<uintptr_t>(RoundUp(count * static_cast<int64_t>(sizeof(T)), 64));
  };
  const int64_t tokens = args.out.rows, routed = tokens * args.top_k, experts = args.down->count;
  int64_t x = 0, h = 0;
  s.staged_floats = 0;
  auto count = [&](const PackedMatrix& gate_up, const PackedMatrix& down, int64_t rows) {
    x += rows * RowBytes(context.device, gate_up);
    h += rows * RowBytes(context.device, down);
    s.staged_floats += Staged(context.device, down) ? rows * down.k : 0;
  };
  count(*args.gate_up, *args.down, routed);
  if (args.shared_down) count(*args.shared_gate_up, *args.shared_down, tokens);
  take(s.tokens, RowsOf(args));
  s.inputs = s.tokens;
  if (args.x_at) take(s.inputs, RowsOf(args));
  take(s.weights, RowsOf(args));
  take(s.begins, experts + 2);
  take(s.shares, experts + 1);
  take(s.alone, args.x.rows * RowBytes(context.device, *args.gate_up));
  // The operands of every share begin on a line.
  take(s.x, x + 64 * (experts + 1));
  take(s.h, h + 64 * (experts + 1));
  take(s.staged, s.staged_floats);
  take(s.tiles, context.pool->threads() * kTileFloats);
  take(s.down_rows, std::min(DownFloats(args), kDownFloatsMax));
  return static_cast<int64_t>(used);
}

int64_t Scratch(const OpContext& context, const ExpertsArgs& args) {
  NoteGemmKernel(context, args.gate_up->format, false);
  NoteGemmKernel(context, args.down->format, false);
  Sorted s;
  return Lay(context, args, 64, s);
}

void SortRows(const ExpertsArgs& args, Sorted& s) {
  const int64_t experts = args.down->count, tokens = args.out.rows;
  std::fill_n(s.begins, experts + 2, 0);
  for (int64_t i = 0; i < tokens * args.top_k; ++i) ++s.begins[args.ids[i] + 2];
  for (int64_t e = 0; e < experts; ++e) s.begins[e + 2] += s.begins[e + 1];
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < args.top_k; ++j) {
      const int64_t at = s.begins[args.ids[t * args.top_k + j] + 1]++;
      s.tokens[at] = static_cast<int32_t>(t);
      s.weights[at] = args.weights[t * args.top_k + j];
    }
  }
  for (int64_t t = 0; args.shared_down && t < tokens; ++t) {
    s.tokens[tokens * args.top_k + t] = static_cast<int32_t>(t);
    s.weights[tokens * args.top_k + t] = args.shared_weight ? args.shared_weight[t] : 1.0f;
  }
  for (int64_t i = 0; args.x_at && i < RowsOf(args); ++i) s.inputs[i] = args.x_at[s.tokens[i]];
}

// The experts that have rows, ascending, the shared one last; returns how many.
int64_t MakeShares(const Device& device, const ExpertsArgs& args, Sorted& s) {
  int64_t count = 0;
  auto add = [&](const PackedMatrix* gate_up, const PackedMatrix* down, int64_t e, int64_t first,
                 int64_t rows) {
    Share& share = s.shares[count++];
    share = {.gate_up = gate_up, .down = down, .gate = 2 * e, .matrix = e, .first = first};
    share.limit = down == args.shared_down ? args.shared_limit : args.limit;
    share.x = {&GemmKernelFor(device, gate_up->format, false), s.x, rows, gate_up->k,
               gate_up->order(2 * e)};
    share.h = {&GemmKernelFor(device, down->format, false), s.h, rows, down->k, down->order(e)};
    share.staged = Staged(device, *down) ? s.staged : nullptr;
    s.x += RoundUp(share.x.bytes(), 64);
    s.h += RoundUp(share.h.bytes(), 64);
    if (share.staged) s.staged += rows * down->k;
  };
  for (int64_t e = 0; e < args.down->count; ++e) {
    const int64_t rows = s.begins[e + 1] - s.begins[e];
    if (rows > 0) add(args.gate_up, args.down, e, s.begins[e], rows);
  }
  if (args.shared_down) {
    add(args.shared_gate_up, args.shared_down, 0, args.out.rows * args.top_k, args.out.rows);
  }
  return count;
}

// Packs the inputs of every share: a token's row once for all experts that have it, and that into
// their blocks. Where experts have their columns in an order of their own, each packs its rows.
void PackInputs(const OpContext& context, const ExpertsArgs& args, const Sorted& s,
                std::span<const Share> shares) {
  const PackedActivations routed = {
      .kernel = &GemmKernelFor(context.device, args.gate_up->format, false),
      .data = s.alone,
      .rows = args.x.rows,
      .k = args.gate_up->k};
  const ActivationLayout* layout = routed.kernel->layout;
  const double bytes = 4.0 * static_cast<double>(args.x.rows * args.x.cols);
  constexpr int64_t kTokensPerTask = 16;
  const int64_t alone = args.gate_up->ordered ? 0 : args.x.rows;
  ForTasks(context, CeilDiv(alone, kTokensPerTask), bytes, [&](int64_t i, int) {
    const int64_t end = std::min(args.x.rows, (i + 1) * kTokensPerTask);
    for (int64_t t = i * kTokensPerTask; t < end; ++t) {
      routed.PackAlone(args.x.row(t), s.alone + t * routed.row_bytes());
    }
  });
  // No share has more rows than there are tokens.
  const int64_t parts = CeilDiv(args.out.rows, kPassRows);
  ForTasks(context, std::ssize(shares) * parts, bytes * args.top_k, [&](int64_t i, int) {
    const Share& share = shares[static_cast<size_t>(i / parts)];
    const int64_t at_once = kPassRows / share.x.kernel->layout->block_rows;
    const int64_t begin = i % parts * at_once, end = std::min(share.x.blocks(), begin + at_once);
    const int32_t* inputs = s.inputs + share.first;
    const bool gather = alone > 0 && share.x.kernel->layout == layout && !share.x.order;
    for (int64_t b = begin; b < end; ++b) {
      gather ? share.x.GatherBlock(b, s.alone, inputs) : share.x.PackBlock(b, args.x, inputs);
    }
  });
}

// Packs columns [col, col + cols) of h, rows [row, row + h.rows) of the share.
void PackTile(const PackedActivations& to, int64_t row, int64_t col, const Matrix& h) {
  const int64_t block_rows = to.kernel->layout->block_rows;
  for (int64_t r = 0; r < h.rows; r += block_rows) {
    const int64_t count = std::min(block_rows, h.rows - r);
    to.Pack(row + r, count, col, {h.row(r), count, h.cols, h.stride}, nullptr);
  }
}

// The first weights of one task, null where there are none.
const std::byte* UpWeights(const Share& share, int64_t col) {
  return col < share.gate_up->n ? share.gate_up->panel(share.gate, col / kPanelRows) : nullptr;
}
const std::byte* DownWeights(const Share& share, int64_t col) {
  return col < share.down->n ? share.down->panel(share.matrix, col / kPanelRows) : nullptr;
}

struct ColumnRange {
  int64_t begin, count;
};

// h[:, col …] = silu(gate) * up for one group of columns of one expert. `next`: weights that are
// read after it, or null.
void UpTask(const KernelTable& kernels, const Share& share, ColumnRange columns,
            const std::byte* next, float* tile) {
  const auto [col, cols] = columns;
  const int64_t width = share.gate_up->n;
  for (int64_t row = 0; row < share.x.rows; row += kPassRows) {
    const int64_t rows = std::min(kPassRows, share.x.rows - row);
    for (int64_t part = 0; part < 2; ++part) {
      GemmTask task = TaskOf(share.x, *share.gate_up, share.gate + part, row, rows);
      task.panel_begin = col / kPanelRows;
      task.panel_end = CeilDiv(col + cols, kPanelRows);
      task.y = tile + part * kUpCols;
      task.y_stride = 2 * kUpCols;
      task.next = part == 0 ? share.gate_up->panel(share.gate + 1, task.panel_begin) : next;
      share.x.kernel->run(task);
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* gate = tile + r * 2 * kUpCols;
      float* out = share.staged ? share.staged + (row + r) * width + col : gate;
      kernels.swiglu(gate, gate + kUpCols, out, cols, share.limit);
    }
    if (!share.staged) PackTile(share.h, row, col, {tile, rows, cols, 2 * kUpCols});
  }
}

ColumnRange ColumnsOf(const ExpertsArgs& args, int64_t group, int64_t cols) {
  return {group * cols, std::min(cols, args.out.cols - group * cols)};
}

// y = h * down for one group of columns and rows [row, row + rows) of one expert's.
void Multiply(const Share& share, int64_t row, int64_t rows, ColumnRange columns, float* y,
              int64_t y_stride, const std::byte* next) {
  GemmTask task = TaskOf(share.h, *share.down, share.matrix, row, rows);
  task.panel_begin = columns.begin / kPanelRows;
  task.panel_end = CeilDiv(columns.begin + columns.count, kPanelRows);
  task.y = y;
  task.y_stride = y_stride;
  task.next = next;
  share.h.kernel->run(task);
}

// out[:, col …] for one group of columns: every expert's rows, ascending. `next` as above.
void DownTask(const KernelTable& kernels, const ExpertsArgs& args, const Sorted& s,
              std::span<const Share> shares, ColumnRange columns, const std::byte* next,
              float* tile) {
  const auto [col, cols] = columns;
  for (int64_t t = 0; t < args.out.rows; ++t) std::fill_n(args.out.row(t) + col, cols, 0.0f);
  for (size_t i = 0; i < shares.size(); ++i) {
    const Share& share = shares[i];
    for (int64_t row = 0; row < share.h.rows; row += kPassRows) {
      const int64_t rows = std::min(kPassRows, share.h.rows - row);
      Multiply(share, row, rows, columns, tile, kDownCols,
               i + 1 < shares.size() ? DownWeights(shares[i + 1], col) : next);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t at = share.first + row + r;
        kernels.add_scaled(tile + r * kDownCols, s.weights[at], args.out.row(s.tokens[at]) + col,
                           cols);
      }
    }
  }
}

// The down product of one expert and group of columns, for the sums that follow.
void ExpertDownTask(const ExpertsArgs& args, const Sorted& s, const Share& share,
                    ColumnRange columns, const std::byte* next) {
  const int64_t stride = args.out.cols;
  for (int64_t row = 0; row < share.h.rows; row += kPassRows) {
    const int64_t rows = std::min(kPassRows, share.h.rows - row);
    Multiply(share, row, rows, columns, s.down_rows + (share.first + row) * stride + columns.begin,
             stride, next);
  }
}

// out[:, col …] from the stored down product: rows are sorted by expert, so this adds as DownTask
// does.
void SumTask(const KernelTable& kernels, const ExpertsArgs& args, const Sorted& s,
             ColumnRange columns) {
  const auto [col, cols] = columns;
  for (int64_t t = 0; t < args.out.rows; ++t) std::fill_n(args.out.row(t) + col, cols, 0.0f);
  for (int64_t at = 0; at < RowsOf(args); ++at) {
    kernels.add_scaled(s.down_rows + at * args.out.cols + col, s.weights[at],
                       args.out.row(s.tokens[at]) + col, cols);
  }
}

double FlopsOf(const ExpertsArgs& args) {
  const double shared = args.shared_down ? static_cast<double>(args.shared_down->k) : 0.0;
  return 6.0 * static_cast<double>(args.out.rows * args.x.cols) *
         (args.top_k * static_cast<double>(args.down->k) + shared);
}

// The order of tasks of one expert and one of `groups` groups of columns each: ascending, as the
// weights lie on nodes, but the shared expert, last in the list, first. It has the most rows.
struct TaskOrder {
  std::span<const Share> shares;
  int64_t groups;
  bool shared;

  bool IsShared(int64_t i) const { return shared && i < groups; }
  const Share& ShareOf(int64_t i) const {
    return IsShared(i) ? shares.back() : shares[static_cast<size_t>(i / groups - shared)];
  }
};

// The down product and the sums; `flops` as of the whole op.
void RunDown(const OpContext& context, const ExpertsArgs& args, const Sorted& s,
             std::span<const Share> shares, double flops) {
  const KernelTable& kernels = *KernelsFor(context.device);
  const int64_t nodes = std::ssize(context.pool->nodes());
  const DownPlan plan =
      PlanDown(context.pool->threads(), nodes, std::ssize(shares), RowsOf(args), args.out.cols);
  if (!plan.by_expert) {
    ForTasks(context, plan.tasks, flops, [&](int64_t i, int member) {
      const std::byte* next = DownWeights(shares[0], NextTask(context, i) * plan.cols);
      DownTask(kernels, args, s, shares, ColumnsOf(args, i, plan.cols), next,
               s.tiles + member * kTileFloats);
    });
    return;
  }
  const TaskOrder order{shares, CeilDiv(args.out.cols, plan.cols), args.shared_down != nullptr};
  auto node_of = [&](int64_t i) {
    const Share& share = order.ShareOf(i);
    return order.IsShared(i) ? 0 : share.down->PartOf(share.matrix, 0, nodes);
  };
  ForPlacedTasks(context, plan.tasks, flops, node_of, [&](int64_t i, int) {
    const int64_t next = NextPlacedTask(context, i);
    ExpertDownTask(args, s, order.ShareOf(i), ColumnsOf(args, i % order.groups, plan.cols),
                   next < plan.tasks
                       ? DownWeights(order.ShareOf(next), next % order.groups * plan.cols)
                       : nullptr);
  });
  const double sum_flops = 2.0 * static_cast<double>(DownFloats(args));
  ForTasks(context, CeilDiv(args.out.cols, kDownCols), sum_flops,
           [&](int64_t i, int) { SumTask(kernels, args, s, ColumnsOf(args, i, kDownCols)); });
}

// Asks for the chosen experts' pages of a file all at once, so that the disk has them in its queue
// while the first ones are used.
void RequestPages(std::span<const Share> shares) {
  for (const Share& share : shares) {
    if (!share.gate_up->paged) continue;
    WillRead(share.gate_up->panel(share.gate, 0), 2 * share.gate_up->matrix_bytes());
    WillRead(share.down->panel(share.matrix, 0), share.down->matrix_bytes());
  }
}

UpWork UpWorkOf(const ExpertsArgs& args, std::span<const Share> shares) {
  UpWork work = {.experts = std::ssize(shares),
                 .width = std::max(args.gate_up->n, args.shared_down ? args.shared_gate_up->n : 0),
                 .least = kPanelRows};
  for (const Share& share : shares) {
    work.rows += share.h.rows;
    work.rows_most = std::max(work.rows_most, share.h.rows);
    // Activations are packed by whole steps, unless by whole rows.
    const int64_t step = int64_t{64} / share.h.kernel->layout->element_bytes;
    if (!share.staged) work.least = std::max(work.least, step);
  }
  return work;
}

// What could only be packed by whole rows.
void PackStaged(const OpContext& context, std::span<const Share> shares, double flops) {
  struct Rows {
    const Share* share;
    int64_t row, count;
  };
  std::vector<Rows> tasks;
  for (const Share& share : shares) {
    for (int64_t row = 0; share.staged && row < share.h.rows; row += kPackRows) {
      tasks.push_back({&share, row, std::min(kPackRows, share.h.rows - row)});
    }
  }
  ForTasks(context, std::ssize(tasks), flops, [&](int64_t i, int) {
    const auto [share, row, count] = tasks[static_cast<size_t>(i)];
    const int64_t width = share->h.k;
    PackTile(share->h, row, 0, {share->staged + row * width, count, width, width});
  });
}

void RunExperts(const OpContext& context, const ExpertsArgs& args, std::byte* scratch) {
  const KernelTable& kernels = *KernelsFor(context.device);
  Sorted s;
  Lay(context, args, reinterpret_cast<uintptr_t>(scratch), s);
  SortRows(args, s);
  const std::span<const Share> shares(s.shares,
                                      static_cast<size_t>(MakeShares(context.device, args, s)));
  RequestPages(shares);
  const double flops = FlopsOf(args);
  PackInputs(context, args, s, shares);
  const UpPlan plan = PlanUp(context.pool->threads(), UpWorkOf(args, shares));
  const int64_t groups = plan.groups, up_tasks = std::ssize(shares) * groups;
  const TaskOrder order{shares, groups, args.shared_down != nullptr};
  const int64_t nodes = std::ssize(context.pool->nodes());
  auto node_of = [&](int64_t i) {
    const Share& share = order.ShareOf(i);
    return order.IsShared(i) ? 0 : share.gate_up->PartOf(share.gate, 0, nodes);
  };
  ForPlacedTasks(context, up_tasks, flops, node_of, [&](int64_t i, int member) {
    const Share& share = order.ShareOf(i);
    const int64_t col = i % groups * plan.cols;
    if (col >= share.gate_up->n) return;
    const int64_t next = NextPlacedTask(context, i);
    const std::byte* weights = next < up_tasks
                                   ? UpWeights(order.ShareOf(next), next % groups * plan.cols)
                                   : DownWeights(shares[0], (next - up_tasks) * kDownCols);
    UpTask(kernels, share, {col, std::min(plan.cols, share.gate_up->n - col)}, weights,
           s.tiles + member * kTileFloats);
  });
  if (s.staged_floats > 0) PackStaged(context, shares, flops / 16);
  RunDown(context, args, s, shares, flops);
}

const char* WhyNotExperts(const Device& device, const ExpertsArgs& args) {
  for (const PackedMatrix* w : {args.gate_up, args.down, args.shared_gate_up, args.shared_down}) {
    if (w && !FindGemmKernel(device, w->format, false)) return "no GEMM kernel for the weights";
  }
  return nullptr;
}

}  // namespace

DownPlan PlanDown(int64_t members, int64_t nodes, int64_t experts, int64_t rows, int64_t out_cols) {
  // Two members have a task each at least: narrower columns would cost more than they gain.
  const int64_t wanted = members > 2 ? kTasksPerMember * members : members;
  const bool few_tasks = CeilDiv(out_cols, kDownCols) < wanted;
  const bool few_rows = rows <= kFewRows * experts && rows * out_cols <= kDownFloatsMax;
  DownPlan plan = {.cols = kDownCols, .by_expert = (few_tasks || nodes > 1) && few_rows};
  const int64_t lists = plan.by_expert ? experts : 1;
  while (plan.cols > kPanelRows && lists * CeilDiv(out_cols, plan.cols) < wanted) plan.cols /= 2;
  plan.tasks = lists * CeilDiv(out_cols, plan.cols);
  return plan;
}

UpPlan PlanUp(int64_t members, const UpWork& work) {
  UpPlan plan = {.cols = kUpCols};
  const auto too_few = [&] {
    return work.experts * CeilDiv(work.width, plan.cols) < kUpTasksPerMember * members ||
           work.rows_most * plan.cols * members > work.rows * work.width;
  };
  while (members > 1 && plan.cols > work.least && too_few()) plan.cols /= 2;
  plan.groups = CeilDiv(work.width, plan.cols);
  return plan;
}

constinit const Impl<ExpertsArgs> kExperts = {"cpu", WhyNotExperts, Scratch, RunExperts};

}  // namespace braid::ops::cpu
