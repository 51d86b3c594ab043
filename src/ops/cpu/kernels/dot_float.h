// GEMM in fp32: every term is a fused multiply-add, in ascending order. Weights are fp32, or
// bf16 that is widened as it is read; activations are cut into steps as kernels/gemm.h says,
// of kFloatStep elements.
#pragma once

#include "ops/cpu/kernels/dot.h"

namespace braid::ops::cpu {

template <class V, bool kBf16>
struct FloatLines {
  using Sum = typename V::F;
  using Line = Sum;
  using Activation = Sum;
  using Result = Sum;
  static constexpr int kVecs = 16 / V::kLanes;
  static constexpr int kTerms = kBf16 ? 2 : 1;
  static constexpr int64_t kStep = kFloatStep, kBlockRows = kFloatRows;
  // As many sums as 32 registers of 16 lanes or 16 of 8 allow, and several streams for one row.
  static constexpr int kRows = 6, kPanels = V::kLanes == 16 ? 4 : 1;
  static constexpr int kFewRows = V::kLanes == 16 ? kRows : 1, kPanelsFew = 4;
  static int64_t RowBytes(int64_t depth) { return 4 * depth; }
  template <int R, int P>
  static void Tile(const LineTile& tile) {
    WholeTile<FloatLines, R, P>(tile);
  }
  static Sum Start(const LineTile&, int) { return V::Zero(); }
  static Line Load(const std::byte* p, int term) {
    if (!kBf16) return V::Load(reinterpret_cast<const float*>(p));
    return term == 0 ? V::PairFirst(p) : V::PairSecond(p);
  }
  static Activation LoadActivation(const std::byte* p) {
    return V::Set1(*reinterpret_cast<const float*>(p));
  }
  static Sum Dot(Sum sum, Activation a, Line b) { return V::Fma(a, b, sum); }
  static Result Finish(const LineTile&, int, Sum sum, const std::byte*, int) { return sum; }
  static void Store(float* y, Result value, int64_t lanes) {
    if (lanes >= V::kLanes) return V::Store(y, value);
    if (lanes > 0) V::StoreSome(y, value, lanes);
  }
};

template <class V>
void FloatGemm(const GemmTask& t) {
  t.bf16 ? DotGemm<FloatLines<V, true>>::Run(t) : DotGemm<FloatLines<V, false>>::Run(t);
}

}  // namespace braid::ops::cpu
