// GEMM in fp32: every term is a fused multiply-add, in ascending order. Weights are fp32, or fp16
// or bf16 that is widened as it is read; activations are cut into steps as kernels/gemm.h says, of
// kFloatStep elements.
#pragma once

#include "ops/cpu/kernels/dot.h"
#include "ops/cpu/kernels/gemm_fp8.h"

namespace braid::ops::cpu {

template <class V, WeightFormat kFormat>
struct FloatLines {
  using Sum = typename V::F;
  using Line = Sum;
  using Activation = Sum;
  using Result = Sum;
  static constexpr int kVecs = 16 / V::kLanes;
  static constexpr int kTerms = kFormat == WeightFormat::kF32 ? 1 : 2;
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
    if (kFormat == WeightFormat::kF32) return V::Load(reinterpret_cast<const float*>(p));
    if (kFormat == WeightFormat::kF16) return term == 0 ? V::F16First(p) : V::F16Second(p);
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

// The kernels with fp32 activations of a vector type. Fused multiply-adds in ascending order have
// the same bits on every instruction set.
template <class V, CpuNeed kNeeds>
struct FloatKernels {
  static constexpr auto kF32 = DotGemm<FloatLines<V, WeightFormat::kF32>>::Run;
  static constexpr auto kF16 = DotGemm<FloatLines<V, WeightFormat::kF16>>::Run;
  static constexpr auto kBf16 = DotGemm<FloatLines<V, WeightFormat::kBF16>>::Run;
  static constexpr auto kFp8 = Fp8Gemm<V, V, kBf16, kFloatRows, 4>::Run;
  static constexpr GemmKernel kAll[] = {
      {WeightFormat::kF32, kNeeds, &kF32Rows, true, PackF32Rounded, kF32},
      {WeightFormat::kF32, kNeeds, &kF32Rows, false, PackF32, kF32},
      {WeightFormat::kF16, kNeeds, &kF32Rows, true, PackF32Rounded, kF16},
      {WeightFormat::kF16, kNeeds, &kF32Rows, false, PackF32, kF16},
      {WeightFormat::kBF16, kNeeds, &kF32Rows, true, PackF32Rounded, kBf16},
      {WeightFormat::kBF16, kNeeds, &kF32Rows, false, PackF32, kBf16},
      {WeightFormat::kF8, kNeeds, &kF32RowsOf128, true, PackF32Rounded, kFp8},
      {WeightFormat::kF8, kNeeds, &kF32RowsOf128, false, PackF32, kFp8},
  };
};

}  // namespace braid::ops::cpu
