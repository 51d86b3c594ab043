// Incremental detokenisation: one token in, the text that became certain out. Never half a UTF-8
// sequence; bytes that can no longer become a character turn into U+FFFD as soon as that is
// certain. The concatenation of all results equals Tokenizer::Decode of all ids. One per stream,
// one thread.
#pragma once

#include <span>
#include <string>

#include "base/ids.h"
#include "text/tokens/tokenizer.h"

namespace braid {

class Detokenizer {
 public:
  // `tokenizer` and `kept` must outlive this object. Special tokens in `kept` are not skipped: the
  // tags that a parser of the text looks for.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special, std::span<const TokenId> kept = {})
      : tokenizer_(&tokenizer),
        skip_special_(skip_special),
        kept_(kept),
        strip_space_(tokenizer.strips_leading_space()) {}

  // The newly complete text; often empty in the middle of a character.
  std::string Push(TokenId id);

  // The end of the stream: an unfinished character becomes U+FFFD. Push may follow and starts a new
  // character.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::span<const TokenId> kept_;
  bool strip_space_;     // the next byte is the first of the text and goes if it is a space
  std::string pending_;  // at most 3 bytes: a valid but unfinished UTF-8 sequence
};

}  // namespace braid
