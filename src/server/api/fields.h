// The field table: a row per field of a body with its effect: enforced, harmless or refused. A
// field without a row is an error. The parser, its tests, the OpenAPI document and the table in
// docs/api.md are made from it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "server/api/parsers.h"

namespace braid {

struct NumberRule {
  std::optional<double> ApiRequest::* member;
  double min = 0, max = 0;
  bool above_min = false;  // min itself is refused
};

// The largest value of an integer: a number, or a limit of the server.
using IntegerMax = std::variant<int64_t, int64_t RequestLimits::*>;

struct IntegerRule {
  std::optional<int64_t> ApiRequest::* member;
  int64_t min = 0;
  IntegerMax max = {};
};

struct FlagRule {
  std::optional<bool> ApiRequest::* member;
};

// A structured field: the function that reads it and its JSON schema for the OpenAPI document.
struct ParseRule {
  constexpr ParseRule(Parser& parser, std::string_view json_schema)
      : parse(parser), schema(json_schema) {}
  Parser& parse;
  std::string_view schema;
};

// A member of a field that is an object; the field's parser reads it.
struct MemberRule {};

// Accepted without effect, because of `why`.
struct HarmlessRule {
  std::string_view why;
};

// Not supported; `instead` says what to use. Values that ask for nothing are accepted: null, false,
// 0 and empty ones, or those in the JSON list `neutral`.
struct RefusedRule {
  std::string_view instead;
  std::string_view neutral = {};
};

using FieldRule = std::variant<NumberRule, IntegerRule, FlagRule, ParseRule, MemberRule,
                               HarmlessRule, RefusedRule>;

// A name with a dot, "stream_options.include_usage", is a member's. Where a field has rows for
// members on an endpoint, it has no others.
struct Field {
  std::string_view name;
  uint32_t endpoints;
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

// The row of a name, or of what it is an alias for, on an endpoint; null if there is none.
const Field* FindField(std::string_view name, Endpoint endpoint);
bool HasMembers(const Field& field, Endpoint endpoint);

// The largest value that an integer field takes.
int64_t MaxOf(const IntegerRule& rule, const RequestLimits& limits);

}  // namespace braid
