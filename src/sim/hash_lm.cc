// See the header. Pure.
#include "sim/hash_lm.h"

#include <algorithm>

namespace braid {

TokenId HashLm::Next(const Request& request, uint64_t prefix, int32_t position,
                     int32_t new_tokens) const {
  const bool greedy = request.sampling.temperature <= 0;
  const uint64_t draw =
      greedy ? 0 : RandomBits(request.sampling.seed, static_cast<uint64_t>(position));
  TokenId token = Greedy(greedy ? prefix : prefix ^ draw);
  if (new_tokens >= request.stop.new_tokens_min) return token;
  const auto& stops = request.stop.stop_tokens;
  for (int32_t i = 0; i < vocabulary; ++i) {
    if (!std::binary_search(stops.begin(), stops.end(), token)) break;
    token = (token + 1) % vocabulary;
  }
  return token;
}

TokenLogprob HashLm::Distribution(uint64_t prefix, TokenId token, int32_t top) const {
  constexpr float kMost = -0.9327521f;  // log(1 - exp(-0.5)): the geometric weights sum to one
  const TokenId greedy = Greedy(prefix);
  const auto logprob = [&](int32_t place) { return kMost - 0.5f * static_cast<float>(place); };
  TokenLogprob out{
      .token = token,
      .logprob = token < 0 ? 0.0f : logprob((token - greedy + vocabulary) % vocabulary),
      .top = {}};
  for (int32_t place = 0; place < std::min(top, vocabulary); ++place) {
    out.top.emplace_back((greedy + place) % vocabulary, logprob(place));
  }
  return out;
}

OracleAnswer AskOracle(const HashLm& lm, const Request& request, int32_t context_tokens_max) {
  OracleAnswer answer;
  uint64_t prefix = kEmptyPrefix;
  int32_t length = 0;
  for (TokenId token : request.prompt) prefix = AppendToken(prefix, token), ++length;
  const auto& stop = request.stop;
  for (int32_t n = 0; n < stop.new_tokens_max && length < context_tokens_max; ++n, ++length) {
    answer.tokens.push_back(lm.Next(request, prefix, length, n));
    prefix = AppendToken(prefix, answer.tokens.back());
    const auto& stops = stop.stop_tokens;
    if (request.role == RequestRole::kPrefill || n < stop.new_tokens_min) continue;
    if (!std::binary_search(stops.begin(), stops.end(), answer.tokens.back())) continue;
    answer.finish = FinishReason::kStop;
    break;
  }
  return answer;
}

}  // namespace braid
