// A prompt's texts are hashed in the order in which chat templates write them: tools, the system's
// text, then the messages. Keys of objects and types are left out, so that a text and a list with
// one text part are the same, and so are markers that clients move from turn to turn.
#include "router/prompts/prompt_keys.h"

#include <algorithm>
#include <cstring>

#include "base/json.h"
#include "base/rng.h"

namespace braid {
namespace {

// Chained hashes of the blocks of a stream of bytes.
class BlockHasher {
 public:
  BlockHasher(uint64_t seed, PromptKeys* keys) : hash_(seed), keys_(*keys) {}

  void Add(std::string_view bytes) {
    total_ += bytes.size();
    while (!bytes.empty()) {
      const size_t taken = std::min(bytes.size(), kTextBlockBytes - filled_);
      std::memcpy(block_ + filled_, bytes.data(), taken);
      filled_ += taken;
      bytes.remove_prefix(taken);
      if (filled_ == kTextBlockBytes) Close();
    }
  }
  size_t total() const { return total_; }

 private:
  void Close() {
    for (size_t at = 0; at < kTextBlockBytes; at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, block_ + at, sizeof(word));
      hash_ = MixBits(hash_ ^ word) + at;
    }
    keys_.blocks.push_back(hash_);
    filled_ = 0;
  }

  uint64_t hash_;
  PromptKeys& keys_;
  char block_[kTextBlockBytes];
  size_t filled_ = 0, total_ = 0;
};

constexpr std::string_view kBetween("\x1f", 1);

// The texts and numbers of a value, in its order. Depth is bounded by the parser's limit.
void AddTexts(const json::value& value, BlockHasher* hasher) {
  if (value.is_string()) {
    hasher->Add(value.get_string());
    hasher->Add(kBetween);
  } else if (value.is_array()) {
    for (const json::value& element : value.get_array()) AddTexts(element, hasher);
  } else if (value.is_object()) {
    for (const auto& [key, field] : value.get_object()) {
      if (key != "type" && key != "cache_control" && key != "id") AddTexts(field, hasher);
    }
  } else if (!value.is_null()) {
    hasher->Add(json::serialize(value));
    hasher->Add(kBetween);
  }
}

// The first text of a prompt, without what a list of texts has beside it.
void AddText(const json::value& prompt, BlockHasher* hasher) {
  if (prompt.is_string()) hasher->Add(prompt.get_string());
  if (prompt.is_array() && !prompt.get_array().empty()) {
    AddText(prompt.get_array().front(), hasher);
  }
}

// The ids of a prompt, or of the first of several; empty: it is a text.
std::vector<TokenId> TokensOf(const json::value& prompt) {
  if (!prompt.is_array() || prompt.get_array().empty()) return {};
  const json::array& list = prompt.get_array();
  if (list.front().is_array()) return TokensOf(list.front());
  std::vector<TokenId> tokens;
  for (const json::value& token : list) {
    if (token.is_int64()) tokens.push_back(static_cast<TokenId>(token.get_int64()));
  }
  return tokens;
}

std::string_view TextAt(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string())
                                                : std::string_view();
}

// The first name of a session that the body has, from the one that says most about a conversation
// to the one that says least.
std::string_view SessionOf(const json::object& body) {
  for (const std::string_view key : {"session_id", "conversation", "prompt_cache_key"}) {
    if (const std::string_view name = TextAt(body, key); !name.empty()) return name;
  }
  const json::value* metadata = body.if_contains("metadata");
  if (metadata != nullptr && metadata->is_object()) {
    const std::string_view name = TextAt(metadata->get_object(), "user_id");
    if (!name.empty()) return name;
  }
  return TextAt(body, "user");
}

// Whether the input has items that stand for stored ones: an id without a content.
bool NamesItems(const json::value& input) {
  if (!input.is_array()) return false;
  for (const json::value& item : input.get_array()) {
    if (!item.is_object()) continue;
    const json::object& object = item.get_object();
    if (TextAt(object, "type") == "item_reference") return true;
    const json::value* type = object.if_contains("type");
    const bool plain = type == nullptr || type->is_null();
    if (plain && object.contains("id") && !object.contains("role")) return true;
  }
  return false;
}

bool Generates(Endpoint endpoint) {
  return endpoint == kChat || endpoint == kCompletions || endpoint == kMessages ||
         endpoint == kResponses;
}

}  // namespace

PromptKeys ReadPromptKeys(Endpoint endpoint, std::string_view body, const PromptOwner& owner,
                          const PromptReader* reader) {
  PromptKeys keys;
  keys.generates = Generates(endpoint);
  keys.session = SessionKey(owner.tenant, owner.session);
  if (!keys.generates) return keys;
  keys.tokens = static_cast<int64_t>(body.size()) / 4;
  const Result<json::value> parsed = ParseJson(body, "body");
  if (!parsed || !parsed->is_object()) return keys;
  const json::object& object = parsed->get_object();
  if (keys.session == 0) keys.session = SessionKey(owner.tenant, SessionOf(object));
  const json::value* stream = object.if_contains("stream");
  keys.stream = stream != nullptr && stream->is_bool() && stream->get_bool();
  keys.stored_id = TextAt(object, "previous_response_id");
  if (const json::value* input = object.if_contains("input")) keys.names_items = NamesItems(*input);
  const std::string_view salt = TextAt(object, "cache_salt");
  const json::value* prompt = object.if_contains("prompt");
  std::vector<TokenId> tokens = prompt == nullptr ? std::vector<TokenId>() : TokensOf(*prompt);
  if (tokens.empty() && reader != nullptr) {
    tokens = reader->TokensOf(endpoint, body, owner.tenant).value_or(std::vector<TokenId>());
  }
  if (!tokens.empty()) {
    SetTokens(tokens, {.tenant = owner.tenant, .salt = salt}, &keys);
    return keys;
  }
  const uint64_t seed = HashText(HashText(2, owner.tenant), salt);
  BlockHasher hasher(HashText(seed, TextAt(object, "model")), &keys);
  for (const std::string_view name : {"tools", "system", "instructions", "messages"}) {
    if (const json::value* value = object.if_contains(name)) AddTexts(*value, &hasher);
  }
  if (const json::value* input = object.if_contains("input")) AddTexts(*input, &hasher);
  if (prompt != nullptr) AddText(*prompt, &hasher);
  keys.tokens = static_cast<int64_t>(hasher.total()) / 4;
  return keys;
}

}  // namespace braid
