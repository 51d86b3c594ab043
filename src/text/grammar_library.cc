// A list in order of use with an index into it.
#include "text/grammar_library.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/clock.h"

namespace braid {
namespace {

struct KindName {
  GrammarKind kind;
  std::string_view name;
};
constexpr std::array<KindName, 3> kKinds = {{{GrammarKind::kJsonSchema, "json_schema"},
                                             {GrammarKind::kRegex, "regex"},
                                             {GrammarKind::kLark, "lark"}}};

// A compiled grammar's tables are some multiple of its text.
int64_t BytesOf(std::string_view grammar) {
  return (int64_t{256} << 10) + 32 * static_cast<int64_t>(grammar.size());
}

class Stream final : public TokenConstraint {
 public:
  Stream(GrammarMatcher matcher, const std::vector<TokenId>& newlines, int newlines_max)
      : matcher_(std::move(matcher)), newlines_(newlines), newlines_left_(newlines_max) {}

  Status Mask(std::span<uint32_t> words) override {
    RETURN_IF_ERROR(matcher_.Mask(words));
    if (!TakesNewline()) return {};
    for (TokenId id : newlines_) {
      const auto bit = static_cast<uint32_t>(id);
      if (bit / 32 < words.size()) words[bit / 32] |= uint32_t{1} << (bit % 32);
    }
    return {};
  }

  Status Accept(TokenId token) override {
    if (TakesNewline() && std::find(newlines_.begin(), newlines_.end(), token) != newlines_.end()) {
      --newlines_left_;
      return {};
    }
    newlines_left_ = 0;
    return matcher_.Accept(token);
  }

 private:
  bool TakesNewline() const { return newlines_left_ > 0; }

  GrammarMatcher matcher_;
  const std::vector<TokenId>& newlines_;
  int newlines_left_;  // that may still come before the grammar
};

}  // namespace

std::string GrammarText(GrammarKind kind, std::string_view source, std::string_view tenant) {
  for (const KindName& row : kKinds) {
    if (row.kind == kind) return fmt::format("{} {}\n{}", row.name, tenant, source);
  }
  return {};
}

GrammarLibrary::GrammarLibrary(const Tokenizer& tokenizer, Grammars grammars, TokenId end,
                               int64_t bytes_max)
    : tokenizer_(tokenizer), grammars_(std::move(grammars)), end_(end), bytes_max_(bytes_max) {
  for (TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(id);
    if (bytes == "\n" || bytes == "\n\n") newlines_.push_back(id);
  }
}

Result<std::unique_ptr<GrammarLibrary>> GrammarLibrary::Create(const Tokenizer& tokenizer,
                                                               TokenId end, int64_t bytes_max) {
  ASSIGN_OR_RETURN(Grammars grammars, Grammars::Create(tokenizer, end));
  return std::unique_ptr<GrammarLibrary>(
      new GrammarLibrary(tokenizer, std::move(grammars), end, bytes_max));
}

Result<GrammarMatcher> GrammarLibrary::Compile(std::string_view grammar) const {
  const size_t line = std::min(grammar.find('\n'), grammar.size());
  for (const KindName& row : kKinds) {
    if (row.name == grammar.substr(0, std::min(grammar.find(' '), line))) {
      return grammars_.Compile(row.kind, grammar.substr(std::min(line + 1, grammar.size())));
    }
  }
  return Error{ErrorCode::kInvalid, "the grammar does not begin with its kind"};
}

void GrammarLibrary::Keep(std::string_view grammar, GrammarMatcher matcher) {
  entries_.push_front({std::string(grammar), std::move(matcher)});
  index_[entries_.front().grammar] = entries_.begin();
  bytes_ += BytesOf(grammar);
  while (bytes_ > bytes_max_ && entries_.size() > 1) {
    bytes_ -= BytesOf(entries_.back().grammar);
    index_.erase(entries_.back().grammar);
    entries_.pop_back();
  }
}

std::optional<Result<GrammarMatcher>> GrammarLibrary::Find(std::string_view grammar) {
  std::lock_guard lock(mutex_);
  auto found = index_.find(grammar);
  if (found == index_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->matcher.Copy();
}

Result<GrammarMatcher> GrammarLibrary::CopyOf(std::string_view grammar, int64_t* work_us) {
  if (auto found = Find(grammar)) return *std::move(found);
  std::lock_guard compiling(compiling_);
  if (auto found = Find(grammar)) return *std::move(found);
  const int64_t begin_us = MonotonicUs();
  Result<GrammarMatcher> matcher = Compile(grammar);
  if (work_us != nullptr) *work_us += MonotonicUs() - begin_us;
  if (!matcher) return matcher;
  std::lock_guard lock(mutex_);
  Keep(grammar, *std::move(matcher));
  return entries_.front().matcher.Copy();
}

bool GrammarLibrary::Has(std::string_view grammar) {
  std::lock_guard lock(mutex_);
  return index_.contains(grammar);
}

GrammarLibrary::Checked GrammarLibrary::Check(std::string_view grammar) {
  Checked checked;
  Result<GrammarMatcher> copy = CopyOf(grammar, &checked.work_us);
  if (!copy) checked.status = copy.error();
  return checked;
}

Result<std::unique_ptr<TokenConstraint>> GrammarLibrary::Start(std::string_view grammar,
                                                               bool after_thinking) {
  ASSIGN_OR_RETURN(GrammarMatcher matcher, CopyOf(grammar));
  return std::unique_ptr<TokenConstraint>(
      new Stream(std::move(matcher), newlines_, after_thinking ? 2 : 0));
}

}  // namespace braid
