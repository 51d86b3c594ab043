// Paged attention on the CPU. A task is a few query tokens of one kv head, all of the heads that
// share it as rows of one tile; it walks the partitions in order and merges as it goes. Where such
// tiles are few, the partitions are shared out, and merged in the same order.
#include "ops/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/kv_row.h"

namespace braid::ops::cpu {
namespace {

static_assert(kPageKeys == kBlockTokens);
static_assert(kPartitionKeys == kPartitionTokens);

const char* NeedsWholeVectors(const Device& device, const AttentionShape& shape) {
  if (const char* why = NeedsAvx2(device)) return why;
  if (shape.head_dim % 8 != 0) return "head_dim is not a multiple of 8";
  if (shape.value_dim % 8 != 0) return "value_dim is not a multiple of 8";
  return nullptr;
}

CacheFormat FormatOf(DType dtype) {
  return dtype == DType::kI8     ? CacheFormat::kI8
         : dtype == DType::kBF16 ? CacheFormat::kBF16
                                 : CacheFormat::kF32;
}

struct RowContext {
  const KernelTable& kernels;
  const WriteKvArgs& args;
};

void NormAndRotate(const RowContext& c, float* x, const float* norm, const float* cos_sin) {
  const int64_t dim = c.args.shape.head_dim;
  if (norm) {
    c.kernels.rms_norm({.x = x,
                        .delta = nullptr,
                        .weight = norm,
                        .weight_offset = c.args.norm_offset,
                        .eps = c.args.eps,
                        .out = x,
                        .cols = dim});
  }
  if (c.args.rotary_pairs > 0) c.kernels.rotate(x, cos_sin, c.args.rotary_pairs, false);
}

void WriteToken(const RowContext& c, const SequenceSpan& span, int64_t i, float* cos_sin) {
  const WriteKvArgs& a = c.args;
  const int64_t position = span.start + i, token = span.token_begin + i, dim = a.shape.head_dim;
  for (int32_t j = 0; j < a.rotary_pairs; ++j) {
    const float angle = static_cast<float>(position) * a.inverse_frequency[j];
    cos_sin[j] = std::cos(angle) * a.rotary_scale;
    cos_sin[a.rotary_pairs + j] = std::sin(angle) * a.rotary_scale;
  }
  for (int64_t h = 0; h < a.shape.heads; ++h) {
    float* q = a.q_out.row(token) + h * dim;
    std::copy_n(a.q.row(token) + h * a.q_stride, dim, q);
    NormAndRotate(c, q, a.q_norm, cos_sin);
  }
  for (int64_t h = 0; h < a.shape.kv_heads; ++h) {
    const KvPage page = KvPageOf(a.shape, a.cache, span, position, h);
    const int64_t slot = position % kBlockTokens;
    float* k = a.k.row(token) + h * dim;
    NormAndRotate(c, k, a.k_norm, cos_sin);
    StoreKvRow(c.kernels, a.shape.kv_dtype, k, slot, page.keys);
    StoreKvRow(c.kernels, a.shape.kv_dtype, a.v.row(token) + h * page.values.dim, slot,
               page.values);
    KeepValueFinite(a.shape, slot, page);
  }
}

int64_t WriteScratch(const OpContext& context, const WriteKvArgs& args) {
  return 8 * int64_t{args.rotary_pairs} * context.pool->threads();
}

void RunWrite(const OpContext& context, const WriteKvArgs& args, std::byte* scratch) {
  const RowContext c{*KernelsFor(context.device), args};
  float* cos_sin = reinterpret_cast<float*>(scratch);
  ForTokens(context, args.sequences, 20.0 * static_cast<double>(args.q.cols),
            [&](const SequenceSpan& span, int64_t i, int member) {
              WriteToken(c, span, i, cos_sin + 2 * member * args.rotary_pairs);
            });
}

// The kernels of a task: `tiles` multiplies tiles of 16 rows; where it is null, `vectors` does all.
struct AttentionKernels {
  const KernelTable& vectors;
  const TileKernels* tiles;  // or null
  int64_t rows_max() const { return tiles ? kTileAttendRows : kAttendRows; }
};

// Results of one partition, or of all up to one: rows of one tile.
struct Partial {
  float* out;     // [rows][out_dim]
  float* maxima;  // [rows]
  float* sums;    // [rows]
};
int64_t PartialFloats(const AttentionShape& shape) {
  return kTileAttendRows * (int64_t{shape.out_dim()} + 2);
}
Partial PartialAt(float* p, const AttentionShape& shape) {
  float* maxima = p + kTileAttendRows * int64_t{shape.out_dim()};
  return {p, maxima, maxima + kTileAttendRows};
}

// Scratch of one member: scaled queries, scores, buffers of tasks on tiles, results.
struct TileScratch {
  float* q;
  float* scores;
  Partial partition;
  Partial merged;
  uint16_t* queries;
  uint16_t* weights;
  uint16_t* values;
  uint16_t* expanded;  // of integers only
};
int64_t TileFloats(const AttentionShape& shape) {
  const int64_t dim = shape.head_dim, rows = kTileAttendRows;
  const int64_t page_rows = kPartitionTokens * std::max(dim, shape.out_dim());
  const int64_t expanded = shape.kv_dtype == DType::kI8 ? page_rows : 0;
  const int64_t halves = rows * dim + rows * kPartitionTokens + page_rows + expanded;
  return RoundUp(rows * (dim + kPartitionTokens) + 2 * PartialFloats(shape) + halves / 2, 16);
}
TileScratch ScratchOf(std::byte* scratch, int member, const AttentionShape& shape) {
  const int64_t dim = shape.head_dim, rows = kTileAttendRows;
  float* p = reinterpret_cast<float*>(scratch) + member * TileFloats(shape);
  TileScratch t;
  t.q = p;
  t.scores = t.q + rows * dim;
  float* partials = t.scores + rows * kPartitionTokens;
  t.partition = PartialAt(partials, shape);
  t.merged = PartialAt(partials + PartialFloats(shape), shape);
  t.queries = reinterpret_cast<uint16_t*>(partials + 2 * PartialFloats(shape));
  t.weights = t.queries + rows * dim;
  t.values = t.weights + rows * kPartitionTokens;
  t.expanded = t.values + kPartitionTokens * std::max(dim, shape.out_dim());
  return t;
}

// A few tokens' rows of some of the heads that share a kv head.
struct Tile {
  const SequenceSpan& span;
  int64_t kv_head;
  int64_t first_head;  // of all heads
  int64_t heads;
  int64_t first;  // token of the span
  int64_t tokens;
  int64_t rows() const { return tokens * heads; }
  int64_t keys() const { return span.start + first + tokens; }
  int64_t partitions() const { return CeilDiv(keys(), kPartitionTokens); }
  // Rows before this one lie before the partition and see nothing of it.
  int64_t FirstRow(int64_t partition) const {
    return heads * std::max<int64_t>(0, partition * kPartitionTokens - span.start - first);
  }
};

// The tiles of a step: those of the spans laid end to end.
struct Tiling {
  Tiling(const AttentionKernels& kernels, const AttentionArgs& a)
      : args(a),
        group(a.shape.heads / a.shape.kv_heads),
        // Heads that share a kv head are rows of one tile, or of several when there are many.
        parts(CeilDiv(group, kernels.rows_max())),
        part_heads(CeilDiv(group, parts)),
        tile_tokens(std::max<int64_t>(1, kernels.rows_max() / part_heads)),
        columns(a.shape.kv_heads * parts) {
    for (int32_t s = 0; s < a.sequences.count; ++s) count += CountOf(a.sequences.spans[s]);
  }
  int64_t CountOf(const SequenceSpan& span) const {
    return CeilDiv(span.token_count, tile_tokens) * columns;
  }
  Tile At(int64_t i) const {
    const SequenceSpan* span = args.sequences.spans;
    for (; i >= CountOf(*span); ++span) i -= CountOf(*span);
    // The latest tokens see the most keys: largest first.
    const int64_t block = CeilDiv(span->token_count, tile_tokens) - 1 - i / columns;
    const int64_t first = block * tile_tokens;
    const int64_t kv_head = i % columns / parts, head = i % parts * part_heads;
    return {.span = *span,
            .kv_head = kv_head,
            .first_head = kv_head * group + head,
            .heads = std::min(part_heads, group - head),
            .first = first,
            .tokens = std::min<int64_t>(tile_tokens, span->token_count - first)};
  }
  const AttentionArgs& args;
  int64_t group, parts, part_heads, tile_tokens, columns;
  int64_t count = 0;
};

// The queries of a tile, as its partitions want them.
void PrepareQueries(const AttentionKernels& kernels, const AttentionArgs& a, const Tile& tile,
                    const TileScratch& t) {
  const int64_t row = tile.heads * a.shape.head_dim;
  for (int64_t i = 0; i < tile.tokens; ++i) {
    const float* q =
        a.q.row(tile.span.token_begin + tile.first + i) + tile.first_head * a.shape.head_dim;
    for (int64_t d = 0; d < row; ++d) t.q[i * row + d] = q[d] * a.scale;
  }
  if (kernels.tiles) {
    kernels.tiles->pack_queries(t.q, static_cast<int>(tile.rows()), a.shape.head_dim, t.queries);
  }
}

// One partition for all rows of the tile that can see it.
void RunPartition(const AttentionKernels& kernels, const AttentionArgs& a, const Tile& tile,
                  const TileScratch& t, int64_t partition, const Partial& result) {
  const int64_t dim = a.shape.head_dim, begin = partition * kPartitionTokens;
  // Queries on tiles are packed for all partitions, so there rows that see nothing take part.
  const int64_t first = tile.FirstRow(partition), skipped = kernels.tiles ? 0 : first;
  AttendTask task = {};
  task.kv = FormatOf(a.shape.kv_dtype);
  task.head_dim = dim;
  task.value_dim = a.shape.out_dim();
  task.value_stride = a.shape.value_stride();
  task.q = t.q + skipped * dim;
  task.scores = t.scores;
  task.maxima = result.maxima + skipped;
  task.sums = result.sums + skipped;
  task.out = result.out + skipped * a.shape.out_dim();
  task.tiles = {t.queries, t.weights, t.values, t.expanded};
  task.rows = static_cast<int>(tile.rows() - skipped);
  task.skip_first = partition == 0 && a.cache.skip_first;
  int64_t last = 0;
  for (int64_t row = first; row < tile.rows(); ++row) {
    const int64_t position = tile.span.start + tile.first + row / tile.heads;
    last = std::min<int64_t>(position + 1 - begin, kPartitionTokens);
    task.limits[row - skipped] = static_cast<int32_t>(last);
  }
  auto page_of = [&](int64_t position) {
    return KvPageOf(a.shape, a.cache, tile.span, position, tile.kv_head);
  };
  for (int64_t i = 0; i * kBlockTokens < last; ++i) {
    const KvPage page = page_of(begin + i * kBlockTokens);
    task.keys[i] = page.keys.rows;
    task.values[i] = page.values.rows;
    task.key_scales[i] = page.keys.scales;
    task.value_scales[i] = page.values.scales;
  }
  if (partition + 1 < tile.partitions())
    task.next_keys = page_of(begin + kPartitionTokens).keys.rows;
  kernels.tiles ? kernels.tiles->attend(task) : kernels.vectors.attend(task);
}

// Merges the results of rows [row, end) in a partition into those of earlier partitions.
void MergePartition(const AttentionKernels& kernels, const Partial& found, int64_t dim, int64_t row,
                    int64_t end, const Partial& merged) {
  for (; row < end; ++row) {
    kernels.vectors.merge(merged.maxima + row, merged.sums + row, merged.out + row * dim,
                          found.maxima[row], found.sums[row], found.out + row * dim, dim);
  }
}

void FinishTile(const AttentionKernels& kernels, const AttentionArgs& a, const Tile& tile,
                const Partial& merged) {
  const int64_t dim = a.shape.out_dim();
  for (int64_t row = 0; row < tile.rows(); ++row) {
    const int64_t token = tile.span.token_begin + tile.first + row / tile.heads;
    const int64_t head = tile.first_head + row % tile.heads;
    float* out = a.out.row(token) + head * dim;
    for (int64_t d = 0; d < dim; ++d) out[d] = merged.out[row * dim + d] / merged.sums[row];
    if (!a.gate.data) continue;
    const float* gate = a.gate.row(token) + head * a.gate_stride;
    if (a.gate_per_head) {
      const float open = 1.0f / (1.0f + std::exp(-*gate));
      for (int64_t d = 0; d < dim; ++d) out[d] *= open;
    } else {
      kernels.vectors.sigmoid_mul(gate, out, dim);
    }
  }
}

void RunTile(const AttentionKernels& kernels, const AttentionArgs& a, const Tile& tile,
             const TileScratch& t) {
  PrepareQueries(kernels, a, tile, t);
  // The first partition needs no merge.
  RunPartition(kernels, a, tile, t, 0, t.merged);
  for (int64_t p = 1; p < tile.partitions(); ++p) {
    RunPartition(kernels, a, tile, t, p, t.partition);
    MergePartition(kernels, t.partition, a.shape.out_dim(), tile.FirstRow(p), tile.rows(),
                   t.merged);
  }
  FinishTile(kernels, a, tile, t.merged);
}

// Fewer tiles than members have use for, as when one sequence decodes behind a long context: their
// partitions are shared out, kSlots per member at a time, and merged in the order in which one
// member would.
constexpr int64_t kSlots = 2;

class SplitAttention {
 public:
  SplitAttention(const OpContext& context, const AttentionKernels& kernels, const Tiling& tiling,
                 std::byte* scratch)
      : context_(context),
        kernels_(kernels),
        args_(tiling.args),
        scratch_(scratch),
        partials_(reinterpret_cast<float*>(scratch) +
                  TileFloats(args_.shape) * context.pool->threads()) {
    for (int64_t i = 0; i < tiling.count; ++i) tiles_.push_back(tiling.At(i));
  }

  void Run(double flops) {
    const int64_t slots = kSlots * context_.pool->threads();
    std::vector<Item> wave;
    for (int64_t i = 0; i < std::ssize(tiles_); ++i) {
      for (int64_t p = 0; p < tiles_[static_cast<size_t>(i)].partitions(); ++p) {
        wave.push_back({i, p});
        if (std::ssize(wave) == slots) RunWave(wave, flops);
      }
    }
    RunWave(wave, flops);
    ForTasks(context_, std::ssize(tiles_), flops, [&](int64_t i, int) {
      FinishTile(kernels_, args_, tiles_[static_cast<size_t>(i)], Merged(i));
    });
  }

 private:
  struct Item {
    int64_t tile, partition;
  };
  Partial Slot(int64_t i) const {
    return PartialAt(partials_ + i * PartialFloats(args_.shape), args_.shape);
  }
  Partial Merged(int64_t tile) const { return Slot(kSlots * context_.pool->threads() + tile); }

  void RunWave(std::vector<Item>& wave, double flops) {
    ForTasks(context_, std::ssize(wave), flops, [&](int64_t i, int member) {
      const Item& item = wave[static_cast<size_t>(i)];
      const Tile& tile = tiles_[static_cast<size_t>(item.tile)];
      const TileScratch t = ScratchOf(scratch_, member, args_.shape);
      PrepareQueries(kernels_, args_, tile, t);
      RunPartition(kernels_, args_, tile, t, item.partition,
                   item.partition == 0 ? Merged(item.tile) : Slot(i));
    });
    constexpr int64_t kRowsPerTask = 8;
    constexpr int64_t kGroups = kTileAttendRows / kRowsPerTask;
    ForTasks(context_, std::ssize(tiles_) * kGroups, flops, [&](int64_t task, int) {
      const Tile& tile = tiles_[static_cast<size_t>(task / kGroups)];
      const int64_t begin = task % kGroups * kRowsPerTask;
      const int64_t end = std::min(tile.rows(), begin + kRowsPerTask);
      for (int64_t i = 0; i < std::ssize(wave); ++i) {
        const Item& item = wave[static_cast<size_t>(i)];
        if (item.tile != task / kGroups || item.partition == 0) continue;
        MergePartition(kernels_, Slot(i), args_.shape.out_dim(),
                       std::max(begin, tile.FirstRow(item.partition)), end, Merged(item.tile));
      }
    });
    wave.clear();
  }

  const OpContext& context_;
  const AttentionKernels& kernels_;
  const AttentionArgs& args_;
  std::byte* scratch_;
  float* partials_;  // [kSlots * threads] of a wave, then the merged ones of the tiles
  std::vector<Tile> tiles_;
};

// The last round of tiles would leave members idle.
bool Splits(const OpContext& context, const Tiling& tiling) {
  const int64_t threads = context.pool->threads();
  if (tiling.count >= kSlots * threads || tiling.count % threads == 0) return false;
  for (int64_t i = 0; i < tiling.count; ++i) {
    if (tiling.At(i).partitions() > 1) return true;
  }
  return false;
}

int64_t AttentionScratch(const OpContext& context, const AttentionArgs& args) {
  const int64_t member = TileFloats(args.shape) + 2 * kSlots * PartialFloats(args.shape);
  return 4 * member * context.pool->threads();
}

void RunAttention(const OpContext& context, const AttentionArgs& args, std::byte* scratch,
                  const TileKernels* tile_kernels) {
  const AttentionKernels kernels{
      *KernelsFor(context.device, args.shape.head_dim, args.shape.out_dim()), tile_kernels};
  const Tiling tiling(kernels, args);
  double flops = 0;
  for (int32_t s = 0; s < args.sequences.count; ++s) {
    const SequenceSpan& span = args.sequences.spans[s];
    flops += 4.0 * span.token_count * (span.start + span.token_count / 2.0 + 1) *
             static_cast<double>(args.out.cols);
  }
  if (Splits(context, tiling)) return SplitAttention(context, kernels, tiling, scratch).Run(flops);
  ForTasks(context, tiling.count, flops, [&](int64_t i, int member) {
    RunTile(kernels, args, tiling.At(i), ScratchOf(scratch, member, args.shape));
  });
}

void RunOnLanes(const OpContext& context, const AttentionArgs& args, std::byte* scratch) {
  RunAttention(context, args, scratch, nullptr);
}
template <const TileKernels& (*kKernels)()>
void RunOnTiles(const OpContext& context, const AttentionArgs& args, std::byte* scratch) {
  RunAttention(context, args, scratch, &kKernels());
}

const char* WhyNotWrite(const Device& device, const WriteKvArgs& args) {
  return NeedsWholeVectors(device, args.shape);
}
const char* WhyNotAttention(const Device& device, const AttentionArgs& args) {
  return NeedsWholeVectors(device, args.shape);
}
template <const char* (*kNeeds)(const Device&)>
const char* WhyNotTiles(const Device& device, const AttentionArgs& args) {
  if (const char* why = kNeeds(device)) return why;
  if (device.compute != Compute::kBF16) return "operands are to stay fp32";
  if (args.shape.kv_dtype == DType::kF32) return "keys and values are fp32";
  if (args.shape.head_dim % 32 != 0) return "head_dim is not a multiple of 32";
  if (args.shape.out_dim() % 32 != 0) return "value_dim is not a multiple of 32";
  return nullptr;
}

}  // namespace

constinit const Impl<WriteKvArgs> kNormRopeWriteKv = {"cpu", WhyNotWrite, WriteScratch, RunWrite};
constinit const Impl<AttentionArgs> kAttentionAmx = {"amx", WhyNotTiles<NeedsAmx>, AttentionScratch,
                                                     RunOnTiles<AmxTileKernels>};
constinit const Impl<AttentionArgs> kAttentionBf16 = {"avx512_bf16", WhyNotTiles<NeedsAvx512Bf16>,
                                                      AttentionScratch, RunOnTiles<DotTileKernels>};
constinit const Impl<AttentionArgs> kAttention = {"cpu", WhyNotAttention, AttentionScratch,
                                                  RunOnLanes};

}  // namespace braid::ops::cpu
