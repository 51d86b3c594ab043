// What `braid eval` counts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/eval_checks.h"
#include "cli/eval_sets.h"
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

// The token that ends a document: <|endoftext|> where the vocabulary has it, else the one that ends
// answers; none where several do.
std::optional<TokenId> EndOfText(const Tokenizer& tokenizer, std::span<const TokenId> eos);

// An item's chat or prompt as a request: greedy, up to so many new tokens.
inline constexpr int32_t kEvalTokens = 512;
Result<Request> ChatRequest(const Engine& engine, const EvalItem& item,
                            int32_t new_tokens_max = kEvalTokens);
// The tasks of the files, of each file at most so many items of a kind. Worked examples of
// published sets come from the file that is named, else they are the first lines of each file,
// which are not asked then.
struct SetShots {
  SetPrompting prompting = {};
  std::string file = {};
};
Result<std::vector<EvalTask>> ReadTasks(const std::vector<std::string>& files, size_t items_max,
                                        const SetShots& shots = {});

}  // namespace braid
