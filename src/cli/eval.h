// What `braid eval` counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/eval_checks.h"
#include "engine/engine.h"

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

// An item's chat as a request: greedy, up to 512 new tokens.
Result<Request> ChatRequest(const Engine& engine, const EvalItem& item);
// The tasks of the files, of each file at most so many items of a kind.
Result<std::vector<EvalTask>> ReadTasks(const std::vector<std::string>& files, size_t items_max);

}  // namespace braid
