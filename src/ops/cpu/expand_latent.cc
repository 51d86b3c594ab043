// Keys and values of heads from rows of a latent cache. A task is one block for a few heads: its
// rows are read and packed once for each half, then multiplied with one matrix after the other.
#include <algorithm>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/gemm/gemm.h"
#include "ops/cpu/kv_row.h"
#include "ops/cpu/latent.h"

namespace braid::ops::cpu {
namespace {

constexpr int64_t kHeadsPerTask = 8;

// Scratch of one member.
struct ExpandScratch {
  Matrix rows;         // [64, head_dim] of the cache
  float* out;          // [64][channels of a head]
  std::byte* operand;  // the latent part of the rows
};

int64_t RowsFloats(const ExpandLatentArgs& args) { return kBlockTokens * args.shape.head_dim; }
int64_t OutFloats(const ExpandLatentArgs& args) {
  return kBlockTokens * std::max<int64_t>(args.heads.head_dim, args.heads.out_dim());
}
PackedActivations Operand(const OpContext& context, const PackedMatrix& w, std::byte* data) {
  return {.kernel = &GemmKernelFor(context.device, w.format, false),
          .data = data,
          .rows = kBlockTokens,
          .k = w.k};
}
int64_t MemberBytes(const OpContext& context, const ExpandLatentArgs& args) {
  return RoundUp(4 * (RowsFloats(args) + OutFloats(args)) +
                     std::max(Operand(context, *args.keys, nullptr).bytes(),
                              Operand(context, *args.values, nullptr).bytes()),
                 64);
}
ExpandScratch ScratchOf(const ExpandLatentArgs& args, std::byte* data) {
  float* rows = reinterpret_cast<float*>(data);
  const int64_t width = args.shape.head_dim;
  float* out = rows + RowsFloats(args);
  return {
      {rows, kBlockTokens, width, width}, out, reinterpret_cast<std::byte*>(out + OutFloats(args))};
}

// One block.
struct BlockOfSpan {
  int64_t first;  // position
  int64_t count;  // positions
  SequenceSpan heads;
};

// The rows of a block; those past its last position are zero.
void LoadRows(const ExpandLatentArgs& a, const BlockOfSpan& block, const Matrix& rows) {
  const CachedRows from = KvPageOf(a.shape, a.cache, *a.span, block.first, 0).keys;
  for (int64_t i = 0; i < block.count; ++i) LoadKvRow(a.shape.kv_dtype, from, i, rows.row(i));
  std::fill(rows.row(block.count), rows.row(kBlockTokens), 0.0f);
}

// One half, keys or values, of heads [begin, end).
struct Half {
  const PackedMatrix& w;
  bool values;
  int64_t begin, end;
};
void ExpandHalf(const OpContext& context, const ExpandLatentArgs& a, const BlockOfSpan& block,
                const ExpandScratch& scratch, const Half& half) {
  PackedActivations operand = Operand(context, half.w, scratch.operand);
  operand.order = half.w.order(half.begin);  // that of all heads
  const Matrix latent = scratch.rows.columns(0, half.w.k);
  for (int64_t b = 0; b < operand.blocks(); ++b) operand.PackBlock(b, latent, nullptr);
  const auto& kernels = *KernelsFor(context.device);
  for (int64_t h = half.begin; h < half.end; ++h) {
    const KvPage page = KvPageOf(a.heads, {}, block.heads, block.first, h);
    const CachedRows& to = half.values ? page.values : page.keys;
    GemmTask task = TaskOf(operand, half.w, h, 0, kBlockTokens);
    task.y = scratch.out;
    task.y_stride = to.dim;
    operand.kernel->run(task);
    for (int64_t i = 0; i < block.count; ++i) {
      float* row = scratch.out + i * to.dim;
      // Behind a head's own channels of a key are those that all heads share.
      std::copy_n(scratch.rows.row(i) + half.w.k, to.dim - half.w.n, row + half.w.n);
      StoreKvRow(kernels, a.heads.kv_dtype, row, i, to);
      if (half.values) KeepValueFinite(a.heads, i, page);  // their keys stand there already
    }
  }
}

int64_t ExpandBytes(const OpContext& context, const ExpandLatentArgs& args) {
  return MemberBytes(context, args) * context.pool->threads();
}

void RunExpandLatent(const OpContext& context, const ExpandLatentArgs& a, std::byte* scratch) {
  const int64_t positions = int64_t{a.span->start} + a.span->token_count;
  const int64_t parts = CeilDiv(a.keys->count, kHeadsPerTask);
  const double flops = 2.0 * static_cast<double>(positions * a.keys->count) *
                       static_cast<double>((a.keys->n + a.values->n) * a.keys->k);
  ForTasks(context, CeilDiv(positions, kBlockTokens) * parts, flops, [&](int64_t i, int member) {
    const ExpandScratch own = ScratchOf(a, scratch + member * MemberBytes(context, a));
    BlockOfSpan block{.first = i / parts * kBlockTokens, .count = 0, .heads = {}};
    block.count = std::min<int64_t>(kBlockTokens, positions - block.first);
    block.heads.tables[0] = a.blocks;
    const int64_t begin = i % parts * kHeadsPerTask;
    const int64_t end = std::min(a.keys->count, begin + kHeadsPerTask);
    LoadRows(a, block, own.rows);
    ExpandHalf(context, a, block, own, {*a.keys, false, begin, end});
    ExpandHalf(context, a, block, own, {*a.values, true, begin, end});
  });
}

const char* WhyNot(const Device& device, const ExpandLatentArgs&) { return NeedsAvx2(device); }

}  // namespace

constinit const Impl<ExpandLatentArgs> kExpandLatent = {"cpu", WhyNot, ExpandBytes,
                                                        RunExpandLatent};

}  // namespace braid::ops::cpu
