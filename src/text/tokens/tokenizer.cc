// The Rust library loads, checks and encodes; decoding is concatenation over its table of token
// bytes and never crosses the border.
#include "text/tokens/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/system/file.h"
#include "text/rust_library.h"
#include "text/tokens/utf8.h"

namespace braid {
namespace {

constexpr size_t kFileBytesMax = size_t{64} << 20;

}  // namespace

struct Tokenizer::Vocabulary {
  RustHandle<braid_text_tokenizer, braid_text_tokenizer_free> handle;
  braid_text_table table = {};
  int32_t longest_token_bytes = 0;
};

Tokenizer::Tokenizer(std::unique_ptr<const Vocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::Load(const std::string& model_dir) {
  const std::string path = model_dir + "/tokenizer.json";
  if (!FileExists(path)) return LoadTiktoken(model_dir);
  ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kFileBytesMax));
  Result<Tokenizer> tokenizer = FromJson(json);
  if (tokenizer) return tokenizer;
  return Error{tokenizer.error().code, path + ": " + tokenizer.error().message};
}

bool Tokenizer::IsIn(const std::string& model_dir) {
  return FileExists(model_dir + "/tokenizer.json") || FileExists(model_dir + "/tiktoken.model");
}

Result<Tokenizer> Tokenizer::LoadTiktoken(const std::string& model_dir) {
  const std::string path = model_dir + "/tiktoken.model";
  if (!FileExists(path)) {
    return Error{ErrorCode::kNotFound,
                 model_dir + " has neither tokenizer.json nor tiktoken.model"};
  }
  ASSIGN_OR_RETURN(const std::string model, ReadFile(path, kFileBytesMax));
  ASSIGN_OR_RETURN(const std::string config,
                   ReadFile(model_dir + "/tokenizer_config.json", kFileBytesMax));
  Result<Tokenizer> tokenizer = FromTiktoken(model, config);
  if (tokenizer) return tokenizer;
  return Error{tokenizer.error().code, path + ": " + tokenizer.error().message};
}

Result<Tokenizer> Tokenizer::FromJson(std::string_view tokenizer_json) {
  braid_text_buffer error = {};
  return Of(braid_text_tokenizer_load(RustView(tokenizer_json), &error), &error);
}

Result<Tokenizer> Tokenizer::FromTiktoken(std::string_view model, std::string_view config) {
  braid_text_buffer error = {};
  return Of(braid_text_tokenizer_load_tiktoken(RustView(model), RustView(config), &error), &error);
}

Result<Tokenizer> Tokenizer::Of(braid_text_tokenizer* loaded, braid_text_buffer* error) {
  auto vocabulary = std::make_unique<Vocabulary>();
  vocabulary->handle.reset(loaded);
  if (loaded == nullptr) return Error{ErrorCode::kInvalid, TakeRustText(*error)};
  vocabulary->table = braid_text_tokenizer_table(vocabulary->handle.get());
  const braid_text_table& table = vocabulary->table;
  uint32_t longest = 0;
  for (size_t id = 0; id < table.token_count; ++id) {
    longest = std::max(longest, table.offsets[id + 1] - table.offsets[id]);
  }
  vocabulary->longest_token_bytes = static_cast<int32_t>(longest);
  return Tokenizer(std::move(vocabulary));
}

Result<std::vector<TokenId>> Tokenizer::Encode(std::string_view text, bool add_special_tokens,
                                               const LongTexts& long_texts) const {
  braid_text_ids ids = {};
  braid_text_buffer error = {};
  const auto& [tenant, salt, slice_bytes, kept_bytes] = long_texts;
  const std::string scope = fmt::format("{} {}{}", tenant.size(), tenant, salt);
  const braid_text_encoding encoding{add_special_tokens, slice_bytes, kept_bytes, RustView(scope)};
  if (braid_text_tokenizer_encode(vocabulary_->handle.get(), RustView(text), encoding, &ids,
                                  &error) != 0) {
    return Error{ErrorCode::kInvalid, TakeRustText(error)};
  }
  std::vector<TokenId> out(ids.size);
  std::transform(ids.data, ids.data + ids.size, out.begin(),
                 [](uint32_t id) { return static_cast<TokenId>(id); });
  braid_text_ids_free(ids);
  return out;
}

LongTextStats Tokenizer::long_texts() const {
  const braid_text_memo memo = braid_text_tokenizer_memo(vocabulary_->handle.get());
  return {.found = memo.found, .added = memo.added, .kept_bytes = memo.bytes};
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (TokenId id : ids) {
    if (!skip_special || !IsSpecial(id)) bytes += TokenBytes(id);
  }
  std::string_view rest = bytes;
  if (strips_leading_space() && rest.starts_with(' ')) rest.remove_prefix(1);
  std::string text;
  text.reserve(rest.size());
  if (AppendRepairedUtf8(rest, &text) < rest.size()) text += kReplacementCharacter;
  return text;
}

std::string_view Tokenizer::TokenBytes(TokenId id) const {
  if (id < 0 || id >= vocabulary_size()) return {};
  const braid_text_table& table = vocabulary_->table;
  const uint32_t begin = table.offsets[id];
  return {reinterpret_cast<const char*>(table.bytes) + begin, table.offsets[id + 1] - begin};
}

int32_t Tokenizer::vocabulary_size() const {
  return static_cast<int32_t>(vocabulary_->table.token_count);
}

int32_t Tokenizer::longest_token_bytes() const { return vocabulary_->longest_token_bytes; }

bool Tokenizer::IsSpecial(TokenId id) const {
  return id >= 0 && id < vocabulary_size() && vocabulary_->table.special[id] != 0;
}

std::optional<TokenId> Tokenizer::TokenToId(std::string_view token) const {
  const int32_t id = braid_text_tokenizer_token_id(vocabulary_->handle.get(), RustView(token));
  if (id < 0) return std::nullopt;
  return id;
}

std::vector<TokenId> Tokenizer::TokensToIds(std::span<const std::string_view> tokens) const {
  std::vector<TokenId> ids;
  for (const std::string_view token : tokens) {
    if (const auto id = TokenToId(token)) ids.push_back(*id);
  }
  return ids;
}

bool Tokenizer::strips_leading_space() const {
  return vocabulary_->table.strips_leading_space != 0;
}

const braid_text_tokenizer* Tokenizer::rust_handle() const { return vocabulary_->handle.get(); }

}  // namespace braid
