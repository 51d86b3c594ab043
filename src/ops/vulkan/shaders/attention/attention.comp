// Causal attention over pages, of a tile of rows: the query heads that share a kv head, of one or of
// several tokens of a sequence. Keys are taken a block of 64 at a time, at absolute positions.
//
// The order of a row's sums, whichever tile it is in: a key's product is summed channel by channel.
// A block's weights are summed as 32 pairs of keys l, l + 32, these in the order of l; its values key
// by key. Keys that the row does not see add nothing. The blocks are merged in order.
//
// A workgroup walks over the blocks of its tile (a dispatch over a.blocks of them; between two the
// maximum and the sum of a row wait in `running`, its values in `out`), or with SPLIT takes one
// block, whose sums attention_merge.comp merges. ROWS * 8 rows a tile; an invocation has ROWS of
// them, by WIDE * 8 lanes: four keys of a block's products (two if wide), and four channels of each
// chunk of its values. Neighbouring invocations are 8 lanes by 4 rows, for shared memory's sake.
// Workgroups: blocks with SPLIT, units of tokens of a span, kv heads times tiles of a unit.
#version 460
#include "memory.glsl"
#include "batch.glsl"
#include "pages.glsl"
#include "attention.glsl"
#include "attention_tile.glsl"

void main() {
  me = int(gl_LocalInvocationIndex);
  x = me % 8 + 8 * (me / 32 % (LANES / 8));
  y = me / 8 % 4 + 4 * (me / (4 * LANES));
  Batch batch = Batch(a.batch);
  if (!FindTile(batch)) return;
  const bool skip = (a.flags_group & 2) != 0;
  const int group = a.flags_group >> 4;
#ifdef SPLIT
  const int begin = a.first_block + int(gl_WorkGroupID.x), end = begin + 1;
  if (begin >= BlocksOf(KeysOf(rows - 1))) return;
#else
  const int begin = a.first_block, end = min(BlocksOf(KeysOf(rows - 1)), begin + a.blocks);
  if (begin >= end) return;
  vec4 own[CHUNKS][ROWS];
  float most[ROWS], sum[ROWS];
  [[unroll]] for (int r = 0; r < ROWS; ++r) {
    most[r] = kNever;
    sum[r] = 0.0;
    [[unroll]] for (int chunk = 0; chunk < CHUNKS; ++chunk) own[chunk][r] = vec4(0.0);
    const int row = y + 8 * r;
    if (begin == 0 || row >= rows) continue;
    Floats running = RunningAt(TokenOf(row), HeadOf(row), 0);
    most[r] = running.at[0];
    sum[r] = running.at[1];
    Floats values = RowOf(a.out_, TokenOf(row), a.out_stride);
    [[unroll]] for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const int c = 4 * (chunk * LANES + x);
      if (c >= ValueDim()) continue;
      [[unroll]] for (int j = 0; j < 4; ++j) {
        own[chunk][r][j] = values.at[HeadOf(row) * ValueDim() + c + j];
      }
    }
  }
#endif
  [[unroll]] for (int i = 0; i < QUERIES; ++i) {
    const int row = (me + i * THREADS) / FOURS;
    q_at[i] = row >= rows ? 0ul
                          : a.q + 4ul * (uint64_t(TokenOf(row)) * uint64_t(a.q_stride) +
                                         uint64_t(HeadOf(row) * KeyDim()));
  }
  int seen[ROWS], from[ROWS];  // keys before, and the first of them
  [[unroll]] for (int r = 0; r < ROWS; ++r) {
    seen[r] = y + 8 * r < rows ? KeysOf(y + 8 * r) : 0;
    from[r] = skip && seen[r] > 1 ? 1 : 0;
  }
  const int slices = (KeyDim() / 4 + FOURS - 1) / FOURS;
  const uint64_t in_page = a.slice + uint64_t(kv_head) * HeadBytes();
  uint64_t page = BlockOf(batch, span, group, begin) + in_page;
  FetchKeys(page, 0);
  for (int block = begin; block < end; ++block) {
    const uint64_t next_page =
        block + 1 < end ? BlockOf(batch, span, group, block + 1) + in_page : 0ul;
    const int base = block * kBlockTokens;
    const uint64_t values = page + ValuesOffset();
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
      [[unroll]] for (int j = 0; j < KEYS; ++j) dots[r][j] = 0.0;
    }
    for (int slice = 0; slice < slices; ++slice) {
      barrier();
      StoreKeys();
      barrier();
      if (slice + 1 < slices) {
        FetchKeys(page, slice + 1);
      } else {
        FetchValues(values, 0, 0);
      }
      const int fours = KeyDim() / 4 - slice * FOURS;
      if (y < rows && fours >= FOURS) {
        for (int four = 0; four < FOURS; ++four) AddFour(four);
      } else if (y < rows) {
        for (int four = 0; four < fours; ++four) AddFour(four);
      }
    }
    // The tile's maxima of the block.
    float scales[KEYS], value_scales[KEYS];
    [[unroll]] for (int j = 0; j < KEYS; ++j) {
      scales[j] = value_scales[j] = 1.0;
      if (CACHE != kCacheI8) continue;
      scales[j] = Floats(page + ScalesOffset()).at[x + LANES * j];
      value_scales[j] = Floats(page + ValueScalesOffset()).at[x + LANES * j];
    }
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
      float lane_most = kNever;
      [[unroll]] for (int j = 0; j < KEYS; ++j) {
        const int key = base + x + LANES * j;
        precise float score = dots[r][j];
        if (CACHE == kCacheI8) score *= scales[j];
        score *= a.scale;
        dots[r][j] = key >= from[r] && key < seen[r] ? score : kNever;
        lane_most = max(lane_most, dots[r][j]);
      }
      lanes[y + 8 * r][x] = lane_most;
    }
    barrier();
    if (x < ROWS) {
      float row_most = kNever;
      for (int l = 0; l < LANES; ++l) row_most = max(row_most, lanes[y + 8 * x][l]);
      maxima[y + 8 * x] = row_most;
    }
    barrier();
    // The weights.
    float block_most[ROWS];
    [[unroll]] for (int r = 0; r < ROWS; ++r) block_most[r] = maxima[y + 8 * r];
    precise float pairs[ROWS][PAIRS];
    [[unroll]] for (int j = 0; j < KEYS; ++j) {
      OfRows row_weights;
      [[unroll]] for (int r = 0; r < ROWS; ++r) {
        precise const float below = dots[r][j] - block_most[r];
        const float weight = dots[r][j] == kNever ? 0.0 : exp(below);
        pairs[r][j % PAIRS] = j < PAIRS ? weight : pairs[r][j % PAIRS] + weight;
        // A slot that is not seen may hold anything, scales too.
        SetWeight(row_weights, r, CACHE != kCacheI8 ? weight : weight * value_scales[j]);
      }
      weights[(x + LANES * j) * 9 + y] = row_weights;
    }
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
      [[unroll]] for (int p = 0; p < PAIRS; ++p) lanes[y + 8 * r][x + LANES * p] = pairs[r][p];
    }
    barrier();
    if (x < ROWS) {
      precise float row_sum = 0.0;
      for (int l = 0; l < 32; ++l) row_sum += lanes[y + 8 * x][l];
      sums[y + 8 * x] = row_sum;
    }
    barrier();
#ifdef SPLIT
    uint64_t part_at[ROWS];  // 0: the row does not see the block
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
      const int row = y + 8 * r;
      part_at[r] = 0ul;
      if (base >= seen[r]) continue;
      part_at[r] = PartAt(TokenOf(row), HeadOf(row), int(gl_WorkGroupID.x));
      if (x == 0) Fours(part_at[r]).at[0] = vec4(block_most[r], sums[row], 0.0, 0.0);
    }
#else
    float keep[ROWS], add[ROWS];
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
      const float new_most = max(most[r], block_most[r]);
      keep[r] = KeepOf(most[r], new_most);
      add[r] = AddOf(block_most[r], new_most);
      if (block_most[r] == kNever) continue;
      sum[r] = Merged(sum[r], keep[r], sums[y + 8 * r], add[r]);
      most[r] = new_most;
    }
#endif
    // The values, a chunk at a time.
    const bool all_seen = base + kBlockTokens <= KeysOf(0) && !(skip && block == 0);
    const int newest = KeysOf(rows - 1) - base;
#ifndef SPLIT
    [[unroll]]
#endif
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      vec4 part[ROWS];
      [[unroll]] for (int r = 0; r < ROWS; ++r) part[r] = vec4(0.0);
      for (int piece = 0; piece < PIECES; ++piece) {
        barrier();
        StoreValues();
        barrier();
        if (piece + 1 < PIECES) {
          FetchValues(values, chunk, piece + 1);
        } else if (chunk + 1 < CHUNKS) {
          FetchValues(values, chunk + 1, 0);
        } else if (block + 1 < end) {
          FetchKeys(next_page, 0);
        }
        if (y < rows && all_seen) {
          for (int t = 0; t < VALUES; ++t) {
            const vec4 value = slots[t * LANES + x];
            const OfRows w = weights[(piece * VALUES + t) * 9 + y];
            [[unroll]] for (int r = 0; r < ROWS; ++r) {
              part[r] = fma(vec4(WeightOf(w, r)), value, part[r]);
            }
          }
        } else if (y < rows) {
          const int count = min(VALUES, newest - piece * VALUES);
          for (int t = 0; t < count; ++t) {
            const int key = base + piece * VALUES + t;
            const vec4 value = slots[t * LANES + x];
            const OfRows w = weights[(piece * VALUES + t) * 9 + y];
            [[unroll]] for (int r = 0; r < ROWS; ++r) {
              const vec4 with = fma(vec4(WeightOf(w, r)), value, part[r]);
              part[r] = key >= from[r] && key < seen[r] ? with : part[r];
            }
          }
        }
      }
      [[unroll]] for (int r = 0; r < ROWS; ++r) {
#ifdef SPLIT
        const int four = chunk * LANES + x;
        if (part_at[r] != 0ul && 4 * four < ValueDim()) Fours(part_at[r]).at[1 + four] = part[r];
#else
        if (block_most[r] == kNever) continue;
        [[unroll]] for (int j = 0; j < 4; ++j) {
          own[chunk][r][j] = Merged(own[chunk][r][j], keep[r], part[r][j], add[r]);
        }
#endif
      }
    }
    page = next_page;
  }
#ifndef SPLIT
  [[unroll]] for (int r = 0; r < ROWS; ++r) {
    const int row = y + 8 * r;
    if (row >= rows || begin * kBlockTokens >= seen[r]) continue;
    const int token = TokenOf(row), head = HeadOf(row);
    const bool last = end >= BlocksOf(seen[r]);
    if (!last && x == 0) {
      Floats running = RunningAt(token, head, 0);
      running.at[0] = most[r];
      running.at[1] = sum[r];
    }
    [[unroll]] for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const int c = 4 * (chunk * LANES + x);
      if (c >= ValueDim()) continue;
      [[unroll]] for (int j = 0; j < 4; ++j) {
        if (last) {
          Finish(token, head, c + j, own[chunk][r][j], sum[r]);
        } else {
          RowOf(a.out_, token, a.out_stride).at[head * ValueDim() + c + j] = own[chunk][r][j];
        }
      }
    }
  }
#endif
}
