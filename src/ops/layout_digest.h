// What a format's panels look like, as a number: files that hold panels say with it which layout
// they have.
#pragma once

#include <string>

#include "ops/weight_format.h"

namespace braid::ops {

// Sixteen hexadecimal digits, a function of how PackCodes lays the format's codes and scales out.
// Whoever changes a layout changes its digest, without further thought.
std::string LayoutDigest(WeightFormat format);

}  // namespace braid::ops
