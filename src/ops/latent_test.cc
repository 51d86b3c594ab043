// Latent attention's ops: rotations against known numbers, every candidate against the reference,
// and the prefix rule across cuts and threads, for one cache row per token.
#include "ops/latent.h"

#include <gtest/gtest.h>

#include "ops/test_context.h"
#include "ops/test_pages.h"

namespace braid::ops {
namespace {

TEST(Rotary, BothPairingsMatchKnownNumbers) {
  const float frequency[] = {1.0f, 0.1f};
  const float ones[] = {1, 1, 1, 1};
  const double halves[] = {-1.413353, 0.728592, -2.828857, 4.412386};
  const double neighbours[] = {-1.272233, -1.838865, 1.683929, 4.707907};
  for (Isa isa : TestIsas()) {
    for (bool interleaved : {false, true}) {
      TestContext test(isa);
      // 1 2 3 4 has a root mean square of sqrt(7.5), which the norm takes out.
      float x[] = {1, 2, 3, 4};
      const SequenceSpan span{0, 1, 3, {}};
      HeadNormRotate(test.context, {.sequences = {&span, 1, 1},
                                    .x = {x, 1, 4, 4},
                                    .head_dim = 4,
                                    .weight = ones,
                                    .eps = 0.0f,
                                    .rotation = {frequency, 2, 1.0f, interleaved}});
      const double* expected = interleaved ? neighbours : halves;
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(x[i] * std::sqrt(7.5), expected[i], 5e-6) << NameOf(isa) << i;
      }
    }
  }
}

struct Case {
  AttentionShape shape;
  int32_t pairs;
  bool interleaved;
};
constexpr Case kCases[] = {{{3, 1, 48, DType::kF32, 40}, 4, true},
                           {{5, 1, 40, DType::kBF16, 24}, 8, false},
                           {{37, 1, 24, DType::kF32, 16}, 0, true},
                           {{64, 1, 72, DType::kBF16, 64}, 4, true},
                           {{70, 1, 96, DType::kBF16, 64}, 16, true},
                           {{64, 1, 96, DType::kI8, 64}, 16, true},
                           {{5, 1, 40, DType::kI8, 24}, 8, false},
                           {{2, 1, 22, DType::kF32, 12}, 5, true}};  // only the reference

// A layer's rows and queries for a whole sequence.
struct Layer {
  Layer(const Case& c, int64_t tokens)
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
struct Pass {
  Pass(const OpContext& context, const Layer& layer, const std::vector<int64_t>& cuts)
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

  void Step(const OpContext& context, const Layer& layer, int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    SequenceSpan span{0, static_cast<int32_t>(count), static_cast<int32_t>(begin), {}};
    span.tables[0] = pages.table();
    const SequenceIndex index{&span, 1, span.token_count};
    const Matrix q = RowsOf(layer.q.view, begin, count);
    const Matrix inside = RowsOf(absorbed.view, begin, count);
    WriteLatent(context, {.shape = layer.shape,
                          .sequences = index,
                          .row = RowsOf(rows.view, begin, count),
                          .norm = layer.norm.view.data,
                          .rotation = layer.rotation,
                          .q = q,
                          .q_stride = layer.stride,
                          .q_offset = 8,
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

TEST(LatentAttention, EveryCandidateAgreesWithTheReference) {
  for (const Case& c : kCases) {
    const Layer layer(c, 300);
    TestContext reference(Isa::kBase);
    const Pass expected(reference.context, layer, {});
    for (const auto& [isa, compute] : TestArithmetics()) {
      TestContext test(isa, 2, compute);
      const Pass run(test.context, layer, {100});
      // A bf16 cache or operand rounds what the candidates compute in different orders.
      const bool rounds = c.shape.kv_dtype == DType::kBF16 || compute == Compute::kBF16;
      const double tolerance = rounds ? 2e-2 : 1e-5;
      EXPECT_LT(RelativeError(run.out.view, expected.out.view), tolerance)
          << NameOf(isa) << " width " << c.shape.head_dim;
    }
  }
}

TEST(LatentAttention, MembersThatShareKeysGiveTheBitsOfOne) {
  for (const Case& c : kCases) {
    const Layer layer(c, 800);
    for (const auto& [isa, compute] : TestArithmetics()) {
      if (isa == Isa::kBase) continue;
      TestContext one(isa, 1, compute), many(isa, 5, compute);
      const Pass expected(one.context, layer, {780, 797}), run(many.context, layer, {780, 797});
      ASSERT_TRUE(SameBits(expected.out.values.data(), run.out.values.data(),
                           static_cast<int64_t>(expected.out.values.size())))
          << NameOf(isa) << " width " << c.shape.head_dim;
    }
  }
}

TEST(LatentAttention, AnyCutOfASequenceGivesTheSameBits) {
  std::vector<int64_t> every;
  for (int64_t i = 1; i < 300; ++i) every.push_back(i);
  const std::vector<std::vector<int64_t>> all_cuts = {
      {1}, {63, 64, 65}, {2, 3, 255, 256, 257}, {100, 299}, every};
  for (const Case& c : kCases) {
    const Layer layer(c, 300);
    for (const auto& [isa, compute] : TestArithmetics()) {
      if (isa == Isa::kBase) continue;
      TestContext one(isa, 1, compute), two(isa, 2, compute);
      const Pass whole(two.context, layer, {});
      for (const auto& cuts : all_cuts) {
        const Pass cut(one.context, layer, cuts);
        ASSERT_TRUE(SameBits(whole.out.values.data(), cut.out.values.data(),
                             static_cast<int64_t>(whole.out.values.size())))
            << NameOf(isa) << " width " << c.shape.head_dim << " cut at " << cuts.front();
      }
    }
  }
}

}  // namespace
}  // namespace braid::ops
