// Paged attention on the CPU. A task is a few query tokens of one kv head, all of the heads that
// share it as rows of one tile; it walks the partitions in order and merges as it goes.
#include "ops/cpu/attention.h"

#include <algorithm>
#include <cmath>

#include "ops/cpu/dispatch.h"

namespace braid::ops::cpu {
namespace {

using braid::cpu::AttendTask;
using braid::cpu::KernelTable;
using braid::cpu::TileKernels;
static_assert(braid::cpu::kPageKeys == kBlockTokens);
static_assert(braid::cpu::kPartitionKeys == kPartitionTokens);

const char* NeedsWholeVectors(const Device& device, const AttentionShape& shape) {
  if (const char* why = NeedsAvx2(device)) return why;
  if (shape.head_dim % 8 != 0) return "head_dim is not a multiple of 8";
  if (shape.value_dim % 8 != 0) return "value_dim is not a multiple of 8";
  return nullptr;
}

// Bytes from the keys of a kv head in a block to its values.
int64_t ValueOffset(const AttentionShape& shape) {
  return shape.latent() ? 0 : shape.head_bytes() / 2;
}

// Where kv head `head` of the layer begins in the block of position `position`; values follow keys.
std::byte* HeadInBlock(const SequenceSpan& span, const CacheSlice& cache,
                       const AttentionShape& shape, int64_t position, int64_t head) {
  std::byte* block = span.tables[static_cast<size_t>(cache.group)][position / kBlockTokens];
  CHECK(block != nullptr, "no block for position {}", position);
  return block + cache.byte_offset + head * shape.head_bytes();
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

void StoreKv(const RowContext& c, const float* x, std::byte* head, int64_t slot) {
  const int64_t dim = c.args.shape.head_dim;
  if (c.args.shape.kv_dtype == DType::kBF16) {
    c.kernels.to_bf16(x, reinterpret_cast<uint16_t*>(head) + slot * dim, dim);
  } else {
    std::copy_n(x, dim, reinterpret_cast<float*>(head) + slot * dim);
  }
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
    std::byte* head = HeadInBlock(span, a.cache, a.shape, position, h);
    float* k = a.k.row(token) + h * dim;
    NormAndRotate(c, k, a.k_norm, cos_sin);
    StoreKv(c, k, head, position % kBlockTokens);
    StoreKv(c, a.v.row(token) + h * dim, head + ValueOffset(a.shape), position % kBlockTokens);
  }
}

int64_t WriteScratch(const OpContext& context, const WriteKvArgs& args) {
  return 8 * int64_t{args.rotary_pairs} * context.pool->threads();
}

void RunWrite(const OpContext& context, const WriteKvArgs& args, std::byte* scratch) {
  const RowContext c{*KernelsFor(context.device), args};
  constexpr int64_t kTokensPerTask = 16;
  float* cos_sin = reinterpret_cast<float*>(scratch);
  for (int32_t s = 0; s < args.sequences.count; ++s) {
    const SequenceSpan& span = args.sequences.spans[s];
    const double flops = 20.0 * span.token_count * static_cast<double>(args.q.cols);
    ForTasks(context, CeilDiv(span.token_count, kTokensPerTask), flops,
             [&](int64_t task, int member) {
               const int64_t end = std::min<int64_t>(span.token_count, (task + 1) * kTokensPerTask);
               for (int64_t i = task * kTokensPerTask; i < end; ++i) {
                 WriteToken(c, span, i, cos_sin + 2 * member * args.rotary_pairs);
               }
             });
  }
}

// What runs a task: rows on vectors, or products on tiles of 16 rows.
struct Engine {
  const KernelTable& kernels;
  const TileKernels* tiles;  // or null
  int64_t rows_max() const { return tiles ? braid::cpu::kTileAttendRows : braid::cpu::kAttendRows; }
};

// Scratch of one member: scaled queries, scores, one partition's result, the merged result.
struct TileScratch {
  float* q;
  float* scores;
  float* out;
  float* merged;
  float* stats;  // maxima, sums of the partition; then of the merged
  uint16_t* queries;
  uint16_t* weights;
  uint16_t* values;
};
int64_t TileFloats(const AttentionShape& shape) {
  const int64_t dim = shape.head_dim, rows = braid::cpu::kTileAttendRows;
  const int64_t halves = rows * dim + rows * kPartitionTokens + kPartitionTokens * dim;
  return RoundUp(rows * (3 * dim + kPartitionTokens + 4) + halves / 2, 16);
}
TileScratch SplitScratch(std::byte* scratch, int member, const AttentionShape& shape) {
  const int64_t dim = shape.head_dim, rows = braid::cpu::kTileAttendRows;
  float* p = reinterpret_cast<float*>(scratch) + member * TileFloats(shape);
  TileScratch t;
  t.q = p;
  t.out = t.q + rows * dim;
  t.merged = t.out + rows * dim;
  t.scores = t.merged + rows * dim;
  t.stats = t.scores + rows * kPartitionTokens;
  t.queries = reinterpret_cast<uint16_t*>(t.stats + 4 * rows);
  t.weights = t.queries + rows * dim;
  t.values = t.weights + rows * kPartitionTokens;
  return t;
}

int64_t AttentionScratch(const OpContext& context, const AttentionArgs& args) {
  return 4 * TileFloats(args.shape) * context.pool->threads();
}

// A few tokens' rows of some of the heads that share a kv head.
struct Tile {
  const SequenceSpan& span;
  int64_t kv_head;
  int64_t first_head;  // of all heads
  int64_t heads;
  int64_t first;  // token of the span
  int64_t tokens;
};

// One partition for all rows of the tile that can see it; merges into the running result.
void RunPartition(const Engine& engine, const AttentionArgs& a, const Tile& tile,
                  const TileScratch& t, int64_t partition) {
  const int64_t dim = a.shape.head_dim, group = tile.heads, value_dim = a.shape.out_dim();
  const int64_t begin = partition * kPartitionTokens, rows_max = engine.rows_max();
  // Rows before `first` lie before this partition. Queries on tiles are packed for all
  // partitions, so there these rows take part and see nothing.
  const int64_t first = group * std::max<int64_t>(0, begin - tile.span.start - tile.first);
  const int64_t skipped = engine.tiles ? 0 : first;
  AttendTask task = {};
  task.bf16 = a.shape.kv_dtype == DType::kBF16;
  task.head_dim = dim;
  task.value_dim = value_dim;
  task.q = t.q + skipped * dim;
  task.scores = t.scores;
  task.maxima = t.stats;
  task.sums = t.stats + rows_max;
  // The first partition needs no merge.
  task.out = partition == 0 ? t.merged : t.out;
  task.tiles = {t.queries, t.weights, t.values};
  task.rows = static_cast<int>(tile.tokens * group - skipped);
  int64_t last = 0;
  for (int64_t row = first; row < tile.tokens * group; ++row) {
    const int64_t position = tile.span.start + tile.first + row / group;
    last = std::min<int64_t>(position + 1 - begin, kPartitionTokens);
    task.limits[row - skipped] = static_cast<int32_t>(last);
  }
  for (int64_t page = 0; page * kBlockTokens < last; ++page) {
    task.keys[page] =
        HeadInBlock(tile.span, a.cache, a.shape, begin + page * kBlockTokens, tile.kv_head);
    task.values[page] = task.keys[page] + ValueOffset(a.shape);
  }
  engine.tiles ? engine.tiles->attend(task) : engine.kernels.attend(task);
  float* maxima = t.stats + 2 * rows_max;
  float* sums = t.stats + 3 * rows_max;
  for (int64_t row = first; row < tile.tokens * group; ++row) {
    const int64_t r = row - skipped;
    if (partition == 0) {
      maxima[row] = task.maxima[r];
      sums[row] = task.sums[r];
    } else {
      engine.kernels.merge(maxima + row, sums + row, t.merged + row * value_dim, task.maxima[r],
                           task.sums[r], t.out + r * value_dim, value_dim);
    }
  }
}

void RunTile(const Engine& engine, const AttentionArgs& a, const Tile& tile, const TileScratch& t) {
  const int64_t dim = a.shape.head_dim, group = tile.heads, value_dim = a.shape.out_dim();
  for (int64_t i = 0; i < tile.tokens; ++i) {
    const int64_t token = tile.span.token_begin + tile.first + i;
    const float* q = a.q.row(token) + tile.first_head * dim;
    for (int64_t d = 0; d < group * dim; ++d) t.q[i * group * dim + d] = q[d] * a.scale;
  }
  if (engine.tiles) {
    engine.tiles->pack_queries(t.q, static_cast<int>(tile.tokens * group), dim, t.queries);
  }
  const int64_t last = tile.span.start + tile.first + tile.tokens - 1;
  for (int64_t p = 0; p <= last / kPartitionTokens; ++p) RunPartition(engine, a, tile, t, p);
  const float* sums = t.stats + 3 * engine.rows_max();
  for (int64_t i = 0; i < tile.tokens; ++i) {
    const int64_t token = tile.span.token_begin + tile.first + i;
    for (int64_t g = 0; g < group; ++g) {
      const int64_t row = i * group + g, head = tile.first_head + g;
      float* out = a.out.row(token) + head * value_dim;
      for (int64_t d = 0; d < value_dim; ++d) out[d] = t.merged[row * value_dim + d] / sums[row];
      if (a.gate.data) {
        engine.kernels.sigmoid_mul(a.gate.row(token) + head * a.gate_stride, out, value_dim);
      }
    }
  }
}

void RunAttention(const OpContext& context, const AttentionArgs& args, std::byte* scratch,
                  const TileKernels* tile_kernels) {
  const Engine engine{*KernelsFor(context.device, args.shape.head_dim, args.shape.out_dim()),
                      tile_kernels};
  const int64_t group = args.shape.heads / args.shape.kv_heads;
  // Heads that share a kv head are rows of one tile, or of several when there are many.
  const int64_t parts = CeilDiv(group, engine.rows_max()), part_heads = CeilDiv(group, parts);
  const int64_t tile_tokens = std::max<int64_t>(1, engine.rows_max() / part_heads);
  const int64_t columns = args.shape.kv_heads * parts;
  // Task i of the loop is tile i of the spans laid end to end, a tile per (few tokens, part).
  auto tiles_of = [&](const SequenceSpan& span) {
    return CeilDiv(span.token_count, tile_tokens) * columns;
  };
  int64_t tiles = 0;
  double flops = 0;
  for (int32_t s = 0; s < args.sequences.count; ++s) {
    const SequenceSpan& span = args.sequences.spans[s];
    tiles += tiles_of(span);
    flops += 4.0 * span.token_count * (span.start + span.token_count / 2.0 + 1) *
             static_cast<double>(args.out.cols);
  }
  ForTasks(context, tiles, flops, [&](int64_t i, int member) {
    const SequenceSpan* span = args.sequences.spans;
    for (; i >= tiles_of(*span); ++span) i -= tiles_of(*span);
    // The latest tokens see the most keys: largest first.
    const int64_t block = CeilDiv(span->token_count, tile_tokens) - 1 - i / columns;
    const int64_t first = block * tile_tokens;
    const int64_t kv_head = i % columns / parts, head = i % parts * part_heads;
    const Tile tile{.span = *span,
                    .kv_head = kv_head,
                    .first_head = kv_head * group + head,
                    .heads = std::min(part_heads, group - head),
                    .first = first,
                    .tokens = std::min<int64_t>(tile_tokens, span->token_count - first)};
    RunTile(engine, args, tile, SplitScratch(scratch, member, args.shape));
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
  if (args.shape.kv_dtype != DType::kBF16) return "keys and values are not bf16";
  if (args.shape.head_dim % 32 != 0) return "head_dim is not a multiple of 32";
  if (args.shape.out_dim() % 32 != 0) return "value_dim is not a multiple of 32";
  return nullptr;
}

}  // namespace

constinit const Impl<WriteKvArgs> kNormRopeWriteKv = {"cpu", WhyNotWrite, WriteScratch, RunWrite};
constinit const Impl<AttentionArgs> kAttentionAmx = {"amx", WhyNotTiles<NeedsAmx>, AttentionScratch,
                                                     RunOnTiles<braid::cpu::AmxTileKernels>};
constinit const Impl<AttentionArgs> kAttentionBf16 = {"avx512_bf16", WhyNotTiles<NeedsAvx512Bf16>,
                                                      AttentionScratch,
                                                      RunOnTiles<braid::cpu::DotTileKernels>};
constinit const Impl<AttentionArgs> kAttention = {"cpu", WhyNotAttention, AttentionScratch,
                                                  RunOnLanes};

}  // namespace braid::ops::cpu
