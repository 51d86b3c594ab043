// What a tier may begin to read while a request waits for a slot or for blocks. It is read into the
// kernel's page cache, so a hint holds no memory of the engine and decides about nobody: a request
// is admitted when it would be without, and reads what it then lacks. Engine thread.
//
// A request is looked at once, when it is among the first of those that wait. A hint may be wrong:
// others may publish what the request lacks, or it may run on another rank.
#include <algorithm>
#include <iterator>
#include <utility>

#include "scheduler/admission/admission_control.h"

namespace braid {
namespace {

// Of each queue so many of the first are looked at.
constexpr size_t kRequestsAhead = 4;
// Of all that is named for requests that wait, on each of the ranks that divide the heads: what is
// read for the last of them should not push out of the page cache what was read for the first.
constexpr int64_t kBytesAhead = 512 << 20;

}  // namespace

void AdmissionControl::PlanReadAhead(std::vector<PagesAhead>& ahead) {
  if (!config_.tier) return;
  std::move(ahead_.ended.begin(), ahead_.ended.end(), std::back_inserter(ahead));
  ahead_.ended.clear();
  if (queue_.empty()) return;
  const auto look = [&](DpRankId queue) {
    for (Sequence* s : queue_.Head(queue, kRequestsAhead)) {
      if (ahead_.bytes >= kBytesAhead) return;
      if (!std::exchange(s->matched, true)) NameAhead(*s, ahead);
    }
  };
  look(DpRankId());
  for (const DpRankId r : ranks_.ids()) look(r);
}

// What its move would bring if it was admitted now, as far as the bound goes.
void AdmissionControl::NameAhead(Sequence& s, std::vector<PagesAhead>& ahead) {
  const DpRankId own(s.request.dp_rank);
  PagesAhead named{.request = s.id,
                   .dp_rank = own.valid() ? own : Placements(s).front(),
                   .parts = {}};
  const PrefixMatch match = FindPrefix(s, named.dp_rank);
  if (match.stored <= match.tokens) return;
  const auto add = [&](int32_t index, GroupKind kind) {
    const KnownPart part{s.keys.pages[static_cast<size_t>(index)], kind};
    const int64_t bytes = PartBytes(config_.cache, kind);
    if (bytes == 0 || ahead_.bytes >= kBytesAhead || !ahead_.parts.insert(part).second) return;
    ahead_.bytes += bytes;
    named.parts.push_back(part);
  };
  const int32_t end = match.stored / kBlockTokens;
  for (int32_t i = match.known / kBlockTokens; i < end; ++i) add(i, GroupKind::kFull);
  add(end - 1, GroupKind::kState);
  if (named.parts.empty()) return;
  ahead_.named.emplace(s.id, named);
  ahead.push_back(std::move(named));
}

// The sequence waits no more.
void AdmissionControl::EndAhead(Sequence& s) {
  if (!std::exchange(s.matched, false)) return;
  const auto at = ahead_.named.find(s.id);
  if (at == ahead_.named.end()) return;
  for (const KnownPart& part : at->second.parts) {
    ahead_.parts.erase(part);
    ahead_.bytes -= PartBytes(config_.cache, part.kind);
  }
  ahead_.ended.push_back({.request = s.id, .dp_rank = at->second.dp_rank, .parts = {}});
  ahead_.named.erase(at);
}

}  // namespace braid
