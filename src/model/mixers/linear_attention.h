// What the two halves of the linear mixer share: which weights it has and where the parts of its
// input projection lie.
#pragma once

#include <optional>

#include "model/spec.h"

namespace braid {

// Positions in the list of WeightsOf; those that a mixer has not are absent.
struct LinearSlots {
  size_t in = 0;
  size_t out = 1;
  std::optional<size_t> gates;
  std::optional<size_t> conv, a_log, dt_bias;
  size_t norm = 0;
  std::optional<size_t> q_norm, k_norm;
  std::optional<size_t> gate_up, decay_up;  // from gate_rank channels to all
};
LinearSlots SlotsOf(const LinearAttention& m);

// Rows of the input projection: q, k, v, output gate; and of the small one beside it: update gate,
// decay.
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
