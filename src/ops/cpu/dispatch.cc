// Choice of kernels by device, and packing of left operands.
#include "ops/cpu/dispatch.h"

namespace braid::ops::cpu {

const braid::cpu::KernelTable* KernelsFor(const Device& device) {
  if (device.isa >= Isa::kAvx512) return &braid::cpu::Avx512Kernels();
  return device.isa >= Isa::kAvx2 ? &braid::cpu::Avx2Kernels() : nullptr;
}

const braid::cpu::KernelTable* KernelsFor(const Device& device, int64_t size, int64_t other_size) {
  for (Isa isa : {Isa::kAvx512, Isa::kAvx2}) {
    if (device.isa < isa) continue;
    const braid::cpu::KernelTable* kernels = KernelsFor({isa, device.compute});
    if (size % kernels->lanes == 0 && other_size % kernels->lanes == 0) return kernels;
  }
  return nullptr;
}

const char* NeedsAvx2(const Device& device) {
  return KernelsFor(device) ? nullptr : "needs AVX2 with FMA";
}

void PackRowBlock(const PackedRows& to, int64_t b, const Matrix& x, const int32_t* ids,
                  bool round) {
  const int64_t rows = to.block_rows(b);
  float* out = to.block(b);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t i = b * braid::cpu::kRowBlock + r;
    const float* row = x.row(ids ? ids[i] : i);
    if (round) {
      for (int64_t k = 0; k < x.cols; ++k) out[k * rows + r] = RoundToBf16(row[k]);
    } else {
      for (int64_t k = 0; k < x.cols; ++k) out[k * rows + r] = row[k];
    }
    for (int64_t k = x.cols; k < to.k; ++k) out[k * rows + r] = 0.0f;
  }
}

braid::cpu::GemmTask TaskOf(const PackedRows& x, const PackedMatrix& w, int64_t matrix) {
  CHECK(PaddedDepth(w.k) == x.k, "operands of {} and {} terms", x.k, w.k);
  return {.x = x.data,
          .rows = x.rows,
          .k = x.k,
          .w = w.panel(matrix, 0),
          .panel_bytes = w.panel_bytes(),
          .bf16 = w.format == WeightFormat::kBF16,
          .panel_begin = 0,
          .panel_end = w.panels(),
          .n = w.n,
          .y = nullptr,
          .y_stride = 0};
}

}  // namespace braid::ops::cpu
