// The recurrence: the chunked evaluation against the plain recurrence of the papers in double,
// every candidate against the reference, and the prefix rule: any cut of a sequence into steps
// gives the same bits, in outputs and in pages.
#include "ops/linear_attention.h"

#include <gtest/gtest.h>

#include "ops/cpu/dispatch.h"
#include "ops/state_layout.h"
#include "ops/testing/test_linear_attention.h"
#include "ops/testing/test_pages.h"
#include "ops/testing/test_rewind.h"

namespace braid::ops {
namespace {

using Case = LinearAttentionCase;
using Layer = LinearAttentionLayer;
using Pass = LinearAttentionPass;
constexpr auto& kCases = kLinearAttentionCases;

double PlainLogDecay(const Layer& layer, int64_t t, int64_t h, int64_t d) {
  if (layer.rule.decay == DecayForm::kConstant) return layer.constant.view.data[h];
  const int64_t width = layer.shape.decay_width(), at = h * width + d % width;
  const double a = double{layer.a.view.row(t)[at]} + layer.dt_bias.view.data[at];
  const double rate = std::exp(double{layer.a_log.view.data[h]});
  if (layer.rule.decay == DecayForm::kBounded) {
    return layer.rule.lower_bound / (1 + std::exp(-rate * a));
  }
  return -rate * std::log1p(std::exp(a));
}

// S <- e^g S; u = beta (v - S^T k); S <- S + k u^T; o = S^T q, from the convolved inputs, in
// double.
OwnedMatrix PlainRecurrence(const Layer& layer, const Matrix& qkv) {
  const LinearAttentionShape& s = layer.shape;
  const int64_t dk = s.key_dim, dv = s.value_dim;
  OwnedMatrix out(qkv.rows, s.value_heads * dv);
  for (int64_t h = 0; h < s.value_heads; ++h) {
    std::vector<double> state(static_cast<size_t>(dk * dv));
    const int64_t key_head = h / (s.value_heads / s.key_heads);
    for (int64_t t = 0; t < qkv.rows; ++t) {
      const float* q = qkv.row(t) + key_head * dk;
      const float* k = q + s.key_heads * dk;
      const float* v = qkv.row(t) + 2 * s.key_heads * dk + h * dv;
      const double beta = 1 / (1 + std::exp(-double{layer.b.view.row(t)[h]}));
      for (int64_t d = 0; d < dk; ++d) {
        const double decay = std::exp(PlainLogDecay(layer, t, h, d));
        for (int64_t c = 0; c < dv; ++c) state[static_cast<size_t>(d * dv + c)] *= decay;
      }
      for (int64_t c = 0; c < dv; ++c) {
        double memory = 0;
        for (int64_t d = 0; d < dk; ++d) memory += state[static_cast<size_t>(d * dv + c)] * k[d];
        const double u = layer.rule.add ? v[c] : beta * (v[c] - memory);
        double o = 0;
        for (int64_t d = 0; d < dk; ++d) {
          double& cell = state[static_cast<size_t>(d * dv + c)];
          cell += k[d] * u;
          o += cell * q[d];
        }
        out.view.row(t)[h * dv + c] = static_cast<float>(o);
      }
    }
  }
  return out;
}

TEST(LinearAttention, ChunkedEvaluationEqualsThePlainRecurrence) {
  for (double correlation : {0.0, 0.9}) {
    for (const Case& c : kCases) {
      const LinearAttentionShape& shape = c.shape;
      const Layer layer(c, 200, correlation);
      for (const auto& [isa, compute] : TestArithmetics()) {
        TestContext test(isa, 2, compute);
        Pass run(test.context, layer, {});
        // Operands rounded to 8 bits of mantissa.
        const bool rounds = test.context.device.avx512_bf16 && compute == Compute::kBF16;
        // After the step `convolved` holds the unit vectors that entered the recurrence.
        const OwnedMatrix expected = PlainRecurrence(layer, run.convolved.view);
        EXPECT_LT(RelativeError(run.out.view, expected.view), rounds ? 1e-2 : 1e-5)
            << NameOf(isa) << " dk " << shape.key_dim << " correlation " << correlation;
      }
    }
  }
}

TEST(LinearAttention, DecaysOfAnyGateFollowTheirFormulas) {
  const float a[] = {-200, -90, -30, -5, -0.5, -1e-4f, 0, 1e-4f, 0.5, 3, 19, 21, 87, 200, 1e6};
  constexpr int64_t kCount = std::size(a);
  std::vector<float> rate(kCount), bias(kCount, 0.0f), out(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    rate[static_cast<size_t>(i)] = 0.25f + 0.5f * static_cast<float>(i);
  }
  for (Isa isa : TestIsas()) {
    const cpu::KernelTable* kernels = cpu::KernelsFor(DeviceOf(DetectCpu(), isa, {}));
    if (!kernels) continue;
    for (float bound : {0.0f, -5.0f}) {
      kernels->log_decay({a, bias.data(), rate.data(), bound, out.data(), kCount});
      for (size_t i = 0; i < kCount; ++i) {
        const double x = a[i], r = rate[i];
        const double softplus = x > 40 ? x : std::log1p(std::exp(x));
        const double expected = bound < 0 ? bound / (1 + std::exp(-r * x)) : -r * softplus;
        // The rounding of r x shows in its exponential.
        const double relative = 1e-6 + (bound < 0 ? 1e-7 * std::abs(r * x) : 0.0);
        EXPECT_NEAR(out[i], expected, relative * std::abs(expected) + 1e-37)
            << NameOf(isa) << " gate " << x << " bound " << bound;
      }
    }
  }
}

TEST(LinearAttention, MatchesKnownNumbers) {
  // Computed in double; dk = dv = 2 is what only the reference accepts.
  const LinearAttentionShape shape{1, 1, 2, 2, 1};
  Layer layer(shape, 2);
  const float qkv[2][6] = {{1, 2, 0.5, -1.5, 1, -2}, {-1, 0.5, 2, 1, 0.5, 3}};
  TestContext test(BestIsa(DetectCpu()));
  Pass run(test.context, layer, {});
  OwnedMatrix inputs(2, 6);
  std::memcpy(inputs.values.data(), qkv, sizeof(qkv));
  layer.a.values = {0.1f, -0.7f};
  layer.b.values = {0.3f, -1.2f};
  const float a_log = 0.5f, dt_bias = 0.25f;
  SequenceSpan span{0, 2, 0, {}};
  span.tables[0] = run.pages.table();
  LinearAttentionStep(test.context, {.shape = shape,
                                     .sequences = {&span, 1, 2},
                                     .qkv = inputs.view,
                                     .a = {layer.a.values.data(), 2, 1, 1},
                                     .b = {layer.b.values.data(), 2, 1, 1},
                                     .a_log = &a_log,
                                     .dt_bias = &dt_bias,
                                     .out = run.out.view});
  const double expected[] = {-0.287221, 0.574442, -0.180002, -0.032823};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(run.out.values[i], expected[i], 2e-6);
}

// One head of two channels, token by token, through the reference.
std::vector<float> TwoSteps(const LinearAttentionShape& shape, LinearAttentionArgs args,
                            std::vector<float> qkv, int32_t tokens) {
  TestContext test(BestIsa(DetectCpu()));
  TestPages pages(StateBlockBytes(shape), 64);
  SequenceSpan span{0, tokens, 0, {}};
  span.tables[0] = pages.table();
  std::vector<float> out(static_cast<size_t>(2 * tokens));
  args.shape = shape;
  args.sequences = {&span, 1, tokens};
  args.qkv = {qkv.data(), tokens, 6, 6};
  args.out = {out.data(), tokens, 2, 2};
  LinearAttentionStep(test.context, args);
  return out;
}

TEST(LinearAttention, ADecayPerChannelMatchesKnownNumbers) {
  const LinearAttentionShape shape{1, 1, 2, 2, 1, true};
  float a[] = {0.1f, -0.4f, -0.7f, 0.9f}, b[] = {0.3f, -1.2f};
  const float a_log = 0.5f, dt_bias[] = {0.25f, -0.5f};
  LinearAttentionArgs args{
      .a = {a, 2, 2, 2}, .b = {b, 2, 1, 1}, .a_log = &a_log, .dt_bias = dt_bias};
  const std::vector<float> qkv = {1, 2, 0.5, -1.5, 1, -2, -1, 0.5, 2, 1, 0.5, 3};
  const std::vector<float> softplus = TwoSteps(shape, args, qkv, 2);
  EXPECT_NEAR(softplus[2], -0.136533, 2e-6);
  EXPECT_NEAR(softplus[3], -0.119759, 2e-6);
  args.rule = kBounded;
  const std::vector<float> bounded = TwoSteps(shape, args, qkv, 2);
  EXPECT_NEAR(bounded[2], -0.076091, 2e-6);
  EXPECT_NEAR(bounded[3], -0.240644, 2e-6);
}

TEST(LinearAttention, TheEpsilonOfKeysNearZeroIsAddedToTheSumOfSquares) {
  const LinearAttentionShape shape{1, 1, 2, 2, 1};
  float a = 0, b = 0;
  const float a_log = 0, dt_bias = 0;
  const std::vector<float> out = TwoSteps(
      shape, {.a = {&a, 1, 1, 1}, .b = {&b, 1, 1, 1}, .a_log = &a_log, .dt_bias = &dt_bias},
      {1, 0, 3e-4f, 4e-4f, 2, -4}, 1);
  // k is (3, 4) 1e-4 / sqrt(25e-8 + 1e-6), q is (1, 0) / sqrt(2), half of v is written.
  EXPECT_NEAR(out[0], 0.189737, 1e-6);
  EXPECT_NEAR(out[1], -0.379473, 1e-6);
}

TEST(LinearAttention, AConstantDecayMatchesKnownNumbers) {
  // The token itself is not decayed, and the scale of the query is applied once.
  const LinearAttentionShape shape{1, 1, 2, 2, 1};
  const float constant = -0.5f;
  const std::vector<float> out =
      TwoSteps(shape, {.rule = kLightning, .constant = &constant},
               {1, 0, 1, 2, 1, 0, 0.5, -1, 0, 1, 2, -1, 2, 1, -1, 0.5, 0.5, 3}, 3);
  const double expected[] = {0.707107, 0, -2.057536, 0.707107, 1.367954, -3.610862};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(out[i], expected[i], 2e-6) << i;
}

TEST(LinearAttention, AnyCutOfASequenceGivesTheSameBits) {
  const std::vector<std::vector<int64_t>> all_cuts = {
      {1},          {63},       {64},          {65},     {1, 2, 3, 4, 64, 65, 66, 67},
      {100, 127},   {128, 129}, {63, 64, 130}, {3, 131}, {2, 66, 130, 194},
      {62, 63, 65}, {192, 200}, {1, 193, 194}};
  for (const Case& c : kCases) {
    const LinearAttentionShape& shape = c.shape;
    const Layer layer(c, 203, 0.5);
    for (const auto& [isa, compute] : TestArithmetics()) {
      if (isa == Isa::kBase && compute == Compute::kBF16) continue;  // the reference rounds nothing
      TestContext one(isa, 1, compute), two(isa, 2, compute);
      Pass whole(two.context, layer, {});
      std::vector<int64_t> every(202);
      for (size_t i = 0; i < every.size(); ++i) every[i] = static_cast<int64_t>(i) + 1;
      auto check = [&](const std::vector<int64_t>& cuts) {
        Pass cut(one.context, layer, cuts);
        ASSERT_TRUE(SameBits(whole.out.values.data(), cut.out.values.data(),
                             static_cast<int64_t>(whole.out.values.size())))
            << NameOf(isa) << " dk " << shape.key_dim << " cut at " << cuts.front();
      };
      for (const auto& cuts : all_cuts) check(cuts);
      if (isa != Isa::kBase) check(every);
    }
  }
}

TEST(LinearAttention, WrongDraftsLeaveNoTrace) {
  constexpr int64_t kTokens = 150;
  for (const Case& c : kCases) {
    for (int32_t drafts : {1, 3, 7}) {
      Case with_room = c;
      with_room.shape.drafts_max = drafts;
      const Layer layer(with_room, kTokens, 0.5);
      for (const auto& [isa, compute] : TestArithmetics()) {
        if (isa == Isa::kBase && (compute == Compute::kBF16 || c.shape.key_dim > 32)) continue;
        TestContext test(isa, 2, compute);
        Pass whole(test.context, Layer(c, kTokens, 0.5), {}), run(test.context, layer, {kTokens});
        run.pages.Spoil();
        Layer guessed(layer);
        Rng rng(static_cast<uint64_t>(drafts));
        for (const DraftRow& row : DraftRows(rng, kTokens, 1 + 20 * (drafts % 3), drafts)) {
          for (const OwnedMatrix* m : {&guessed.x, &guessed.a, &guessed.b}) {
            Mislead(rng, row, m->view);
          }
          run.Step(test.context, guessed, row.begin, row.end);
          Restore(row, layer.x.view, guessed.x.view);
          Restore(row, layer.a.view, guessed.a.view);
          Restore(row, layer.b.view, guessed.b.view);
        }
        ASSERT_TRUE(SameBits(whole.out.values.data(), run.out.values.data(),
                             static_cast<int64_t>(whole.out.values.size())))
            << NameOf(isa) << " dk " << c.shape.key_dim << ", drafts " << drafts;
      }
    }
  }
}

TEST(LinearAttention, PagesOfBoundariesThatNobodyAskedForMayBeHoles) {
  const Layer layer(LinearAttentionShape{2, 6, 24, 40, 4}, 203);
  for (Isa isa : TestIsas()) {
    TestContext test(isa);
    Pass whole(test.context, layer, {});
    Pass holes(test.context, layer, {203});
    holes.pages.MakeHole(0);
    holes.pages.MakeHole(1);
    holes.Step(test.context, layer, 0, 203);
    EXPECT_TRUE(SameBits(whole.out.values.data(), holes.out.values.data(),
                         static_cast<int64_t>(whole.out.values.size())));
  }
}

// So many outputs that they are written past the caches; cut in two they are not.
TEST(LinearAttention, ManyTokensGiveTheBitsOfFew) {
  const Layer layer(LinearAttentionShape{2, 16, 32, 128, 4}, 520);
  Buffer out(layer.x.view.rows * 2048 * 4), convolved(4 * std::ssize(layer.x.values));
  for (const auto& [isa, compute] : TestArithmetics()) {
    if (isa == Isa::kBase) continue;
    TestContext test(isa, 2, compute);
    Pass few(test.context, layer, {260});
    Pass many(test.context, layer, {520});
    many.out.view.data = reinterpret_cast<float*>(out.data());
    many.convolved.view.data = reinterpret_cast<float*>(convolved.data());
    many.Step(test.context, layer, 0, 520);
    EXPECT_TRUE(SameBits(few.out.values.data(), many.out.view.data, 520 * 2048))
        << NameOf(isa) << (compute == Compute::kBF16 ? " bf16" : " fp32");
  }
}

TEST(CausalConv, MatchesKnownNumbers) {
  // Computed in double: one channel of a wider layer, which the fast candidates accept.
  const LinearAttentionShape shape{1, 1, 8, 8, 4};
  Layer layer(shape, 5);
  const float taps[] = {0.1f, 0.2f, 0.3f, 0.4f};
  const double expected[] = {0.239475, 0.825286, 1.761594, 2.857722, 3.928055};
  for (int64_t j = 0; j < 4; ++j) layer.conv.view.row(j)[3] = taps[j];
  for (int64_t t = 0; t < 5; ++t) layer.x.view.row(t)[3] = static_cast<float>(t + 1);
  for (Isa isa : TestIsas()) {
    for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{}, {1, 2, 3, 4}, {2}}) {
      TestContext test(isa);
      TestPages pages(StateBlockBytes(shape), 64);
      OwnedMatrix out(5, shape.conv_channels());
      int64_t begin = 0;
      auto step = [&](int64_t end) {
        SequenceSpan span{0, static_cast<int32_t>(end - begin), static_cast<int32_t>(begin), {}};
        span.tables[0] = pages.table();
        CausalConv(test.context, {.shape = shape,
                                  .sequences = {&span, 1, span.token_count},
                                  .x = RowsOf(layer.x.view, begin, end - begin),
                                  .weight = layer.conv.view.data,
                                  .out = RowsOf(out.view, begin, end - begin)});
        begin = end;
      };
      for (int64_t cut : cuts) step(cut);
      step(5);
      for (int64_t t = 0; t < 5; ++t) EXPECT_NEAR(out.view.row(t)[3], expected[t], 2e-6);
    }
  }
}

}  // namespace
}  // namespace braid::ops
