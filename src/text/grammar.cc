// Thin ownership around the Rust library's grammar functions.
#include "text/grammar.h"

#include <utility>

#include "text/rust_library.h"

namespace braid {
namespace {

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

}  // namespace

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
  auto state = std::make_unique<State>();
  braid_text_buffer error = {};
  state->handle.reset(braid_text_grammars_create(
      tokenizer.rust_handle(), static_cast<uint32_t>(end), kMaskItemsMax, &error));
  if (state->handle == nullptr) return Error{ErrorCode::kInvalid, TakeRustText(error)};
  return Grammars(std::move(state));
}

Result<GrammarMatcher> Grammars::Compile(GrammarKind kind, std::string_view source) const {
  auto state = std::make_unique<GrammarMatcher::State>();
  braid_text_buffer error = {};
  state->handle.reset(braid_text_matcher_create(state_->handle.get(), RustView(NameOf(kind)),
                                                RustView(source), &error));
  if (state->handle == nullptr) return Error{ErrorCode::kInvalid, TakeRustText(error)};
  return GrammarMatcher(std::move(state));
}

}  // namespace braid
