// The parsers of structured fields. Each reads one value into the request; `path` names the value
// in errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/api_request.h"

namespace braid {

using Parser = ApiStatus(const json::value& value, const std::string& path,
                         const RequestLimits& limits, ApiRequest* request);

// Null: `value` is no object, or has no such key.
inline const json::value* Member(const json::value& value, std::string_view key) {
  return value.is_object() ? value.get_object().if_contains(key) : nullptr;
}

// Null (the JSON value): there is no such key.
inline json::value At(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr ? json::value(nullptr) : *value;
}

// Empty: there is no such key, or its value is no string.
inline std::string_view StringAt(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string())
                                                : std::string_view();
}

// In field_parsers.cc.
Parser ParseModel, ParsePrompt, ParseTokens, ParseStop, ParseStopTokens, ParseLogitBias;
Parser ParseStreamOptions, ParseBraid, ParseCacheSalt, ParseMetadata;
Parser ParseText, ParseParser, ParseRequestId, ParsePauseMode;

// In message_parsers.cc: conversations and what else reaches the chat template.
Parser ParseMessages, ParseTools, ParseToolChoice, ParseTemplateValues, ParseReasoningEffort;
Parser ParseVerbosity, ParseThinking;

// In grammar_parsers.cc, fields that constrain the output: a JSON schema (an object or its text), a
// regular expression, a list of texts, a grammar in GBNF or Lark; and the objects that hold one.
Parser ParseJsonSchema, ParseRegex, ParseChoices, ParseGrammar, ParseStructuralTag;
Parser ParseResponseFormat, ParseStructuredOutputs;

// In responses_parsers.cc.
Parser ParseInput, ParsePreviousResponse, ParseResponsesTools, ParseTextOptions;
Parser ParseReasoningOptions, ParseInclude;

// In anthropic_parsers.cc; ParseSystem reads `instructions` of the Responses API too.
Parser ParseSystem, ParseTurns, ParseAnthropicTools, ParseAnthropicToolChoice, ParseOutputConfig;
Parser ParseOutputFormat;

// The messages of a Responses request, once input and previous_response_id are both read.
ApiStatus MessagesOfItems(const RequestLimits& limits, ApiRequest* request);

// "must be a string, got 3".
ApiError WrongType(const std::string& path, std::string_view right, const json::value& found);

// An integer, also one that a client writes as 5.0; nothing for other values.
std::optional<int64_t> AsInteger(const json::value& value);

// A list of token ids, each in [0, vocabulary).
ApiStatus ParseTokenIds(const json::value& value, const std::string& path,
                        const RequestLimits& limits, std::vector<TokenId>* ids);

}  // namespace braid
