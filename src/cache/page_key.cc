// See the header.
#include "cache/page_key.h"

#include <openssl/evp.h>

#include <cstring>
#include <string>

#include "base/check.h"

namespace braid {
namespace {

PageKey Hash(const void* data, size_t size) {
  unsigned char sum[EVP_MAX_MD_SIZE];
  CHECK(EVP_Digest(data, size, sum, nullptr, EVP_sha256(), nullptr) == 1,
        "OpenSSL cannot compute SHA-256");
  PageKey key;
  std::memcpy(&key, sum, sizeof(key));
  return key;
}

}  // namespace

// The lengths part the names: ("ab", "c") is not ("a", "bc").
PageKey RootPageKey(std::string_view tenant, std::string_view salt) {
  std::string text = "braid pages\n" + std::to_string(tenant.size()) + '\n';
  text.append(tenant).append(salt);
  return Hash(text.data(), text.size());
}

PageKey ChildPageKey(const PageKey& parent, const BlockTokens& tokens) {
  char bytes[sizeof(parent) + sizeof(tokens)];
  std::memcpy(bytes, &parent, sizeof(parent));
  std::memcpy(bytes + sizeof(parent), tokens.data(), sizeof(tokens));
  return Hash(bytes, sizeof(bytes));
}

}  // namespace braid
