// What `braid eval` counts, and its second way: asking a server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/eval_checks.h"

namespace braid {

struct EvalTask {
  std::string name;
  std::vector<EvalItem> chats;
  std::vector<EvalItem> texts;  // perplexity items
  int64_t right = 0;
  int64_t answered = 0;
  double log_likelihood = 0;  // natural logarithm, of the texts
  int64_t scored_tokens = 0;

  double perplexity() const;  // 0 when nothing was scored
};

struct RemoteModel {
  std::string base_url;  // http://HOST:PORT/v1
  std::string model;
  std::string api_key;
};

// Asks an OpenAI-compatible server for every chat item, greedily. Texts are left out: its API gives
// no log-probabilities of a prompt.
Status EvalRemotely(const RemoteModel& remote, int32_t concurrency, int32_t new_tokens_max,
                    std::vector<EvalTask>& tasks);

}  // namespace braid
