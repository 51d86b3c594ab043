// See the header.
#include "tiers/segments/tier_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace braid {
namespace {

constexpr int64_t kTellUseUs = 60'000'000;  // how often a use is told
constexpr int kIdlePagesMost = 32;          // that stay open

}  // namespace

void Close(TierSegment& segment) {
  for (int* fd : {&segment.pages, &segment.index}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

Result<int> OpenPages(TierSegments& segments, int32_t id) {
  TierSegment& segment = segments[id];
  if (segment.pages >= 0) return segment.pages;
  int idle = 0;
  TierSegment* oldest = nullptr;
  for (auto& [number, other] : segments) {
    if (other.pages < 0 || other.users > 0 || other.index >= 0) continue;
    ++idle;
    if (oldest == nullptr || other.used_us < oldest->used_us) oldest = &other;
  }
  if (idle >= kIdlePagesMost) Close(*oldest);
  const std::string path = segment.stem + ".pages";
  segment.pages = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (segment.pages >= 0) return segment.pages;
  if (errno == ENOENT) return Error{ErrorCode::kNotFound, "the part is not there any more"};
  const bool none_left = errno == EMFILE || errno == ENFILE;
  return Error{none_left ? ErrorCode::kUnavailable : ErrorCode::kInternal,
               fmt::format("{}: {}", path, std::strerror(errno))};
}

void TellUse(TierSegment& segment) {
  segment.used_us = UnixUs();
  if (segment.used_us - segment.told_us < kTellUseUs) return;
  segment.told_us = segment.used_us;
  (void)::futimens(segment.pages, nullptr);
}

}  // namespace braid
