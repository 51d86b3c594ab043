// The checksum of a part's bytes: 16 lanes of 64 bits, each a polynomial of every 16th word modulo
// kFactor * 2^32 - 1, a prime. It finds damage, not forgery. Any thread.
//
// A change of its values is a change of kProtocolVersion (message.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace braid::handoff {

uint64_t Checksum(const std::byte* data, size_t bytes);

}  // namespace braid::handoff
