// The table of Unicode 15 chapter 3.9 (well-formed byte sequences), as code.
#include "text/tokens/utf8.h"

#include <cstdint>

namespace braid {
namespace {

struct Lead {
  size_t length;       // of the whole sequence; 0: not a lead byte
  uint8_t second_min;  // bounds of the second byte; further bytes are 80..BF
  uint8_t second_max;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0) {
    return {3, static_cast<uint8_t>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<uint8_t>(byte == 0xED ? 0x9F : 0xBF)};
  }
  if (byte < 0xF5) {
    return {4, static_cast<uint8_t>(byte == 0xF0 ? 0x90 : 0x80),
            static_cast<uint8_t>(byte == 0xF4 ? 0x8F : 0xBF)};
  }
  return {0, 0, 0};
}

// Bytes at `at` that form a character or the beginning of one; 0 for a byte that begins nothing.
// `*whole` says which.
size_t SequenceAt(std::string_view bytes, size_t at, bool* whole) {
  const Lead lead = LeadOf(static_cast<uint8_t>(bytes[at]));
  size_t size = lead.length > 0 ? 1 : 0;
  while (size < lead.length && at + size < bytes.size()) {
    const auto byte = static_cast<uint8_t>(bytes[at + size]);
    const uint8_t low = size == 1 ? lead.second_min : 0x80;
    const uint8_t high = size == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) break;
    ++size;
  }
  *whole = size > 0 && size == lead.length;
  return size;
}

}  // namespace

size_t AppendRepairedUtf8(std::string_view bytes, std::string* text) {
  size_t at = 0;
  while (at < bytes.size()) {
    bool whole = false;
    const size_t size = SequenceAt(bytes, at, &whole);
    if (whole) {
      text->append(bytes.substr(at, size));
    } else if (size > 0 && at + size == bytes.size()) {
      return at;  // may still be finished
    } else {
      text->append(kReplacementCharacter);
    }
    at += size > 0 ? size : 1;
  }
  return at;
}

bool IsValidUtf8(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    bool whole = false;
    at += SequenceAt(bytes, at, &whole);
    if (!whole) return false;
  }
  return true;
}

}  // namespace braid
