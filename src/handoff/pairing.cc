// Proofs by OpenSSL's HMAC; see the header.
#include "handoff/pairing.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "base/check.h"
#include "base/text/named_lines.h"

namespace braid::handoff {
namespace {

std::string Joined(Side side, const Nonces& nonces) {
  return fmt::format("{} {}:{} {}:{}", side == Side::kPrefill ? "prefill" : "decode",
                     nonces.decode.size(), nonces.decode, nonces.prefill.size(), nonces.prefill);
}

}  // namespace

Result<std::vector<std::string>> KeysIn(std::string_view text) {
  const auto bad = [](std::string message) { return Error{ErrorCode::kInvalid, message}; };
  while (text.ends_with('\n')) text.remove_suffix(1);
  if (text.empty()) return bad("holds no secret; write one on a line of its own");
  std::vector<std::string> keys;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    keys.emplace_back(text.substr(begin, end - begin));
    if (keys.back().size() < kKeyBytesMin) {
      return bad(fmt::format("the secret of line {} has {} bytes, must have at least {}",
                             keys.size(), keys.back().size(), kKeyBytesMin));
    }
    if (keys.size() > kKeysMax) {
      return bad(fmt::format("has more than {} lines, one secret each", kKeysMax));
    }
    begin = end + 1;
  }
  return keys;
}

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

const std::string* KeyProved(const std::vector<std::string>& keys, std::string_view proof,
                             const Nonces& nonces) {
  const std::string* found = nullptr;
  for (const std::string& key : keys) {  // all, so that the time does not say which
    if (SameProof(proof, Prove(key, Side::kPrefill, nonces))) found = &key;
  }
  return found;
}

SessionId SessionOf(const Nonces& nonces) {
  const std::string sum = Prove("session", Side::kDecode, nonces);
  int64_t number = 0;
  std::memcpy(&number, sum.data(), sizeof(number));
  return SessionId(number & std::numeric_limits<int64_t>::max());
}

std::string Difference(std::string_view here, std::string_view there) {
  const std::optional<LineDifference> found = FirstDifference(here, there);
  if (!found) return {};
  return fmt::format("{} is {} there and {} here", found->name, found->second, found->first);
}

}  // namespace braid::handoff
