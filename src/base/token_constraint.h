// What an output must match, token by token: the border between who knows grammars (text) and who
// samples (runtime). A constraint is a function of the tokens it has accepted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"

namespace braid {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Sets bit i % 32 of words[i / 32] for every token i that may come next and clears all others.
  // When the output is complete the end token is among them, or the only one.
  virtual Status Mask(std::span<uint32_t> words) = 0;
  // Moves on by one token. A token that the mask forbids is an Error, and so is every call after.
  virtual Status Accept(TokenId token) = 0;
  // Takes back the last `count` accepted tokens. An Error from a constraint that cannot, and from
  // every call after it: then begin anew.
  virtual Status Rewind(size_t count) = 0;
  // Writes tokens that the constraint leaves no choice about, as far as it is known to, and returns
  // how many: proposals, for the same text may have other tokens. Changes no mask.
  virtual Result<size_t> Forced(std::span<TokenId> tokens) = 0;
};

class ConstraintSource {
 public:
  virtual ~ConstraintSource() = default;
  // The constraint of a request's `grammar`, at its beginning. `after_thinking`: up to two newlines
  // may come before it, which are not part of the answer. Any thread.
  virtual Result<std::unique_ptr<TokenConstraint>> Start(std::string_view grammar,
                                                         bool after_thinking) = 0;
  // The token that ends an output; allowed by a mask when the output is complete.
  virtual TokenId end_token() const = 0;
};

}  // namespace braid
