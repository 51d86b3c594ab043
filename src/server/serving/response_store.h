// The recent answers of the Responses API and the items that they read and wrote, each only for the
// key that asked for it. Bounded in bytes and in responses, in all and for each key; the oldest
// response goes first. Responses of one conversation share their items: an item is kept once, until
// the last response with it goes. Thread-safe; knows JSON only as text.
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
    int64_t evictions = 0;  // responses that went for others
  };

  explicit ResponseStore(const Limits& limits) : limits_(limits) {}

  const Limits& limits() const { return limits_; }
  // The most that a key may keep. Without keys everybody's has no name, and may keep all.
  int64_t KeyBytes(const std::string& key) const {
    return key.empty() ? limits_.bytes : limits_.key_bytes;
  }
  int64_t KeyResponses(const std::string& key) const {
    return key.empty() ? limits_.responses : limits_.key_responses;
  }
  Stats stats() const;
  // What a response with so many items and bytes of texts and ids takes, if it shares none of them.
  static int64_t BytesOf(size_t items, size_t text_bytes);

  // Keeps a response that is being made. `envelope` is its JSON object without `output`. An item
  // whose id the key has already is shared, and its text not looked at. False, and nothing changes:
  // the id is taken, or the response alone is more than a key may keep.
  bool Begin(const std::string& key, const std::string& id, std::string envelope,
             const std::vector<StoredItem>& input);
  // The response is made. False: it has gone, or goes now because it has become too large.
  bool Finish(const std::string& key, const std::string& id, std::string envelope,
              const std::vector<StoredItem>& output);
  // False: there is none.
  bool Erase(const std::string& key, const std::string& id);

  // The whole JSON object; nullopt: there is none.
  std::optional<std::string> Response(const std::string& key, const std::string& id) const;
  // What it read, that of the responses before it first.
  std::optional<std::vector<StoredItem>> Input(const std::string& key, const std::string& id) const;
  // What it read and wrote; nullopt also while it is being made.
  std::optional<std::vector<StoredItem>> Conversation(const std::string& key,
                                                      const std::string& id) const;
  std::optional<StoredItem> Item(const std::string& key, const std::string& id) const;

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
