// The cases of linear attention: a layer's inputs for a whole sequence, run in any pieces.
#pragma once

#include <vector>

#include "ops/linear_attention.h"
#include "ops/testing/test_context.h"
#include "ops/testing/test_pages.h"

namespace braid::ops {

struct LinearAttentionCase {
  LinearAttentionShape shape;
  LinearAttentionRule rule;
};
inline constexpr LinearAttentionRule kBounded{.decay = DecayForm::kBounded, .lower_bound = -5.0f};
inline constexpr LinearAttentionRule kLightning{.decay = DecayForm::kConstant, .add = true};
inline constexpr LinearAttentionCase kLinearAttentionCases[] = {
    {{2, 2, 8, 8, 4}, {}},
    {{1, 1, 8, 8, 4}, {}},  // 24 channels: not whole vectors
    {{2, 6, 24, 40, 4}, {}},
    {{1, 4, 32, 32, 3}, {}},
    {{2, 16, 32, 64, 3}, {}},    // two heads of one thread share their keys
    {{8, 16, 128, 128, 4}, {}},  // here too
    {{16, 32, 32, 16, 2}, {}},   // four of one thread share two by two
    {{1, 1, 16, 72, 2}, {}},
    {{3, 3, 16, 16, 4, true}, {}},
    {{2, 4, 24, 40, 4, true}, kBounded},
    {{2, 2, 128, 128, 4, true}, kBounded},
    {{2, 2, 72, 16, 4, true}, kBounded},
    {{1, 2, 12, 20, 3, true}, kBounded},
    {{3, 3, 32, 24, 1}, kLightning},
    {{2, 4, 128, 128, 1}, kLightning}};

// One layer's inputs for a whole sequence, and its weights.
struct LinearAttentionLayer {
  LinearAttentionLayer(const LinearAttentionCase& c, int64_t tokens, double correlation = 0.0)
      : LinearAttentionLayer(c.shape, c.rule, tokens, correlation) {}
  LinearAttentionLayer(const LinearAttentionShape& s, int64_t tokens)
      : LinearAttentionLayer(s, {}, tokens, 0.0) {}
  LinearAttentionLayer(const LinearAttentionShape& s, const LinearAttentionRule& r, int64_t tokens,
                       double correlation)
      : shape(s),
        rule(r),
        rng(static_cast<uint64_t>(s.value_dim * 7 + tokens)),
        x(rng, tokens, s.conv_channels()),
        a(rng, tokens, s.value_heads * s.decay_width()),
        b(rng, tokens, s.value_heads, 2.0),
        conv(rng, s.conv_width, s.conv_channels(), 0.5),
        a_log(rng, 1, s.value_heads),
        dt_bias(rng, 1, s.value_heads * s.decay_width(), 2.0),
        constant(1, s.value_heads) {
    for (int64_t h = 0; h < s.value_heads; ++h) {
      constant.values[static_cast<size_t>(h)] = -0.5f / static_cast<float>(h * h + 1);
    }
    // Correlated keys make the triangular system ill-conditioned, as in trained models.
    for (int64_t t = 1; t < tokens; ++t) {
      for (int64_t c = 0; c < s.conv_channels(); ++c) {
        float& v = x.view.row(t)[c];
        v = static_cast<float>(correlation * x.view.row(0)[c] + (1 - correlation) * v);
      }
    }
  }
  LinearAttentionShape shape;
  LinearAttentionRule rule;
  Rng rng;
  OwnedMatrix x, a, b, conv, a_log, dt_bias, constant;
};

// Runs the layer over the sequence cut at `cuts`, one step a piece, in its own pages.
struct LinearAttentionPass {
  // Of which no step has run.
  explicit LinearAttentionPass(const LinearAttentionLayer& layer)
      : out(layer.x.view.rows, int64_t{layer.shape.value_heads} * layer.shape.value_dim),
        convolved(layer.x.view.rows, layer.shape.conv_channels()),
        pages(StateBlockBytes(layer.shape), layer.x.view.rows) {}
  template <class Context>
  LinearAttentionPass(Context& context, const LinearAttentionLayer& layer,
                      const std::vector<int64_t>& cuts)
      : LinearAttentionPass(layer) {
    int64_t begin = 0;
    for (int64_t end : cuts) {
      Step(context, layer, begin, end);
      begin = end;
    }
    Step(context, layer, begin, layer.x.view.rows);
  }

  template <class Context>
  void Step(Context& context, const LinearAttentionLayer& layer, int64_t begin, int64_t end) {
    if (end <= begin) return;
    SpoilWorkspace(context);
    SequenceSpan span{0, static_cast<int32_t>(end - begin), static_cast<int32_t>(begin), {}};
    span.tables[0] = pages.table();
    const SequenceIndex index{&span, 1, span.token_count};
    CausalConv(context, {.shape = layer.shape,
                         .sequences = index,
                         .x = RowsOf(layer.x.view, begin, end - begin),
                         .weight = layer.conv.view.data,
                         .out = RowsOf(convolved.view, begin, end - begin)});
    LinearAttentionStep(context, {.shape = layer.shape,
                                  .sequences = index,
                                  .rule = layer.rule,
                                  .qkv = RowsOf(convolved.view, begin, end - begin),
                                  .a = RowsOf(layer.a.view, begin, end - begin),
                                  .b = RowsOf(layer.b.view, begin, end - begin),
                                  .a_log = layer.a_log.view.data,
                                  .dt_bias = layer.dt_bias.view.data,
                                  .constant = layer.constant.view.data,
                                  .out = RowsOf(out.view, begin, end - begin)});
  }
  OwnedMatrix out, convolved;
  TestPages pages;
};

}  // namespace braid::ops
