// The cases of latent attention: a layer's cache rows and queries for a whole sequence, run in any
// pieces.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/latent.h"
#include "ops/testing/test_context.h"
#include "ops/testing/test_pages.h"

namespace braid::ops {

struct LatentCase {
  AttentionShape shape;
  int32_t pairs;
  bool interleaved;
};
inline constexpr LatentCase kLatentCases[] = {
    {{3, 1, 48, DType::kF32, 40, true}, 4, true},
    {{5, 1, 40, DType::kBF16, 24, true}, 8, false},
    {{37, 1, 24, DType::kF32, 16, true}, 0, true},
    {{64, 1, 72, DType::kBF16, 64, true}, 4, true},
    {{70, 1, 96, DType::kBF16, 64, true}, 16, true},
    {{6, 1, 96, DType::kBF16, 64, true}, 16, true},  // tokens share tiles
    {{64, 1, 96, DType::kI8, 64, true}, 16, true},
    {{5, 1, 40, DType::kI8, 24, true}, 8, false},
    {{2, 1, 22, DType::kF32, 12, true}, 5, true}};  // only the reference

// A layer's rows and queries for a whole sequence.
struct LatentLayer {
  LatentLayer(const LatentCase& c, int64_t tokens)
      : rng(static_cast<uint64_t>(c.shape.head_dim)),
        shape(c.shape),
        key(c.shape.head_dim - c.shape.value_dim),
        stride(key + 8),
        rows(rng, tokens, c.shape.head_dim),
        q(rng, tokens, c.shape.heads * stride),
        norm(rng, 1, c.shape.value_dim),
        up(rng, WeightFormat::kBF16, c.shape.heads, c.shape.value_dim, 8),
        down(rng, WeightFormat::kF32, c.shape.heads, 12, c.shape.value_dim),
        gate(rng, tokens, c.shape.heads),
        frequency(1, std::max(c.pairs, 1)),
        rotation{frequency.view.data, c.pairs, 1.1f, c.interleaved} {
    for (int32_t j = 0; j < c.pairs; ++j) {
      frequency.values[static_cast<size_t>(j)] = static_cast<float>(std::pow(100.0, -0.25 * j));
    }
  }
  Rng rng;
  AttentionShape shape;
  int64_t key, stride;
  OwnedMatrix rows, q, norm;
  OwnedWeights up, down;
  OwnedMatrix gate, frequency;
  Rotation rotation;
};

// The whole of a latent attention but its outer projections, in steps that end at `cuts`.
// `context`: as for AttentionPass.
struct LatentPass {
  template <class Context>
  LatentPass(Context& context, const LatentLayer& layer, const std::vector<int64_t>& cuts)
      : rows(layer.rows),
        absorbed(rows.view.rows, layer.shape.heads * layer.shape.head_dim),
        latent(rows.view.rows, layer.shape.heads * layer.shape.value_dim),
        out(rows.view.rows, layer.shape.heads * 12),
        pages(layer.shape.head_bytes(), rows.view.rows) {
    int64_t begin = 0;
    for (int64_t end : cuts) {
      Step(context, layer, begin, end);
      begin = end;
    }
    Step(context, layer, begin, rows.view.rows);
  }

  template <class Context>
  void Step(Context& context, const LatentLayer& layer, int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    SequenceSpan span{0, static_cast<int32_t>(count), static_cast<int32_t>(begin), {}};
    span.tables[0] = pages.table();
    const SequenceIndex index{&span, 1, span.token_count};
    std::copy_n(layer.rows.view.row(begin), count * rows.view.cols, rows.view.row(begin));
    const Matrix q = RowsOf(layer.q.view, begin, count);
    const Matrix inside = RowsOf(absorbed.view, begin, count);
    WriteLatent(context, {.shape = layer.shape,
                          .sequences = index,
                          .row = RowsOf(rows.view, begin, count),
                          .norm = layer.norm.view.data,
                          .rotation = layer.rotation,
                          .q = q,
                          .q_out = inside});
    HeadLinear(context, {.x = q,
                         .x_step = layer.stride,
                         .w = &layer.up.matrix,
                         .y = inside,
                         .y_step = layer.shape.head_dim});
    Attention(context, {.shape = layer.shape,
                        .sequences = index,
                        .q = inside,
                        .scale = 0.3f,
                        .out = RowsOf(latent.view, begin, count)});
    HeadLinear(context, {.x = RowsOf(latent.view, begin, count),
                         .x_step = layer.shape.value_dim,
                         .w = &layer.down.matrix,
                         .gate = RowsOf(layer.gate.view, begin, count),
                         .y = RowsOf(out.view, begin, count),
                         .y_step = 12});
  }
  OwnedMatrix rows, absorbed, latent, out;
  TestPages pages;
};

}  // namespace braid::ops
