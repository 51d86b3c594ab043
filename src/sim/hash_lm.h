// The hash LM: a language model whose next token is a hash of the whole prefix, so that any wrong,
// stale or missing token anywhere changes everything after it. Its oracle is five lines. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/rng.h"
#include "scheduler/request.h"

namespace braid {

inline constexpr uint64_t kEmptyPrefix = 1;

// The recurrent form: the state after one more token.
constexpr uint64_t AppendToken(uint64_t prefix, TokenId token) {
  const uint64_t h =
      prefix ^ (static_cast<uint64_t>(token) + 0x9e3779b97f4a7c15ull + (prefix << 6));
  return h * 0xff51afd7ed558ccdull ^ (h >> 29);
}

struct HashLm {
  int32_t vocabulary;

  // The token after a prefix of `position` tokens, of which `new_tokens` are output. Greedy at
  // temperature 0, otherwise a function of (seed, position); stop tokens wait for new_tokens_min.
  TokenId Next(const Request& request, uint64_t prefix, int32_t position, int32_t new_tokens) const;

  // A made-up distribution after `prefix`: the greedy token is the most probable one, the ids after
  // it follow in order, each half a nat less.
  TokenLogprob Distribution(uint64_t prefix, TokenId token, int32_t top) const;
  TokenId Greedy(uint64_t prefix) const {
    return static_cast<TokenId>(MixBits(prefix) % static_cast<uint64_t>(vocabulary));
  }
};

// What a request must produce when it runs alone, without cache, batch or engine.
struct OracleAnswer {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kLength;
};
OracleAnswer AskOracle(const HashLm& lm, const Request& request, int32_t context_tokens_max);

}  // namespace braid
