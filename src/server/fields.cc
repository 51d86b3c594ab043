// The rows of the field table, in the order of ApiRequest.
#include "server/fields.h"

#include <algorithm>
#include <limits>

#include "server/limits.h"

namespace braid {
namespace {

constexpr uint32_t kOpenAi = kChat | kCompletions;
constexpr uint32_t kAnthropic = kMessages | kCountTokens;
constexpr uint32_t kGenerate = kOpenAi | kResponses | kMessages;
constexpr uint32_t kTemplated = kChat | kTokenize | kApplyTemplate;
constexpr uint32_t kAll = kGenerate | kCountTokens | kTokenize | kDetokenize | kApplyTemplate;
constexpr int64_t kInt64Min = std::numeric_limits<int64_t>::min();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
constexpr std::string_view kTextOnly = "only text is taken";

constexpr Field kFields[] = {
    {"model", kAll, ParseRule{ParseModel}},
    {"prompt", kCompletions | kTokenize, ParseRule{ParsePrompt}},
    {"tokens", kDetokenize, ParseRule{ParseTokens}},
    {"messages", kTemplated, ParseRule{ParseMessages}},
    {"tools", kTemplated, ParseRule{ParseTools}},
    {"tool_choice", kChat | kResponses, ParseRule{ParseToolChoice}},
    {"input", kResponses, ParseRule{ParseInput}},
    {"previous_response_id", kResponses, ParseRule{ParsePreviousResponse}},
    {"instructions", kResponses, ParseRule{ParseSystem}},
    {"tools", kResponses, ParseRule{ParseResponsesTools}},
    {"text", kResponses, ParseRule{ParseTextOptions}},
    {"reasoning", kResponses, ParseRule{ParseReasoningOptions}},
    {"system", kAnthropic, ParseRule{ParseSystem}},
    {"messages", kAnthropic, ParseRule{ParseTurns}},
    {"tools", kAnthropic, ParseRule{ParseAnthropicTools}},
    {"tool_choice", kAnthropic, ParseRule{ParseAnthropicToolChoice}},
    {"thinking", kAnthropic | kChat, ParseRule{ParseThinking}},
    {"enable_thinking", kChat | kApplyTemplate, FlagRule{&ApiRequest::enable_thinking}},
    {"thinking_budget", kChat | kResponses | kMessages,
     IntegerRule{&ApiRequest::thinking_budget, -1, kInt64Max}},
    {"chat_template_kwargs", kTemplated | kResponses | kAnthropic, ParseRule{ParseTemplateValues}},
    {"reasoning_effort", kChat | kApplyTemplate, ParseRule{ParseReasoningEffort}},
    {"add_generation_prompt", kTemplated, FlagRule{&ApiRequest::add_generation_prompt}},
    {"continue_final_message", kTemplated, FlagRule{&ApiRequest::continue_final_message}},
    {"add_special_tokens", kOpenAi | kTokenize, FlagRule{&ApiRequest::add_special_tokens}},

    {"text", kParseCalls | kSeparateReasoning, ParseRule{ParseText}},
    {"tools", kParseCalls, ParseRule{ParseTools}},
    {"tool_call_parser", kParseCalls, ParseRule{ParseParser}},
    {"reasoning_parser", kSeparateReasoning, ParseRule{ParseParser}},
    {"request_id", kGenerate | kAbort, ParseRule{ParseRequestId}},
    {"mode", kPause, ParseRule{ParsePauseMode}},
    {"abort_all", kAbort, FlagRule{&ApiRequest::abort_all}},

    {"temperature", kGenerate, NumberRule{&ApiRequest::temperature, 0, 2}},
    {"top_p", kGenerate, NumberRule{&ApiRequest::top_p, 0, 1, true}},
    {"min_p", kGenerate, NumberRule{&ApiRequest::min_p, 0, 1}},
    {"top_k", kGenerate, IntegerRule{&ApiRequest::top_k, -1, kVocabularyBound}},
    {"repetition_penalty", kGenerate, NumberRule{&ApiRequest::repetition_penalty, 0, 10, true}},
    {"presence_penalty", kGenerate, NumberRule{&ApiRequest::presence_penalty, -2, 2}},
    {"frequency_penalty", kGenerate, NumberRule{&ApiRequest::frequency_penalty, -2, 2}},
    {"seed", kGenerate, IntegerRule{&ApiRequest::seed, kInt64Min, kInt64Max}},
    {"n", kOpenAi, IntegerRule{&ApiRequest::n, 1, kAnswersBound}},
    {"best_of", kCompletions, IntegerRule{&ApiRequest::best_of, 1, 1}},
    {"logit_bias", kGenerate, ParseRule{ParseLogitBias}},

    {"max_tokens", kOpenAi, IntegerRule{&ApiRequest::max_tokens, 0, kInt64Max}},
    {"max_completion_tokens", kChat, IntegerRule{&ApiRequest::max_completion_tokens, 0, kInt64Max}},
    {"max_tokens", kMessages, IntegerRule{&ApiRequest::max_tokens, 1, kInt64Max}},
    {"max_output_tokens", kResponses, IntegerRule{&ApiRequest::max_tokens, 1, kInt64Max}},
    {"min_tokens", kGenerate, IntegerRule{&ApiRequest::min_tokens, 0, limits::kNewTokensMax}},
    {"stop", kGenerate, ParseRule{ParseStop}},
    {"stop_sequences", kMessages, ParseRule{ParseStop}},
    {"stop_token_ids", kGenerate, ParseRule{ParseStopTokens}},
    {"ignore_eos", kGenerate, FlagRule{&ApiRequest::ignore_eos}},
    {"include_stop_str_in_output", kGenerate, FlagRule{&ApiRequest::include_stop_str_in_output}},

    {"stream", kGenerate, FlagRule{&ApiRequest::stream}},
    {"stream_options", kOpenAi, ParseRule{ParseStreamOptions}},
    {"echo", kCompletions, FlagRule{&ApiRequest::echo}},
    {"skip_special_tokens", kGenerate | kDetokenize, FlagRule{&ApiRequest::skip_special_tokens}},
    {"return_token_ids", kOpenAi, FlagRule{&ApiRequest::return_token_ids}},
    {"logprobs", kCompletions, IntegerRule{&ApiRequest::logprobs, 0, limits::kTopLogprobsMax}},
    {"logprobs", kChat, FlagRule{&ApiRequest::wants_logprobs}},
    {"top_logprobs", kChat, IntegerRule{&ApiRequest::logprobs, 0, limits::kTopLogprobsMax}},
    {"prompt_logprobs", kOpenAi,
     IntegerRule{&ApiRequest::prompt_logprobs, 0, limits::kTopLogprobsMax}},
    {"parallel_tool_calls", kChat | kResponses, FlagRule{&ApiRequest::parallel_tool_calls}},
    {"separate_reasoning", kChat, FlagRule{&ApiRequest::separate_reasoning}},
    {"include_reasoning", kChat, FlagRule{&ApiRequest::include_reasoning}},
    {"response_format", kOpenAi, ParseRule{ParseResponseFormat}},
    {"json_schema", kGenerate, ParseRule{ParseJsonSchema}},
    {"regex", kGenerate, ParseRule{ParseRegex}},
    {"guided_choice", kGenerate, ParseRule{ParseChoices}},
    {"grammar", kGenerate, ParseRule{ParseGrammar}},
    {"structured_outputs", kGenerate, ParseRule{ParseStructuredOutputs}},
    {"structural_tag", kGenerate, ParseRule{ParseStructuralTag}},
    {"guided_decoding_backend", kGenerate, IgnoredRule{}},
    {"guided_whitespace_pattern", kGenerate, UnsupportedRule{"values are written on one line"}},
    {"braid", kOpenAi, ParseRule{ParseBraid}},
    {"cache_salt", kGenerate, ParseRule{ParseCacheSalt}},

    {"user", kGenerate, ParseRule{ParseUser}},
    {"metadata", kGenerate, ParseRule{ParseMetadata}},
    {"store", kResponses, FlagRule{&ApiRequest::store}},
    {"include", kResponses, IgnoredRule{}},
    {"truncation", kResponses, IgnoredRule{}},
    {"max_tool_calls", kResponses, IgnoredRule{}},
    {"context_management", kMessages, IgnoredRule{}},
    {"output_config", kMessages, IgnoredRule{}},
    {"service_tier", kGenerate, IgnoredRule{}},
    {"prompt_cache_key", kGenerate, IgnoredRule{}},
    {"safety_identifier", kGenerate, IgnoredRule{}},
    {"verbosity", kChat, IgnoredRule{}},
    {"stream_reasoning", kChat, IgnoredRule{}},
    {"session_id", kGenerate, IgnoredRule{}},
    {"id_slot", kOpenAi, IgnoredRule{}},
    {"cache_prompt", kOpenAi, IgnoredRule{}},

    {"store", kChat, UnsupportedRule{"only responses are stored; use /v1/responses"}},
    {"conversation", kResponses,
     UnsupportedRule{"there are no conversation objects; use previous_response_id"}},
    {"background", kResponses,
     UnsupportedRule{"must be false: an answer is made while its client waits; use stream"}},
    {"prompt", kResponses, UnsupportedRule{"prompts are not stored; use instructions"}},
    {"suffix", kCompletions, UnsupportedRule{"put the text before the gap in prompt"}},
    {"bad_words", kGenerate, UnsupportedRule{"use logit_bias"}},
    {"priority", kGenerate, UnsupportedRule{"requests are served in order of arrival"}},
    {"truncate_prompt_tokens", kGenerate, UnsupportedRule{"prompts are never cut; shorten it"}},
    {"chat_template", kTemplated, UnsupportedRule{"the model's own template is used"}},
    {"functions", kChat, UnsupportedRule{"use tools"}},
    {"function_call", kChat, UnsupportedRule{"use tool_choice"}},
    {"audio", kChat, UnsupportedRule{kTextOnly}},
    {"prompt_embeds", kGenerate, UnsupportedRule{kTextOnly}},
    {"kv_transfer_params", kGenerate, UnsupportedRule{"a client cannot name peers"}},
};

// One row per spelling; a name that means different things on different routes may have several.
constexpr FieldAlias kAliases[] = {
    // SGLang
    {"rid", "request_id"},
    {"input_ids", "prompt"},
    {"max_new_tokens", "max_tokens"},
    {"ebnf", "grammar"},
    {"extra_key", "cache_salt"},
    {"return_input_ids", "return_token_ids"},
    // vLLM
    {"guided_json", "json_schema"},
    {"guided_regex", "regex"},
    {"guided_grammar", "grammar"},
    {"thinking_token_budget", "thinking_budget"},
    // llama-server
    {"n_predict", "max_tokens"},
    {"n_probs", "logprobs"},
    {"repeat_penalty", "repetition_penalty"},
    {"return_tokens", "return_token_ids"},
    {"thinking_budget_tokens", "thinking_budget"},
    {"reasoning_budget", "thinking_budget"},
    // OpenAI's and others' names on routes that have another
    {"max_tokens", "max_output_tokens"},
    {"max_output_tokens", "max_tokens"},
    {"max_completion_tokens", "max_tokens"},
};

}  // namespace

std::span<const Field> Fields() { return kFields; }

std::span<const FieldAlias> FieldAliases() { return kAliases; }

const Field* FindField(std::string_view name, Route route) {
  const auto find = [&](std::string_view wanted) -> const Field* {
    const auto at = std::find_if(std::begin(kFields), std::end(kFields), [&](const Field& field) {
      return field.name == wanted && (field.routes & route) != 0;
    });
    return at == std::end(kFields) ? nullptr : at;
  };
  if (const Field* field = find(name)) return field;
  for (const FieldAlias& alias : kAliases) {
    if (alias.name != name) continue;
    if (const Field* field = find(alias.means)) return field;
  }
  return nullptr;
}

int64_t MaxOf(const IntegerRule& rule, const RequestLimits& limits) {
  if (rule.max == kVocabularyBound) return limits.vocabulary;
  if (rule.max == kAnswersBound) return limits.answers_max;
  return rule.max;
}

}  // namespace braid
