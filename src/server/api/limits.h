// The limits on the fields of a request that are the same on every server, as a table and as
// constants made from it. limit_table.h adds those that depend on the server's configuration.
#pragma once

#include "server/http/limits.h"

namespace braid::limits {

inline constexpr Limit kFieldLimits[] = {
    {"json_depth", 64, "levels", "of nesting of a body", 400, "base/json.cc"},
    {"json_values", 1 << 20, "values", "of a body", 400, "server/api/api_request.cc"},
    {"json_key_bytes", 1 << 10, "bytes", "of a key of a body", 400, "server/api/api_request.cc"},
    {"messages", 4096, "messages", "of a conversation", 400, "server/api/message_parsers.cc"},
    {"message_parts", 1024, "parts", "of a message", 400, "server/api/conversation.cc"},
    {"message_media_parts", 0, "parts", "of a message that are no text", 400,
     "server/api/conversation.cc"},
    {"message_name_bytes", 64, "bytes", "of a message's name", 400,
     "server/api/message_parsers.cc"},
    {"top_logprobs", 20, "", "`top_logprobs`, and `logprobs` of completions", 400,
     "server/api/api_request.cc"},
    {"prompt_logprob_entries", 1 << 19, "entries",
     "of prompts' log-probabilities: tokens, each with its alternatives, of all answers", 400,
     "server/serving/prepare.cc"},
    {"logit_bias_entries", 1024, "entries", "of `logit_bias`", 400, "server/api/field_parsers.cc"},
    {"logit_bias", 100, "", "values in `logit_bias`", 400, "server/api/field_parsers.cc"},
    {"stop_strings", 16, "strings", "in `stop`", 400, "server/api/field_parsers.cc"},
    {"stop_string_bytes", 256, "bytes", "of a stop string", 400, "server/api/field_parsers.cc"},
    {"stop_token_ids", 128, "ids", "in `stop_token_ids`", 400, "server/api/field_parsers.cc"},
    {"tools", 128, "tools", "of a request", 400, "server/api/message_parsers.cc"},
    {"tools_bytes", 512 << 10, "bytes", "of all tools", 400, "server/api/message_parsers.cc"},
    {"tool_name_bytes", 64, "bytes", "of a tool's name", 400, "server/api/message_parsers.cc"},
    {"grammar_choices", 4096, "texts", "in `choice`", 400, "server/api/grammar_parsers.cc"},
    {"template_values", 64, "entries", "of `chat_template_kwargs`", 400,
     "server/api/message_parsers.cc"},
    {"template_bytes", 64 << 10, "bytes", "of `chat_template_kwargs`", 400,
     "server/api/message_parsers.cc"},
    {"metadata_pairs", 64, "entries", "of `metadata`", 400, "server/api/field_parsers.cc"},
    {"metadata_value_bytes", 512, "bytes", "of a value in `metadata`", 400,
     "server/api/field_parsers.cc"},
    {"cache_salt_bytes", 256, "bytes", "of `cache_salt`", 400, "server/api/field_parsers.cc"},
};

inline constexpr size_t kJsonDepthMax = ValueOf(kFieldLimits, "json_depth");
inline constexpr int64_t kJsonValuesMax = ValueOf(kFieldLimits, "json_values");
inline constexpr size_t kJsonKeyBytesMax = ValueOf(kFieldLimits, "json_key_bytes");
inline constexpr size_t kMessagesMax = ValueOf(kFieldLimits, "messages");
inline constexpr size_t kPartsMax = ValueOf(kFieldLimits, "message_parts");
inline constexpr size_t kMessageNameBytesMax = ValueOf(kFieldLimits, "message_name_bytes");
inline constexpr int64_t kTopLogprobsMax = ValueOf(kFieldLimits, "top_logprobs");
inline constexpr int64_t kPromptLogprobEntriesMax = ValueOf(kFieldLimits, "prompt_logprob_entries");
inline constexpr size_t kLogitBiasMax = ValueOf(kFieldLimits, "logit_bias_entries");
inline constexpr double kLogitBiasAbsMax = ValueOf(kFieldLimits, "logit_bias");
inline constexpr size_t kStopStringsMax = ValueOf(kFieldLimits, "stop_strings");
inline constexpr size_t kStopStringBytesMax = ValueOf(kFieldLimits, "stop_string_bytes");
inline constexpr size_t kStopTokensMax = ValueOf(kFieldLimits, "stop_token_ids");
inline constexpr size_t kToolsMax = ValueOf(kFieldLimits, "tools");
inline constexpr size_t kToolBytesMax = ValueOf(kFieldLimits, "tools_bytes");
inline constexpr size_t kToolNameBytesMax = ValueOf(kFieldLimits, "tool_name_bytes");
inline constexpr size_t kGrammarChoicesMax = ValueOf(kFieldLimits, "grammar_choices");
inline constexpr size_t kTemplateKeysMax = ValueOf(kFieldLimits, "template_values");
inline constexpr size_t kTemplateBytesMax = ValueOf(kFieldLimits, "template_bytes");
inline constexpr size_t kMetadataPairsMax = ValueOf(kFieldLimits, "metadata_pairs");
inline constexpr size_t kMetadataBytesMax = ValueOf(kFieldLimits, "metadata_value_bytes");
inline constexpr size_t kCacheSaltBytesMax = ValueOf(kFieldLimits, "cache_salt_bytes");

// Where fewer requests may wait, fewer answers fit: limit_table.cc has the value of a server.
inline constexpr int64_t kAnswersMax = 128;  // of a request: prompts times choices
inline constexpr int64_t kMinTokensMax = 131072;
inline constexpr int64_t kDraftTokensMax = 63;
inline constexpr size_t kShownBytesMax = 64;  // of a client's text that an error repeats
inline constexpr int64_t kStoredResponsesMax = 16384;

// Waiting prompts: this many times the tokens that the cache holds.
inline constexpr int64_t kWaitingTokensTimesPool = 8;

inline constexpr size_t kBodyBytesMin = 4 << 20;   // the smallest value of the body limit
inline constexpr size_t kBodyBytesMax = 64 << 20;  // the largest

// Bytes of a body on a server whose prompts have at most `context_tokens_max` tokens.
constexpr size_t BodyBytesMax(int64_t context_tokens_max) {
  return std::clamp(static_cast<size_t>(std::max<int64_t>(context_tokens_max, 0)) * 32,
                    kBodyBytesMin, kBodyBytesMax);
}

// How the server's memory is divided (record 14).
inline constexpr int64_t kProcessBytes = int64_t{96} << 20;  // code, tokenizer, other fixed parts
inline constexpr int64_t kBodiesBytesDefault = int64_t{256} << 20;

constexpr int64_t PrepareBytes(int64_t context_tokens_max) {
  return kPrepareTimesBody * static_cast<int64_t>(BodyBytesMax(context_tokens_max));
}
// With half as much for connections as for bodies.
constexpr int64_t DefaultServerMemory(int64_t context_tokens_max) {
  return kProcessBytes + PrepareBytes(context_tokens_max) + kBodiesBytesDefault / 2 * 3;
}

}  // namespace braid::limits
