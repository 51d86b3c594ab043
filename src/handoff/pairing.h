// How two engines find that they are partners: the same protocol, the same key, the same model in
// the same form. Pure functions.
//
//   decode -> prefill   Hello {fingerprint, its nonce}
//   prefill -> decode   Hello {fingerprint, its nonce, its proof}
//   decode -> prefill   Hello {its proof}
//
// The key says who may connect; what is sent afterwards is neither encrypted nor signed.
#pragma once

#include <string>
#include <string_view>

#include "handoff/message.h"

namespace braid::handoff {

enum class Side : uint8_t { kPrefill, kDecode };

struct Nonces {
  std::string decode, prefill;
};

// HMAC-SHA256 of side and nonces.
std::string Prove(std::string_view key, Side side, const Nonces& nonces);
// In a time that does not depend on where they differ.
bool SameProof(std::string_view a, std::string_view b);
SessionId SessionOf(const Nonces& nonces);

// What of two fingerprints, lines of "name: value", differs first, in words; empty: nothing.
std::string Difference(std::string_view here, std::string_view there);

}  // namespace braid::handoff
