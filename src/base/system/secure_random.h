// Unpredictable random bytes, for names that work like keys. Code that must be repeatable uses
// base/rng.h.
#pragma once

#include <cstddef>
#include <string>

namespace braid {

// `bytes` bytes from the kernel's random number generator, as lower-case hex.
std::string SecureRandomHex(size_t bytes);

}  // namespace braid
