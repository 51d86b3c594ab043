// The cases of paged attention: a layer's projections for a whole sequence, run in any pieces.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/attention.h"
#include "ops/testing/test_context.h"
#include "ops/testing/test_pages.h"

namespace braid::ops {

struct AttentionCase {
  AttentionShape shape;
  int32_t rotary_pairs;
  bool gate;
  bool gate_per_head = false;
  bool skip_first = false;
  CacheSlice cache() const { return {.skip_first = skip_first}; }
};
inline constexpr AttentionCase kAttentionCases[] = {
    {{4, 2, 64, DType::kF32}, 8, true},
    {{4, 2, 24, DType::kF32}, 3, true},
    {{6, 1, 40, DType::kBF16}, 20, false},
    {{16, 2, 256, DType::kBF16}, 32, true},
    {{3, 1, 64, DType::kBF16}, 4, false},
    {{3, 3, 8, DType::kF32}, 0, false},
    {{16, 2, 256, DType::kI8}, 32, true},
    {{6, 1, 40, DType::kI8}, 20, false},
    {{20, 1, 64, DType::kI8}, 4, false},
    // Values wider and narrower than keys.
    {{4, 4, 96, DType::kBF16, 64}, 0, true, true},
    {{3, 3, 24, DType::kF32, 40}, 2, true, true},
    {{2, 2, 32, DType::kI8, 64}, 0, false},
    {{40, 2, 64, DType::kI8, 32}, 4, false},
    {{4, 2, 24, DType::kF32}, 3, true, false, true},
    {{16, 2, 64, DType::kBF16}, 4, true, false, true},
    {{40, 2, 64, DType::kI8, 32}, 4, false, false, true}};

inline int64_t BlockBytes(const AttentionShape& s) { return s.kv_heads * s.head_bytes(); }

// A layer's projections for a whole sequence; queries carry gates behind them when the case has
// one.
struct AttentionLayer {
  AttentionLayer(const AttentionCase& c, int64_t tokens)
      : test_case(c),
        rng(static_cast<uint64_t>(c.shape.head_dim)),
        stride(c.shape.head_dim + (!c.gate           ? 0
                                   : c.gate_per_head ? 1
                                                     : c.shape.head_dim)),
        q(rng, tokens, c.shape.heads * stride),
        k(rng, tokens, int64_t{c.shape.kv_heads} * c.shape.head_dim),
        v(rng, tokens, c.shape.kv_heads * c.shape.out_dim()),
        q_norm(rng, 1, c.shape.head_dim, 0.3),
        k_norm(rng, 1, c.shape.head_dim, 0.3),
        frequency(1, std::max(c.rotary_pairs, 1)) {
    for (int32_t j = 0; j < c.rotary_pairs; ++j) {
      frequency.values[static_cast<size_t>(j)] =
          static_cast<float>(std::pow(10000.0, -double{static_cast<double>(j)} / c.rotary_pairs));
    }
  }
  AttentionCase test_case;
  Rng rng;
  int64_t stride;
  OwnedMatrix q, k, v, q_norm, k_norm, frequency;
};

// `context`: an OpContext, or a device that takes copies (ops/vulkan/test_device.h).
struct AttentionPass {
  template <class Context>
  AttentionPass(Context& context, const AttentionLayer& layer, const std::vector<int64_t>& cuts)
      : k(layer.k),
        out(layer.q.view.rows, layer.test_case.shape.heads * layer.test_case.shape.out_dim()),
        q(layer.q.view.rows, int64_t{layer.test_case.shape.heads} * layer.test_case.shape.head_dim),
        pages(BlockBytes(layer.test_case.shape), layer.q.view.rows) {
    int64_t begin = 0;
    for (int64_t end : cuts) {
      Step(context, layer, begin, end);
      begin = end;
    }
    Step(context, layer, begin, layer.q.view.rows);
  }

  template <class Context>
  void Step(Context& context, const AttentionLayer& layer, int64_t begin, int64_t end) {
    SpoilWorkspace(context);
    const int64_t count = end - begin, dim = layer.test_case.shape.head_dim;
    SequenceSpan span{0, static_cast<int32_t>(count), static_cast<int32_t>(begin), {}};
    span.tables[0] = pages.table();
    const SequenceIndex index{&span, 1, span.token_count};
    std::copy_n(layer.k.view.row(begin), count * k.view.cols, k.view.row(begin));
    const Matrix projected = RowsOf(layer.q.view, begin, count);
    NormRopeWriteKv(context, {.shape = layer.test_case.shape,
                              .sequences = index,
                              .cache = layer.test_case.cache(),
                              .q = projected,
                              .q_stride = layer.stride,
                              .k = RowsOf(k.view, begin, count),
                              .v = RowsOf(layer.v.view, begin, count),
                              .q_norm = layer.q_norm.view.data,
                              .k_norm = layer.k_norm.view.data,
                              .norm_offset = 1.0f,
                              .inverse_frequency = layer.frequency.view.data,
                              .rotary_pairs = layer.test_case.rotary_pairs,
                              .q_out = RowsOf(q.view, begin, count)});
    const Matrix gate =
        layer.test_case.gate ? projected.columns(dim, projected.cols - dim) : Matrix{};
    Attention(context, {.shape = layer.test_case.shape,
                        .sequences = index,
                        .cache = layer.test_case.cache(),
                        .q = RowsOf(q.view, begin, count),
                        .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim))),
                        .gate = gate,
                        .gate_stride = layer.stride,
                        .gate_per_head = layer.test_case.gate_per_head,
                        .out = RowsOf(out.view, begin, count)});
  }
  OwnedMatrix k, out, q;
  TestPages pages;
};

}  // namespace braid::ops
