// Constrained decoding: a JSON schema, a regular expression or a Lark grammar as a mask over token
// ids. Grammars is immutable and may be shared by threads; a GrammarMatcher belongs to one stream.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "text/tokens/tokenizer.h"

struct braid_text_table;

namespace braid {

enum class GrammarKind : uint8_t { kJsonSchema, kRegex, kLark };

class GrammarMatcher {
 public:
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;
  ~GrammarMatcher();

  // Sets bit i % 32 of words[i / 32] for every token i that may come next; all other bits are
  // cleared. When the text is complete the end token is among them, or the only one.
  Status Mask(std::span<uint32_t> words);

  // Moves on by one token. A token that the mask forbids is an Error, and so is every call after
  // it.
  Status Accept(TokenId id);

  // Takes back the last `count` accepted tokens. A grammar that counts tokens or whose lexemes have
  // stop texts cannot: an Error, and so is every call after it.
  Status Rewind(size_t count);

  // Fills `tokens` with a tokenisation of the text that must come next; returns how many there are.
  // After a whole text that is the end token. A text may have other tokenisations too.
  Result<size_t> Forced(std::span<TokenId> tokens);

  // A matcher in the same state, for another stream.
  Result<GrammarMatcher> Copy() const;

  // True if the tokens accepted so far are a whole text of the grammar.
  Result<bool> Complete();

 private:
  friend class Grammars;
  struct State;
  explicit GrammarMatcher(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class Grammars {
 public:
  // Items of the parser for the tokens that may come next, about 2 ms: a grammar that needs more
  // ends its request with an error.
  static constexpr int64_t kMaskItemsMax = 50'000;

  // Takes tens of milliseconds for a large vocabulary: once, at start. `end` is the token that may
  // follow a whole text. The tokenizer is read, not kept.
  static Result<Grammars> Create(const Tokenizer& tokenizer, TokenId end);
  // The same from what PackVocabulary made, in another process.
  static Result<Grammars> Unpack(std::string_view packed);

  Grammars(Grammars&&) noexcept;
  Grammars& operator=(Grammars&&) noexcept;
  ~Grammars();

  // `source` has at most 1 MiB. A wrong or too large grammar is an Error that says why.
  Result<GrammarMatcher> Compile(GrammarKind kind, std::string_view source) const;

 private:
  struct State;
  explicit Grammars(std::unique_ptr<const State> state);
  static Result<Grammars> Of(const braid_text_table& table, TokenId end);
  std::unique_ptr<const State> state_;
};

// All that Create needs of a tokenizer, as bytes.
std::string PackVocabulary(const Tokenizer& tokenizer, TokenId end);

// "json_schema", "regex", "lark".
std::string_view NameOf(GrammarKind kind);

}  // namespace braid
