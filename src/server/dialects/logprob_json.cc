// Three encodings of the same entries.
#include "server/dialects/logprob_json.h"

#include <fmt/core.h>

#include <algorithm>

#include "text/tokens/utf8.h"

namespace braid {
namespace {

constexpr double kLowestLogprob = -9999;  // JSON has no infinity

double Finite(float logprob) { return std::max(static_cast<double>(logprob), kLowestLogprob); }

json::object ChatEntry(const Tokenizer* tokenizer, TokenId token, float logprob) {
  json::object entry{{"token", TokenName(tokenizer, token)}, {"logprob", Finite(logprob)}};
  if (tokenizer == nullptr) {
    entry["bytes"] = nullptr;
    return entry;
  }
  json::array bytes;
  for (char c : tokenizer->TokenBytes(token)) bytes.push_back(static_cast<unsigned char>(c));
  entry["bytes"] = std::move(bytes);
  return entry;
}

std::span<const std::pair<TokenId, float>> Top(const TokenLogprob& entry, int32_t top) {
  return std::span(entry.top).first(std::min(entry.top.size(), static_cast<size_t>(top)));
}

}  // namespace

std::string TokenName(const Tokenizer* tokenizer, TokenId token) {
  if (tokenizer == nullptr) return fmt::format("token_id:{}", token);
  std::string_view bytes = tokenizer->TokenBytes(token);
  if (IsValidUtf8(bytes)) return std::string(bytes);
  std::string name = "bytes:";
  for (char c : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

json::object ChatLogprobs(const Tokenizer* tokenizer, std::span<const TokenLogprob> entries,
                          int32_t top) {
  json::array content;
  for (const TokenLogprob& entry : entries) {
    json::object one = ChatEntry(tokenizer, entry.token, entry.logprob);
    json::array alternatives;
    for (auto [token, logprob] : Top(entry, top)) {
      alternatives.push_back(ChatEntry(tokenizer, token, logprob));
    }
    one["top_logprobs"] = std::move(alternatives);
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

void LegacyLogprobs::AddFirst(TokenId token, int64_t text_offset) {
  tokens_.push_back(json::value(TokenName(tokenizer_, token)));
  logprobs_.push_back(nullptr);
  tops_.push_back(nullptr);
  offsets_.push_back(text_offset);
}

void LegacyLogprobs::Add(const TokenLogprob& entry, int64_t text_offset) {
  std::string name = TokenName(tokenizer_, entry.token);
  json::object top;
  for (auto [token, logprob] : Top(entry, top_)) {
    top[TokenName(tokenizer_, token)] = Finite(logprob);
  }
  top[name] = Finite(entry.logprob);  // shown even if it is not among the best
  tokens_.push_back(json::value(std::move(name)));
  logprobs_.push_back(Finite(entry.logprob));
  tops_.push_back(std::move(top));
  offsets_.push_back(text_offset);
}

json::object LegacyLogprobs::Take() {
  json::object out{{"tokens", std::move(tokens_)},
                   {"token_logprobs", std::move(logprobs_)},
                   {"top_logprobs", std::move(tops_)},
                   {"text_offset", std::move(offsets_)}};
  if (top_ == 0) out["top_logprobs"] = nullptr;
  return out;
}

json::array PromptLogprobs(const Tokenizer* tokenizer, std::span<const TokenLogprob> entries,
                           int32_t top) {
  json::array out{nullptr};
  for (const TokenLogprob& entry : entries) {
    json::object position;
    int64_t rank = 0;
    auto add = [&](TokenId token, float logprob, json::value shown_rank) {
      position[std::to_string(token)] =
          json::object{{"logprob", Finite(logprob)},
                       {"rank", std::move(shown_rank)},
                       {"decoded_token", TokenName(tokenizer, token)}};
    };
    for (auto [token, logprob] : Top(entry, top)) add(token, logprob, ++rank);
    if (!position.contains(std::to_string(entry.token))) add(entry.token, entry.logprob, nullptr);
    out.push_back(std::move(position));
  }
  return out;
}

}  // namespace braid
