// Encrypts pages on their way to a directory: AES-256-GCM, a random nonce for each part, and the
// keys that pages are found by as well, so that the files tell no tokens, not even to somebody who
// guesses them. All of it from one key in a file. Const functions: any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cache/page_key.h"

namespace braid {

class PageCipher {
 public:
  static constexpr int64_t kTagBytes = 16;
  using Nonce = std::array<std::byte, 12>;
  using Tag = std::array<std::byte, kTagBytes>;

  // A file of 64 hex digits (openssl rand -hex 32). kInvalid for any other.
  static Result<PageCipher> Load(const std::string& path);
  explicit PageCipher(std::span<const std::byte, 32> key);
  ~PageCipher();  // wipes the keys
  PageCipher(const PageCipher&) = default;
  PageCipher& operator=(const PageCipher&) = default;

  // 16 hex digits that tell keys apart and say nothing of them.
  const std::string& id() const { return id_; }

  // What an entry has in place of a page's key, and back.
  PageKey Hide(const PageKey& key) const;
  PageKey Show(const PageKey& hidden) const;

  static Nonce NewNonce();
  class Stream;

 private:
  std::array<unsigned char, 32> pages_{}, names_{};
  std::string id_;
};

// One part. What is decrypted is genuine only when the end says so.
class PageCipher::Stream {
 public:
  // `bound` is authenticated with the bytes, and is not stored.
  Stream(const PageCipher& cipher, const Nonce& nonce, std::string_view bound, bool encrypt);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  // As many bytes of `out` as of `in`; they may be the same.
  void Add(std::span<const std::byte> in, std::byte* out);
  Tag End();                     // when encrypting
  bool Genuine(const Tag& tag);  // when decrypting

 private:
  void* context_;
};

}  // namespace braid
