// What the two halves of the linear mixer share: where the parts of its input projection lie.
#pragma once

#include "model/spec.h"

namespace braid {

// Rows of the input projection (q, k, v, output gate) and of the projection of gates (update gate,
// decay).
struct LinearRows {
  int64_t key = 0;  // of q, and of k
  int64_t value = 0;
  int64_t conv = 0;  // q, k and v
  int64_t gate = 0;
  int64_t update = 0;
  int64_t decay = 0;
  int64_t in() const { return conv + gate; }
  int64_t gates() const { return update + decay; }
};
LinearRows RowsOf(const LinearAttention& m);

}  // namespace braid
