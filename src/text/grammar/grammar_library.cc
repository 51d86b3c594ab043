// A list in order of use with an index into it.
#include "text/grammar/grammar_library.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/check.h"
#include "base/clock.h"

namespace braid {
namespace {

constexpr std::array kKinds = {GrammarKind::kJsonSchema, GrammarKind::kRegex, GrammarKind::kLark};

// Where no trial has measured it: a compiled grammar's tables are some multiple of its text.
int64_t BytesOf(std::string_view grammar) {
  return (int64_t{256} << 10) + 32 * static_cast<int64_t>(grammar.size());
}

class Stream final : public TokenConstraint {
 public:
  Stream(GrammarMatcher matcher, const std::vector<TokenId>& newlines, size_t newlines_max)
      : matcher_(std::move(matcher)), newlines_(newlines), newlines_max_(newlines_max) {}

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
      ++newlines_taken_;
      return {};
    }
    RETURN_IF_ERROR(matcher_.Accept(token));
    ++matched_;
    return {};
  }

  Status Rewind(size_t count) override {
    CHECK(count <= matched_ + newlines_taken_);
    const size_t matched = std::min(count, matched_);
    if (matched > 0) RETURN_IF_ERROR(matcher_.Rewind(matched));
    matched_ -= matched;
    newlines_taken_ -= count - matched;
    return {};
  }

  Result<size_t> Forced(std::span<TokenId> tokens) override {
    if (TakesNewline()) return size_t{0};
    return matcher_.Forced(tokens);
  }

 private:
  bool TakesNewline() const { return matched_ == 0 && newlines_taken_ < newlines_max_; }

  GrammarMatcher matcher_;
  const std::vector<TokenId>& newlines_;
  const size_t newlines_max_;  // that may come before the grammar
  size_t newlines_taken_ = 0;
  size_t matched_ = 0;  // tokens after them
};

}  // namespace

std::string GrammarText(GrammarKind kind, std::string_view source, std::string_view tenant) {
  return fmt::format("{} {}\n{}", NameOf(kind), tenant, source);
}

GrammarLibrary::GrammarLibrary(const Tokenizer& tokenizer, Grammars grammars, TokenId end,
                               GrammarLibraryOptions options)
    : tokenizer_(tokenizer), grammars_(std::move(grammars)), end_(end), options_(options) {
  for (TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(id);
    if (bytes == "\n" || bytes == "\n\n") newlines_.push_back(id);
  }
}

Result<std::unique_ptr<GrammarLibrary>> GrammarLibrary::Create(const Tokenizer& tokenizer,
                                                               TokenId end,
                                                               GrammarLibraryOptions options) {
  ASSIGN_OR_RETURN(Grammars grammars, Grammars::Create(tokenizer, end));
  return std::unique_ptr<GrammarLibrary>(
      new GrammarLibrary(tokenizer, std::move(grammars), end, options));
}

Result<std::pair<GrammarKind, std::string_view>> GrammarLibrary::Parts(std::string_view grammar) {
  const size_t line = std::min(grammar.find('\n'), grammar.size());
  const std::string_view name = grammar.substr(0, std::min(grammar.find(' '), line));
  for (const GrammarKind kind : kKinds) {
    if (NameOf(kind) != name) continue;
    return std::pair(kind, grammar.substr(std::min(line + 1, grammar.size())));
  }
  return Error{ErrorCode::kInvalid, "the grammar does not begin with its kind"};
}

GrammarLibrary::Entry GrammarLibrary::Compile(std::string_view grammar,
                                              const std::atomic<bool>& cancelled,
                                              int64_t* work_us) const {
  Entry entry{.grammar = std::string(grammar), .bytes = BytesOf(grammar)};
  const auto parts = Parts(grammar);
  if (!parts) {
    entry.refusal = parts.error();
    return entry;
  }
  const auto& [kind, source] = *parts;
  if (options_.trial != nullptr) {
    const GrammarVerdict verdict = options_.trial->Try(kind, source, cancelled);
    *work_us += verdict.cpu_us;
    entry.refusal = verdict.status;
    entry.bytes = std::max(entry.bytes, verdict.held_bytes);
    if (!verdict.status) return entry;
  }
  const int64_t begin_us = MonotonicUs();
  Result<GrammarMatcher> matcher = grammars_.Compile(kind, source);
  *work_us += std::max<int64_t>(MonotonicUs() - begin_us, 1);
  if (matcher) {
    entry.matcher = *std::move(matcher);
  } else {
    entry.refusal = matcher.error();
  }
  return entry;
}

void GrammarLibrary::MakeRoomLocked() {
  for (auto last = entries_.end(); bytes_ > options_.bytes_max && last != entries_.begin();) {
    --last;
    if (last->holds > 0 || last == entries_.begin()) continue;
    bytes_ -= last->bytes;
    index_.erase(last->grammar);
    last = entries_.erase(last);
  }
}

void GrammarLibrary::KeepLocked(Entry entry) {
  if (!entry.refusal) entry.bytes = static_cast<int64_t>(entry.grammar.size()) + 1024;
  bytes_ += entry.bytes;
  entries_.push_front(std::move(entry));
  index_[entries_.front().grammar] = entries_.begin();
  MakeRoomLocked();
}

GrammarLibrary::Entry* GrammarLibrary::FindLocked(std::string_view grammar) {
  auto found = index_.find(grammar);
  if (found == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &*found->second;
}

std::optional<Status> GrammarLibrary::Known(std::string_view grammar) {
  std::lock_guard lock(mutex_);
  const Entry* found = FindLocked(grammar);
  return found == nullptr ? std::nullopt : std::optional(found->refusal);
}

GrammarLibrary::Checked GrammarLibrary::Check(std::string_view grammar,
                                              const std::atomic<bool>& cancelled) {
  std::unique_lock lock(mutex_);
  compiled_.wait(lock, [&] { return !compiling_.contains(grammar); });
  if (const Entry* found = FindLocked(grammar)) return {.status = found->refusal};
  const auto own = compiling_.emplace(grammar).first;
  lock.unlock();
  Checked checked;
  Entry entry = Compile(grammar, cancelled, &checked.work_us);
  checked.status = entry.refusal;
  lock.lock();
  compiling_.erase(own);
  const bool lasts = checked.status || checked.status.error().code != ErrorCode::kUnavailable;
  if (lasts) KeepLocked(std::move(entry));
  compiled_.notify_all();
  return checked;
}

Result<GrammarLibrary::Hold> GrammarLibrary::HoldFor(std::string_view grammar, int64_t streams) {
  std::lock_guard lock(mutex_);
  Entry* entry = FindLocked(grammar);
  if (entry == nullptr || !entry->matcher) {
    return Error{ErrorCode::kUnavailable, "the compiled grammar was evicted; try again"};
  }
  const int64_t more = entry->bytes * streams;
  if (entry->bytes + more > options_.bytes_max) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("compiled, it takes {} MiB, and as much for each of {} answers; all "
                             "grammars may take {} MiB",
                             entry->bytes >> 20, streams, options_.bytes_max >> 20)};
  }
  ++entry->holds;
  bytes_ += more;
  MakeRoomLocked();
  if (bytes_ <= options_.bytes_max) return Hold(*this, std::string(grammar), more);
  --entry->holds;
  bytes_ -= more;
  return Error{ErrorCode::kUnavailable,
               fmt::format("the grammars of running requests take {} MiB of {} MiB, and {} MiB "
                           "more are needed",
                           bytes_ >> 20, options_.bytes_max >> 20, more >> 20)};
}

void GrammarLibrary::Hold::Release() {
  if (library_ != nullptr) library_->Release(grammar_, bytes_);
}

void GrammarLibrary::Release(std::string_view grammar, int64_t bytes) {
  std::lock_guard lock(mutex_);
  bytes_ -= bytes;
  if (auto found = index_.find(grammar); found != index_.end()) --found->second->holds;
  MakeRoomLocked();
}

int64_t GrammarLibrary::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

Result<GrammarMatcher> GrammarLibrary::CopyOf(std::string_view grammar) {
  const Checked checked = Check(grammar);
  RETURN_IF_ERROR(checked.status);
  std::lock_guard lock(mutex_);
  const Entry* entry = FindLocked(grammar);
  if (entry == nullptr || !entry->matcher) {
    return Error{ErrorCode::kUnavailable, "no memory is left for the grammar"};
  }
  return entry->matcher->Copy();
}

Result<std::unique_ptr<TokenConstraint>> GrammarLibrary::Start(std::string_view grammar,
                                                               bool after_thinking) {
  ASSIGN_OR_RETURN(GrammarMatcher matcher, CopyOf(grammar));
  return std::unique_ptr<TokenConstraint>(
      new Stream(std::move(matcher), newlines_, after_thinking ? 2 : 0));
}

}  // namespace braid
