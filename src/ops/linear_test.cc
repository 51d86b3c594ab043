// Products, norms, experts and router: every candidate against the reference, and the prefix rule:
// a row's bits do not depend on the rows beside it or on the threads.
#include "ops/linear.h"

#include <gtest/gtest.h>

#include "ops/cpu/experts.h"
#include "ops/experts.h"
#include "ops/norm.h"
#include "ops/testing/test_linear.h"

namespace braid::ops {
namespace {

TEST(Linear, EveryCandidateAgreesWithTheReference) {
  for (const LinearCase& c : LinearCases()) {
    Rng rng(static_cast<uint64_t>(c.rows * 1000 + c.n));
    OwnedWeights w(rng, c.format, 1, c.n, c.k);
    OwnedMatrix x(rng, c.rows, c.k), expected(c.rows, c.n);
    for (Compute compute : {Compute::kF32, Compute::kBF16}) {
      TestContext base(Isa::kBase, 1, compute);
      Linear(base.context, {.x = x.view, .w = &w.matrix, .y = expected.view});
      for (Isa isa : TestIsas()) {
        TestContext test(isa, 2, compute);
        OwnedMatrix y(c.rows, c.n);
        SpoilWorkspace(test.context);
        Linear(test.context, {.x = x.view, .w = &w.matrix, .y = y.view});
        EXPECT_LT(RelativeError(y.view, expected.view), 1e-5)
            << NameOf(isa) << " " << c.rows << "x" << c.n << "x" << c.k;
      }
    }
  }
}

TEST(Linear, ARowsBitsDoNotDependOnTheRowsBesideItOrOnTheThreads) {
  for (const LinearCase& c : LinearCases()) {
    Rng rng(static_cast<uint64_t>(c.rows + c.k));
    OwnedWeights w(rng, c.format, 1, c.n, c.k);
    OwnedMatrix x(rng, c.rows, c.k);
    for (auto [isa, compute] : TestArithmetics()) {
      TestContext one(isa, 1, compute), two(isa, 2, compute);
      OwnedMatrix together(c.rows, c.n), alone(1, c.n);
      Linear(two.context, {.x = x.view, .w = &w.matrix, .y = together.view});
      TestContext nodes(isa, 3, compute, kFakeNodes);
      OwnedMatrix on_nodes(c.rows, c.n);
      Linear(nodes.context, {.x = x.view, .w = &w.matrix, .y = on_nodes.view});
      ASSERT_TRUE(SameBits(on_nodes.values.data(), together.values.data(), c.rows * c.n));
      for (int64_t r = 0; r < c.rows; ++r) {
        Linear(one.context, {.x = RowsOf(x.view, r, 1), .w = &w.matrix, .y = alone.view});
        ASSERT_TRUE(SameBits(together.view.row(r), alone.view.row(0), c.n))
            << NameOf(isa) << " row " << r << " of " << c.rows << "x" << c.n << "x" << c.k;
      }
    }
  }
}

TEST(Linear, AnOrderOfColumnsChangesWhichInputsTheyMeetAndNoBit) {
  for (const LinearCase& c : LinearCases()) {
    if (!RowOf(c.format).integers) continue;
    Rng rng(static_cast<uint64_t>(c.rows + c.k));
    const OwnedWeights w(rng, c.format, 1, c.n, c.k), ordered(rng, w, 1);
    const uint16_t* order = ordered.matrix.order(0);
    const OwnedMatrix x(rng, c.rows, c.k);
    OwnedMatrix gathered(c.rows, c.k), expected(c.rows, c.n), y(c.rows, c.n);
    std::vector<float> by_column(static_cast<size_t>(c.k)), by_input = by_column;
    w.matrix.ReadRow(0, c.n - 1, by_column.data());
    ordered.matrix.ReadRow(0, c.n - 1, by_input.data());
    for (int64_t col = 0; col < c.k; ++col) {
      for (int64_t r = 0; r < c.rows; ++r) gathered.view.row(r)[col] = x.view.row(r)[order[col]];
      ASSERT_EQ(by_input[order[col]], by_column[static_cast<size_t>(col)]);
      ASSERT_EQ(ordered.matrix.At(0, c.n - 1, order[col]), w.matrix.At(0, c.n - 1, col));
    }
    for (Isa isa : TestIsas()) {
      TestContext test(isa, 2);
      Linear(test.context, {.x = gathered.view, .w = &w.matrix, .y = expected.view});
      Linear(test.context, {.x = x.view, .w = &ordered.matrix, .y = y.view});
      ASSERT_TRUE(SameBits(y.values.data(), expected.values.data(), c.rows * c.n))
          << NameOf(isa) << " " << NameOf(c.format) << " " << c.rows << "x" << c.n << "x" << c.k;
    }
  }
}

TEST(RmsNorm, ZeroCentredWeightsMatchKnownNumbers) {
  for (Isa isa : TestIsas()) {
    TestContext test(isa);
    OwnedMatrix x(1, 4), out(1, 4);
    x.values = {1, -2, 3, 0.5};
    x.view.data = x.values.data();
    const float weight[] = {0.1f, -0.2f, 0.0f, 0.3f};
    RmsNorm(test.context, {.x = x.view, .weight = weight, .weight_offset = 1.0f, .out = out.view});
    const double expected[] = {0.582794, -0.847701, 1.589439, 0.344378};
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(out.values[static_cast<size_t>(i)], expected[i], 1e-6);
  }
}

TEST(RmsNorm, AddsTheDeltaToTheResidualFirst) {
  Rng rng(5);
  for (Isa isa : TestIsas()) {
    TestContext test(isa), base(Isa::kBase);
    OwnedMatrix x(rng, 9, 37), delta(rng, 9, 37), weight(rng, 1, 37), out(9, 37), expected(9, 37);
    OwnedMatrix x2 = x;
    RmsNormArgs args{.x = x.view, .delta = delta.view, .weight = weight.view.data, .out = out.view};
    RmsNorm(test.context, args);
    args.x = x2.view;
    args.out = expected.view;
    RmsNorm(base.context, args);
    EXPECT_TRUE(SameBits(x.values.data(), x2.values.data(), 9 * 37));
    EXPECT_LT(RelativeError(out.view, expected.view), 1e-6);
  }
}

void CheckGatedNorm(Rng& rng, GateActivation activation) {
  const OwnedMatrix x(rng, 5, 3 * 24), gate(rng, 5, 3 * 24, 3.0), weight(rng, 1, 24);
  const OwnedMatrix out(5, 72), expected(5, 72);
  GatedNormArgs args{.x = x.view,
                     .gate = gate.view,
                     .weight = weight.view.data,
                     .head_dim = 24,
                     .activation = activation,
                     .out = expected.view};
  TestContext base(Isa::kBase);
  GatedNorm(base.context, args);
  for (Isa isa : TestIsas()) {
    TestContext test(isa);
    args.out = out.view;
    GatedNorm(test.context, args);
    EXPECT_LT(RelativeError(out.view, expected.view), 1e-6) << NameOf(isa);
  }
}

TEST(GatedNorm, NormalisesEachHeadThenGates) {
  Rng rng(6);
  CheckGatedNorm(rng, GateActivation::kSilu);
  CheckGatedNorm(rng, GateActivation::kSigmoid);
}

TEST(Route, SoftmaxTopTwoMatchesKnownNumbers) {
  for (Isa isa : TestIsas()) {
    TestContext test(isa);
    OwnedMatrix logits(1, 4);
    logits.values = {0.2f, 1.0f, -0.5f, 0.7f};
    logits.view.data = logits.values.data();
    int32_t ids[2];
    float weights[2];
    Route(test.context, {.logits = logits.view, .top_k = 2, .ids = ids, .weights = weights});
    EXPECT_EQ(ids[0], 1);
    EXPECT_EQ(ids[1], 3);
    EXPECT_NEAR(weights[0], 0.574443, 1e-6);
    EXPECT_NEAR(weights[1], 0.425557, 1e-6);
  }
}

struct Routed {
  int32_t ids[3];
  float weights[3];
};
Routed RouteOne(Isa isa, std::vector<float> logits, const float* bias, int32_t k,
                const RouterRule& rule) {
  TestContext test(isa);
  Routed routed = {};
  const auto experts = static_cast<int64_t>(logits.size());
  Route(test.context, {.logits = {logits.data(), 1, experts, experts},
                       .top_k = k,
                       .rule = rule,
                       .bias = bias,
                       .ids = routed.ids,
                       .weights = routed.weights});
  return routed;
}

TEST(Route, SigmoidSelectsWithTheBiasAndWeighsWithoutIt) {
  const float bias[] = {0.5f, -0.6f, 0.9f, 0.0f};
  for (Isa isa : TestIsas()) {
    const Routed r = RouteOne(isa, {0.2f, 1.0f, -0.5f, 0.7f}, bias, 2,
                              {.score = RouterScore::kSigmoid, .scale = 2.446f});
    EXPECT_EQ(r.ids[0], 0);
    EXPECT_EQ(r.ids[1], 2);
    EXPECT_NEAR(r.weights[0], 1.450216, 2e-6);
    EXPECT_NEAR(r.weights[1], 0.995784, 2e-6);
  }
}

TEST(Route, GroupsAreJudgedByTheirTwoBestAndTheOthersAreOut) {
  const std::vector<float> logits = {1.2f, -0.3f, 0.4f, 0.9f, -1.5f, 2.0f, 0.1f, 0.2f};
  const float bias[] = {0, 0.3f, 0, -0.5f, 0.6f, -0.9f, 0.2f, 0.2f};
  const float low[] = {-1, -1, -1, -1, -1.2f, -1.2f, -1.3f, -1.3f};
  const RouterRule rule{
      .score = RouterScore::kSigmoid, .groups = 4, .groups_kept = 2, .scale = 2.5f};
  for (Isa isa : TestIsas()) {
    const Routed r = RouteOne(isa, logits, bias, 3, rule);
    const int32_t ids[] = {0, 1, 7};
    const double weights[] = {1.101723, 0.610060, 0.788217};
    for (size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(r.ids[j], ids[j]);
      EXPECT_NEAR(r.weights[j], weights[j], 2e-6);
    }
    // Experts of dropped groups are out even when all kept sums are negative.
    const Routed negative = RouteOne(isa, logits, low, 3, rule);
    EXPECT_EQ(negative.ids[0], 0);
    EXPECT_EQ(negative.ids[1], 2);
    EXPECT_EQ(negative.ids[2], 3);
  }
}

TEST(Swiglu, TheLimitClampsGateAboveAndUpOnBothSides) {
  for (Isa isa : TestIsas()) {
    TestContext test(isa);
    float gate_up[] = {6, -3, 2, 5, -7, 1}, out[3];
    Swiglu(test.context, {.gate_up = {gate_up, 1, 6, 6}, .out = {out, 1, 3, 3}, .limit = 4.0f});
    const double expected[] = {16.0, 0.56911, 1.761594};
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(out[i], expected[i], 5e-6) << NameOf(isa);
  }
}

TEST(GatedNorm, GroupsMayHaveAWeightPerChannel) {
  for (Isa isa : TestIsas()) {
    TestContext test(isa);
    float x[] = {1, 2, 3, 4, -2, 0, 1, 1}, gate[] = {0, 1, -1, 2, 0, 0, 3, -3};
    const float weight[] = {1, 1, 1, 1, 0.5f, 2, 1, 1};
    GatedNorm(test.context, {.x = {x, 1, 8, 8},
                             .gate = {gate, 1, 8, 8},
                             .weight = weight,
                             .weight_per_channel = true,
                             .head_dim = 4,
                             .activation = GateActivation::kSigmoid,
                             .out = {x, 1, 8, 8}});
    const double expected[] = {0.182574,  0.533890, 0.294611, 1.286486,
                               -0.408248, 0,        0.777773, 0.038723};
    for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(x[i], expected[i], 3e-6) << NameOf(isa);
  }
}

TEST(Route, TiesGoToTheSmallerIdAndWeightsNeedNotBeRenormalised) {
  for (Isa isa : TestIsas()) {
    TestContext test(isa);
    OwnedMatrix logits(1, 5);
    logits.values = {1, 2, 2, 2, 0};
    logits.view.data = logits.values.data();
    int32_t ids[2];
    float weights[2];
    Route(test.context, {.logits = logits.view,
                         .top_k = 2,
                         .rule = {.renormalise = false},
                         .ids = ids,
                         .weights = weights});
    EXPECT_EQ(ids[0], 1);
    EXPECT_EQ(ids[1], 2);
    const double share = std::exp(2.0) / (std::exp(1.0) + 3 * std::exp(2.0) + 1);
    EXPECT_NEAR(weights[0], share, 1e-6);
    EXPECT_NEAR(weights[1], share, 1e-6);
  }
}

TEST(Experts, EveryCandidateAgreesWithTheReference) {
  for (const ExpertsCase& c : ExpertsCases()) {
    Mixture mixture(c);
    for (Compute compute : {Compute::kF32, Compute::kBF16}) {
      OwnedMatrix expected(c.tokens, c.hidden);
      TestContext base(Isa::kBase, 1, compute);
      mixture.args.out = expected.view;
      Experts(base.context, mixture.args);
      for (Isa isa : TestIsas()) {
        TestContext test(isa, 2, compute);
        OwnedMatrix out(c.tokens, c.hidden);
        mixture.args.out = out.view;
        SpoilWorkspace(test.context);
        Experts(test.context, mixture.args);
        // Activations near a rounding edge may differ by one bf16 step between fp32 and double
        // sums.
        const bool rounded = compute == Compute::kBF16 || RowOf(c.format).integers ||
                             RowOf(c.shared_format).integers;
        const double tolerance = rounded ? 2e-3 : 2e-6;
        EXPECT_LT(RelativeError(out.view, expected.view), tolerance)
            << NameOf(isa) << " " << c.tokens << " tokens of " << c.hidden;
      }
    }
  }
}

TEST(Experts, EachHasItsOwnOrderOfColumns) {
  for (const ExpertsCase& c : ExpertsCases()) {
    if (!RowOf(c.format).integers || !RowOf(c.shared_format).integers) continue;
    Mixture m(c);
    const OwnedWeights gate_up(m.rng, m.gate_up, 2), down(m.rng, m.down, 1);
    const OwnedWeights shared_gate_up(m.rng, m.shared_gate_up, 2);
    const OwnedWeights shared_down(m.rng, m.shared_down, 1);
    for (const auto& [routed, shared] : {std::pair(true, true), {true, false}, {false, true}}) {
      ExpertsArgs args = m.args;
      if (routed) {
        args.gate_up = &gate_up.matrix;
        args.down = &down.matrix;
      }
      if (shared && c.shared_width > 0) {
        args.shared_gate_up = &shared_gate_up.matrix;
        args.shared_down = &shared_down.matrix;
      }
      OwnedMatrix expected(c.tokens, c.hidden);
      TestContext base(Isa::kBase);
      args.out = expected.view;
      Experts(base.context, args);
      for (Isa isa : TestIsas()) {
        TestContext test(isa, 2);
        OwnedMatrix out(c.tokens, c.hidden);
        args.out = out.view;
        SpoilWorkspace(test.context);
        Experts(test.context, args);
        EXPECT_LT(RelativeError(out.view, expected.view), 2e-3)
            << NameOf(isa) << " " << NameOf(c.format) << " " << routed << shared;
      }
    }
  }
}

TEST(Experts, TokensMayShareRows) {
  for (const ExpertsCase& c : ExpertsCases()) {
    Mixture mixture(c);
    ExpertsArgs args = mixture.args;
    const int64_t rows = CeilDiv(c.tokens, int64_t{3});
    std::vector<int32_t> x_at;
    OwnedMatrix copied(c.tokens, c.hidden);
    for (int64_t t = 0; t < c.tokens; ++t) {
      x_at.push_back(static_cast<int32_t>(t * 7 % rows));
      std::copy_n(args.x.row(x_at.back()), c.hidden, copied.view.row(t));
    }
    for (auto [isa, compute] : TestArithmetics()) {
      if (isa == Isa::kBase && c.tokens > 20) continue;
      TestContext test(isa, 2, compute);
      OwnedMatrix want(c.tokens, c.hidden), got(c.tokens, c.hidden);
      args.x = copied.view;
      args.x_at = nullptr;
      args.out = want.view;
      Experts(test.context, args);
      args.x = mixture.args.x.first_rows(rows);
      args.x_at = x_at.data();
      args.out = got.view;
      SpoilWorkspace(test.context);
      Experts(test.context, args);
      ASSERT_TRUE(SameBits(got.values.data(), want.values.data(), c.tokens * c.hidden))
          << NameOf(isa);
    }
  }
}

TEST(Experts, TheDownProductHasTasksForEveryMember) {
  constexpr int64_t kHidden = 2048, kTopK = 8;
  for (int64_t members : {16, 64, 128}) {
    for (int64_t tokens : {1, 64, 2048}) {
      const int64_t experts = tokens == 1 ? kTopK : 128;
      const cpu::DownPlan plan = cpu::PlanDown(members, 1, experts, tokens * kTopK, kHidden);
      EXPECT_GE(plan.tasks, members) << tokens << " tokens, " << members << " members";
      EXPECT_EQ(plan.by_expert, tokens < 2048 && members * 2 > kHidden / 128);
      // The tasks cover every column once.
      EXPECT_EQ(plan.tasks * plan.cols, kHidden * (plan.by_expert ? experts : 1));
    }
  }
  // Few members share one loop of wide tasks.
  for (int64_t members : {1, 2, 8}) {
    const cpu::DownPlan plan = cpu::PlanDown(members, 1, 8, 8, kHidden);
    EXPECT_FALSE(plan.by_expert);
    EXPECT_EQ(plan.cols, 128);
    EXPECT_EQ(plan.tasks, 16);
  }
  EXPECT_EQ(cpu::PlanDown(2, 1, 17, 4096, 256).cols, 128);
  EXPECT_FALSE(cpu::PlanDown(2, 1, 17, 64, 256).by_expert);
  // With several nodes a task reads the weights of one.
  EXPECT_TRUE(cpu::PlanDown(2, 2, 8, 8, kHidden).by_expert);
  EXPECT_FALSE(cpu::PlanDown(2, 2, 128, 2048 * kTopK, kHidden).by_expert);
}

TEST(Experts, ManyMembersWithNarrowColumnsGiveTheSameBits) {
  const ExpertsCase c = {700, 1552, 3, 32, 16};
  Mixture mixture(c);
  const int64_t rows = c.tokens * (mixture.top_k + 1);
  ASSERT_FALSE(cpu::PlanDown(16, 1, 4, rows, c.hidden).by_expert);
  ASSERT_LT(cpu::PlanDown(16, 1, 4, rows, c.hidden).cols, 128);
  for (auto [isa, compute] : TestArithmetics()) {
    if (isa == Isa::kBase) continue;  // has one way
    OwnedMatrix one(c.tokens, c.hidden), many(c.tokens, c.hidden);
    TestContext alone(isa, 1, compute), members(isa, 16, compute);
    mixture.args.out = one.view;
    Experts(alone.context, mixture.args);
    mixture.args.out = many.view;
    Experts(members.context, mixture.args);
    ASSERT_TRUE(SameBits(one.values.data(), many.values.data(), c.tokens * c.hidden))
        << NameOf(isa);
  }
}

TEST(Experts, ATokensBitsDoNotDependOnTheTokensBesideItOrOnTheThreads) {
  for (const ExpertsCase& c : ExpertsCases()) {
    Mixture mixture(c);
    for (auto [isa, compute] : TestArithmetics()) {
      OwnedMatrix together(c.tokens, c.hidden), alone(1, c.hidden);
      TestContext one(isa, 1, compute), two(isa, 2, compute);
      mixture.args.out = together.view;
      Experts(one.context, mixture.args);
      OwnedMatrix by_two(c.tokens, c.hidden);
      mixture.args.out = by_two.view;
      SpoilWorkspace(two.context);
      Experts(two.context, mixture.args);
      ASSERT_TRUE(SameBits(by_two.values.data(), together.values.data(), c.tokens * c.hidden));
      TestContext nodes(isa, 3, compute, kFakeNodes);
      OwnedMatrix on_nodes(c.tokens, c.hidden);
      mixture.args.out = on_nodes.view;
      Experts(nodes.context, mixture.args);
      ASSERT_TRUE(SameBits(on_nodes.values.data(), together.values.data(), c.tokens * c.hidden));
      for (int64_t t = 0; t < c.tokens; t += 1 + c.tokens / 8) {
        Experts(one.context, mixture.Token(t, alone.view));
        ASSERT_TRUE(SameBits(together.view.row(t), alone.view.row(0), c.hidden))
            << NameOf(isa) << " token " << t << " of " << c.tokens;
      }
    }
  }
}

}  // namespace
}  // namespace braid::ops
