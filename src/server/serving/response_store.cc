// Ages are increasing numbers; eviction takes the smallest. Bytes are counted where items and
// responses are added and removed.
#include "server/serving/response_store.h"

#include <algorithm>

#include "base/check.h"

namespace braid {
namespace {

// Approximate overhead of maps, lists and strings.
constexpr int64_t kItemBytes = 192;
constexpr int64_t kResponseBytes = 512;
constexpr int64_t kUseBytes = sizeof(void*);

int64_t Length(const std::string& text) { return static_cast<int64_t>(text.size()); }

int64_t CostOf(const std::string& id, const std::string& text) {
  return kItemBytes + Length(id) + Length(text);
}

}  // namespace

int64_t ResponseStore::BytesOf(size_t items, size_t text_bytes) {
  return kResponseBytes + static_cast<int64_t>(items) * (kItemBytes + kUseBytes) +
         static_cast<int64_t>(text_bytes);
}

ResponseStore::Stats ResponseStore::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

const ResponseStore::Kept* ResponseStore::Find(const std::string& key,
                                               const std::string& id) const {
  const auto owner = owners_.find(key);
  if (owner == owners_.end()) return nullptr;
  const auto age = owner->second.ages.find(id);
  return age == owner->second.ages.end() ? nullptr : &owner->second.by_age.at(age->second);
}

void ResponseStore::Count(int64_t bytes, Owner* owner) {
  owner->bytes += bytes;
  stats_.bytes += bytes;
}

ResponseStore::ItemList ResponseStore::Take(const std::vector<StoredItem>& items, Owner* owner) {
  ItemList taken;
  taken.reserve(items.size());
  for (const StoredItem& item : items) {
    const auto [at, is_new] = owner->items.try_emplace(item.id, SharedItem{.text = item.text});
    if (is_new) {
      Count(CostOf(at->first, at->second.text), owner);
      ++stats_.items;
    }
    ++at->second.uses;
    taken.push_back(&*at);
  }
  Count(static_cast<int64_t>(taken.size()) * kUseBytes, owner);
  return taken;
}

void ResponseStore::Release(const ItemList& items, Owner* owner) {
  for (Items::value_type* item : items) {
    if (--item->second.uses > 0) continue;
    Count(-CostOf(item->first, item->second.text), owner);
    --stats_.items;
    owner->items.erase(std::string(item->first));
  }
  Count(-static_cast<int64_t>(items.size()) * kUseBytes, owner);
}

void ResponseStore::Drop(const std::string& key, uint64_t age) {
  Owner& owner = owners_.at(key);
  auto kept = owner.by_age.extract(age);
  CHECK(!kept.empty());
  Release(kept.mapped().input, &owner);
  Release(kept.mapped().output, &owner);
  Count(-(kResponseBytes + Length(kept.mapped().id) + Length(kept.mapped().envelope)), &owner);
  owner.ages.erase(kept.mapped().id);
  oldest_.erase(age);
  --stats_.responses;
  if (!owner.by_age.empty()) return;
  CHECK(owner.bytes == 0 && owner.items.empty());
  owners_.erase(std::string(key));
}

// Evicts the oldest responses except `spared` until all limits hold.
void ResponseStore::MakeRoom(const std::string& key, uint64_t spared) {
  const auto first_but = [&](const auto& by_age) {
    auto at = by_age.begin();
    if (at != by_age.end() && at->first == spared) ++at;
    return at;
  };
  const auto evict = [&](const std::string& owner, uint64_t age) {
    Drop(owner, age);
    ++stats_.evictions;
  };
  const Owner& owner = owners_.at(key);
  while (owner.bytes > KeyBytes(key) ||
         static_cast<int64_t>(owner.by_age.size()) > KeyResponses(key)) {
    const auto at = first_but(owner.by_age);
    if (at == owner.by_age.end()) break;
    evict(key, at->first);
  }
  while (stats_.bytes > limits_.bytes || stats_.responses > limits_.responses) {
    const auto at = first_but(oldest_);
    if (at == oldest_.end()) break;
    evict(std::string(at->second), at->first);
  }
}

bool ResponseStore::Begin(const std::string& key, const std::string& id, std::string envelope,
                          const std::vector<StoredItem>& input) {
  size_t text_bytes = id.size() + envelope.size();
  for (const StoredItem& item : input) text_bytes += item.id.size() + item.text.size();
  const int64_t alone = BytesOf(input.size(), text_bytes);
  std::lock_guard lock(mutex_);
  if (alone > std::min(KeyBytes(key), limits_.bytes)) return false;
  if (std::min(KeyResponses(key), limits_.responses) < 1 || Find(key, id) != nullptr) {
    return false;
  }
  Owner& owner = owners_[key];
  const uint64_t age = next_age_++;
  Kept& kept = owner.by_age[age];
  kept.id = id;
  kept.envelope = std::move(envelope);
  kept.input = Take(input, &owner);
  Count(kResponseBytes + Length(kept.id) + Length(kept.envelope), &owner);
  owner.ages[id] = age;
  oldest_[age] = key;
  ++stats_.responses;
  MakeRoom(key, age);
  return true;
}

bool ResponseStore::Finish(const std::string& key, const std::string& id, std::string envelope,
                           const std::vector<StoredItem>& output) {
  std::lock_guard lock(mutex_);
  if (Find(key, id) == nullptr) return false;
  Owner& owner = owners_.at(key);
  const uint64_t age = owner.ages.at(id);
  Kept& kept = owner.by_age.at(age);
  CHECK(!kept.finished, "a response is finished once");
  Count(Length(envelope) - Length(kept.envelope), &owner);
  kept.envelope = std::move(envelope);
  kept.output = Take(output, &owner);
  kept.finished = true;
  // It may be too large even alone: then others would make room in vain.
  int64_t alone = kResponseBytes + Length(kept.id) + Length(kept.envelope);
  for (const ItemList* list : {&kept.input, &kept.output}) {
    for (const auto* item : *list) alone += kUseBytes + CostOf(item->first, item->second.text);
  }
  if (alone > std::min(KeyBytes(key), limits_.bytes)) {
    Drop(key, age);
    ++stats_.evictions;
    return false;
  }
  MakeRoom(key, age);
  return true;
}

bool ResponseStore::Erase(const std::string& key, const std::string& id) {
  std::lock_guard lock(mutex_);
  if (Find(key, id) == nullptr) return false;
  Drop(key, owners_.at(key).ages.at(id));
  return true;
}

std::optional<std::string> ResponseStore::Response(const std::string& key,
                                                   const std::string& id) const {
  std::lock_guard lock(mutex_);
  const Kept* kept = Find(key, id);
  if (kept == nullptr) return std::nullopt;
  std::string text = kept->envelope;
  CHECK(text.size() > 2 && text.back() == '}', "an envelope is an object with members");
  text.pop_back();
  text += ",\"output\":[";
  for (const Items::value_type* item : kept->output) {
    if (item != kept->output.front()) text += ',';
    text += item->second.text;
  }
  return text + "]}";
}

std::optional<std::vector<StoredItem>> ResponseStore::Input(const std::string& key,
                                                            const std::string& id) const {
  std::lock_guard lock(mutex_);
  const Kept* kept = Find(key, id);
  if (kept == nullptr) return std::nullopt;
  std::vector<StoredItem> items;
  for (const auto* item : kept->input) items.push_back({item->first, item->second.text});
  return items;
}

std::optional<std::vector<StoredItem>> ResponseStore::Conversation(const std::string& key,
                                                                   const std::string& id) const {
  std::lock_guard lock(mutex_);
  const Kept* kept = Find(key, id);
  if (kept == nullptr || !kept->finished) return std::nullopt;
  std::vector<StoredItem> items;
  for (const ItemList* list : {&kept->input, &kept->output}) {
    for (const auto* item : *list) items.push_back({item->first, item->second.text});
  }
  return items;
}

std::optional<StoredItem> ResponseStore::Item(const std::string& key, const std::string& id) const {
  std::lock_guard lock(mutex_);
  const auto owner = owners_.find(key);
  if (owner == owners_.end()) return std::nullopt;
  const auto item = owner->second.items.find(id);
  if (item == owner->second.items.end()) return std::nullopt;
  return StoredItem{item->first, item->second.text};
}

std::optional<int64_t> ResponseStore::ConversationBytes(const std::string& key,
                                                        const std::string& id) const {
  std::lock_guard lock(mutex_);
  const Kept* kept = Find(key, id);
  if (kept == nullptr || !kept->finished) return std::nullopt;
  int64_t bytes = 0;
  for (const ItemList* list : {&kept->input, &kept->output}) {
    for (const auto* item : *list) bytes += Length(item->second.text);
  }
  return bytes;
}

std::optional<int64_t> ResponseStore::ItemBytes(const std::string& key,
                                                const std::string& id) const {
  std::lock_guard lock(mutex_);
  const auto owner = owners_.find(key);
  if (owner == owners_.end()) return std::nullopt;
  const auto item = owner->second.items.find(id);
  if (item == owner->second.items.end()) return std::nullopt;
  return Length(item->second.text);
}

}  // namespace braid
