// A row as integers and one scale, as activations of quantised products and int8 caches are.
#pragma once

#include <cstdint>
#include <vector>

namespace braid::ops::reference {

// x = values * scale: scale = max |x| / 127, values = x * (127 / max |x|) to the nearest integer,
// ties to even. All zero where max |x| < 2^-100; a scale of NaN where x is not finite.
struct Quantised {
  std::vector<float> values;
  float scale = 0.0f;
};
Quantised Quantise(const float* x, int64_t count);

}  // namespace braid::ops::reference
