// Tables that GGUF's types of few bits name values by: an entry is eight values of 2 bits each
// (kIq1…, kIq2…) or four in 4 bits (kIq3…), the first in the lowest bits. What the values mean is
// in gguf_iq.cc.
#pragma once

#include <cstdint>

namespace braid {

extern const uint16_t kIq1SGrid[2048];
extern const uint16_t kIq2XxsGrid[256];
extern const uint16_t kIq2XsGrid[512];
extern const uint16_t kIq2SGrid[1024];
extern const uint16_t kIq3XxsGrid[256];
extern const uint16_t kIq3SGrid[512];

}  // namespace braid
