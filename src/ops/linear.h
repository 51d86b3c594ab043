// y = x W^T. An output adds its k terms one after the other, k ascending, whatever the number of
// rows, threads or panels at once: equal bits on every path are a consequence.
#pragma once

#include "ops/op.h"
#include "ops/packed.h"

namespace braid::ops {

struct LinearArgs {
  Matrix x;                         // [rows, k]
  const PackedMatrix* w = nullptr;  // one matrix [n, k]
  Matrix y;                         // [rows, n]
  // Products in fp32 even where the device computes in bf16 (routers, gates).
  bool exact = false;
  // Touches nothing that the op before writes, nor writes what that reads: a device may run both
  // side by side.
  bool beside = false;
};
void Linear(const OpContext& context, const LinearArgs& args);

// out = silu(gate) * up, gate_up = [gate | up] along the columns. With a limit:
// min(silu(gate), limit) * clamp(up, -limit, limit).
struct SwigluArgs {
  Matrix gate_up;      // [rows, 2 * n]
  Matrix out;          // [rows, n]
  float limit = 0.0f;  // 0: none
};
void Swiglu(const OpContext& context, const SwigluArgs& args);

}  // namespace braid::ops
