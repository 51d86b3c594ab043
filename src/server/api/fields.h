// The field table: a row for each name that a body may have, which says what becomes of it:
// enforced, harmless or refused. What has no row is refused. The parser, its tests, the OpenAPI
// document and the table in docs/api.md are made from it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "server/api/api_request.h"

namespace braid {

struct NumberRule {
  std::optional<double> ApiRequest::* member;
  double min = 0, max = 0;
  bool above_min = false;  // min itself is refused
};

inline constexpr int64_t kVocabularyBound = -1000;  // as `max`: the model's vocabulary
inline constexpr int64_t kAnswersBound = -1001;     // as `max`: the answers of one request

struct IntegerRule {
  std::optional<int64_t> ApiRequest::* member;
  int64_t min = 0, max = 0;
};

struct FlagRule {
  std::optional<bool> ApiRequest::* member;
};

// `path` names the value in errors.
struct ParseRule {
  ApiStatus (*parse)(const json::value& value, const std::string& path, const RequestLimits& limits,
                     ApiRequest* request);
};

// A member of a field that is an object; the field's parser reads it.
struct MemberRule {};

// Taken and without effect: nothing that it asks for is lost, and `why`.
struct HarmlessRule {
  std::string_view why;
};

// Asks for what this server does not do; `instead` says what would be right. Taken where it asks
// for nothing: null, false, 0 and what is empty, or what the JSON list `neutral` has.
struct RefusedRule {
  std::string_view instead;
  std::string_view neutral = {};
};

using FieldRule = std::variant<NumberRule, IntegerRule, FlagRule, ParseRule, MemberRule,
                               HarmlessRule, RefusedRule>;

// A name with a dot, "stream_options.include_usage", is a member's. Where a field has rows for
// members on a route, it has no others.
struct Field {
  std::string_view name;
  uint32_t routes;
  FieldRule rule;
};

// "enforced", "harmless" or "refused".
std::string_view EffectOf(const FieldRule& rule);

std::span<const Field> Fields();

// A name of SGLang, vLLM or llama-server for a field of this server.
struct FieldAlias {
  std::string_view name;
  std::string_view means;
};
std::span<const FieldAlias> FieldAliases();

// The row of a name, or of what it is an alias for, on a route; null if there is none.
const Field* FindField(std::string_view name, Route route);
bool HasMembers(const Field& field, Route route);

// The largest value that an integer field takes.
int64_t MaxOf(const IntegerRule& rule, const RequestLimits& limits);

// "must be a string, got 3": for the parsers of structured fields.
ApiError WrongType(const std::string& path, std::string_view right, const json::value& found);

// A list of token ids, each in [0, vocabulary).
ApiStatus ParseTokenIds(const json::value& value, const std::string& path,
                        const RequestLimits& limits, std::vector<TokenId>* ids);

// Fields that constrain the output, in grammar_parsers.cc: a JSON schema (an object or its text), a
// regular expression, a list of texts, a grammar in GBNF or Lark; and the objects that hold one.
ApiStatus ParseJsonSchema(const json::value&, const std::string&, const RequestLimits&,
                          ApiRequest*);
ApiStatus ParseRegex(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseChoices(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseGrammar(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseResponseFormat(const json::value&, const std::string&, const RequestLimits&,
                              ApiRequest*);
ApiStatus ParseStructuredOutputs(const json::value&, const std::string&, const RequestLimits&,
                                 ApiRequest*);

// Conversations in other APIs' forms, in responses_parsers.cc and anthropic_parsers.cc.
ApiStatus ParseInput(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParsePreviousResponse(const json::value&, const std::string&, const RequestLimits&,
                                ApiRequest*);
ApiStatus ParseResponsesTools(const json::value&, const std::string&, const RequestLimits&,
                              ApiRequest*);
ApiStatus ParseTextOptions(const json::value&, const std::string&, const RequestLimits&,
                           ApiRequest*);
ApiStatus ParseReasoningOptions(const json::value&, const std::string&, const RequestLimits&,
                                ApiRequest*);
ApiStatus ParseInclude(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseSystem(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseTurns(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseAnthropicTools(const json::value&, const std::string&, const RequestLimits&,
                              ApiRequest*);
ApiStatus ParseAnthropicToolChoice(const json::value&, const std::string&, const RequestLimits&,
                                   ApiRequest*);
ApiStatus ParseThinking(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseOutputConfig(const json::value&, const std::string&, const RequestLimits&,
                            ApiRequest*);
ApiStatus ParseOutputFormat(const json::value&, const std::string&, const RequestLimits&,
                            ApiRequest*);

// The messages of a Responses request, once input and previous_response_id are both read.
ApiStatus MessagesOfItems(const RequestLimits& limits, ApiRequest* request);

// Structured fields, in field_parsers.cc and message_parsers.cc.
ApiStatus ParseModel(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParsePrompt(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseTokens(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseStop(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseStopTokens(const json::value&, const std::string&, const RequestLimits&,
                          ApiRequest*);
ApiStatus ParseLogitBias(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseStreamOptions(const json::value&, const std::string&, const RequestLimits&,
                             ApiRequest*);
ApiStatus ParseMetadata(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseText(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseParser(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseRequestId(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseVerbosity(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseMessages(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseTools(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseToolChoice(const json::value&, const std::string&, const RequestLimits&,
                          ApiRequest*);
ApiStatus ParseTemplateValues(const json::value&, const std::string&, const RequestLimits&,
                              ApiRequest*);
ApiStatus ParseBraid(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseCacheSalt(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseReasoningEffort(const json::value&, const std::string&, const RequestLimits&,
                               ApiRequest*);
ApiStatus ParsePauseMode(const json::value&, const std::string&, const RequestLimits&, ApiRequest*);
ApiStatus ParseStructuralTag(const json::value&, const std::string&, const RequestLimits&,
                             ApiRequest*);

}  // namespace braid
