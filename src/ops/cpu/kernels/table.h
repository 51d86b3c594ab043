// The inner loops that are compiled once per instruction set, as a table of functions over plain
// arguments. Kernels do not allocate, lock or use tensors; ops/cpu decides which one
// runs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace braid::ops::cpu {

inline constexpr int kAttendRows = 32;       // query rows of one attention tile on vectors
inline constexpr int kTileAttendRows = 128;  // and on tiles of 16 rows
inline constexpr int kPartitionKeys = 256;
inline constexpr int kPageKeys = 64;

struct NormTask {
  float* x;            // updated when delta is set
  const float* delta;  // or null
  const float* weight;
  float weight_offset;
  float eps;
  float* out;  // or null
  int64_t cols;
};

struct GatedNormTask {
  const float* x;
  const float* gate;
  const float* weight;
  float eps;
  bool sigmoid;  // else SiLU
  float* out;
  int64_t cols;
};

// out[t][c] = silu(sum_j weight[j][c] * x[t + j][c]), j from the oldest row.
constexpr int kConvWidthMax = 8;
constexpr int kConvTokens = 4;  // of one task at most
struct ConvTask {
  const float* x[kConvWidthMax + kConvTokens - 1];  // [width + tokens - 1]
  int width;
  int tokens;
  const float* weight;  // [width][channels]
  int64_t channels;
  float* out;
  int64_t out_stride;
  bool past_caches;  // as GemmTask::past_caches, of out
};

// Elements of a cache row; integers have one fp32 scale per row.
enum class CacheFormat : uint8_t { kF32, kBF16, kI8 };
constexpr int64_t BytesOf(CacheFormat format) {
  return format == CacheFormat::kF32 ? 4 : format == CacheFormat::kBF16 ? 2 : 1;
}

// One attention tile: `rows` queries of one kv head against one partition of keys.
struct AttendTask {
  const float* q;  // [rows][head_dim], scaled
  // Visible keys of the partition, up to kPartitionKeys. On tiles a row may see none, then
  // its results mean nothing, and the array is filled up to a multiple of 16 rows with zeros.
  int32_t limits[kTileAttendRows];
  int rows;
  bool skip_first;  // the first key is seen by rows alone that see no other
  const std::byte* keys[kPartitionKeys / kPageKeys];  // pages of [kPageKeys][head_dim]
  const std::byte* values[kPartitionKeys / kPageKeys];
  const float* key_scales[kPartitionKeys / kPageKeys];  // kI8: [kPageKeys] of each page
  const float* value_scales[kPartitionKeys / kPageKeys];
  const std::byte* next_keys;  // the page that follows the partition, which may be fetched; or null
  CacheFormat kv;
  int64_t head_dim;
  int64_t value_dim;     // channels of a value
  int64_t value_stride;  // channels from one value to the next: pages of [kPageKeys][value_stride]
  float* scores;         // scratch: [rows][kPartitionKeys], or [kPartitionKeys][kTileAttendRows]
  float* maxima;         // [rows] results: maximum, sum of exponentials, weighted values
  float* sums;
  float* out;  // [rows][value_dim]; on tiles a multiple of 16 rows may be written
  struct {
    const uint16_t* queries;  // of TileKernels::pack_queries
    uint16_t* weights;        // scratch: [kTileAttendRows][kPartitionKeys]
    uint16_t* values;         // scratch: [kPartitionKeys * value_dim]
    uint16_t* expanded;  // scratch of kI8: keys, then values, [kPartitionKeys] as in their pages
  } tiles;
};

// Rows [row_begin, row_end) of one chunk of one head of the gated delta rule. Pointers to per-token
// data stand at row row_begin; strides are in floats.
struct DeltaTask {
  int32_t row_begin, row_end;
  int64_t dk, dv;
  bool channel_decay;  // the decay is [dk] per row instead of one number
  bool add;            // u = v: no update gate, nothing is erased
  CacheFormat kept;    // a row of u is rounded to it before it is used; k is rounded already
  // The task before, on this scratch, had these q, k and rows_k, a decay per head and this chunk's
  // end as its own: results derived from them may be reused.
  bool same_keys;
  const float* q;  // unit vectors, q scaled by dk^-0.5
  const float* k;
  const float* v;
  int64_t token_stride;
  const float* beta;
  int64_t beta_stride;
  const float* log_decay;
  int64_t decay_stride;
  const float* s0;  // [dk][dv], or null: zero
  float* rows_k;    // [64][dk] rows of the chunk; those before row_begin are given
  float* rows_u;    // [64][dv]
  float* rows_g;    // [64] or [64][dk] inclusive prefix sums of the log decay
  float* out;
  int64_t out_stride;
  bool past_caches;  // as GemmTask::past_caches, of out
  // [dk][dv] or null; written when row_end is the chunk's end. It may be s0, else nothing above.
  float* s1;
  float* scratch;  // DeltaScratchFloats(dk, dv), aligned to 64 bytes
  // Data that the next task reads, which may be prefetched; each may be null.
  struct {
    const float *rows_k, *rows_g;  // the rows before its first
    const float *q, *k, *v;        // of `tokens` tokens
    const float* log_decay;        // of the same, per channel
    int32_t tokens;
  } next;
};
// Enough for every kernel; a multiple of 16.
constexpr int64_t DeltaScratchFloats(int64_t dk, int64_t dv) {
  const int64_t lanes = 64 * (2 * dv + 3 * dk) + 3 * 64 + (dk > 64 ? dk : 64);
  const int64_t tiles = 192 * dv + 304 * dk + dk * dv / 2 + 16480;
  return ((lanes > tiles ? lanes : tiles) + 15) / 16 * 16;
}

// Rows as a state page keeps them.
struct KeptBlock {
  CacheFormat format;
  int64_t rows, dim;
  std::byte* numbers;
  float* scales;  // of integers, else null
};

// Log decays of one token: -rate softplus(a + bias) or bound sigmoid(rate (a + bias)).
struct LogDecayTask {
  const float* a;
  const float* bias;
  const float* rate;
  float bound;  // negative; 0: the first form
  float* out;
  int64_t count;
};

struct KernelTable {
  int64_t lanes;  // attend and delta take head sizes that are multiples of this
  void (*rms_norm)(const NormTask&);
  void (*gated_norm)(const GatedNormTask&);
  void (*conv)(const ConvTask&);
  // limit 0: none; see SwigluArgs
  void (*swiglu)(const float* gate, const float* up, float* out, int64_t count, float limit);
  void (*sigmoid_mul)(const float* gate, float* x, int64_t count);
  void (*sigmoid)(const float* x, float* out, int64_t count);
  void (*log_decay)(const LogDecayTask&);
  void (*add_scaled)(const float* x, float scale, float* y, int64_t count);  // y += scale * x
  float (*dot)(const float* a, const float* b, int64_t count);
  void (*unit)(float* x, int64_t count, float scale);  // x *= scale / sqrt(sum x^2 + 1e-6)
  void (*rotate)(float* x, const float* cos_sin, int64_t pairs, bool interleaved);
  void (*to_bf16)(const float* x, uint16_t* out, int64_t count);
  // Integers of a row and, returned, their scale: max |x| / 127; 0 where max |x| < 2^-100, NaN
  // where x is not finite.
  float (*to_int8)(const float* x, int8_t* out, int64_t count);
  // Rows of a state page (kernels/rows.h, KeptRows); `dim` is a multiple of the lanes.
  void (*round_rows)(CacheFormat, float* x, int64_t rows, int64_t dim);
  void (*store_rows)(const float* x, const KeptBlock& kept);
  void (*load_rows)(const KeptBlock& kept, float* out);
  void (*attend)(const AttendTask&);
  // (m, l, o) of all partitions so far is merged with those of the next one.
  void (*merge)(float* m, float* l, float* o, float m2, float l2, const float* o2, int64_t count);
  void (*delta)(const DeltaTask&);
  float (*max)(const float* x, int64_t count);
  // sum of exp((x - maximum) * scale)
  float (*sum_exp)(const float* x, int64_t count, float maximum, float scale);
};

const KernelTable& Avx2Kernels();
const KernelTable& Avx512Kernels();

// Attention and the recurrence with products on tiles of 16 rows (kernels/tiles.h), operands
// rounded to bf16. Of attention, head_dim and value_dim are multiples of 32 and keys and values
// bf16 or int8; of the recurrence, dk is a multiple of 32 and dv one of 16.
struct TileKernels {
  // `out` holds rows rounded up to 16, of head_dim.
  void (*pack_queries)(const float* q, int rows, int64_t head_dim, uint16_t* out);
  void (*attend)(const AttendTask&);
  void (*delta)(const DeltaTask&);
};
const TileKernels& AmxTileKernels();  // on tile registers
const TileKernels& DotTileKernels();  // on AVX512-BF16

}  // namespace braid::ops::cpu
