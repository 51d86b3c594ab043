// Thin ownership around the Rust library's grammar functions.
#include "text/grammar/grammar.h"

#include <cstring>
#include <utility>
#include <vector>

#include "text/rust_library.h"

namespace braid {

std::string_view NameOf(GrammarKind kind) {
  switch (kind) {
    case GrammarKind::kJsonSchema:
      return "json_schema";
    case GrammarKind::kRegex:
      return "regex";
    case GrammarKind::kLark:
      return "lark";
  }
  return {};
}

struct GrammarMatcher::State {
  RustHandle<braid_text_matcher, braid_text_matcher_free> handle;
};

struct Grammars::State {
  RustHandle<braid_text_grammars, braid_text_grammars_free> handle;
};

GrammarMatcher::GrammarMatcher(std::unique_ptr<State> state) : state_(std::move(state)) {}
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;
GrammarMatcher::~GrammarMatcher() = default;

Grammars::Grammars(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Grammars::Grammars(Grammars&&) noexcept = default;
Grammars& Grammars::operator=(Grammars&&) noexcept = default;
Grammars::~Grammars() = default;

Status GrammarMatcher::Mask(std::span<uint32_t> words) {
  braid_text_buffer error = {};
  if (braid_text_matcher_mask(state_->handle.get(), words.data(), words.size(), &error) != 0) {
    return Error{ErrorCode::kExhausted, TakeRustText(error)};
  }
  return {};
}

Status GrammarMatcher::Accept(TokenId id) {
  braid_text_buffer error = {};
  if (braid_text_matcher_accept(state_->handle.get(), static_cast<uint32_t>(id), &error) != 0) {
    return Error{ErrorCode::kInvalid, TakeRustText(error)};
  }
  return {};
}

Status GrammarMatcher::Rewind(size_t count) {
  braid_text_buffer error = {};
  if (braid_text_matcher_rewind(state_->handle.get(), count, &error) != 0) {
    return Error{ErrorCode::kInvalid, TakeRustText(error)};
  }
  return {};
}

Result<size_t> GrammarMatcher::Forced(std::span<TokenId> tokens) {
  static_assert(sizeof(TokenId) == sizeof(uint32_t));
  braid_text_buffer error = {};
  const int32_t count = braid_text_matcher_forced(
      state_->handle.get(), reinterpret_cast<uint32_t*>(tokens.data()), tokens.size(), &error);
  if (count < 0) return Error{ErrorCode::kInvalid, TakeRustText(error)};
  return static_cast<size_t>(count);
}

Result<GrammarMatcher> GrammarMatcher::Copy() const {
  auto state = std::make_unique<State>();
  braid_text_buffer error = {};
  state->handle.reset(braid_text_matcher_copy(state_->handle.get(), &error));
  if (state->handle == nullptr) return Error{ErrorCode::kInternal, TakeRustText(error)};
  return GrammarMatcher(std::move(state));
}

Result<bool> GrammarMatcher::Complete() {
  braid_text_buffer error = {};
  const int32_t complete = braid_text_matcher_complete(state_->handle.get(), &error);
  if (complete < 0) return Error{ErrorCode::kInvalid, TakeRustText(error)};
  return complete == 1;
}

Result<Grammars> Grammars::Create(const Tokenizer& tokenizer, TokenId end) {
  return Of(braid_text_tokenizer_table(tokenizer.rust_handle()), end);
}

Result<Grammars> Grammars::Of(const braid_text_table& table, TokenId end) {
  auto state = std::make_unique<State>();
  braid_text_buffer error = {};
  state->handle.reset(
      braid_text_grammars_create(table, static_cast<uint32_t>(end), kMaskItemsMax, &error));
  if (state->handle == nullptr) return Error{ErrorCode::kInvalid, TakeRustText(error)};
  return Grammars(std::move(state));
}

// The head, the offsets, the bytes, and which tokens are special.
namespace {

struct PackedHead {
  uint32_t tokens;
  int32_t end;
};

}  // namespace

std::string PackVocabulary(const Tokenizer& tokenizer, TokenId end) {
  const braid_text_table table = braid_text_tokenizer_table(tokenizer.rust_handle());
  const size_t tokens = table.token_count;
  const PackedHead head{static_cast<uint32_t>(tokens), end};
  std::string packed;
  const auto add = [&](const void* data, size_t size) {
    packed.append(static_cast<const char*>(data), size);
  };
  add(&head, sizeof(head));
  add(table.offsets, (tokens + 1) * sizeof(uint32_t));
  add(table.bytes, table.offsets[tokens]);
  add(table.special, tokens);
  return packed;
}

Result<Grammars> Grammars::Unpack(std::string_view packed) {
  PackedHead head{};
  const auto short_of = [&](size_t bytes) { return packed.size() < bytes; };
  const Error wrong{ErrorCode::kInternal, "the packed vocabulary is not whole"};
  if (short_of(sizeof(head))) return wrong;
  std::memcpy(&head, packed.data(), sizeof(head));
  const size_t offsets_bytes = (size_t{head.tokens} + 1) * sizeof(uint32_t);
  if (short_of(sizeof(head) + offsets_bytes)) return wrong;
  std::vector<uint32_t> offsets(size_t{head.tokens} + 1);
  std::memcpy(offsets.data(), packed.data() + sizeof(head), offsets_bytes);
  const size_t bytes_at = sizeof(head) + offsets_bytes;
  if (packed.size() != bytes_at + offsets.back() + head.tokens) return wrong;
  const auto* bytes = reinterpret_cast<const uint8_t*>(packed.data() + bytes_at);
  const braid_text_table table{.token_count = head.tokens,
                               .bytes = bytes,
                               .offsets = offsets.data(),
                               .special = bytes + offsets.back(),
                               .strips_leading_space = 0};
  return Of(table, head.end);
}

Result<GrammarMatcher> Grammars::Compile(GrammarKind kind, std::string_view source) const {
  auto state = std::make_unique<GrammarMatcher::State>();
  braid_text_buffer error = {};
  state->handle.reset(braid_text_matcher_create(state_->handle.get(), RustView(NameOf(kind)),
                                                RustView(source), &error));
  if (state->handle != nullptr) return GrammarMatcher(std::move(state));
  std::string message = TakeRustText(error);
  const bool complex = message.starts_with("too complex");
  return Error{complex ? ErrorCode::kExhausted : ErrorCode::kInvalid, std::move(message)};
}

}  // namespace braid
