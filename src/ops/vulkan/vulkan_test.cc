// The Vulkan candidates: every case of the CPU's tests against the reference, and the prefix rule:
// a row's bits depend on nothing beside it, on no cut of its sequence and on no variant of a
// kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/testing/test_attention.h"
#include "ops/testing/test_latent.h"
#include "ops/testing/test_linear.h"
#include "ops/testing/test_linear_attention.h"
#include "ops/vulkan/kernels.h"
#include "ops/vulkan/test_device.h"

namespace braid::ops {
namespace {

class Vulkan : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Shared().device == nullptr) GTEST_SKIP() << Shared().why;
  }
  TestDevice& device() { return *Shared().device; }
  struct Opened {
    std::string why;
    std::unique_ptr<TestDevice> device = TestDevice::Open(&why);
  };
  // One for all tests, because a device compiles each kernel once. Drivers and layers may be
  // unloaded before static objects, so it stays, but closed.
  static const Opened& Shared() {
    static const auto* const kOpened = new Opened;
    return *kOpened;
  }
  static void TearDownTestSuite() { TestDevice::Close(Shared().device.get()); }
  TestContext base_{Isa::kBase};
};

bool Reads(WeightFormat format) { return gpu::CannotRead(format) == nullptr; }

TEST_F(Vulkan, ProductsAgreeWithTheReference) {
  int cases = 0;
  for (const LinearCase& c : LinearCases()) {
    if (!Reads(c.format)) continue;
    ++cases;
    Rng rng(static_cast<uint64_t>(c.rows * 1000 + c.n));
    OwnedWeights w(rng, c.format, 1, c.n, c.k);
    OwnedMatrix x(rng, c.rows, c.k), expected(c.rows, c.n), y(c.rows, c.n);
    Linear(base_.context, {.x = x.view, .w = &w.matrix, .y = expected.view});
    Linear(device(), {.x = x.view, .w = &w.matrix, .y = y.view});
    EXPECT_LT(RelativeError(y.view, expected.view), 1e-5)
        << NameOf(c.format) << " " << c.rows << "x" << c.n << "x" << c.k;
  }
  EXPECT_GT(cases, 20);
}

TEST_F(Vulkan, ARowsBitsDoNotDependOnTheRowsBesideIt) {
  for (const LinearCase& c : LinearCases()) {
    if (!Reads(c.format)) continue;
    Rng rng(static_cast<uint64_t>(c.rows + c.k));
    OwnedWeights w(rng, c.format, 1, c.n, c.k);
    OwnedMatrix x(rng, c.rows, c.k), together(c.rows, c.n), alone(1, c.n);
    Linear(device(), {.x = x.view, .w = &w.matrix, .y = together.view});
    for (int64_t r = 0; r < c.rows; r += 1 + c.rows / 20) {
      Linear(device(), {.x = RowsOf(x.view, r, 1), .w = &w.matrix, .y = alone.view});
      ASSERT_TRUE(SameBits(together.view.row(r), alone.view.row(0), c.n))
          << NameOf(c.format) << " row " << r << " of " << c.rows << "x" << c.n << "x" << c.k;
    }
  }
}

// As Linear, by the kernel with so many rows of a workgroup.
struct HeightArgs {
  Matrix x;
  const PackedMatrix* w = nullptr;
  Matrix y;
  int64_t height = 0, pieces = 0;
};
void RunHeight(const OpContext& context, const HeightArgs& a) {
  WorkspaceScope scope(*context.workspace);
  std::byte* codes = context.workspace->Take<std::byte>(gpu::GemmScratch(a.x.rows, *a.w));
  gpu::RunGemm(context, {.x = a.x, .w = a.w, .y = a.y, .height = a.height, .pieces = a.pieces},
               codes);
}

TEST_F(Vulkan, EveryKernelGivesARowTheSameBits) {
  // Rows and outputs one below, at and above a tile; columns of part of a unit, of fewer pieces
  // than there are, and of pieces of several units.
  using Size = std::array<int64_t, 4>;
  const Size sizes[] = {
      {65, 65, 1090, 16}, {31, 64, 96, 16}, {33, 129, 35, 16}, {9, 65, 999, 32}, {9, 65, 2100, 64}};
  // Of each kind of planes, groups, bases and codes one.
  using enum WeightFormat;
  for (WeightFormat format : {kF32, kF16, kBF16, kF8, kI8, kQ8_0, kI4, kQ6KM, kQ5_1, kQ8KM, kIQ4XS,
                              kNvfp4D, kQ3K}) {
    for (const auto& [rows, n, k, pieces] : sizes) {
      // Of each kind of sums one.
      const bool one = format == WeightFormat::kF32 || format == WeightFormat::kI8;
      if (pieces > 16 && !one && format != WeightFormat::kQ6KM) continue;
      Rng rng(static_cast<uint64_t>(n));
      OwnedWeights w(rng, format, 1, n, k);
      OwnedMatrix x(rng, rows, k), expected(rows, n), first(rows, n), y(rows, n);
      Linear(base_.context, {.x = x.view, .w = &w.matrix, .y = expected.view});
      for (int64_t height : gpu::kGemmHeights) {
        OwnedMatrix& got = height == gpu::kGemmHeights[0] ? first : y;
        HeightArgs args{device().In(x.view), device().In(&w.matrix), device().Out(got.view), height,
                        pieces};
        device().Run(RunHeight, args);
        EXPECT_LT(RelativeError(got.view, expected.view), 1e-5)
            << NameOf(format) << " " << height << " of " << rows << "x" << n << "x" << k;
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_TRUE(SameBits(got.view.row(r), first.view.row(r), n))
              << NameOf(format) << " " << height << " row " << r << " of " << rows << "x" << n
              << "x" << k;
        }
      }
    }
  }
}

TEST_F(Vulkan, EmbeddingsAreTheTablesRows) {
  for (const WeightFormatRow& row : WeightFormats()) {
    if (!Reads(row.format)) continue;
    Rng rng(3);
    OwnedWeights table(rng, row.format, 1, 50, 130);
    const TokenId ids[] = {0, 49, 17, 16, 15};
    OwnedMatrix out(5, 130), expected(5, 130);
    Embed(base_.context, {.table = &table.matrix, .ids = ids, .out = expected.view});
    Embed(device(), {.table = &table.matrix, .ids = ids, .out = out.view});
    if (row.format != WeightFormat::kNvfp4D) {
      EXPECT_TRUE(SameBits(out.values.data(), expected.values.data(), 5 * 130)) << row.name;
      continue;
    }
    // Its scales are quotients, for which Vulkan allows an error of 2.5 units.
    for (size_t i = 0; i < out.values.size(); ++i) {
      const float want = expected.values[i];
      EXPECT_NEAR(out.values[i], want, std::abs(want) * 4e-7f) << i;
    }
  }
}

TEST_F(Vulkan, NormsAgreeWithTheReference) {
  Rng rng(5);
  // An invocation holds four columns and reads those behind them again.
  for (int64_t cols : {1, 4, 63, 137, 256, 257, 600, 2048, 2051, 5000}) {
    for (bool added : {true, false}) {
      OwnedMatrix x(rng, 9, cols), delta(rng, 9, cols), weight(rng, 1, cols), out(9, cols);
      OwnedMatrix expected(9, cols), x2 = x, sum = x, alone(1, cols);
      RmsNormArgs args{.x = x.view,
                       .delta = added ? delta.view : Matrix{},
                       .weight = weight.view.data,
                       .weight_offset = 1.0f,
                       .out = out.view};
      RmsNorm(device(), args);
      args.x = x2.view;
      args.out = expected.view;
      RmsNorm(base_.context, args);
      EXPECT_TRUE(SameBits(x.values.data(), x2.values.data(), 9 * cols));
      EXPECT_LT(RelativeError(out.view, expected.view), 2e-6) << cols;
      args.x = RowsOf(sum.view, 5, 1);
      if (added) args.delta = RowsOf(delta.view, 5, 1);
      args.out = alone.view;
      RmsNorm(device(), args);
      EXPECT_TRUE(SameBits(alone.view.row(0), out.view.row(5), cols)) << cols;
      if (!added) continue;
      args.x = RowsOf(sum.view, 6, 1);
      args.delta = RowsOf(delta.view, 6, 1);
      args.out = {};
      RmsNorm(device(), args);
      EXPECT_TRUE(SameBits(sum.view.row(6), x.view.row(6), cols)) << cols;
    }
  }
  // Heads below a subgroup, of several, and wider than a workgroup.
  for (int64_t head : {24, 128, 520}) {
    for (bool per_channel : {false, true}) {
      for (GateActivation activation : {GateActivation::kSilu, GateActivation::kSigmoid}) {
        const int64_t cols = 3 * head;
        OwnedMatrix y(rng, 5, cols), gate(rng, 5, cols, 3.0), w(rng, 1, cols);
        OwnedMatrix got(5, cols), want(5, cols);
        GatedNormArgs gated{.x = y.view,
                            .gate = gate.view,
                            .weight = w.view.data,
                            .weight_per_channel = per_channel,
                            .head_dim = head,
                            .activation = activation,
                            .out = want.view};
        GatedNorm(base_.context, gated);
        gated.out = got.view;
        GatedNorm(device(), gated);
        EXPECT_LT(RelativeError(got.view, want.view), 2e-6) << head;
      }
    }
  }
}

TEST_F(Vulkan, SmallOpsAgreeWithTheReference) {
  Rng rng(8);
  for (float limit : {0.0f, 0.7f}) {
    OwnedMatrix gate_up(rng, 7, 2 * 70, 3.0), out(7, 70), expected(7, 70);
    Swiglu(base_.context, {.gate_up = gate_up.view, .out = expected.view, .limit = limit});
    Swiglu(device(), {.gate_up = gate_up.view, .out = out.view, .limit = limit});
    EXPECT_LT(RelativeError(out.view, expected.view), 2e-6);
  }
  OwnedMatrix x(rng, 6, 130), w(rng, 1, 130, 0.1), gates(1, 6), expected_gates(1, 6);
  ScalarGate(base_.context, {.x = x.view, .weight = w.view.data, .out = expected_gates.view.data});
  ScalarGate(device(), {.x = x.view, .weight = w.view.data, .out = gates.view.data});
  EXPECT_LT(RelativeError(gates.view, expected_gates.view), 2e-6);
  const int32_t at[] = {5, 0, 3, 3, 1, 2};
  for (bool add : {false, true}) {
    OwnedMatrix sum(rng, 3, 130), want = sum;
    AddRowsArgs args{.rows = x.view, .at = at, .weights = w.view.data, .k = 2, .add = add};
    args.out = want.view;
    AddRows(base_.context, args);
    args.out = sum.view;
    AddRows(device(), args);
    EXPECT_LT(RelativeError(sum.view, want.view), 2e-6);
  }
}

TEST_F(Vulkan, RoutersChooseTheReferencesExperts) {
  const RouterRule rules[] = {
      {},
      {.renormalise = false},
      {.score = RouterScore::kSigmoid, .scale = 2.5f},
      {.score = RouterScore::kSigmoid, .groups = 8, .groups_kept = 3, .scale = 2.5f}};
  for (const RouterRule& rule : rules) {
    for (int64_t experts : {5, 8, 60, 128, 512}) {
      if (rule.groups > 1 && experts % 16 != 0) continue;
      Rng rng(static_cast<uint64_t>(experts));
      OwnedMatrix logits(rng, 11, experts), bias(rng, 1, experts, 0.3);
      // Ties go to the smaller id.
      for (int64_t e = 0; e < experts; ++e) logits.view.row(3)[e] = static_cast<float>(e % 3);
      std::vector<int32_t> ids(44), want_ids(44);
      OwnedMatrix weights(11, 4), want(11, 4);
      RouteArgs args{.logits = logits.view, .top_k = 4, .rule = rule};
      if (rule.score == RouterScore::kSigmoid) args.bias = bias.view.data;
      args.ids = want_ids.data();
      args.weights = want.view.data;
      Route(base_.context, args);
      args.ids = ids.data();
      args.weights = weights.view.data;
      Route(device(), args);
      EXPECT_EQ(ids, want_ids) << experts << " experts";
      EXPECT_LT(RelativeError(weights.view, want.view), 5e-6);
    }
  }
}

// The experts of a case against the reference, and tokens against themselves alone.
void ExpectExperts(TestDevice& device, const TestContext& base, const ExpertsCase& c) {
  Mixture mixture(c);
  OwnedMatrix expected(c.tokens, c.hidden), out(c.tokens, c.hidden), alone(1, c.hidden);
  OwnedMatrix reversed(c.tokens, c.hidden);
  mixture.args.out = expected.view;
  Experts(base.context, mixture.args);
  mixture.args.out = out.view;
  Experts(device, mixture.args);
  device.gpu().ReverseBeside(true);
  mixture.args.out = reversed.view;
  Experts(device, mixture.args);
  device.gpu().ReverseBeside(false);
  EXPECT_EQ(std::memcmp(out.values.data(), reversed.values.data(), 4 * out.values.size()), 0);
  const bool rounded = RowOf(c.format).integers || RowOf(c.shared_format).integers;
  EXPECT_LT(RelativeError(out.view, expected.view), rounded ? 2e-3 : 5e-6)
      << c.tokens << " tokens of " << c.hidden;
  for (int64_t t = c.tokens - 1; t >= 0; t -= 1 + c.tokens / 4) {
    Experts(device, mixture.Token(t, alone.view));
    ASSERT_TRUE(SameBits(out.view.row(t), alone.view.row(0), c.hidden)) << "token " << t;
  }
}

TEST_F(Vulkan, ExpertsAgreeWithTheReferenceAndATokenWithItself) {
  int cases = 0;
  for (const ExpertsCase& c : ExpertsCases()) {
    if (!Reads(c.format) || !Reads(c.shared_format)) continue;
    // Their products are those of the test above; one grouped format will do.
    const bool grouped = c.format > WeightFormat::kQ8_0 && c.format != WeightFormat::kI4;
    if (grouped && c.format != WeightFormat::kQ4K) continue;
    ++cases;
    ExpectExperts(device(), base_, c);
  }
  EXPECT_GT(cases, 12);
}

// More tokens than scratch has room for at once, and more experts than a workgroup has members.
TEST_F(Vulkan, ManyTokensChooseAmongManyExperts) {
  ExpectExperts(device(), base_, {2600, 64, 300, 16, 24});
}

TEST_F(Vulkan, AttentionAgreesWithTheReferenceAndAnyCutWithTheWhole) {
  for (const AttentionCase& c : kAttentionCases) {
    // A software driver takes its time: fewer tokens of wide layers.
    const AttentionLayer layer(c, c.shape.heads * c.shape.head_dim > 512 ? 70 : 150);
    const AttentionPass expected(base_.context, layer, {});
    const AttentionPass whole(device(), layer, {});
    const double tolerance = c.shape.kv_dtype == DType::kF32 ? 1e-5 : 5e-3;
    EXPECT_LT(RelativeError(whole.out.view, expected.out.view), tolerance)
        << "head_dim " << c.shape.head_dim;
    for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{64}, {1, 2, 63, 65, 69}}) {
      const AttentionPass cut(device(), layer, cuts);
      ASSERT_TRUE(SameBits(whole.out.values.data(), cut.out.values.data(),
                           static_cast<int64_t>(whole.out.values.size())))
          << "head_dim " << c.shape.head_dim << " first cut " << cuts.front();
    }
  }
}

TEST_F(Vulkan, AnglesOfFarPositionsAreExact) {
  // A pair of channels, rotated at one position after another: up to a million.
  const AttentionShape shape{1, 1, 4, DType::kF32};
  for (int32_t position : {0, 1, 7, 1000, 65535, 262143, 1000003}) {
    OwnedMatrix q(1, 4), k(1, 4), v(1, 4), q_out(1, 4), expected(1, 4);
    q.values = {1, 0.5f, 0, -0.25f};
    q.view.data = q.values.data();
    const float frequency[] = {1.0f, 0.37f};
    const int64_t blocks = position / kBlockTokens + 1;
    TestPages page(shape.head_bytes(), kBlockTokens);
    std::vector<std::byte*> table(static_cast<size_t>(blocks), nullptr);
    table.back() = page.table()[0];
    SequenceSpan span{0, 1, position, {}};
    span.tables[0] = table.data();
    WriteKvArgs args{.shape = shape,
                     .sequences = {&span, 1, 1},
                     .q = q.view,
                     .q_stride = 4,
                     .k = k.view,
                     .v = v.view,
                     .inverse_frequency = frequency,
                     .rotary_pairs = 2};
    args.q_out = expected.view;
    NormRopeWriteKv(base_.context, args);
    args.q_out = q_out.view;
    NormRopeWriteKv(device(), args);
    for (size_t c = 0; c < 4; ++c) {
      EXPECT_NEAR(q_out.values[c], expected.values[c], 3e-7) << "position " << position;
    }
  }
}

// Blocks of random keys and values behind sequences of any length, which all share a few.
struct SharedPages {
  SharedPages(Rng& rng, const AttentionShape& shape, int64_t blocks_max)
      : pages(BlockBytes(shape), 4 * kBlockTokens) {
    for (int64_t b = 0; b < 4; ++b) {
      for (int64_t h = 0; h < shape.kv_heads; ++h) Fill(rng, shape, pages.table()[b], h);
    }
    for (int64_t b = 0; b < blocks_max; ++b) table.push_back(pages.table()[b == 0 ? 3 : b % 3]);
  }
  // Of fp32: what a position's key and value hold.
  void Set(const AttentionShape& shape, int64_t position, float value) {
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      auto* at = reinterpret_cast<float*>(table[static_cast<size_t>(position / kBlockTokens)] +
                                          h * shape.head_bytes());
      const int64_t slot = position % kBlockTokens;
      std::fill_n(at + slot * shape.head_dim, shape.head_dim, value);
      std::fill_n(at + shape.keys_bytes() / 4 + slot * shape.out_dim(), shape.out_dim(), value);
    }
  }
  static void Fill(Rng& rng, const AttentionShape& shape, std::byte* block, int64_t head) {
    std::byte* at = block + head * shape.head_bytes();
    const int64_t rows = shape.keys_bytes() + shape.values_bytes();
    if (shape.kv_dtype == DType::kF32) {
      for (int64_t i = 0; i < rows / 4; ++i) {
        reinterpret_cast<float*>(at)[i] = static_cast<float>(rng.Normal());
      }
      return;
    }
    CHECK(shape.kv_dtype == DType::kI8);
    for (int64_t i = 0; i < rows; ++i) at[i] = static_cast<std::byte>(rng.Below(255) - 127);
    auto* scales = reinterpret_cast<float*>(at + rows);
    for (int64_t i = 0; i < (shape.head_bytes() - rows) / 4; ++i) {
      scales[i] = 0.01f + 0.001f * static_cast<float>(i % 7);
    }
  }
  TestPages pages;
  std::vector<std::byte*> table;
};

TEST_F(Vulkan, ALongContextTakesSeveralRuns) {
  struct LongCase {
    AttentionShape shape;
    int32_t start, tokens;
  };
  // Blocks that are split, more than a dispatch takes; prompts that walk over as many.
  for (const LongCase& c : {LongCase{{2, 1, 8, DType::kF32}, 33000, 2},
                            {{64, 64, 8, DType::kF32}, 4100, 128},
                            {{3, 1, 8, DType::kF32}, 4050, 18}}) {
    Rng rng(9);
    const int64_t blocks = CeilDiv(int64_t{c.start} + c.tokens, kBlockTokens);
    SharedPages pages(rng, c.shape, blocks);
    pages.Set(c.shape, 0, std::numeric_limits<float>::quiet_NaN());  // is skipped
    SequenceSpan span{0, c.tokens, c.start, {}};
    span.tables[0] = pages.table.data();
    const int64_t cols = c.shape.heads * c.shape.head_dim;
    const int64_t out_cols = c.shape.heads * c.shape.out_dim();
    OwnedMatrix q(rng, c.tokens, cols), gate(rng, c.tokens, out_cols);
    OwnedMatrix out(c.tokens, out_cols), expected(c.tokens, out_cols), one(1, out_cols);
    AttentionArgs args{.shape = c.shape,
                       .sequences = {&span, 1, c.tokens},
                       .cache = {.skip_first = true},
                       .q = q.view,
                       .gate = gate.view,
                       .gate_stride = c.shape.out_dim(),
                       .out = expected.view};
    Attention(base_.context, args);
    args.out = out.view;
    Attention(device(), args);
    EXPECT_LT(RelativeError(out.view, expected.view), 1e-5) << c.start;
    // A token alone takes other kernels.
    span = {0, 1, c.start + 1, span.tables};
    args.sequences.tokens = 1;
    args.q = RowsOf(q.view, 1, 1);
    args.gate = RowsOf(gate.view, 1, 1);
    args.out = one.view;
    Attention(device(), args);
    EXPECT_TRUE(SameBits(out.view.row(1), one.view.row(0), out_cols)) << c.start;
  }
}

TEST_F(Vulkan, SequencesOfAStepGetTheBitsOfEachAlone) {
  struct Piece {
    int32_t start, tokens;
  };
  // Prompts, drafts and single tokens in any order; units of tokens that end within a span.
  constexpr Piece kPieces[] = {{130, 1}, {64, 1},  {300, 4}, {0, 70}, {63, 17}, {0, 1},
                               {200, 3}, {191, 1}, {5, 33},  {0, 2},  {127, 2}};
  for (const AttentionShape& shape : {AttentionShape{6, 2, 24, DType::kF32},
                                      {40, 2, 36, DType::kI8, 20},
                                      {9, 1, 24, DType::kF32},
                                      {2, 2, 8, DType::kF32, 264},
                                      {16, 1, 12, DType::kI8, 320},
                                      {13, 1, 580 - 4, DType::kF32, 516, true},
                                      {4, 4, 20, DType::kF32}}) {
    Rng rng(31);
    const SharedPages pages(rng, shape, 6);
    std::vector<SequenceSpan> spans;
    int32_t tokens = 0;
    for (const Piece& piece : kPieces) {
      spans.push_back({tokens, piece.tokens, piece.start, {}});
      spans.back().tables[0] = pages.table.data();
      tokens += piece.tokens;
    }
    const int64_t cols = shape.heads * shape.head_dim, out_cols = shape.heads * shape.out_dim();
    // Rows that do not begin on lines.
    const OwnedMatrix q(rng, tokens, cols + 1);
    OwnedMatrix all(tokens, out_cols), alone(tokens, out_cols), expected(tokens, out_cols);
    AttentionArgs args{.shape = shape,
                       .sequences = {spans.data(), static_cast<int32_t>(spans.size()), tokens},
                       .cache = {.skip_first = true},
                       .q = q.view.columns(0, cols),
                       .scale = 0.2f,
                       .out = expected.view};
    Attention(base_.context, args);
    args.out = all.view;
    Attention(device(), args);
    EXPECT_LT(RelativeError(all.view, expected.view), 1e-5) << shape.out_dim();
    for (SequenceSpan span : spans) {
      OwnedMatrix lines(span.token_count, cols);
      for (int64_t r = 0; r < span.token_count; ++r) {
        std::copy_n(q.view.row(span.token_begin + r), cols, lines.view.row(r));
      }
      args.q = lines.view;
      args.out = RowsOf(alone.view, span.token_begin, span.token_count);
      span.token_begin = 0;
      args.sequences = {&span, 1, span.token_count};
      Attention(device(), args);
    }
    EXPECT_TRUE(SameBits(all.values.data(), alone.values.data(), tokens * out_cols))
        << shape.out_dim();
    for (const SequenceSpan& of : spans) {  // the last token of each alone: by other kernels
      const int32_t last = of.token_begin + of.token_count - 1;
      SequenceSpan span{0, 1, of.start + of.token_count - 1, of.tables};
      args.sequences = {&span, 1, 1};
      args.q = RowsOf(q.view, last, 1).columns(0, cols);
      args.out = RowsOf(alone.view, last, 1);
      Attention(device(), args);
      EXPECT_TRUE(SameBits(all.view.row(last), alone.view.row(last), out_cols)) << shape.out_dim();
    }
  }
}

TEST_F(Vulkan, WhatATokenDoesNotSeeMayBeAnything) {
  // The last key of a prompt, of drafts, of tokens that end a block.
  for (const auto& [start, tokens] : {std::pair(30, 40), {75, 3}, {100, 28}, {10, 16}}) {
    const AttentionShape shape{6, 2, 24, DType::kF32};
    Rng rng(5);
    SharedPages pages(rng, shape, 3);
    SequenceSpan span{0, tokens, start, {}};
    span.tables[0] = pages.table.data();
    const OwnedMatrix q(rng, tokens, 6 * 24);
    OwnedMatrix out(tokens, 6 * 24), other(tokens, 6 * 24);
    AttentionArgs args{
        .shape = shape, .sequences = {&span, 1, tokens}, .q = q.view, .out = out.view};
    Attention(device(), args);
    pages.Set(shape, start + tokens - 1, std::numeric_limits<float>::quiet_NaN());
    args.out = other.view;
    Attention(device(), args);
    EXPECT_TRUE(SameBits(out.view.data, other.view.data, (tokens - 1) * out.view.cols)) << start;
    EXPECT_TRUE(std::isnan(other.view.row(tokens - 1)[0]));
  }
}

TEST_F(Vulkan, HeadsAreNormedAndRotatedAsTheReferenceDoes) {
  const float frequency[] = {1.0f, 0.1f, 0.01f};
  for (bool interleaved : {false, true}) {
    Rng rng(4);
    OwnedMatrix got(rng, 5, 3 * 10), weight(rng, 1, 10), want = got;
    want.view.data = want.values.data();
    const TestPages pages(64, 70);
    SequenceSpan spans[] = {{0, 2, 61, {}}, {2, 3, 0, {}}};
    for (SequenceSpan& span : spans) span.tables[0] = pages.table();
    HeadNormRotateArgs args{.sequences = {spans, 2, 5},
                            .x = want.view,
                            .head_dim = 10,
                            .weight = weight.view.data,
                            .rotation = {frequency, 3, 1.2f, interleaved}};
    HeadNormRotate(base_.context, args);
    args.x = got.view;
    HeadNormRotate(device(), args);
    EXPECT_LT(RelativeError(got.view, want.view), 2e-6) << interleaved;
  }
}

TEST_F(Vulkan, ProductsOfHeadsAgreeWithTheReferenceAndARowWithItself) {
  for (const WeightFormatRow& row : WeightFormats()) {
    if (!Reads(row.format)) continue;
    for (const auto& [n, k] : {std::pair(40, 24), {12, 70}}) {
      constexpr int64_t kHeads = 5, kRows = 11;
      Rng rng(static_cast<uint64_t>(n));
      const OwnedWeights w(rng, row.format, kHeads, n, k);
      const OwnedMatrix x(rng, kRows, kHeads * 80), gate(rng, kRows, kHeads);
      for (const Matrix& gates : {Matrix{}, gate.view}) {
        OwnedMatrix got(kRows, kHeads * 64), want(kRows, kHeads * 64), alone(1, kHeads * 64);
        HeadLinearArgs args{
            .x = x.view, .x_step = 80, .w = &w.matrix, .gate = gates, .y = want.view, .y_step = 64};
        HeadLinear(base_.context, args);
        args.y = got.view;
        HeadLinear(device(), args);
        EXPECT_LT(RelativeError(got.view, want.view), 1e-5) << row.name << " " << n;
        args.x = RowsOf(x.view, 7, 1);
        if (gates.data != nullptr) args.gate = RowsOf(gates, 7, 1);
        args.y = alone.view;
        HeadLinear(device(), args);
        EXPECT_TRUE(SameBits(got.view.row(7), alone.view.row(0), kHeads * 64)) << row.name;
      }
    }
  }
}

TEST_F(Vulkan, LatentAttentionAgreesWithTheReferenceAndAnyCutWithTheWhole) {
  int cases = 0;
  for (const LatentCase& c : kLatentCases) {
    if (c.shape.head_dim % 4 != 0) continue;  // refused
    ++cases;
    const LatentLayer layer(c, c.shape.heads > 40 ? 70 : 150);
    const LatentPass expected(base_.context, layer, {});
    const LatentPass whole(device(), layer, {});
    const double tolerance = c.shape.kv_dtype == DType::kF32 ? 1e-5 : 2e-2;
    EXPECT_LT(RelativeError(whole.out.view, expected.out.view), tolerance)
        << "width " << c.shape.head_dim;
    for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{64}, {1, 2, 63, 65, 69}}) {
      const LatentPass cut(device(), layer, cuts);
      ASSERT_TRUE(SameBits(whole.out.values.data(), cut.out.values.data(),
                           static_cast<int64_t>(whole.out.values.size())))
          << "width " << c.shape.head_dim << " first cut " << cuts.front();
    }
  }
  EXPECT_EQ(cases, 8);
}

TEST_F(Vulkan, RecurrencesAgreeWithTheReferenceAndAnyCutWithTheWhole) {
  for (const LinearAttentionCase& c : kLinearAttentionCases) {
    const LinearAttentionLayer layer(c, c.shape.value_heads * c.shape.key_dim > 256 ? 69 : 150,
                                     0.5);
    const LinearAttentionPass expected(base_.context, layer, {});
    const LinearAttentionPass whole(device(), layer, {});
    EXPECT_LT(RelativeError(whole.out.view, expected.out.view), 2e-5)
        << "heads " << c.shape.value_heads << " dk " << c.shape.key_dim << " decay "
        << static_cast<int>(c.rule.decay) << (c.shape.channel_decay ? " of channels" : "");
    for (const std::vector<int64_t>& cuts :
         {std::vector<int64_t>{64}, {62, 63, 65}, {1, 2, 3, 64, 66, 67, 68}}) {
      const LinearAttentionPass cut(device(), layer, cuts);
      EXPECT_TRUE(SameBits(whole.out.values.data(), cut.out.values.data(),
                           static_cast<int64_t>(whole.out.values.size())))
          << "dk " << c.shape.key_dim << " first cut " << cuts.front();
    }
  }
}

TEST_F(Vulkan, WhatTheDeviceCannotRunIsNamedWhileMemoryIsMeasured) {
  Workspace measuring = Workspace::Measuring();
  ThreadPool pool(1);
  std::string missing;
  OpContext context{.device = {.vulkan = true}, .pool = &pool, .workspace = &measuring};
  context.missing = &missing;
  Route(context, {.logits = {nullptr, 1, 2000, 2000}, .top_k = 8});
  EXPECT_THAT(missing, ::testing::HasSubstr("route: more than 1024 experts"));
}

}  // namespace
}  // namespace braid::ops
