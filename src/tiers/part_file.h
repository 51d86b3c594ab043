// The bytes of one part in a segment: written, read and checked, encrypted where there is a key.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cache/page_key.h"
#include "tiers/file_layer.h"
#include "tiers/page_cipher.h"
#include "tiers/segments/segment.h"

namespace braid {

struct PartHash {
  size_t operator()(const KnownPart& part) const {
    return static_cast<size_t>(part.key.low * 2 + static_cast<uint64_t>(part.kind));
  }
};

// The blocks of a part, in the order of the groups.
using PartPieces = std::vector<std::span<std::byte>>;

class PartFile {
 public:
  // `cipher`: null for pages as they are. All of them outlive it.
  // `portable`: of the fingerprint; encrypted parts are bound to it.
  PartFile(FileLayer& files, std::string portable, const PageCipher* cipher)
      : files_(files), portable_(std::move(portable)), cipher_(cipher) {}

  // Bytes in a file of a part that has so many in memory.
  int64_t BytesOf(int64_t bytes) const {
    return bytes + (cipher_ != nullptr ? PageCipher::kTagBytes : 0);
  }

  // Writes at place.offset, and sets the rest of it but for the kind.
  Status Write(int fd, const KnownPart& part, const PartPieces& pieces, PartPlace& place) const;
  // kInvalid when the bytes are not those that were written. What `pieces` hold then is of no use.
  Status Read(int fd, const KnownPart& part, const PartPlace& place,
              const PartPieces& pieces) const;

  SegmentEntry EntryOf(const KnownPart& part, const PartPlace& place) const;
  KnownPart PartOf(const SegmentEntry& entry) const;

 private:
  std::string BoundTo(const KnownPart& part) const;

  FileLayer& files_;
  const std::string portable_;
  const PageCipher* cipher_;
};

// Reads a part of any segment, without a key, and compares its sum. kInvalid: it differs.
Status VerifyPart(FileLayer& files, int fd, const SegmentEntry& entry,
                  std::vector<std::byte>& scratch);

}  // namespace braid
