// See the header.
#include "tiers/host_pages.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/math.h"
#include "base/quantities.h"
#include "base/system/topology.h"

namespace braid {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

Result<std::unique_ptr<HostPages>> HostPages::Create(int64_t bytes, int node) {
  void* memory = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("{} of memory for pages cannot be had: {}", ByteText(bytes),
                             std::strerror(errno)),
                 "cache_host"};
  }
  ::madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  PreferNode(static_cast<std::byte*>(memory), bytes, node);
  return std::unique_ptr<HostPages>(new HostPages(static_cast<std::byte*>(memory), bytes));
}

HostPages::~HostPages() { ::munmap(memory_, static_cast<size_t>(size_)); }

bool HostPages::Has(const KnownPart& part) const {
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(part);
  return at != entries_.end() && at->second.whole;
}

std::vector<KnownPart> HostPages::All() const {
  std::vector<KnownPart> all;
  std::lock_guard lock(mutex_);
  for (const auto& [part, entry] : entries_) {
    if (entry.whole) all.push_back(part);
  }
  return all;
}

bool HostPages::Read(const KnownPart& part, const PartPieces& pieces) {
  int64_t bytes = 0;
  for (const auto& piece : pieces) bytes += std::ssize(piece);
  const std::byte* from = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto at = entries_.find(part);
    if (at == entries_.end() || !at->second.whole || at->second.bytes != bytes) return false;
    ++at->second.users;
    from = memory_ + at->second.offset;
  }
  for (const auto& piece : pieces) {
    std::memcpy(piece.data(), from, piece.size());
    from += piece.size();
  }
  std::lock_guard lock(mutex_);
  Leave(part, entries_.at(part));
  return true;
}

bool HostPages::Write(const KnownPart& part, const PartPieces& pieces, int64_t began_us,
                      std::vector<KnownPart>& gone) {
  int64_t bytes = 0;
  for (const auto& piece : pieces) bytes += std::ssize(piece);
  std::byte* to = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (began_us <= cleared_us_) return false;
    if (const auto at = entries_.find(part); at != entries_.end()) return at->second.whole;
    const int64_t room = RoundUp(bytes, kAlignment);
    if (!MakeRoom(room, gone)) return false;
    to = memory_ + head_;
    entries_[part] = {.offset = head_, .bytes = bytes, .users = 1, .whole = false};
    order_.push_back(part);
    head_ += room;
    used_ += room;
  }
  for (const auto& piece : pieces) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  std::lock_guard lock(mutex_);
  Entry& entry = entries_.at(part);
  const bool stays = !entry.gone;
  entry.whole = stays;
  Leave(part, entry);
  return stays;
}

// Who has copied it does so no more.
void HostPages::Leave(const KnownPart& part, Entry& entry) {
  if (--entry.users > 0 || !entry.gone) return;
  used_ -= RoundUp(entry.bytes, kAlignment);
  std::erase(order_, part);
  entries_.erase(part);
}

// So many bytes from head_ on; at the end of the memory it begins anew. False: they are being used.
bool HostPages::MakeRoom(int64_t bytes, std::vector<KnownPart>& gone) {
  if (bytes > size_) return false;
  const auto oldest = [&] { return entries_.at(order_.front()).offset; };
  if (head_ + bytes > size_) {
    while (!order_.empty() && oldest() >= head_) {
      if (!EvictOldest(gone)) return false;
    }
    head_ = 0;
  }
  while (!order_.empty() && oldest() >= head_ && oldest() < head_ + bytes) {
    if (!EvictOldest(gone)) return false;
  }
  return true;
}

bool HostPages::EvictOldest(std::vector<KnownPart>& gone) {
  const auto at = entries_.find(order_.front());
  if (at->second.users > 0) return false;
  used_ -= RoundUp(at->second.bytes, kAlignment);
  gone.push_back(at->first);
  entries_.erase(at);
  order_.pop_front();
  return true;
}

void HostPages::Clear(int64_t now_us) {
  std::lock_guard lock(mutex_);
  cleared_us_ = std::max(cleared_us_, now_us);
  std::erase_if(order_, [&](const KnownPart& part) {
    const auto at = entries_.find(part);
    if (at->second.users > 0) {
      at->second.gone = true;
      at->second.whole = false;
      return false;
    }
    used_ -= RoundUp(at->second.bytes, kAlignment);
    entries_.erase(at);
    return true;
  });
  if (order_.empty()) head_ = 0;
}

HostPages::Stats HostPages::stats() const {
  std::lock_guard lock(mutex_);
  return {.parts = std::ssize(order_), .bytes = used_};
}

}  // namespace braid
