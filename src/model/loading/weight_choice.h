// In which formats the weights of a model are kept. Pure.
#pragma once

#include <optional>

#include "model/spec.h"
#include "ops/packed.h"

namespace braid {

// The formats in which matrices are kept.
struct WeightChoice {
  std::optional<ops::WeightFormat> format;  // none: as the checkpoint stores them
  bool head = false;                        // a quantised format holds for embedding and head too
  // Codes whose columns would be kept in another order than the inputs' are expanded: for devices
  // that have no kernel for them.
  bool inputs_in_order = false;
};

// False for matrices that decide (routers, gates) and for rows longer than 65536, the longest sum
// of 8-bit products that 32 bits hold.
bool MayQuantise(const WeightSpec& weight);

// The weight in memory, without data. `stored` is the format that keeps what the checkpoint stores
// (BoundWeight::stored_as); vectors become fp32.
Weight LayoutOf(const WeightSpec& spec, ops::WeightFormat stored, const WeightChoice& choice);
// Bytes of that.
int64_t PackedBytes(const WeightSpec& spec, const Weight& weight);

}  // namespace braid
