// The rows of the field table, in the order of ApiRequest.
#include "server/api/fields.h"

#include <algorithm>
#include <limits>

#include "server/api/limits.h"

namespace braid {
namespace {

constexpr uint32_t kOpenAi = kChat | kCompletions;
constexpr uint32_t kAnthropic = kMessages | kCountTokens;
constexpr uint32_t kGenerate = kOpenAi | kResponses | kMessages;
constexpr uint32_t kStreams = kOpenAi | kResponses;
constexpr uint32_t kTemplated = kChat | kTokenize | kApplyTemplate;
constexpr uint32_t kAll = kGenerate | kCountTokens | kTokenize | kDetokenize | kApplyTemplate;
constexpr int64_t kInt64Min = std::numeric_limits<int64_t>::min();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
constexpr std::string_view kTextOnly = "only text is supported";
constexpr std::string_view kWholeThought = "answers contain all of the thinking";
constexpr std::string_view kOneTier = "there is only one service tier";
constexpr std::string_view kCacheFindsItself = "the prefix cache is automatic";
constexpr std::string_view kNoEdits =
    "conversations are not edited; send what the model should see";
constexpr std::string_view kKeepsAll =
    R"([{}, {"edits": []}, {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}])";
constexpr std::string_view kNoSampler = "use temperature, top_p, top_k, min_p and the penalties";

// JSON schemas of structured fields.
constexpr std::string_view kString = R"({"type": "string"})";
constexpr std::string_view kObject = R"({"type": "object"})";
constexpr std::string_view kObjectList = R"({"type": "array", "items": {"type": "object"}})";
constexpr std::string_view kIds = R"({"type": "array", "items": {"type": "integer"}})";
constexpr std::string_view kStringList = R"({"type": "array", "items": {"type": "string"}})";
constexpr std::string_view kStringOrList = R"({"type": ["string", "array"]})";
constexpr std::string_view kStringOrObject = R"({"type": ["string", "object"]})";
constexpr std::string_view kNumbersByName =
    R"({"type": "object", "additionalProperties": {"type": "number"}})";
constexpr std::string_view kStringsByName =
    R"({"type": "object", "additionalProperties": {"type": "string"}})";

constexpr Field kFields[] = {
    {"model", kAll, ParseRule{ParseModel, kString}},
    {"prompt", kCompletions | kTokenize, ParseRule{ParsePrompt, kStringOrList}},
    {"tokens", kDetokenize, ParseRule{ParseTokens, kIds}},
    {"messages", kTemplated, ParseRule{ParseMessages, kObjectList}},
    {"tools", kTemplated, ParseRule{ParseTools, kObjectList}},
    {"tool_choice", kChat | kResponses, ParseRule{ParseToolChoice, kStringOrObject}},
    {"input", kResponses, ParseRule{ParseInput, kStringOrList}},
    {"previous_response_id", kResponses, ParseRule{ParsePreviousResponse, kString}},
    {"instructions", kResponses, ParseRule{ParseSystem, kStringOrList}},
    {"tools", kResponses, ParseRule{ParseResponsesTools, kObjectList}},
    {"text", kResponses, ParseRule{ParseTextOptions, kObject}},
    {"reasoning", kResponses, ParseRule{ParseReasoningOptions, kObject}},
    {"system", kAnthropic, ParseRule{ParseSystem, kStringOrList}},
    {"messages", kAnthropic, ParseRule{ParseTurns, kObjectList}},
    {"tools", kAnthropic, ParseRule{ParseAnthropicTools, kObjectList}},
    {"tool_choice", kAnthropic, ParseRule{ParseAnthropicToolChoice, kObject}},
    {"thinking", kAnthropic | kChat, ParseRule{ParseThinking, kObject}},
    {"enable_thinking", kChat | kApplyTemplate, FlagRule{&ApiRequest::enable_thinking}},
    {"thinking_budget", kChat | kResponses | kMessages,
     IntegerRule{&ApiRequest::thinking_budget, -1, kInt64Max}},
    {"chat_template_kwargs", kTemplated | kResponses | kAnthropic,
     ParseRule{ParseTemplateValues, kObject}},
    {"reasoning_effort", kChat | kApplyTemplate, ParseRule{ParseReasoningEffort, kString}},
    {"add_generation_prompt", kTemplated, FlagRule{&ApiRequest::add_generation_prompt}},
    {"continue_final_message", kTemplated, FlagRule{&ApiRequest::continue_final_message}},
    {"add_special_tokens", kOpenAi | kTokenize, FlagRule{&ApiRequest::add_special_tokens}},

    {"text", kParseCalls | kSeparateReasoning, ParseRule{ParseText, kString}},
    {"tools", kParseCalls, ParseRule{ParseTools, kObjectList}},
    {"tool_call_parser", kParseCalls, ParseRule{ParseParser, kString}},
    {"reasoning_parser", kSeparateReasoning, ParseRule{ParseParser, kString}},
    {"request_id", kGenerate | kAbort, ParseRule{ParseRequestId, kString}},
    {"mode", kPause, ParseRule{ParsePauseMode, kString}},
    {"abort_all", kAbort, FlagRule{&ApiRequest::abort_all}},
    {"memory_only", kFlush, FlagRule{&ApiRequest::memory_only}},

    {"temperature", kGenerate, NumberRule{&ApiRequest::temperature, 0, 2}},
    {"top_p", kGenerate, NumberRule{&ApiRequest::top_p, 0, 1, true}},
    {"min_p", kGenerate, NumberRule{&ApiRequest::min_p, 0, 1}},
    {"top_k", kGenerate, IntegerRule{&ApiRequest::top_k, -1, &RequestLimits::vocabulary}},
    {"repetition_penalty", kGenerate, NumberRule{&ApiRequest::repetition_penalty, 0, 10, true}},
    {"presence_penalty", kGenerate, NumberRule{&ApiRequest::presence_penalty, -2, 2}},
    {"frequency_penalty", kGenerate, NumberRule{&ApiRequest::frequency_penalty, -2, 2}},
    {"seed", kGenerate, IntegerRule{&ApiRequest::seed, kInt64Min, kInt64Max}},
    {"draft_tokens", kGenerate, IntegerRule{&ApiRequest::draft_tokens, 0, limits::kDraftTokensMax}},
    {"n", kOpenAi, IntegerRule{&ApiRequest::n, 1, &RequestLimits::answers_max}},
    {"best_of", kCompletions, IntegerRule{&ApiRequest::best_of, 1, 1}},
    {"logit_bias", kGenerate, ParseRule{ParseLogitBias, kNumbersByName}},

    {"max_tokens", kOpenAi, IntegerRule{&ApiRequest::max_tokens, 0, kInt64Max}},
    {"max_completion_tokens", kChat, IntegerRule{&ApiRequest::max_completion_tokens, 0, kInt64Max}},
    {"max_tokens", kMessages, IntegerRule{&ApiRequest::max_tokens, 1, kInt64Max}},
    {"max_output_tokens", kResponses, IntegerRule{&ApiRequest::max_tokens, 1, kInt64Max}},
    {"min_tokens", kGenerate, IntegerRule{&ApiRequest::min_tokens, 0, limits::kMinTokensMax}},
    {"stop", kGenerate, ParseRule{ParseStop, kStringOrList}},
    {"stop_sequences", kMessages, ParseRule{ParseStop, kStringOrList}},
    {"stop_token_ids", kGenerate, ParseRule{ParseStopTokens, kIds}},
    {"ignore_eos", kGenerate, FlagRule{&ApiRequest::ignore_eos}},
    {"include_stop_str_in_output", kGenerate, FlagRule{&ApiRequest::include_stop_str_in_output}},

    {"stream", kGenerate, FlagRule{&ApiRequest::stream}},
    {"stream_options", kStreams, ParseRule{ParseStreamOptions, kObject}},
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
    {"response_format", kOpenAi, ParseRule{ParseResponseFormat, kObject}},
    {"json_schema", kGenerate, ParseRule{ParseJsonSchema, kStringOrObject}},
    {"regex", kGenerate, ParseRule{ParseRegex, kString}},
    {"guided_choice", kGenerate, ParseRule{ParseChoices, kStringList}},
    {"grammar", kGenerate, ParseRule{ParseGrammar, kString}},
    {"structured_outputs", kGenerate, ParseRule{ParseStructuredOutputs, kObject}},
    {"structural_tag", kGenerate, ParseRule{ParseStructuralTag, kStringOrObject}},
    {"store", kResponses, FlagRule{&ApiRequest::store}},
    {"braid", kOpenAi, ParseRule{ParseBraid, kObject}},
    {"cache_salt", kGenerate, ParseRule{ParseCacheSalt, kString}},
    {"metadata", kGenerate, ParseRule{ParseMetadata, kStringsByName}},
    {"include", kResponses, ParseRule{ParseInclude, kStringList}},
    {"verbosity", kChat, ParseRule{ParseVerbosity, kString}},
    {"output_config", kAnthropic, ParseRule{ParseOutputConfig, kObject}},
    {"output_format", kAnthropic, ParseRule{ParseOutputFormat, kObject}},

    // Members.
    {"stream_options.include_usage", kStreams, MemberRule{}},
    {"stream_options.continuous_usage_stats", kStreams, MemberRule{}},
    {"stream_options.include_obfuscation", kStreams, RefusedRule{"events are not padded"}},
    {"thinking.type", kAnthropic | kChat, MemberRule{}},
    {"thinking.budget_tokens", kAnthropic | kChat, MemberRule{}},
    {"thinking.display", kAnthropic | kChat, MemberRule{}},
    {"output_config.effort", kAnthropic, MemberRule{}},
    {"output_config.format", kAnthropic, MemberRule{}},
    {"output_config.task_budget", kAnthropic, RefusedRule{"use max_tokens"}},
    {"output_format.type", kAnthropic, MemberRule{}},
    {"output_format.schema", kAnthropic, MemberRule{}},
    {"text.format", kResponses, MemberRule{}},
    {"text.verbosity", kResponses, MemberRule{}},
    {"reasoning.effort", kResponses, MemberRule{}},
    {"reasoning.summary", kResponses, HarmlessRule{kWholeThought}},
    {"reasoning.generate_summary", kResponses, HarmlessRule{kWholeThought}},
    {"reasoning.context", kResponses,
     RefusedRule{"the chat template decides which earlier thinking is shown", R"(["auto"])"}},
    {"reasoning.mode", kResponses, RefusedRule{"there is one mode", R"(["standard"])"}},

    // Without consequence for the answer.
    {"user", kGenerate, HarmlessRule{"a note for the operator; keys tell tenants apart"}},
    {"safety_identifier", kGenerate, HarmlessRule{"a note for the operator"}},
    {"client_metadata", kGenerate, HarmlessRule{"a note for the operator"}},
    {"session_id", kGenerate, HarmlessRule{"a note for the operator"}},
    {"log_metrics", kGenerate, HarmlessRule{"/metrics counts every request"}},
    {"truncation", kResponses,
     HarmlessRule{"prompts that are too long are refused, never truncated"}},
    {"max_tool_calls", kResponses,
     HarmlessRule{"counts calls of tools that the server runs; it runs none"}},
    {"image", kResponses, HarmlessRule{"about images, which are refused"}},
    {"service_tier", kGenerate, HarmlessRule{kOneTier}},
    {"speed", kAnthropic, HarmlessRule{kOneTier}},
    {"billing_policy", kAnthropic, HarmlessRule{"there is no billing"}},
    {"fallback_credit_token", kAnthropic, HarmlessRule{"there is no billing"}},
    {"user_profile_id", kAnthropic, HarmlessRule{"a note for the operator"}},
    {"workspace_id", kAnthropic, HarmlessRule{"a note for the operator"}},
    {"fallbacks", kAnthropic, HarmlessRule{"for requests that a model declines; none is declined"}},
    {"prompt_cache_key", kGenerate, HarmlessRule{kCacheFindsItself}},
    {"prompt_cache_retention", kGenerate, HarmlessRule{kCacheFindsItself}},
    {"prompt_cache_options", kChat | kResponses, HarmlessRule{kCacheFindsItself}},
    {"prompt_cache_options.mode", kChat | kResponses, HarmlessRule{kCacheFindsItself}},
    {"prompt_cache_options.ttl", kChat | kResponses, HarmlessRule{kCacheFindsItself}},
    {"prompt_cache_options.comparison_response_id", kChat | kResponses,
     RefusedRule{"use braid: {\"explain\": true}"}},
    {"prompt_cache_options.prewarm", kChat | kResponses,
     RefusedRule{"send the prompt with a limit of one token"}},
    {"cache_control", kAnthropic, HarmlessRule{kCacheFindsItself}},
    {"cache_prompt", kOpenAi, HarmlessRule{"cached prefixes give the same tokens"}},
    {"id_slot", kOpenAi, HarmlessRule{kCacheFindsItself}},
    {"n_keep", kOpenAi, HarmlessRule{"prompts that are too long are refused, never truncated"}},
    {"prediction", kChat, HarmlessRule{"affects speed only"}},
    {"stream_reasoning", kChat, HarmlessRule{"thinking is always streamed"}},
    {"guided_decoding_backend", kGenerate, HarmlessRule{"there is only one backend"}},
    {"spaces_between_special_tokens", kGenerate,
     HarmlessRule{"special tokens are written as the tokenizer says"}},
    {"mirostat_tau", kOpenAi, HarmlessRule{"for mirostat, which is refused"}},
    {"mirostat_eta", kOpenAi, HarmlessRule{"for mirostat, which is refused"}},
    {"dynatemp_exponent", kOpenAi, HarmlessRule{"for dynatemp_range, which is refused"}},
    {"xtc_threshold", kOpenAi, HarmlessRule{"for xtc_probability, which is refused"}},
    {"dry_base", kOpenAi, HarmlessRule{"for dry_multiplier, which is refused"}},
    {"dry_allowed_length", kOpenAi, HarmlessRule{"for dry_multiplier, which is refused"}},
    {"dry_penalty_last_n", kOpenAi, HarmlessRule{"for dry_multiplier, which is refused"}},
    {"dry_sequence_breakers", kOpenAi, HarmlessRule{"for dry_multiplier, which is refused"}},

    // What this server does not do: of the APIs,
    {"store", kChat, RefusedRule{"only responses are stored; use /v1/responses"}},
    {"conversation", kResponses,
     RefusedRule{"there are no conversation objects; use previous_response_id"}},
    {"thread", kAnthropic, RefusedRule{"conversations are not stored; send the whole one"}},
    {"background", kResponses,
     RefusedRule{"responses are generated while the client waits; use stream"}},
    {"background_options", kResponses, RefusedRule{"for background, which is refused"}},
    {"prompt", kResponses, RefusedRule{"prompts are not stored; use instructions"}},
    {"context_management", kResponses, RefusedRule{kNoEdits}},
    {"context_management", kAnthropic, RefusedRule{kNoEdits, kKeepsAll}},
    {"compaction", kAnthropic, RefusedRule{kNoEdits}},
    {"top_logprobs", kResponses, RefusedRule{"use /v1/chat/completions"}},
    {"moderation", kChat | kResponses, RefusedRule{"nothing is moderated"}},
    {"access_programs", kResponses, RefusedRule{"there are none"}},
    {"web_search_options", kChat, RefusedRule{"the server runs no tools; offer one in tools"}},
    {"mcp_servers", kAnthropic, RefusedRule{"the server runs no tools; offer them in tools"}},
    {"container", kAnthropic, RefusedRule{"the server runs no tools"}},
    {"diagnostics", kAnthropic,
     RefusedRule{"use braid: {\"explain\": true} at /v1/chat/completions"}},
    {"inference_geo", kAnthropic, RefusedRule{"the server has one location"}},
    {"functions", kChat, RefusedRule{"use tools"}},
    {"function_call", kChat, RefusedRule{"use tool_choice", R"(["none", "auto"])"}},
    {"modalities", kChat, RefusedRule{kTextOnly, R"([["text"]])"}},
    {"audio", kChat, RefusedRule{kTextOnly}},
    {"suffix", kCompletions, RefusedRule{"put the text before the gap in prompt"}},
    // of vLLM and SGLang,
    {"echo", kChat, RefusedRule{"use /v1/completions"}},
    {"bad_words", kGenerate, RefusedRule{"use logit_bias"}},
    {"allowed_token_ids", kGenerate, RefusedRule{"use regex, grammar or logit_bias"}},
    {"use_beam_search", kGenerate, RefusedRule{"tokens are sampled; use n"}},
    {"length_penalty", kGenerate, RefusedRule{"for beam search, which is refused", "[1, 1.0]"}},
    {"guided_whitespace_pattern", kGenerate, RefusedRule{"values are written on one line"}},
    {"return_tokens_as_token_ids", kGenerate, RefusedRule{"use return_token_ids"}},
    {"documents", kChat, RefusedRule{"put them into the messages"}},
    {"chat_template", kTemplated, RefusedRule{"only the model's own template is supported"}},
    {"priority", kGenerate, RefusedRule{"requests are served in order of arrival"}},
    {"truncate_prompt_tokens", kGenerate,
     RefusedRule{"prompts are never truncated; shorten the prompt"}},
    {"prompt_embeds", kGenerate, RefusedRule{kTextOnly}},
    {"mm_processor_kwargs", kGenerate, RefusedRule{kTextOnly}},
    {"media_io_kwargs", kGenerate, RefusedRule{kTextOnly}},
    {"logits_processors", kGenerate, RefusedRule{"use logit_bias"}},
    {"custom_logit_processor", kGenerate, RefusedRule{"use logit_bias"}},
    {"vllm_xargs", kGenerate, RefusedRule{"there are no such arguments"}},
    {"kv_transfer_params", kGenerate, RefusedRule{"a client cannot name peers"}},
    {"lora_path", kGenerate, RefusedRule{"there are no adapters"}},
    {"session_params", kGenerate, RefusedRule{"send the whole conversation; its prefix is cached"}},
    {"no_stop_trim", kGenerate, RefusedRule{"use include_stop_str_in_output"}},
    {"stop_regex", kGenerate, RefusedRule{"use stop"}},
    {"return_hidden_states", kGenerate, RefusedRule{"not available through the API"}},
    {"return_routed_experts", kGenerate, RefusedRule{"not available through the API"}},
    // of llama-server.
    {"mirostat", kOpenAi, RefusedRule{kNoSampler}},
    {"typical_p", kOpenAi, RefusedRule{kNoSampler, "[1, 1.0]"}},
    {"tfs_z", kOpenAi, RefusedRule{kNoSampler, "[1, 1.0]"}},
    {"top_n_sigma", kOpenAi, RefusedRule{kNoSampler, "[-1, -1.0]"}},
    {"dynatemp_range", kOpenAi, RefusedRule{kNoSampler}},
    {"xtc_probability", kOpenAi, RefusedRule{kNoSampler}},
    {"dry_multiplier", kOpenAi, RefusedRule{kNoSampler}},
    {"samplers", kOpenAi, RefusedRule{kNoSampler}},
    {"min_keep", kOpenAi, RefusedRule{kNoSampler}},
    {"repeat_last_n", kOpenAi, RefusedRule{"penalties cover the whole text", "[-1]"}},
    {"n_indent", kOpenAi, RefusedRule{"use grammar"}},
    {"t_max_predict_ms", kOpenAi, RefusedRule{"use max_tokens"}},
    {"timings_per_token", kOpenAi, RefusedRule{"/metrics has the times"}},
    {"return_progress", kOpenAi, RefusedRule{"/v1/running shows it"}},
    {"post_sampling_probs", kOpenAi,
     RefusedRule{"logprobs are those of the model, before sampling"}},
    {"response_fields", kOpenAi, RefusedRule{"answers always have all fields"}},
    {"reasoning_format", kChat, RefusedRule{"use separate_reasoning", R"(["auto"])"}},
    {"lora", kOpenAi, RefusedRule{"there are no adapters"}},
};

// One row per spelling; a name that means different things on different endpoints may have several.
constexpr FieldAlias kAliases[] = {
    // SGLang
    {"rid", "request_id"},
    {"input_ids", "prompt"},
    {"max_new_tokens", "max_tokens"},
    {"ebnf", "grammar"},
    {"extra_key", "cache_salt"},
    {"return_input_ids", "return_token_ids"},
    {"sampling_seed", "seed"},
    // vLLM
    {"guided_json", "json_schema"},
    {"guided_regex", "regex"},
    {"guided_grammar", "grammar"},
    {"thinking_token_budget", "thinking_budget"},
    // llama-server
    {"n_predict", "max_tokens"},
    {"n_probs", "logprobs"},
    {"n_cmpl", "n"},
    {"repeat_penalty", "repetition_penalty"},
    {"return_tokens", "return_token_ids"},
    {"thinking_budget_tokens", "thinking_budget"},
    {"reasoning_budget", "thinking_budget"},
    // OpenAI's and others' names on endpoints that have another
    {"max_tokens", "max_output_tokens"},
    {"max_output_tokens", "max_tokens"},
    {"max_completion_tokens", "max_tokens"},
};

}  // namespace

std::span<const Field> Fields() { return kFields; }

std::span<const FieldAlias> FieldAliases() { return kAliases; }

const Field* FindField(std::string_view name, Endpoint endpoint) {
  const auto find = [&](std::string_view wanted) -> const Field* {
    const auto at = std::find_if(std::begin(kFields), std::end(kFields), [&](const Field& field) {
      return field.name == wanted && (field.endpoints & endpoint) != 0;
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

bool HasMembers(const Field& field, Endpoint endpoint) {
  return std::any_of(std::begin(kFields), std::end(kFields), [&](const Field& row) {
    return (row.endpoints & endpoint) != 0 && row.name.starts_with(field.name) &&
           row.name.substr(field.name.size()).starts_with('.');
  });
}

std::string_view EffectOf(const FieldRule& rule) {
  if (std::holds_alternative<HarmlessRule>(rule)) return "harmless";
  return std::holds_alternative<RefusedRule>(rule) ? "refused" : "enforced";
}

int64_t MaxOf(const IntegerRule& rule, const RequestLimits& limits) {
  const auto* of_server = std::get_if<int64_t RequestLimits::*>(&rule.max);
  return of_server == nullptr ? std::get<int64_t>(rule.max) : limits.*(*of_server);
}

}  // namespace braid
