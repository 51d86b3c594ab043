// Inverse frequencies of rotary positions, with YaRN's interpolation where the spec asks for it.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/spec.h"

namespace braid {
namespace {

// The pair that turns `turns` times within the original context.
double PairAt(const RotarySpec& rotary, double turns) {
  const double wavelength = rotary.yarn->original_tokens / (turns * 2 * std::numbers::pi);
  return rotary.dims * std::log(wavelength) / (2 * std::log(rotary.theta));
}

}  // namespace

void FillInverseFrequencies(const RotarySpec& rotary, float* out) {
  double low = 0, high = 0;
  if (rotary.yarn) {
    low = std::max(std::floor(PairAt(rotary, rotary.yarn->beta_fast)), 0.0);
    high = std::min(std::ceil(PairAt(rotary, rotary.yarn->beta_slow)), rotary.dims - 1.0);
    if (low == high) high += 0.001;
  }
  for (int32_t j = 0; j < rotary.dims / 2; ++j) {
    double frequency = 1.0 / std::pow(rotary.theta, 2.0 * j / rotary.dims);
    if (rotary.yarn) {
      const double ramp = std::clamp((j - low) / (high - low), 0.0, 1.0);
      frequency = frequency * (1 - ramp) + frequency / rotary.yarn->factor * ramp;
    }
    out[j] = static_cast<float>(frequency);
  }
}

}  // namespace braid
