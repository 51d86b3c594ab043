// Paged attention: every candidate against the reference, and the prefix rule across cuts and
// threads.
#include "ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/kv_page.h"
#include "ops/testing/test_attention.h"
#include "ops/testing/test_rewind.h"

namespace braid::ops {
namespace {

using Case = AttentionCase;
using Layer = AttentionLayer;
using Pass = AttentionPass;
constexpr auto& kCases = kAttentionCases;

TEST(Attention, EveryCandidateAgreesWithTheReference) {
  for (const Case& c : kCases) {
    const Layer layer(c, 331);
    TestContext base(Isa::kBase);
    const Pass expected(base.context, layer, {});
    for (const auto& [isa, compute] : TestArithmetics()) {
      TestContext test(isa, 2, compute);
      const Pass run(test.context, layer, {});
      // With bf16 keys a value near a rounding edge may fall to either side.
      const bool rounds = test.context.device.avx512_bf16 && compute == Compute::kBF16;
      const double tolerance = c.shape.kv_dtype == DType::kF32 ? 5e-6 : rounds ? 1e-2 : 5e-3;
      EXPECT_LT(RelativeError(run.out.view, expected.out.view), tolerance)
          << NameOf(isa) << " head_dim " << c.shape.head_dim;
    }
  }
}

// Without positions a sequence without its first token is one that begins with the second.
TEST(Attention, ASkippedFirstTokenIsSeenByItselfAlone) {
  constexpr int64_t kTokens = 300;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    const Case c{{4, 2, 64, dtype}, 0, false};
    Case skips = c;
    skips.skip_first = true;
    Layer layer(c, kTokens), later(c, kTokens - 1);
    std::copy(layer.q_norm.values.begin(), layer.q_norm.values.end(), later.q_norm.values.begin());
    std::copy(layer.k_norm.values.begin(), layer.k_norm.values.end(), later.k_norm.values.begin());
    for (auto [from, to] :
         {std::pair{&layer.q, &later.q}, {&layer.k, &later.k}, {&layer.v, &later.v}}) {
      std::copy(from->values.begin() + from->view.cols, from->values.end(), to->values.begin());
    }
    TestContext base(Isa::kBase);
    const Pass without(base.context, later, {});
    const Pass plain(base.context, layer, {});
    layer.test_case = skips;
    const Pass skipped(base.context, layer, {});
    EXPECT_LT(RelativeError(RowsOf(skipped.out.view, 1, kTokens - 1), without.out.view), 1e-6);
    EXPECT_EQ(*skipped.out.view.row(0), *plain.out.view.row(0));
    EXPECT_NE(*skipped.out.view.row(1), *plain.out.view.row(1));
  }
}

TEST(Attention, WrongDraftsLeaveNoTrace) {
  constexpr int64_t kTokens = 270;
  for (const Case& c : kCases) {
    const Layer layer(c, kTokens);
    for (const auto& [isa, compute] : TestArithmetics()) {
      if (isa == Isa::kBase && (compute == Compute::kBF16 || c.shape.head_dim > 64)) continue;
      TestContext test(isa, 2, compute);
      const Pass whole(test.context, layer, {});
      for (int32_t drafts : {1, 7}) {
        Pass run(test.context, layer, {kTokens});
        run.pages.Spoil();
        Layer guessed(layer);
        Rng rng(static_cast<uint64_t>(drafts));
        for (const DraftRow& row : DraftRows(rng, kTokens, 40, drafts)) {
          for (const OwnedMatrix* m : {&guessed.q, &guessed.k, &guessed.v}) {
            Mislead(rng, row, m->view);
          }
          run.Step(test.context, guessed, row.begin, row.end);
          Restore(row, layer.q.view, guessed.q.view);
          Restore(row, layer.k.view, guessed.k.view);
          Restore(row, layer.v.view, guessed.v.view);
        }
        ASSERT_TRUE(SameBits(whole.out.values.data(), run.out.values.data(),
                             static_cast<int64_t>(whole.out.values.size())))
            << NameOf(isa) << " head_dim " << c.shape.head_dim << ", drafts " << drafts;
      }
    }
  }
}

TEST(Attention, CachedIntegersAreTheReferences) {
  constexpr int64_t kTokens = 6, kDim = 40;
  const AttentionShape shape{2, 2, kDim, DType::kI8};
  Rng rng(5);
  OwnedMatrix q(rng, kTokens, 2 * kDim), k(rng, kTokens, 2 * kDim), v(rng, kTokens, 2 * kDim);
  std::fill_n(v.view.row(1), 2 * kDim, 0.0f);
  std::fill_n(v.view.row(2), 2 * kDim, 0x1p-101f);
  std::fill_n(v.view.row(3), 2 * kDim, -0.25f);
  v.view.row(4)[kDim - 1] = std::numeric_limits<float>::quiet_NaN();
  v.view.row(5)[kDim] = -std::numeric_limits<float>::infinity();
  auto written = [&](Isa isa) {
    TestContext test(isa);
    TestPages pages(shape.kv_heads * shape.head_bytes(), kTokens);
    SequenceSpan span{0, kTokens, 0, {}};
    span.tables[0] = pages.table();
    OwnedMatrix q_out(kTokens, 2 * kDim);
    NormRopeWriteKv(test.context, {.shape = shape,
                                   .sequences = {&span, 1, kTokens},
                                   .q = q.view,
                                   .q_stride = kDim,
                                   .k = k.view,
                                   .v = v.view,
                                   .q_out = q_out.view});
    std::vector<float> rows;
    for (int64_t token = 0; token < kTokens; ++token) {
      for (int64_t head = 0; head < 2; ++head) {
        const KvPage page = KvPageOf(shape, {}, span, token, head);
        rows.push_back(page.keys.scales[token]);
        rows.push_back(page.values.scales[token]);
        for (int64_t c = 0; c < kDim && std::isfinite(page.values.scales[token]); ++c) {
          rows.push_back(reinterpret_cast<const int8_t*>(page.keys.rows)[token * kDim + c]);
          rows.push_back(reinterpret_cast<const int8_t*>(page.values.rows)[token * kDim + c]);
        }
      }
    }
    return rows;
  };
  const std::vector<float> expected = written(Isa::kBase);
  for (Isa isa : TestIsas()) {
    const std::vector<float> rows = written(isa);
    ASSERT_EQ(rows.size(), expected.size());
    EXPECT_TRUE(SameBits(rows.data(), expected.data(), static_cast<int64_t>(rows.size())))
        << NameOf(isa);
  }
  // Of row 0: every integer within half a step, and the largest is 127.
  const float scale = expected[1];
  float most = 0;
  for (int64_t c = 0; c < kDim; ++c) {
    const float integer = expected[static_cast<size_t>(2 + 2 * c + 1)];
    EXPECT_LE(std::abs(v.view.row(0)[c] - integer * scale), scale * 0.501f);
    most = std::max(most, std::abs(integer));
  }
  EXPECT_EQ(most, 127.0f);
}

// See KeepValueFinite in ops/cpu/kv_row.h. Rows before it do not see it, those behind it do.
TEST(Attention, ABf16ValueThatIsNotFiniteIsZeroAndItsKeyNoNumber) {
  constexpr int64_t kTokens = 40, kBad = 20;
  const Case c{{4, 2, 64, DType::kBF16}, 4, false};
  const Layer good(c, kTokens);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), 3.4e38f}) {  // or rounded to infinity
    Layer layer(good);
    layer.v.view.row(kBad)[5] = bad;
    for (const auto& [isa, compute] : TestArithmetics()) {
      if (isa == Isa::kBase) continue;
      TestContext test(isa, 1, compute);
      const Pass without(test.context, good, {}), run(test.context, layer, {});
      SequenceSpan span{0, kTokens, 0, {}};
      span.tables[0] = run.pages.table();
      for (int64_t head = 0; head < 2; ++head) {
        const KvPage page = KvPageOf(c.shape, {}, span, kBad, head);
        const auto at = [&](const CachedRows& rows, int64_t i) {
          return FloatOfBf16(reinterpret_cast<const uint16_t*>(rows.rows)[kBad * rows.dim + i]);
        };
        for (int64_t i = 0; i < 64; ++i) {
          ASSERT_EQ(std::isnan(at(page.keys, i)), head == 0) << NameOf(isa) << i;
          ASSERT_EQ(at(page.values, i) == 0, head == 0) << NameOf(isa) << i;
        }
      }
      const int64_t dim = run.out.view.cols;
      EXPECT_TRUE(SameBits(run.out.view.data, without.out.view.data, kBad * dim)) << NameOf(isa);
      for (int64_t t = kBad; t < kTokens; ++t) {
        EXPECT_TRUE(std::isnan(run.out.view.row(t)[0])) << NameOf(isa) << t;
        EXPECT_TRUE(
            SameBits(run.out.view.row(t) + dim / 2, without.out.view.row(t) + dim / 2, dim / 2));
      }
    }
  }
}

TEST(Attention, AnyCutOfASequenceGivesTheSameBits) {
  for (const Case& c : kCases) {
    const Layer layer(c, 331);
    for (const auto& [isa, compute] : TestArithmetics()) {
      if (isa == Isa::kBase) continue;
      TestContext one(isa, 1, compute), two(isa, 2, compute);
      const Pass whole(two.context, layer, {});
      std::vector<int64_t> every;
      for (int64_t i = 1; i < 331; ++i) every.push_back(i);
      for (const std::vector<int64_t>& cuts :
           {std::vector<int64_t>{1}, {64}, {255}, {256}, {257}, {100, 101, 102, 300}, every}) {
        const Pass cut(one.context, layer, cuts);
        ASSERT_TRUE(SameBits(whole.out.values.data(), cut.out.values.data(),
                             static_cast<int64_t>(whole.out.values.size())))
            << NameOf(isa) << " head_dim " << c.shape.head_dim << " first cut " << cuts.front();
      }
    }
  }
}

TEST(Attention, MembersThatShareKeysGiveTheBitsOfOne) {
  for (const Case& c : kCases) {
    const Layer layer(c, 1100);
    for (const auto& [isa, compute] : TestArithmetics()) {
      if (isa == Isa::kBase) continue;
      TestContext one(isa, 1, compute);
      const Pass expected(one.context, layer, {1050, 1090, 1098});
      for (int threads : {3, 7}) {
        TestContext many(isa, threads, compute);
        const Pass run(many.context, layer, {1050, 1090, 1098});
        ASSERT_TRUE(SameBits(expected.out.values.data(), run.out.values.data(),
                             static_cast<int64_t>(expected.out.values.size())))
            << NameOf(isa) << " head_dim " << c.shape.head_dim << ", threads " << threads;
      }
    }
  }
}

TEST(Attention, ASequencesBitsDoNotDependOnTheSequencesBesideIt) {
  const Layer layer(kCases[0], 130);
  for (Isa isa : TestIsas()) {
    TestContext test(isa, 2);
    const Pass alone(test.context, layer, {});
    // The same sequence twice in one step, from pages of its own.
    Pass first(test.context, layer, {130}), second(test.context, layer, {130});
    SequenceSpan spans[2] = {{0, 130, 0, {}}, {130, 130, 0, {}}};
    spans[0].tables[0] = first.pages.table();
    spans[1].tables[0] = second.pages.table();
    OwnedMatrix q(260, alone.q.view.cols), gates(260, layer.q.view.cols), out(260, q.view.cols);
    for (int64_t t = 0; t < 260; ++t) {
      std::copy_n(alone.q.view.row(t % 130), q.view.cols, q.view.row(t));
      std::copy_n(layer.q.view.row(t % 130), gates.view.cols, gates.view.row(t));
    }
    const int64_t dim = layer.test_case.shape.head_dim;
    Attention(test.context, {.shape = layer.test_case.shape,
                             .sequences = {spans, 2, 260},
                             .q = q.view,
                             .scale = 0.125f,
                             .gate = gates.view.columns(dim, gates.view.cols - dim),
                             .gate_stride = layer.stride,
                             .out = out.view});
    for (int64_t t = 0; t < 260; ++t) {
      ASSERT_TRUE(SameBits(out.view.row(t), alone.out.view.row(t % 130), out.view.cols));
    }
  }
}

}  // namespace
}  // namespace braid::ops
