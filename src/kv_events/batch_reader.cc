// What another program publishes: every length is checked against the bytes that are there.
#include <algorithm>
#include <array>
#include <limits>

#include "base/rng.h"
#include "kv_events/batch.h"
#include "kv_events/msgpack.h"

namespace braid::kv {
namespace {

using Kind = MsgpackReader::Kind;
using Value = MsgpackReader::Value;
constexpr int32_t kBlockTokensMax = 1 << 16;

// The fields of an event of either kind, as far as they matter here.
struct Fields {
  std::vector<uint64_t> hashes;
  std::optional<uint64_t> parent;
  std::vector<TokenId> tokens;
  int64_t block_tokens = 0;
  bool adapter = false, elsewhere = false, shared = true;
};

// In their order, where events are arrays. Those of BlockRemoved begin with the same one.
constexpr std::array<std::string_view, 8> kStored = {
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id",
    "medium",       "lora_name",         "extra_keys"};
constexpr std::array<std::string_view, 2> kRemoved = {"block_hashes", "medium"};

// A hash of bytes by all of them.
std::optional<uint64_t> HashOf(const Value& value) {
  if (value.kind == Kind::kInteger) return value.number;
  if (value.kind != Kind::kText) return {};
  uint64_t hash = value.text.size();
  for (const char c : value.text) hash = MixBits(hash ^ static_cast<uint8_t>(c));
  return hash;
}

bool ReadHashes(MsgpackReader& reader, std::vector<uint64_t>* hashes) {
  const auto head = reader.Next();
  if (!head || head->kind != Kind::kArray) return false;
  for (uint64_t i = 0; i < head->number; ++i) {
    const auto value = reader.Next();
    const auto hash = value ? HashOf(*value) : std::nullopt;
    if (!hash) return false;
    hashes->push_back(*hash);
  }
  return true;
}

bool ReadTokens(MsgpackReader& reader, std::vector<TokenId>* tokens) {
  const auto head = reader.Next();
  if (!head || head->kind != Kind::kArray) return false;
  for (uint64_t i = 0; i < head->number; ++i) {
    const auto value = reader.Next();
    if (!value || value->kind != Kind::kInteger) return false;
    tokens->push_back(static_cast<TokenId>(static_cast<uint32_t>(value->number)));
  }
  return true;
}

// An entry for each block; nil: its tokens alone name it.
bool ReadExtraKeys(MsgpackReader& reader, bool* shared) {
  const auto head = reader.Next();
  if (!head || (head->kind != Kind::kNil && head->kind != Kind::kArray)) return false;
  if (head->kind == Kind::kNil) return true;
  for (uint64_t i = 0; i < head->number; ++i) {
    MsgpackReader ahead = reader;
    const auto entry = ahead.Next();
    const bool nothing =
        entry && (entry->kind == Kind::kNil || (entry->kind == Kind::kArray && entry->number == 0));
    if (!nothing) *shared = false;
    if (!reader.Skip()) return false;
  }
  return true;
}

bool ReadField(MsgpackReader& reader, std::string_view name, Fields* fields) {
  if (name == "block_hashes") return ReadHashes(reader, &fields->hashes);
  if (name == "token_ids") return ReadTokens(reader, &fields->tokens);
  if (name == "extra_keys") return ReadExtraKeys(reader, &fields->shared);
  const bool read = name == "parent_block_hash" || name == "block_size" || name == "lora_id" ||
                    name == "lora_name" || name == "medium";
  if (!read) return reader.Skip();
  const auto value = reader.Next();
  if (!value || value->kind == Kind::kArray || value->kind == Kind::kMap) return false;
  const bool nil = value->kind == Kind::kNil;
  if (name == "parent_block_hash") {
    fields->parent = nil ? std::nullopt : HashOf(*value);
    return nil || fields->parent.has_value();
  }
  if (name == "block_size") {
    fields->block_tokens = static_cast<int64_t>(value->number);
    return value->kind == Kind::kInteger;
  }
  if (name == "medium") fields->elsewhere = !nil && value->text != "GPU";
  if (name.starts_with("lora")) fields->adapter |= !nil;
  return true;
}

// Reads the fields of an event; its name into `name`.
bool ReadEvent(MsgpackReader& reader, std::string_view* name, Fields* fields) {
  const auto head = reader.Next();
  if (!head || head->number == 0) return false;
  if (head->kind == Kind::kMap) {
    for (uint64_t i = 0; i < head->number; ++i) {
      const auto key = reader.Next();
      if (!key || key->kind != Kind::kText) return false;
      if (key->text == "type") {
        const auto value = reader.Next();
        if (!value || value->kind != Kind::kText) return false;
        *name = value->text;
      } else if (!ReadField(reader, key->text, fields)) {
        return false;
      }
    }
    return !name->empty();
  }
  const auto first = head->kind == Kind::kArray ? reader.Next() : std::nullopt;
  if (!first || first->kind != Kind::kText) return false;
  *name = first->text;
  const bool removed = *name == "BlockRemoved";
  for (uint64_t i = 1; i < head->number; ++i) {
    const size_t known = removed ? kRemoved.size() : kStored.size();
    const std::string_view field =
        i > known ? std::string_view() : (removed ? kRemoved[i - 1] : kStored[i - 1]);
    if (!ReadField(reader, field, fields)) return false;
  }
  return true;
}

bool AddEvent(std::string_view name, Fields fields, EventBatch* batch) {
  if (name == "AllBlocksCleared") {
    batch->events.emplace_back(BlocksCleared{});
    return true;
  }
  const bool stored = name == "BlockStored";
  if ((!stored && name != "BlockRemoved") || fields.adapter || fields.elsewhere) return true;
  if (!stored) {
    batch->events.emplace_back(BlocksRemoved{std::move(fields.hashes)});
    return true;
  }
  const int64_t size = fields.block_tokens;
  if (size < 1 || size > kBlockTokensMax ||
      fields.tokens.size() != fields.hashes.size() * static_cast<size_t>(size)) {
    return false;
  }
  batch->events.emplace_back(BlocksStored{std::move(fields.hashes), fields.parent,
                                          std::move(fields.tokens), static_cast<int32_t>(size),
                                          fields.shared});
  return true;
}

}  // namespace

Result<EventBatch> DecodeBatch(std::string_view bytes) {
  const Error wrong{ErrorCode::kInvalid,
                    "a batch of KV events must be [seconds, [event, …], dp_rank] in MessagePack"};
  MsgpackReader reader(bytes);
  EventBatch batch;
  const auto head = reader.Next();
  if (!head || head->kind != Kind::kArray || head->number < 2 || !reader.Skip()) return wrong;
  const auto list = reader.Next();
  if (!list || list->kind != Kind::kArray) return wrong;
  for (uint64_t i = 0; i < list->number; ++i) {
    std::string_view name;
    Fields fields;
    const bool whole =
        ReadEvent(reader, &name, &fields) && AddEvent(name, std::move(fields), &batch);
    if (!whole) return wrong;
  }
  if (head->number < 3) return batch;
  const auto rank = reader.Next();
  if (!rank || (rank->kind != Kind::kInteger && rank->kind != Kind::kNil)) return wrong;
  if (rank->number > std::numeric_limits<int32_t>::max()) return wrong;
  batch.dp_rank = static_cast<int32_t>(rank->number);
  return batch;
}

}  // namespace braid::kv
