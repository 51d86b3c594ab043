// Rows on their way to a product on another rank, in the precision in which it reads them: as they
// are, rounded to bf16, or quantised to int8 with what their scale is made of. Rounding again
// changes nothing, so the product has the same operand, bit for bit, as from the rows themselves.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/gemm/gemm.h"
#include "ops/weight_format.h"
#include "tensor/device.h"

namespace braid::ops {

class SentRows {
 public:
  // Rows of so many columns for weights of `format`. The device computes as those of all ranks do.
  SentRows(const Device& device, WeightFormat format, int64_t cols);

  int64_t floats() const;         // that a row takes on its way, filled up to whole ones
  int64_t scratch_bytes() const;  // that Pack needs
  void Pack(const float* row, std::byte* scratch, float* to) const;
  void Unpack(const float* from, float* row) const;

  // The same for rows of which these columns are a part. Codes need the largest magnitude of the
  // whole row, which the receiver has to know too.
  bool rounds() const;  // false: rows travel as they are
  bool codes() const;
  int64_t part_floats() const;
  void PackPart(const float* columns, float largest, std::byte* scratch, float* to) const;
  void UnpackPart(const float* from, float largest, float* columns) const;
  // Larger than all others if a number is not finite; as bits, magnitudes order like integers.
  static float Largest(const float* row, int64_t cols);

 private:
  const cpu::GemmKernel* kernel_;  // null: a reference reads the rows
  const int64_t cols_;
  const int64_t element_bytes_;
};

}  // namespace braid::ops
