// Records (scheduler/event_codec.h) of any payload, with the checksum that belongs to it: no fuzzer
// would find that, and no program writes some of them. For tests and fuzz targets. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/rng.h"
#include "scheduler/event_codec.h"

namespace braid {

inline constexpr uint8_t kSubmitRecord = 2, kStepDoneRecord = 4;

inline std::string BuildRecord(uint8_t kind, std::string_view payload) {
  std::string record(1, static_cast<char>(kind));
  size_t size = payload.size();
  for (; size >= 0x80; size >>= 7) record.push_back(static_cast<char>(size | 0x80));
  record.push_back(static_cast<char>(size));
  record += payload;
  uint64_t sum = kind + payload.size();
  for (size_t i = 0; i < payload.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, payload.data() + i, std::min<size_t>(8, payload.size() - i));
    sum = MixBits(sum + 0x9e3779b97f4a7c15ull + word);
  }
  const auto checksum = static_cast<uint32_t>(sum ^ (sum >> 32));
  record.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  return record;
}

// Whether BuildRecord writes as the codec does.
inline bool RecordsAgree() {
  std::string want;
  AppendRecord(Event(Submit{}), want);
  const auto rest = std::string_view(want).substr(2);  // behind kind and size
  const auto payload = rest.substr(0, rest.size() - sizeof(uint32_t));
  return rest.size() < 0x80 && BuildRecord(kSubmitRecord, payload) == want;
}

inline std::string RecordOf(uint8_t kind, std::string_view payload) {
  static const bool agree = RecordsAgree();
  CHECK(agree, "records have another form than this test's");
  return BuildRecord(kind, payload);
}

}  // namespace braid
