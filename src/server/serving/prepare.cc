// Defaults are the model's (generation_config.json), then the neutral values.
#include "server/serving/prepare.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/text/cut_text.h"
#include "server/api/limits.h"
#include "text/answer/reasoning.h"

namespace braid {
namespace {

constexpr size_t kModelBytesMax = 512;            // of a model's name that an error repeats
constexpr int64_t kCompletionTokensDefault = 16;  // OpenAI's for /v1/completions

ApiError TooLong(const ServerContext& context, std::string_view at_least, int64_t tokens,
                 const std::string& path) {
  return {400,
          fmt::format("This model's maximum context length is {} tokens. However, {} has {}{} "
                      "tokens; at most {} leave room for an answer.",
                      context.card.context_tokens_max, path, at_least, tokens,
                      context.card.context_tokens_max - 1),
          path, "context_length_exceeded"};
}

SamplingParams SamplingOf(const ApiRequest& request, const GenerationDefaults& model) {
  const bool greedy = model.do_sample.has_value() && !*model.do_sample;
  const GenerationDefaults defaults = greedy ? GenerationDefaults{.temperature = 0.0} : model;
  auto pick = [](std::optional<double> asked, std::optional<double> otherwise, double neutral) {
    return static_cast<float>(asked.value_or(otherwise.value_or(neutral)));
  };
  // A number above 0 may round to 0, or to one so small that the scheduler refuses it.
  constexpr float kLeast = std::numeric_limits<float>::min();
  SamplingParams sampling;
  sampling.temperature = pick(request.temperature, defaults.temperature, 1);
  if (sampling.temperature < kLeast) sampling.temperature = 0;
  sampling.top_p = std::max(pick(request.top_p, defaults.top_p, 1), kLeast);
  sampling.min_p = pick(request.min_p, defaults.min_p, 0);
  sampling.repetition_penalty =
      std::max(pick(request.repetition_penalty, defaults.repetition_penalty, 1), kLeast);
  sampling.presence_penalty = pick(request.presence_penalty, {}, 0);
  sampling.frequency_penalty = pick(request.frequency_penalty, {}, 0);
  int64_t top_k = request.top_k.value_or(defaults.top_k.value_or(0));
  sampling.top_k = static_cast<int32_t>(std::max<int64_t>(top_k, 0));
  sampling.seed = static_cast<uint64_t>(request.seed.value_or(0));
  sampling.logit_bias = request.logit_bias;
  return sampling;
}

StopParams StopOf(const ApiRequest& request, const ServerContext& context, size_t prompt_tokens) {
  StopParams stop;
  if (!request.ignore_eos.value_or(false)) stop.stop_tokens = context.card.eos_tokens;
  stop.stop_tokens.insert(stop.stop_tokens.end(), request.stop_token_ids.begin(),
                          request.stop_token_ids.end());
  std::sort(stop.stop_tokens.begin(), stop.stop_tokens.end());
  stop.stop_tokens.erase(std::unique(stop.stop_tokens.begin(), stop.stop_tokens.end()),
                         stop.stop_tokens.end());
  int64_t room = context.card.context_tokens_max - static_cast<int64_t>(prompt_tokens);
  int64_t otherwise = IsChat(request.endpoint) ? room : kCompletionTokensDefault;
  int64_t asked = request.max_completion_tokens.value_or(request.max_tokens.value_or(otherwise));
  stop.new_tokens_max = static_cast<int32_t>(std::min(asked, room));
  stop.new_tokens_min =
      static_cast<int32_t>(std::min<int64_t>(request.min_tokens.value_or(0), stop.new_tokens_max));
  return stop;
}

// How many alternatives to report; -1: no log-probabilities.
int32_t LogprobsOf(const ApiRequest& request) {
  if (IsChat(request.endpoint) && !request.wants_logprobs.value_or(false)) return -1;
  int64_t none = IsChat(request.endpoint) ? 0 : -1;
  return static_cast<int32_t>(request.logprobs.value_or(none));
}

int32_t PromptLogprobsOf(const ApiRequest& request) {
  int64_t asked = request.prompt_logprobs.value_or(-1);
  if (request.echo.value_or(false)) asked = std::max<int64_t>(asked, LogprobsOf(request));
  // Nothing to generate: the request is for the scores of the prompt.
  if (request.max_tokens == 0) asked = std::max<int64_t>(asked, 0);
  return static_cast<int32_t>(asked);
}

// How the text of a chat's answer is read, and which special tokens that needs.
void SetSyntax(const ServerContext& context, const ApiRequest& request, TextOptions* text) {
  const ReasoningFormat& reasoning = context.card.reasoning;
  text->syntax.split_reasoning = reasoning.separates() && request.separate_reasoning.value_or(true);
  text->syntax.reasoning_tags = reasoning.tags;
  std::vector<std::string_view> tags = {reasoning.tags.open, reasoning.tags.close};
  if (OffersTools(request) && context.card.tools != nullptr) {
    const ToolFormat& format = *context.card.tools;
    text->syntax.tools = &format;
    text->syntax.schemas = ToolSchemas(request.tools);
    for (std::string_view tag : format.tags()) tags.push_back(tag);
  }
  if (context.tokenizer != nullptr) text->kept_tokens = context.tokenizer->TokensToIds(tags);
}

Result<ThinkingLimit, ApiError> ThinkingLimitOf(const ServerContext& context,
                                                const ApiRequest& request) {
  const int64_t budget = request.thinking_budget.value_or(-1);
  if (budget < 0 || context.tokenizer == nullptr) return ThinkingLimit{};
  const ReasoningTags& tags = context.card.reasoning.tags;
  const auto open = context.tokenizer->TokenToId(tags.open);
  const auto close = context.tokenizer->TokenToId(tags.close);
  if (!open || !close) {
    return ApiError{400,
                    "thinking_budget: the tags around this model's thinking are not one token "
                    "each",
                    "thinking_budget", "unsupported_parameter"};
  }
  const int64_t most = std::min<int64_t>(budget, context.card.context_tokens_max);
  return ThinkingLimit{static_cast<int32_t>(most), *open, *close};
}

struct TextOptions {
  bool add_special_tokens = false;
  LongTexts long_texts;
};

// Token ids of a prompt that fits the context. `path` names it in errors.
Result<std::vector<TokenId>, ApiError> EncodePrompt(const ServerContext& context,
                                                    const Prompt& prompt,
                                                    const TextOptions& options,
                                                    const std::string& path) {
  const int64_t context_max = context.card.context_tokens_max;
  std::vector<TokenId> tokens;
  if (auto* text = std::get_if<std::string>(&prompt)) {
    if (context.tokenizer == nullptr) {
      return ApiError{400, path + ": must be token ids: this model has no tokenizer", path};
    }
    // A text this long cannot fit: refused before tokenising it.
    int64_t longest = std::max<int64_t>(context.tokenizer->longest_token_bytes(), 1);
    int64_t at_least = static_cast<int64_t>(text->size()) / longest;
    if (at_least > context_max) return TooLong(context, "at least ", at_least, path);
    Result<std::vector<TokenId>> encoded =
        context.tokenizer->Encode(*text, options.add_special_tokens, options.long_texts);
    if (!encoded) {
      ApiError error = ToApiError(encoded.error());
      error.param = path;
      return error;
    }
    tokens = *std::move(encoded);
  } else {
    tokens = std::get<std::vector<TokenId>>(prompt);
  }
  if (tokens.empty()) return ApiError{400, path + ": must have at least one token", path};
  if (static_cast<int64_t>(tokens.size()) >= context_max) {
    return TooLong(context, "", static_cast<int64_t>(tokens.size()), path);
  }
  return tokens;
}

struct EncodedPrompt {
  std::vector<TokenId> tokens;
  bool starts_in_reasoning = false;
};

Result<std::vector<EncodedPrompt>, ApiError> EncodeAll(const ServerContext& context,
                                                       const ApiRequest& request,
                                                       std::string_view tenant) {
  TextOptions options{.long_texts = {.tenant = tenant, .salt = request.cache_salt}};
  std::vector<EncodedPrompt> encoded;
  if (IsChat(request.endpoint)) {
    ASSIGN_OR_RETURN(std::string text, RenderChat(context, request));
    const ReasoningFormat& reasoning = context.card.reasoning;
    const bool inside = request.continue_final_message.value_or(false)
                            ? ContinuesReasoning(reasoning, text, FinalContent(request))
                            : StartsInReasoning(reasoning, text);
    ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                     EncodePrompt(context, std::move(text), options, "messages"));
    encoded.push_back({std::move(tokens), inside});
    return encoded;
  }
  options.add_special_tokens = request.add_special_tokens.value_or(true);
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    std::string path = request.prompts.size() == 1 ? "prompt" : fmt::format("prompt[{}]", i);
    ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                     EncodePrompt(context, request.prompts[i], options, path));
    encoded.push_back({std::move(tokens), false});
  }
  return encoded;
}

ApiStatus CheckPromptLogprobs(const std::vector<EncodedPrompt>& prompts, int32_t width, int64_t n) {
  if (width < 0) return {};
  int64_t tokens = 0;
  for (const EncodedPrompt& prompt : prompts) tokens += static_cast<int64_t>(prompt.tokens.size());
  const int64_t entries = tokens * (width + 1) * n;
  if (entries <= limits::kPromptLogprobEntriesMax) return {};
  return ApiError{400,
                  fmt::format("prompt_logprobs: {} prompt tokens with {} alternatives each are "
                              "too many; at most {} entries are made",
                              tokens * n, width, limits::kPromptLogprobEntriesMax),
                  "prompt_logprobs"};
}

}  // namespace

ApiStatus CheckModel(const ModelCard& card, const std::string& model) {
  if (model.empty() || model == card.name) return {};
  std::string shown = json::serialize(json::string(CutText(model, kModelBytesMax)));
  return ApiError{404,
                  fmt::format("model: {} is not served; this server has \"{}\"", shown, card.name),
                  "model", "model_not_found"};
}

Result<GenerationPlan, ApiError> PlanGeneration(Service& service, ApiRequest request,
                                                std::string_view tenant) {
  const ServerContext& context = service.context;
  if (context.tokenizer == nullptr && !request.stop.empty()) {
    return ApiError{400, "stop: needs a tokenizer, which this model does not have", "stop"};
  }
  ASSIGN_OR_RETURN(std::vector<EncodedPrompt> prompts, EncodeAll(context, request, tenant));
  const int64_t n = request.n.value_or(1);
  const int32_t prompt_logprobs = PromptLogprobsOf(request);
  RETURN_IF_ERROR(CheckPromptLogprobs(prompts, prompt_logprobs, n));

  const bool reasons = std::any_of(prompts.begin(), prompts.end(),
                                   [](const auto& prompt) { return prompt.starts_in_reasoning; });
  ASSIGN_OR_RETURN(PlannedGrammar grammar, PlanGrammar(context, request, tenant, reasons));

  ASSIGN_OR_RETURN(const ThinkingLimit limit, ThinkingLimitOf(context, request));

  GenerationPlan plan;
  plan.grammar = std::move(grammar);
  plan.choices_per_prompt = static_cast<int32_t>(n);
  plan.fixed_seed = request.seed.has_value();
  plan.text = {.stop = request.stop,
               .stop_tokens = request.stop_token_ids,
               .include_stop = request.include_stop_str_in_output.value_or(false),
               .min_tokens = request.min_tokens.value_or(0),
               .skip_special = request.skip_special_tokens.value_or(true),
               .shows_reasoning = request.include_reasoning.value_or(true),
               .parallel_calls = request.parallel_tool_calls.value_or(true)};
  if (IsChat(request.endpoint)) SetSyntax(context, request, &plan.text);
  // A grammar that begins after the thinking does not constrain calls inside it.
  plan.text.syntax.calls_in_reasoning = plan.grammar.after < 0;
  for (EncodedPrompt& prompt : prompts) {
    Request engine;
    engine.sampling = SamplingOf(request, context.card.defaults);
    engine.draft_tokens = static_cast<int32_t>(request.draft_tokens.value_or(-1));
    engine.stop = StopOf(request, context, prompt.tokens.size());
    engine.logprobs = LogprobsOf(request);
    engine.grammar = plan.grammar.text;
    engine.grammar_after = prompt.starts_in_reasoning ? plan.grammar.after : TokenId{-1};
    engine.prompt_logprobs = prompt_logprobs;
    engine.cache_salt = request.cache_salt;
    engine.tenant = tenant;
    engine.thinking = limit;
    if (prompt.starts_in_reasoning) engine.thinking.open = -1;
    engine.prompt = std::move(prompt.tokens);
    for (int64_t i = 0; i < n; ++i) {
      plan.choices.push_back({engine, prompt.starts_in_reasoning});
      plan.choices.back().request.sampling.seed += static_cast<uint64_t>(i);
    }
  }
  return plan;
}

}  // namespace braid
