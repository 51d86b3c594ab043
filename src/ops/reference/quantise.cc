// Scale and integers of a row.
#include "ops/reference/quantise.h"

#include <algorithm>
#include <cmath>

namespace braid::ops::reference {

Quantised Quantise(const float* x, int64_t count) {
  Quantised row{.values = std::vector<float>(x, x + count)};
  float most = 0;
  bool finite = true;
  for (float v : row.values) {
    finite = finite && std::isfinite(v);
    most = std::max(most, std::abs(v));
  }
  const bool some = finite && most >= 0x1p-100f;
  row.scale = !finite ? NAN : some ? most / 127.0f : 0.0f;
  const float factor = some ? 127.0f / most : 0.0f;
  for (float& v : row.values) v = some ? std::nearbyint(v * factor) : 0.0f;
  return row;
}

}  // namespace braid::ops::reference
