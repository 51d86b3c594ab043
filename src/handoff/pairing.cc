// Proofs by OpenSSL's HMAC; see the header.
#include "handoff/pairing.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>
#include <limits>

#include "base/check.h"

namespace braid::handoff {
namespace {

std::string Joined(Side side, const Nonces& nonces) {
  return fmt::format("{} {}:{} {}:{}", side == Side::kPrefill ? "prefill" : "decode",
                     nonces.decode.size(), nonces.decode, nonces.prefill.size(), nonces.prefill);
}

std::string_view TakeLine(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}
std::string_view NameIn(std::string_view line) { return line.substr(0, line.find(": ")); }
std::string_view ValueIn(std::string_view line) {
  const size_t colon = line.find(": ");
  return colon == std::string_view::npos ? "nothing" : line.substr(colon + 2);
}

}  // namespace

std::string Prove(std::string_view key, Side side, const Nonces& nonces) {
  const std::string text = Joined(side, nonces);
  unsigned char proof[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const void* done =
      ::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(text.data()), text.size(), proof, &size);
  CHECK(done != nullptr, "OpenSSL cannot compute HMAC-SHA256");
  return {reinterpret_cast<const char*>(proof), size};
}

bool SameProof(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

SessionId SessionOf(const Nonces& nonces) {
  const std::string sum = Prove("session", Side::kDecode, nonces);
  int64_t number = 0;
  std::memcpy(&number, sum.data(), sizeof(number));
  return SessionId(number & std::numeric_limits<int64_t>::max());
}

std::string Difference(std::string_view here, std::string_view there) {
  while (!here.empty() || !there.empty()) {
    const std::string_view mine = TakeLine(here), theirs = TakeLine(there);
    if (mine == theirs) continue;
    const std::string_view name = NameIn(mine.empty() ? theirs : mine);
    return fmt::format("{} is {} there and {} here", name, ValueIn(theirs), ValueIn(mine));
  }
  return {};
}

}  // namespace braid::handoff
