// Random bytes that nobody can predict, for names that work like keys. Everything that must be
// repeatable uses base/rng.h.
#pragma once

#include <cstddef>
#include <string>

namespace braid {

// So many bytes of the kernel's random number generator, two lower-case hex digits each.
std::string SecureRandomHex(size_t bytes);

}  // namespace braid
