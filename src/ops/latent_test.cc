// Latent attention's ops: rotations against known numbers, every candidate against the reference,
// and the prefix rule across cuts and threads, for one cache row per token; and what the expanded
// form makes of such rows.
#include "ops/latent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/kv_page.h"
#include "ops/testing/test_latent.h"
#include "ops/testing/test_rewind.h"

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

TEST(LatentAttention, EveryCandidateAgreesWithTheReference) {
  for (const LatentCase& c : kLatentCases) {
    const LatentLayer layer(c, 300);
    TestContext reference(Isa::kBase);
    const LatentPass expected(reference.context, layer, {});
    for (const auto& [isa, compute] : TestArithmetics()) {
      TestContext test(isa, 2, compute);
      const LatentPass run(test.context, layer, {100});
      // A bf16 cache or operand rounds sums that candidates compute in different orders.
      const bool rounds = c.shape.kv_dtype == DType::kBF16 || compute == Compute::kBF16;
      const double tolerance = rounds ? 2e-2 : 1e-5;
      EXPECT_LT(RelativeError(run.out.view, expected.out.view), tolerance)
          << NameOf(isa) << " width " << c.shape.head_dim;
    }
  }
}

TEST(LatentAttention, MembersThatShareKeysGiveTheBitsOfOne) {
  for (const LatentCase& c : kLatentCases) {
    const LatentLayer layer(c, 800);
    for (const auto& [isa, compute] : TestArithmetics()) {
      if (isa == Isa::kBase) continue;
      TestContext one(isa, 1, compute), many(isa, 5, compute);
      const LatentPass expected(one.context, layer, {780, 797}),
          run(many.context, layer, {780, 797});
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
  for (const LatentCase& c : kLatentCases) {
    const LatentLayer layer(c, 300);
    for (const auto& [isa, compute] : TestArithmetics()) {
      if (isa == Isa::kBase) continue;
      TestContext one(isa, 1, compute), two(isa, 2, compute);
      const LatentPass whole(two.context, layer, {});
      for (const auto& cuts : all_cuts) {
        const LatentPass cut(one.context, layer, cuts);
        ASSERT_TRUE(SameBits(whole.out.values.data(), cut.out.values.data(),
                             static_cast<int64_t>(whole.out.values.size())))
            << NameOf(isa) << " width " << c.shape.head_dim << " cut at " << cuts.front();
      }
    }
  }
}

TEST(LatentAttention, WrongDraftsLeaveNoTrace) {
  constexpr int64_t kTokens = 270;
  for (const LatentCase& c : kLatentCases) {
    const LatentLayer layer(c, kTokens);
    for (const auto& [isa, compute] : TestArithmetics()) {
      if (isa == Isa::kBase && (compute == Compute::kBF16 || c.shape.heads > 40)) continue;
      TestContext test(isa, 2, compute);
      const LatentPass whole(test.context, layer, {});
      for (int32_t drafts : {1, 7}) {
        LatentPass run(test.context, layer, {kTokens});
        run.pages.Spoil();
        LatentLayer guessed(c, kTokens);
        Rng rng(static_cast<uint64_t>(drafts));
        for (const DraftRow& row : DraftRows(rng, kTokens, 40, drafts)) {
          for (const OwnedMatrix* m : {&guessed.rows, &guessed.q, &guessed.gate}) {
            Mislead(rng, row, m->view);
          }
          run.Step(test.context, guessed, row.begin, row.end);
          Restore(row, layer.rows.view, guessed.rows.view);
          Restore(row, layer.q.view, guessed.q.view);
          Restore(row, layer.gate.view, guessed.gate.view);
        }
        ASSERT_TRUE(SameBits(whole.out.values.data(), run.out.values.data(),
                             static_cast<int64_t>(whole.out.values.size())))
            << NameOf(isa) << " width " << c.shape.head_dim << ", drafts " << drafts;
      }
    }
  }
}

// Keys and values of heads, made from the rows of a latent cache.
struct Expanded {
  // The row of `bad` is not finite.
  Expanded(const OpContext& context, const AttentionShape& cached, const OwnedWeights& keys,
           const OwnedWeights& values, int64_t bad = -1)
      : shape{.heads = static_cast<int32_t>(keys.matrix.count),
              .kv_heads = static_cast<int32_t>(keys.matrix.count),
              .head_dim = static_cast<int32_t>(keys.matrix.n + cached.head_dim - cached.value_dim),
              .kv_dtype = context.device.compute == Compute::kBF16 ? DType::kBF16 : DType::kF32,
              .value_dim = static_cast<int32_t>(values.matrix.n)},
        pages(shape.kv_heads * shape.head_bytes(), kTokens) {
    Rng rng(9);
    OwnedMatrix rows(rng, kTokens, cached.head_dim), norm(1, cached.value_dim);
    norm.values.assign(norm.values.size(), 1.0f);
    if (bad >= 0) rows.view.row(bad)[3] = std::numeric_limits<float>::quiet_NaN();
    TestPages cache(cached.head_bytes(), kTokens);
    SequenceSpan span{0, kTokens, 0, {}};
    span.tables[0] = cache.table();
    OwnedMatrix queries(kTokens, cached.heads * (cached.head_dim - cached.value_dim));
    WriteLatent(context, {.shape = cached,
                          .sequences = {&span, 1, kTokens},
                          .row = rows.view,
                          .norm = norm.view.data,
                          .q = queries.view,
                          .q_out = queries.view});
    span.start = kTokens - 30;
    span.token_count = 30;
    SpoilWorkspace(context);
    ExpandLatent(context, {.shape = cached,
                           .span = &span,
                           .keys = &keys.matrix,
                           .values = &values.matrix,
                           .heads = shape,
                           .blocks = pages.table()});
  }
  // Everything that was stored, as floats.
  OwnedMatrix Rows() const {
    OwnedMatrix all(kTokens, shape.heads * (shape.head_dim + shape.out_dim()));
    SequenceSpan span;
    span.tables[0] = pages.table();
    for (int64_t p = 0; p < kTokens; ++p) {
      float* out = all.view.row(p);
      for (int64_t h = 0; h < shape.heads; ++h) {
        const KvPage page = KvPageOf(shape, {}, span, p, h);
        for (const CachedRows& rows : {page.keys, page.values}) {
          for (int64_t c = p % kBlockTokens * rows.dim; c < (p % kBlockTokens + 1) * rows.dim;
               ++c) {
            *out++ = shape.kv_dtype == DType::kBF16
                         ? FloatOfBf16(reinterpret_cast<const uint16_t*>(rows.rows)[c])
                         : reinterpret_cast<const float*>(rows.rows)[c];
          }
        }
      }
    }
    return all;
  }
  static constexpr int32_t kTokens = 150;
  AttentionShape shape;
  TestPages pages;
};

TEST(ExpandLatent, EveryCandidateAgreesWithTheReferenceOnAnyNumberOfThreads) {
  for (DType kv_dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    const AttentionShape cached{11, 1, 72, kv_dtype, 48, true};
    Rng rng(3);
    const OwnedWeights keys(rng, WeightFormat::kBF16, 11, 20, 48);
    const OwnedWeights values(rng, WeightFormat::kF32, 11, 56, 48);
    for (const auto& [isa, compute] : TestArithmetics()) {
      TestContext base(Isa::kBase, 1, compute), one(isa, 1, compute), many(isa, 3, compute);
      const OwnedMatrix expected = Expanded(base.context, cached, keys, values).Rows();
      const OwnedMatrix got = Expanded(one.context, cached, keys, values).Rows();
      // A sum near a rounding edge may fall to either side of it.
      EXPECT_LT(RelativeError(got.view, expected.view), compute == Compute::kBF16 ? 4e-3 : 2e-6)
          << NameOf(isa);
      const OwnedMatrix again = Expanded(many.context, cached, keys, values).Rows();
      EXPECT_TRUE(
          SameBits(got.values.data(), again.values.data(), static_cast<int64_t>(got.values.size())))
          << NameOf(isa);
    }
  }
}

TEST(ExpandLatent, HeadsHaveOneOrderOfColumns) {
  const AttentionShape cached{11, 1, 72, DType::kF32, 48, true};
  Rng rng(5);
  const OwnedWeights keys(rng, OwnedWeights(rng, WeightFormat::kI8, 11, 20, 48), 11);
  const OwnedWeights values(rng, OwnedWeights(rng, WeightFormat::kI8, 11, 56, 48), 11);
  for (Isa isa : TestIsas()) {
    TestContext base(Isa::kBase), test(isa, 3);
    const OwnedMatrix expected = Expanded(base.context, cached, keys, values).Rows();
    const OwnedMatrix got = Expanded(test.context, cached, keys, values).Rows();
    // A number near a rounding edge may become the code on either side of it.
    EXPECT_LT(RelativeError(got.view, expected.view), 2e-2) << NameOf(isa);
  }
}

TEST(HeadLinear, EveryHeadHasItsOwnOrderOfColumns) {
  constexpr int64_t kRows = 5, kHeads = 3, kOutputs = 20, kDepth = 48;
  Rng rng(7);
  const OwnedWeights w(rng, WeightFormat::kI8, kHeads, kOutputs, kDepth), ordered(rng, w, 1);
  const OwnedMatrix x(rng, kRows, kHeads * kDepth);
  OwnedMatrix gathered(kRows, kHeads * kDepth);
  for (int64_t i = 0; i < kHeads * kDepth; ++i) {
    const int64_t head = i / kDepth, input = ordered.matrix.order(head)[i % kDepth];
    for (int64_t r = 0; r < kRows; ++r) {
      gathered.view.row(r)[i] = x.view.row(r)[head * kDepth + input];
    }
  }
  const auto product = [&](Isa isa, const OwnedMatrix& of, const OwnedWeights& weights) {
    TestContext test(isa, 2);
    OwnedMatrix y(kRows, kHeads * kOutputs);
    HeadLinear(test.context, {.x = of.view,
                              .x_step = kDepth,
                              .w = &weights.matrix,
                              .y = y.view,
                              .y_step = kOutputs});
    return y;
  };
  for (Isa isa : TestIsas()) {
    EXPECT_EQ(product(isa, x, ordered).values, product(isa, gathered, w).values) << NameOf(isa);
  }
}

// See KeepValueFinite in ops/cpu/kv_row.h.
TEST(ExpandLatent, ABf16ValueThatIsNotFiniteIsZeroAndItsKeyNoNumber) {
  constexpr int64_t kBad = 70;
  for (DType kv_dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    const AttentionShape cached{3, 1, 72, kv_dtype, 48, true};
    Rng rng(4);
    const OwnedWeights keys(rng, WeightFormat::kBF16, 3, 20, 48);
    const OwnedWeights values(rng, WeightFormat::kBF16, 3, 56, 48);
    for (Isa isa : TestIsas()) {
      if (isa == Isa::kBase) continue;
      TestContext test(isa, 1, Compute::kBF16);
      const Expanded expanded(test.context, cached, keys, values, kBad);
      const AttentionShape& shape = expanded.shape;
      const OwnedMatrix rows = expanded.Rows();
      for (int64_t p = 0; p < Expanded::kTokens; ++p) {
        for (int64_t h = 0; h < shape.heads; ++h) {
          const float* key = rows.view.row(p) + h * (shape.head_dim + shape.out_dim());
          const float* value = key + shape.head_dim;
          ASSERT_EQ(std::isnan(key[shape.head_dim - 1]), p == kBad) << NameOf(isa) << p;
          for (int64_t c = 0; c < shape.out_dim(); ++c) {
            ASSERT_TRUE(p == kBad ? value[c] == 0 : std::isfinite(value[c])) << NameOf(isa) << p;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace braid::ops
