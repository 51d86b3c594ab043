// Compiled grammars by their text, so that each is compiled once: the API checks a request's
// grammar here before it queues it, and the executor starts it from here. Thread-safe; identical
// grammars that are asked for at the same time are compiled once.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_constraint.h"
#include "text/grammar.h"

namespace braid {

// What Start and Check take: the kind and the source in one text.
std::string GrammarText(GrammarKind kind, std::string_view source);

class GrammarLibrary final : public ConstraintSource {
 public:
  // `tokenizer` must outlive the object. About so many bytes of compiled grammars are kept, the
  // least recently used go first.
  static Result<std::unique_ptr<GrammarLibrary>> Create(const Tokenizer& tokenizer, TokenId end,
                                                        int64_t bytes_max = int64_t{256} << 20);

  // Compiles, or finds, a grammar: why it cannot be used, if so.
  Status Check(std::string_view grammar);

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
  Result<GrammarMatcher> CopyOf(std::string_view grammar);
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
