// What the CPU candidates share: the kernel table for a device, loops over the pool, and the
// packing of left operands.
#pragma once

#include <algorithm>

#include "ops/cpu/kernels/table.h"
#include "ops/op.h"
#include "ops/packed.h"

namespace braid::ops::cpu {

// The kernels of the device's instruction set; null below AVX2.
const braid::cpu::KernelTable* KernelsFor(const Device& device);

// The widest of its kernels whose vectors divide both sizes of a head (attention, recurrence); null
// if none do.
const braid::cpu::KernelTable* KernelsFor(const Device& device, int64_t size, int64_t other_size);

// nullptr, or why a device without kernels cannot run.
const char* NeedsAvx2(const Device& device);

// Work below which a loop is not worth waking anybody: about 5 microseconds of one core.
inline constexpr double kSerialFlops = 100e3;

// f(task, member) for all tasks: on the caller alone when the whole loop is small.
template <class F>
void ForTasks(const OpContext& context, int64_t tasks, double flops, const F& f) {
  if (flops < kSerialFlops || context.pool->threads() == 1) {
    for (int64_t i = 0; i < tasks; ++i) f(i, 0);
    return;
  }
  context.pool->Run(tasks, f);
}

// Left operands of products: rows in blocks of kRowBlock (the last shorter, R rows), each block
// [k][R]; k padded to even with zeros. `ids` picks rows of x, or null for 0, 1, ….
struct PackedRows {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t k = 0;  // padded

  int64_t blocks() const { return CeilDiv(rows, braid::cpu::kRowBlock); }
  int64_t floats() const { return rows * k; }
  float* block(int64_t b) const { return data + b * braid::cpu::kRowBlock * k; }
  int64_t block_rows(int64_t b) const {
    return std::min<int64_t>(braid::cpu::kRowBlock, rows - b * braid::cpu::kRowBlock);
  }
};
inline int64_t PaddedDepth(int64_t k) { return RoundUp(k, 2); }

// Fills block b; `round` rounds to bf16.
void PackRowBlock(const PackedRows& to, int64_t b, const Matrix& x, const int32_t* ids, bool round);

// One product task over panels of one matrix; see braid::cpu::GemmTask.
braid::cpu::GemmTask TaskOf(const PackedRows& x, const PackedMatrix& w, int64_t matrix);

}  // namespace braid::ops::cpu
