// See the header.
#include "tiers/part_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace braid {
namespace {

constexpr int64_t kReadBytes = 1 << 20;  // at once, for a sum

Error Damaged() { return {ErrorCode::kInvalid, "a part's checksum does not agree"}; }

int64_t SizeOf(const PartPieces& pieces) {
  int64_t bytes = 0;
  for (const auto& piece : pieces) bytes += std::ssize(piece);
  return bytes;
}

PageCipher::Nonce NonceOf(const PartPlace& place) {
  PageCipher::Nonce nonce;
  std::memcpy(nonce.data(), &place.nonce_high, 8);
  std::memcpy(nonce.data() + 8, &place.nonce_low, 4);
  return nonce;
}

}  // namespace

// A part that is put in the place of another one is not genuine.
std::string PartFile::BoundTo(const KnownPart& part) const {
  return fmt::format("{} {:016x}{:016x} {}", portable_, part.key.high, part.key.low,
                     static_cast<int>(part.kind));
}

SegmentEntry PartFile::EntryOf(const KnownPart& part, const PartPlace& place) const {
  SegmentEntry entry{.key = cipher_ != nullptr ? cipher_->Hide(part.key) : part.key,
                     .place = place};
  entry.place.kind = static_cast<uint32_t>(part.kind);
  Seal(entry);
  return entry;
}

KnownPart PartFile::PartOf(const SegmentEntry& entry) const {
  return {cipher_ != nullptr ? cipher_->Show(entry.key) : entry.key,
          static_cast<GroupKind>(entry.place.kind)};
}

Status PartFile::Write(int fd, const KnownPart& part, const PartPieces& pieces,
                       PartPlace& place) const {
  place.bytes = BytesOf(SizeOf(pieces));
  const SegmentEntry entry = EntryOf(part, place);
  PartSum sum(entry.key, entry.place.kind);
  int64_t at = place.offset;
  const auto put = [&](std::span<const std::byte> bytes) {
    sum.Add(bytes);
    const Status status = WriteAll(files_, fd, bytes, at);
    at += std::ssize(bytes);
    return status;
  };
  if (cipher_ == nullptr) {
    for (const auto& piece : pieces) RETURN_IF_ERROR(put(piece));
  } else {
    const PageCipher::Nonce nonce = PageCipher::NewNonce();
    std::memcpy(&place.nonce_high, nonce.data(), 8);
    std::memcpy(&place.nonce_low, nonce.data() + 8, 4);
    PageCipher::Stream stream(*cipher_, nonce, BoundTo(part), true);
    std::vector<std::byte> hidden;
    for (const auto& piece : pieces) {
      hidden.resize(piece.size());
      stream.Add(piece, hidden.data());
      RETURN_IF_ERROR(put(hidden));
    }
    RETURN_IF_ERROR(put(stream.End()));
  }
  place.sum = sum.End();
  return {};
}

Status PartFile::Read(int fd, const KnownPart& part, const PartPlace& place,
                      const PartPieces& pieces) const {
  const int64_t bytes = BytesOf(SizeOf(pieces));
  if (bytes != place.bytes) {
    return Error{ErrorCode::kInternal,
                 fmt::format("a part has {} bytes, must have {}", place.bytes, bytes)};
  }
  int64_t at = place.offset;
  for (const auto& piece : pieces) {
    RETURN_IF_ERROR(ReadAll(files_, fd, piece, at));
    at += std::ssize(piece);
  }
  if (cipher_ == nullptr) {
    PartSum sum(part.key, static_cast<uint32_t>(part.kind));
    for (const auto& piece : pieces) sum.Add(piece);
    return sum.End() == place.sum ? Status() : Damaged();
  }
  PageCipher::Tag tag;
  RETURN_IF_ERROR(ReadAll(files_, fd, tag, at));
  PageCipher::Stream stream(*cipher_, NonceOf(place), BoundTo(part), false);
  for (const auto& piece : pieces) stream.Add(piece, piece.data());
  return stream.Genuine(tag) ? Status() : Damaged();
}

Status VerifyPart(FileLayer& files, int fd, const SegmentEntry& entry,
                  std::vector<std::byte>& scratch) {
  PartSum sum(entry.key, entry.place.kind);
  for (int64_t done = 0; done < entry.place.bytes;) {
    const int64_t count = std::min(kReadBytes, entry.place.bytes - done);
    scratch.resize(static_cast<size_t>(count));
    RETURN_IF_ERROR(ReadAll(files, fd, scratch, entry.place.offset + done));
    sum.Add(scratch);
    done += count;
  }
  return sum.End() == entry.place.sum ? Status() : Damaged();
}

}  // namespace braid
