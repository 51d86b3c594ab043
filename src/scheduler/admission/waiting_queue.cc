// See the header.
#include "scheduler/admission/waiting_queue.h"

#include <algorithm>

#include "base/check.h"

namespace braid {
namespace {

// Tenants whose tags are kept although none of theirs waits.
constexpr size_t kIdleTenantsMax = 4096;

}  // namespace

WaitingQueue::Key WaitingQueue::KeyOf(const Sequence& s) const {
  return {-s.request.priority, tenants_.at(s.request.tenant).tag, s.arrival};
}

void WaitingQueue::Insert(Sequence& s) {
  Forget();
  const std::string& name = s.request.tenant;
  Tenant& tenant = tenants_[name];
  if (tenant.waiting++ == 0) {
    tenant.tag = std::max(tenant.tag, tags_.empty() ? now_ : *tags_.begin());
    tags_.insert(tenant.tag);
  }
  ++size_;
  preempted_ += s.preemptions > 0;
  PutInLine(s);
}

void WaitingQueue::Erase(Sequence& s) {
  TakeFromLine(s);
  Tenant& tenant = tenants_.at(s.request.tenant);
  if (--tenant.waiting == 0) tags_.erase(tags_.find(tenant.tag));
  --size_;
  preempted_ -= s.preemptions > 0;
}

void WaitingQueue::PutInLine(Sequence& s) {
  Lines& lines = LinesOf(s);
  auto& line = lines.by_tenant[s.request.tenant];
  if (!line.empty()) lines.firsts.erase(KeyOf(**line.begin()));
  CHECK(line.insert(&s).second, "request {} waits twice", s.id.value);
  lines.firsts.emplace(KeyOf(**line.begin()), *line.begin());
}

void WaitingQueue::TakeFromLine(Sequence& s) {
  Lines& lines = LinesOf(s);
  const auto line = lines.by_tenant.find(s.request.tenant);
  CHECK(line != lines.by_tenant.end(), "request {} does not wait", s.id.value);
  lines.firsts.erase(KeyOf(**line->second.begin()));
  CHECK(line->second.erase(&s) == 1, "request {} does not wait", s.id.value);
  if (line->second.empty()) {
    lines.by_tenant.erase(line);
  } else {
    Sequence* first = *line->second.begin();
    lines.firsts.emplace(KeyOf(*first), first);
  }
}

Sequence* WaitingQueue::First(DpRankId rank) const {
  const auto& firsts = (rank.valid() ? own_[rank] : anywhere_).firsts;
  return firsts.empty() ? nullptr : firsts.begin()->second;
}

std::vector<Sequence*> WaitingQueue::Head(DpRankId rank, size_t count) const {
  const Lines& lines = rank.valid() ? own_[rank] : anywhere_;
  using Line = std::set<Sequence*, ByPriority>;
  std::vector<std::pair<Line::const_iterator, Line::const_iterator>> rest;  // of each tenant's line
  for (const auto& [key, first] : lines.firsts) {
    if (rest.size() == count) break;
    const Line& line = lines.by_tenant.at(first->request.tenant);
    rest.emplace_back(line.begin(), line.end());
  }
  std::vector<Sequence*> head;
  for (size_t before = 0; head.size() < count; before = head.size()) {
    for (auto& [at, end] : rest) {
      if (at != end && head.size() < count) head.push_back(*at++);
    }
    if (head.size() == before) break;
  }
  return head;
}

bool WaitingQueue::Before(const Sequence& a, const Sequence& b) const {
  return KeyOf(a) < KeyOf(b);
}

void WaitingQueue::Admitted(const Sequence& s) {
  now_ = std::max(now_, tenants_.at(s.request.tenant).tag);
}

void WaitingQueue::Charge(const Sequence& s, int64_t tokens) {
  const auto tenant = tenants_.find(s.request.tenant);
  if (tenant == tenants_.end()) return;  // forgotten: everybody else has caught up
  SetTag(tenant->first, tenant->second, tenant->second.tag + tokens);
}

void WaitingQueue::SetTag(const std::string& name, Tenant& tenant, int64_t tag) {
  std::vector<std::pair<Lines*, Sequence*>> moved;
  const auto take = [&](Lines& lines) {
    const auto line = lines.by_tenant.find(name);
    if (line == lines.by_tenant.end()) return;
    Sequence* first = *line->second.begin();
    lines.firsts.erase(KeyOf(*first));
    moved.emplace_back(&lines, first);
  };
  take(anywhere_);
  for (Lines& lines : own_) take(lines);
  if (tenant.waiting > 0) {
    tags_.erase(tags_.find(tenant.tag));
    tags_.insert(tag);
  }
  tenant.tag = tag;
  for (const auto& [lines, first] : moved) lines->firsts.emplace(KeyOf(*first), first);
}

// Tags that the admitted have passed say nothing any more; past a bound the others go as well.
void WaitingQueue::Forget() {
  if (tenants_.size() <= kIdleTenantsMax) return;
  std::erase_if(tenants_,
                [&](const auto& t) { return t.second.waiting == 0 && t.second.tag <= now_; });
  if (tenants_.size() <= 2 * kIdleTenantsMax) return;
  std::erase_if(tenants_, [&](const auto& t) { return t.second.waiting == 0; });
}

}  // namespace braid
