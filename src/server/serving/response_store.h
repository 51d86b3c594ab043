// Recent responses of the Responses API with the items that they read and wrote. Each key sees its
// own only. Bounded in bytes and in responses, in total and per key; the oldest response is evicted
// first. Responses of one conversation share items: an item is stored once, until its last response
// is evicted. Thread-safe; treats JSON as text.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace braid {

struct StoredItem {
  std::string id;
  std::string text;  // a JSON object, which has the id too
};

class ResponseStore {
 public:
  struct Limits {
    int64_t bytes = 0, key_bytes = 0;          // in all, and of one key
    int64_t responses = 0, key_responses = 0;  // likewise
  };
  struct Stats {
    int64_t bytes = 0, responses = 0, items = 0;
    int64_t evictions = 0;  // responses dropped to make room
  };

  explicit ResponseStore(const Limits& limits) : limits_(limits) {}

  const Limits& limits() const { return limits_; }
  // The limits of a key. Without keys there is one client, named "", which may use everything.
  int64_t KeyBytes(const std::string& key) const {
    return key.empty() ? limits_.bytes : limits_.key_bytes;
  }
  int64_t KeyResponses(const std::string& key) const {
    return key.empty() ? limits_.responses : limits_.key_responses;
  }
  Stats stats() const;
  // Memory of a response that shares no items.
  static int64_t BytesOf(size_t items, size_t text_bytes);

  // Stores a response in progress. `envelope` is its JSON object without `output`. Items whose ids
  // the key has already are shared. False, without a change, if the id exists or the response alone
  // exceeds the key's limit.
  bool Begin(const std::string& key, const std::string& id, std::string envelope,
             const std::vector<StoredItem>& input);
  // Completes the response. False if it was evicted, or is evicted now because it is too large.
  bool Finish(const std::string& key, const std::string& id, std::string envelope,
              const std::vector<StoredItem>& output);
  // False if there is none.
  bool Erase(const std::string& key, const std::string& id);

  // The whole JSON object; nullopt if there is none.
  std::optional<std::string> Response(const std::string& key, const std::string& id) const;
  // The items that it read, those of earlier responses first.
  std::optional<std::vector<StoredItem>> Input(const std::string& key, const std::string& id) const;
  // The items that it read and wrote; nullopt also while it is in progress.
  std::optional<std::vector<StoredItem>> Conversation(const std::string& key,
                                                      const std::string& id) const;
  std::optional<StoredItem> Item(const std::string& key, const std::string& id) const;
  // The bytes of the texts of these two, without a copy; nullopt where they are.
  std::optional<int64_t> ConversationBytes(const std::string& key, const std::string& id) const;
  std::optional<int64_t> ItemBytes(const std::string& key, const std::string& id) const;

 private:
  struct SharedItem {
    std::string text;
    int32_t uses = 0;
  };
  using Items = std::unordered_map<std::string, SharedItem>;
  using ItemList = std::vector<Items::value_type*>;  // nodes of Items stay where they are
  struct Kept {
    std::string id, envelope;
    ItemList input, output;
    bool finished = false;
  };
  struct Owner {
    Items items;
    std::map<uint64_t, Kept> by_age;
    std::unordered_map<std::string, uint64_t> ages;  // by id
    int64_t bytes = 0;
  };

  const Kept* Find(const std::string& key, const std::string& id) const;
  ItemList Take(const std::vector<StoredItem>& items, Owner* owner);
  void Release(const ItemList& items, Owner* owner);
  void Count(int64_t bytes, Owner* owner);
  void Drop(const std::string& key, uint64_t age);
  void MakeRoom(const std::string& key, uint64_t spared);

  const Limits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, Owner> owners_;     // only those with responses; names come from the keys
  std::map<uint64_t, std::string> oldest_;  // age to key, of all responses
  uint64_t next_age_ = 0;
  Stats stats_;
};

}  // namespace braid
