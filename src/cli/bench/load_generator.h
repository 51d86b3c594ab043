// Streamed completions of any server that speaks OpenAI's API, as the benchmarks ask for them:
// random prompts, many at the same time, and what came back when.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/rng.h"
#include "cli/bench/http_client.h"
#include "cli/command/command.h"

namespace braid {

// One streamed answer. Times are MonotonicUs.
struct StreamedAnswer {
  int64_t sent_us = 0, ended_us = 0;
  std::vector<int64_t> token_us;  // of each event that brought a token
  std::string text;
  json::array token_ids;                         // where return_token_ids was asked for
  int64_t prompt_tokens = 0, output_tokens = 0;  // as usage says; 0: it did not
  std::optional<int64_t> cached_tokens;          // as usage says
  std::string error;                             // empty: fine

  double ttft_ms() const { return static_cast<double>(token_us.front() - sent_us) * 1e-3; }
};

// Which server, and what it calls the model.
struct CompletionServer {
  std::string base_url = "http://127.0.0.1:8000/v1";
  std::string model, api_key;

  void AddFlags(Flags& flags);
  // Where calls go. An empty `model` becomes the first that the server lists.
  Result<Endpoint> Find();
};

// `tokens` ids that are plain text in byte-level vocabularies, never special; or, for servers that
// take no ids, so many words.
json::value RandomPrompt(Rng& rng, int64_t tokens, bool words);

// A greedy completion of exactly `output_tokens` tokens where the server knows ignore_eos,
// streamed, with usage at its end. `more` is added to the body.
HttpCall CompletionCall(const std::string& model, json::value prompt, int64_t output_tokens,
                        const json::object& more = {});

// Makes all calls, at most `concurrency` at the same time; answers are in the calls' order. Every
// answer has a token or an error. `on_done`, if any, is told how many have ended.
std::vector<StreamedAnswer> StreamCompletions(const Endpoint& endpoint, const std::string& api_key,
                                              int32_t concurrency,
                                              const std::vector<HttpCall>& calls,
                                              const std::function<void(size_t done)>& on_done = {});

}  // namespace braid
