// By OpenSSL's EVP; see the header.
#include "tiers/page_cipher.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/system/file.h"

namespace braid {
namespace {

constexpr size_t kDigits = 64, kFileBytesMax = 4096;

// What one key is for.
std::array<unsigned char, 32> Derive(std::span<const std::byte> key, std::string_view purpose) {
  std::array<unsigned char, 32> out;
  unsigned size = 0;
  CHECK(::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
               reinterpret_cast<const unsigned char*>(purpose.data()), purpose.size(), out.data(),
               &size) != nullptr,
        "OpenSSL cannot compute HMAC-SHA256");
  return out;
}

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// One block of AES-256, by which 16 bytes become 16 others.
PageKey Permute(const std::array<unsigned char, 32>& key, const PageKey& in, bool encrypt) {
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  PageKey out;
  int size = 0;
  CHECK(context != nullptr &&
            EVP_CipherInit_ex(context, EVP_aes_256_ecb(), nullptr, key.data(), nullptr, encrypt) ==
                1 &&
            EVP_CIPHER_CTX_set_padding(context, 0) == 1 &&
            EVP_CipherUpdate(context, reinterpret_cast<unsigned char*>(&out), &size,
                             reinterpret_cast<const unsigned char*>(&in), sizeof(in)) == 1 &&
            size == sizeof(out),
        "OpenSSL cannot compute AES-256");
  EVP_CIPHER_CTX_free(context);
  return out;
}

EVP_CIPHER_CTX* Of(void* context) { return static_cast<EVP_CIPHER_CTX*>(context); }

}  // namespace

Result<PageCipher> PageCipher::Load(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(path, kFileBytesMax));
  size_t digits = text.size();
  while (digits > 0 && (text[digits - 1] == '\n' || text[digits - 1] == '\r')) --digits;
  std::array<std::byte, 32> key{};
  bool good = digits == kDigits;
  for (size_t i = 0; good && i < kDigits; i += 2) {
    const int high = DigitOf(text[i]), low = DigitOf(text[i + 1]);
    good = high >= 0 && low >= 0;
    key[i / 2] = static_cast<std::byte>(high * 16 + low);
  }
  ::OPENSSL_cleanse(text.data(), text.size());
  if (!good) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: not a key; it must be {} hex digits in a line, as `openssl rand "
                             "-hex 32` prints them",
                             path, kDigits),
                 "cache_key_file"};
  }
  PageCipher cipher(key);
  ::OPENSSL_cleanse(key.data(), key.size());
  return cipher;
}

PageCipher::PageCipher(std::span<const std::byte, 32> key)
    : pages_(Derive(key, "braid pages")), names_(Derive(key, "braid page keys")) {
  const std::array<unsigned char, 32> id = Derive(key, "braid key id");
  for (int i = 0; i < 8; ++i) id_ += fmt::format("{:02x}", id[static_cast<size_t>(i)]);
}

PageCipher::~PageCipher() {
  ::OPENSSL_cleanse(pages_.data(), pages_.size());
  ::OPENSSL_cleanse(names_.data(), names_.size());
}

PageKey PageCipher::Hide(const PageKey& key) const { return Permute(names_, key, true); }
PageKey PageCipher::Show(const PageKey& hidden) const { return Permute(names_, hidden, false); }

PageCipher::Nonce PageCipher::NewNonce() {
  Nonce nonce;
  CHECK(::RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()),
                     static_cast<int>(nonce.size())) == 1,
        "OpenSSL has no random bytes");
  return nonce;
}

PageCipher::Stream::Stream(const PageCipher& cipher, const Nonce& nonce, std::string_view bound,
                           bool encrypt)
    : context_(EVP_CIPHER_CTX_new()) {
  int size = 0;
  static_assert(sizeof(Nonce) == 12, "the length that GCM has unless told otherwise");
  CHECK(context_ != nullptr &&
            EVP_CipherInit_ex(Of(context_), EVP_aes_256_gcm(), nullptr, cipher.pages_.data(),
                              reinterpret_cast<const unsigned char*>(nonce.data()), encrypt) == 1 &&
            EVP_CipherUpdate(Of(context_), nullptr, &size,
                             reinterpret_cast<const unsigned char*>(bound.data()),
                             static_cast<int>(bound.size())) == 1,
        "OpenSSL cannot compute AES-256-GCM");
}

PageCipher::Stream::~Stream() { EVP_CIPHER_CTX_free(Of(context_)); }

void PageCipher::Stream::Add(std::span<const std::byte> in, std::byte* out) {
  constexpr size_t kAtOnce = 1 << 30;  // OpenSSL counts in ints
  while (!in.empty()) {
    const size_t count = std::min(in.size(), kAtOnce);
    int size = 0;
    CHECK(EVP_CipherUpdate(Of(context_), reinterpret_cast<unsigned char*>(out), &size,
                           reinterpret_cast<const unsigned char*>(in.data()),
                           static_cast<int>(count)) == 1);
    in = in.subspan(count);
    out += count;
  }
}

PageCipher::Tag PageCipher::Stream::End() {
  Tag tag;
  unsigned char none[16];
  int size = 0;
  CHECK(EVP_CipherFinal_ex(Of(context_), none, &size) == 1 &&
        EVP_CIPHER_CTX_ctrl(Of(context_), EVP_CTRL_GCM_GET_TAG, static_cast<int>(tag.size()),
                            tag.data()) == 1);
  return tag;
}

bool PageCipher::Stream::Genuine(const Tag& tag) {
  Tag given = tag;
  unsigned char none[16];
  int size = 0;
  return EVP_CIPHER_CTX_ctrl(Of(context_), EVP_CTRL_GCM_SET_TAG, static_cast<int>(given.size()),
                             given.data()) == 1 &&
         EVP_CipherFinal_ex(Of(context_), none, &size) == 1;
}

}  // namespace braid
