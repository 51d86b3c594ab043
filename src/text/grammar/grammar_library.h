// Compiled grammars by their text, so that each is tried and compiled once: the API checks a
// request's grammar here before it queues it, and the executor starts it from here. Refusals are
// kept as well. Thread-safe; identical grammars that are asked for at the same time are compiled
// once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/token_constraint.h"
#include "text/grammar/grammar.h"
#include "text/grammar/grammar_trial.h"

namespace braid {

// The key that Start and Check take: kind, tenant and source in one text. Tenants do not share
// grammars, because the time of a lookup would reveal them.
std::string GrammarText(GrammarKind kind, std::string_view source, std::string_view tenant = {});

struct GrammarLibraryOptions {
  // About so many bytes of compiled grammars are kept, the least recently used go first. Those in
  // use, and what their streams need, are counted too and stay.
  int64_t bytes_max = int64_t{512} << 20;
  GrammarTrial* trial = nullptr;  // null: grammars are compiled without a trial
};

class GrammarLibrary final : public ConstraintSource {
 public:
  // `tokenizer` and the trial must outlive the object.
  static Result<std::unique_ptr<GrammarLibrary>> Create(const Tokenizer& tokenizer, TokenId end,
                                                        GrammarLibraryOptions options = {});

  // What Check would say at once; nullopt: the grammar is to be tried and compiled.
  std::optional<Status> Known(std::string_view grammar);
  struct Checked {
    // Why it cannot be used, if so: kInvalid and kExhausted (over its budget) stay, kUnavailable
    // does not.
    Status status;
    int64_t work_us = 0;  // of trying and compiling; 0 if it was there
  };
  // Ends early, with kUnavailable, when `cancelled` becomes true.
  Checked Check(std::string_view grammar, const std::atomic<bool>& cancelled);
  Checked Check(std::string_view grammar) { return Check(grammar, never_); }

  // While this lives, the library keeps the grammar.
  class Hold {
   public:
    Hold(GrammarLibrary& library, std::string grammar, int64_t bytes)
        : library_(&library), grammar_(std::move(grammar)), bytes_(bytes) {}
    ~Hold() { Release(); }
    Hold(Hold&& other) noexcept
        : library_(std::exchange(other.library_, nullptr)),
          grammar_(std::move(other.grammar_)),
          bytes_(other.bytes_) {}
    Hold& operator=(Hold&& other) noexcept {
      std::swap(library_, other.library_);
      std::swap(grammar_, other.grammar_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }

   private:
    void Release();
    GrammarLibrary* library_;
    std::string grammar_;
    int64_t bytes_;  // of its streams
  };
  // Keeps a checked grammar for so many streams. kInvalid: they need more than bytes_max;
  // kUnavailable: those in use leave no room, or it is not there any more.
  Result<Hold> HoldFor(std::string_view grammar, int64_t streams);

  Result<std::unique_ptr<TokenConstraint>> Start(std::string_view grammar,
                                                 bool after_thinking) override;
  TokenId end_token() const override { return end_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

  int64_t bytes() const;  // that compiled grammars and their streams take
  int64_t bytes_max() const { return options_.bytes_max; }

 private:
  struct Entry {
    std::string grammar;
    std::optional<GrammarMatcher> matcher;  // at its beginning; only copied
    Status refusal;                         // why there is no matcher
    int64_t bytes = 0;
    int64_t holds = 0;
  };
  GrammarLibrary(const Tokenizer& tokenizer, Grammars grammars, TokenId end,
                 GrammarLibraryOptions options);
  // The kind and the source in a grammar's text.
  static Result<std::pair<GrammarKind, std::string_view>> Parts(std::string_view grammar);
  Entry* FindLocked(std::string_view grammar);
  Entry Compile(std::string_view grammar, const std::atomic<bool>& cancelled,
                int64_t* work_us) const;
  void KeepLocked(Entry entry);
  void MakeRoomLocked();
  void Release(std::string_view grammar, int64_t bytes);
  Result<GrammarMatcher> CopyOf(std::string_view grammar);

  const Tokenizer& tokenizer_;
  const Grammars grammars_;
  const TokenId end_;
  const GrammarLibraryOptions options_;
  const std::atomic<bool> never_{false};
  std::vector<TokenId> newlines_;  // tokens that are nothing but newlines
  mutable std::mutex mutex_;       // guards what follows
  std::condition_variable compiled_;
  std::set<std::string, std::less<>> compiling_;
  std::list<Entry> entries_;  // most recently used first
  std::map<std::string_view, std::list<Entry>::iterator> index_;
  int64_t bytes_ = 0;
};

}  // namespace braid
