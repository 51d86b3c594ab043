// The products' arithmetic, bit for bit: what the tile instructions do is written out in scalar
// code.
#include <gtest/gtest.h>

#include "ops/linear.h"
#include "ops/test_context.h"

namespace braid::ops {
namespace {

bool HasIsa(Isa isa) { return isa <= BestIsa(DetectCpu()); }

float Flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? 0.0f : x; }
float Operand(float x) { return Flush(RoundToBf16(Flush(x))); }

// TDPBF16PS: per 32 terms the even and the odd ones apart, each from zero with fused
// multiply-adds; their sum is added to the output. Every result that is denormal becomes zero, of
// whichever sign.
float TileProduct(const float* x, const PackedMatrix& w, int64_t row) {
  float sum = 0;
  for (int64_t step = 0; step < w.k; step += 32) {
    float parts[2] = {0, 0};
    for (int64_t k = step; k < std::min(w.k, step + 32); ++k) {
      float& part = parts[k % 2];
      part = Flush(std::fma(Operand(x[k]), Flush(w.At(0, row, k)), part));
    }
    sum = Flush(sum + Flush(parts[0] + parts[1]));
  }
  return sum;
}

TEST(TileProduct, IsWhatTheInstructionIsDocumentedToDo) {
  if (!HasIsa(Isa::kAmx)) GTEST_SKIP() << "no AMX here";
  TestContext test(Isa::kAmx, 1, Compute::kBF16);
  // The second scale brings products below the normal numbers, the third operands.
  for (double scale : {1.0, 1e-37, 3e-39}) {
    for (int64_t k : {64, 700}) {
      Rng rng(11);
      OwnedWeights w(rng, WeightFormat::kBF16, 1, 40, k);
      OwnedMatrix x(rng, 37, k, scale), y(37, 40);
      Linear(test.context, {.x = x.view, .w = &w.matrix, .y = y.view});
      for (int64_t r = 0; r < 37; ++r) {
        for (int64_t n = 0; n < 40; ++n) {
          const float expected = TileProduct(x.view.row(r), w.matrix, n);
          ASSERT_EQ(y.view.row(r)[n], expected)
              << "scale " << scale << " row " << r << " output " << n;
        }
      }
    }
  }
}

// More rows than one pass takes, and more depth.
TEST(Linear, ManyRowsCutAnywhereGiveTheSameBits) {
  constexpr int64_t kRows = 557, kOutputs = 200, kDepth = 1090;
  Rng rng(3);
  OwnedWeights w(rng, WeightFormat::kBF16, 1, kOutputs, kDepth);
  OwnedMatrix x(rng, kRows, kDepth);
  for (Isa isa : TestIsas()) {
    if (isa == Isa::kBase) continue;  // its rows are computed one by one
    TestContext test(isa, 2, Compute::kBF16);
    OwnedMatrix together(kRows, kOutputs), part(kRows, kOutputs);
    Linear(test.context, {.x = x.view, .w = &w.matrix, .y = together.view});
    for (int64_t rows : {1, 2, 15, 16, 17, 31, 32, 33, 48, 49, 96, 100, 512, 540}) {
      const int64_t first = kRows - rows;
      Linear(test.context, {.x = RowsOf(x.view, first, rows), .w = &w.matrix, .y = part.view});
      for (int64_t r = 0; r < rows; ++r) {
        ASSERT_TRUE(SameBits(part.view.row(r), together.view.row(first + r), kOutputs))
            << NameOf(isa) << " row " << r << " of " << rows;
      }
    }
  }
}

}  // namespace
}  // namespace braid::ops
