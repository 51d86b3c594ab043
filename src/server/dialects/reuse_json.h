// Explains in words how much of a prompt the prefix cache saved and why not more: the `braid`
// object of answers to requests with `explain`. Pure.
#pragma once

#include <string>

#include "base/json.h"
#include "scheduler/scheduler.h"

namespace braid {

// What happened to one prompt of a request.
struct PromptReuse {
  int32_t prompt_tokens = 0;
  Reuse reuse;
  int32_t preemptions = 0;  // of its first answer
};

// A sentence with the numbers in it.
std::string ExplainReuse(const PromptReuse& prompt);
// prompt_tokens, reused_tokens, known_tokens, stop (NameOf), explanation, preemptions.
json::object ReuseJson(const PromptReuse& prompt);

}  // namespace braid
