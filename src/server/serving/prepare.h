// From a parsed request to what the engine takes: rendering, tokenising, defaults, and the limits
// that need token counts. Runs on a preparation thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/request.h"
#include "server/api/api_error.h"
#include "server/api/api_request.h"
#include "server/service.h"
#include "server/serving/chat_prompt.h"
#include "server/serving/grammar_plan.h"
#include "text/answer/answer_parser.h"

namespace braid {

// How tokens become the text of an answer.
struct TextOptions {
  std::vector<std::string> stop;
  std::vector<TokenId> stop_tokens;  // those the client named: shown as the stop reason
  bool include_stop = false;
  int64_t min_tokens = 0;  // before so many, no stop string ends the answer
  bool skip_special = true;
  std::vector<TokenId> kept_tokens;  // special ones that the parser of the text needs
  AnswerSyntax syntax;
  bool shows_reasoning = true;
  bool parallel_calls = true;  // false: the answer ends with its first tool call
};

// One answer to be made: prompt p's choice i has index p * n + i.
struct PlannedChoice {
  Request request;  // its id is still to be given, and its seed if none was asked for
  bool starts_in_reasoning = false;
};

struct GenerationPlan {
  TextOptions text;
  std::vector<PlannedChoice> choices;
  int32_t choices_per_prompt = 1;
  bool fixed_seed = false;
  PlannedGrammar grammar;                    // of every choice
  std::optional<GrammarLibrary::Hold> hold;  // on it, once it is compiled
  std::unique_ptr<TenantLoad::Place> place;  // among the requests of its tenant
  ActiveRequests::Entry shown;               // null: the generation's start lists it
};

// 404 model_not_found unless `model` is empty or the name of the model that is served.
ApiStatus CheckModel(const ModelCard& card, const std::string& model);

Result<GenerationPlan, ApiError> PlanGeneration(Service& service, ApiRequest request,
                                                std::string_view tenant);

}  // namespace braid
