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
#include <vector>

#include "base/result.h"
#include "handoff/message.h"

namespace braid::handoff {

enum class Side : uint8_t { kPrefill, kDecode };

struct Nonces {
  std::string decode, prefill;
};

inline constexpr size_t kKeysMax = 8, kKeyBytesMin = 16;

// The secrets of a file's text, one of a line; an error names the line and shows nothing of it. A
// prefill engine proves that it has the first one. A decode engine takes each and answers with the
// one that was proved, so a secret is replaced while both are in use.
Result<std::vector<std::string>> KeysIn(std::string_view text);

// HMAC-SHA256 of side and nonces.
std::string Prove(std::string_view key, Side side, const Nonces& nonces);
// In a time that does not depend on where they differ.
bool SameProof(std::string_view a, std::string_view b);
// The one of `keys` that a prefill engine proved; null: none.
const std::string* KeyProved(const std::vector<std::string>& keys, std::string_view proof,
                             const Nonces& nonces);
SessionId SessionOf(const Nonces& nonces);

// What of two fingerprints, lines of "name: value", differs first, in words; empty: nothing.
std::string Difference(std::string_view here, std::string_view there);

}  // namespace braid::handoff
