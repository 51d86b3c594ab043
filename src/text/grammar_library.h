// Compiled grammars by their text, so that each is compiled once: the API checks a request's
// grammar here before it queues it, and the executor starts it from here. Thread-safe; identical
// grammars that are asked for at the same time are compiled once.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_constraint.h"
#include "text/grammar.h"

namespace braid {

// What Start and Check take: kind, tenant and source in one text. Nobody's grammar is found by
// another tenant, who could tell by the time that it was there.
std::string GrammarText(GrammarKind kind, std::string_view source, std::string_view tenant = {});

class GrammarLibrary final : public ConstraintSource {
 public:
  static constexpr int64_t kBytesMax = int64_t{256} << 20;

  // `tokenizer` must outlive the object. About so many bytes of compiled grammars are kept, the
  // least recently used go first.
  static Result<std::unique_ptr<GrammarLibrary>> Create(const Tokenizer& tokenizer, TokenId end,
                                                        int64_t bytes_max = kBytesMax);

  bool Has(std::string_view grammar);
  struct Checked {
    Status status;        // why it cannot be used, if so
    int64_t work_us = 0;  // of compiling; 0 if it was there
  };
  Checked Check(std::string_view grammar);

  Result<std::unique_ptr<TokenConstraint>> Start(std::string_view grammar,
                                                 bool after_thinking) override;
  TokenId end_token() const override { return end_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  struct Entry {
    std::string grammar;
    GrammarMatcher matcher;  // at its beginning; only copied
  };
  GrammarLibrary(const Tokenizer& tokenizer, Grammars grammars, TokenId end, int64_t bytes_max);
  std::optional<Result<GrammarMatcher>> Find(std::string_view grammar);
  // Adds the time of compiling to `work_us`, where there is one.
  Result<GrammarMatcher> CopyOf(std::string_view grammar, int64_t* work_us = nullptr);
  Result<GrammarMatcher> Compile(std::string_view grammar) const;
  void Keep(std::string_view grammar, GrammarMatcher matcher);

  const Tokenizer& tokenizer_;
  const Grammars grammars_;
  const TokenId end_;
  const int64_t bytes_max_;
  std::vector<TokenId> newlines_;  // tokens that are nothing but newlines
  std::mutex compiling_;           // one compilation at a time
  std::mutex mutex_;               // guards what follows
  std::list<Entry> entries_;       // most recently used first
  std::map<std::string_view, std::list<Entry>::iterator> index_;
  int64_t bytes_ = 0;
};

}  // namespace braid
