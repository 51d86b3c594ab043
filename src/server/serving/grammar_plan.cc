// Every kind of constraint becomes one text that the library compiles and caches.
#include "server/serving/grammar_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "text/grammar/schema_limits.h"
#include "text/grammar/schema_rules.h"
#include "text/grammar/tool_grammar.h"

namespace braid {
namespace {

constexpr std::string_view kTooComplex = "grammar_too_complex";

ApiError Refuse(const std::string& path, const std::string& message, std::string_view code) {
  return {400, fmt::format("{}: {}", path, message), path, std::string(code)};
}

// Checks the named limits (the compiler checks the others) and reduces the schema to its
// enforceable part.
ApiStatus TakeSchema(const std::string& path, bool strict, json::value* schema) {
  if (const Status status = CheckSchema(*schema); !status) {
    return Refuse(path, status.error().message, kTooComplex);
  }
  Result<json::value> whole = EnforceableWhole(*schema);
  if (!whole && !strict) {
    Result<EnforceableSchema> part = EnforceablePart(*schema);
    if (part) whole = std::move(part->schema);
    if (!part) whole = part.error();
  }
  if (!whole) return Refuse(path, whole.error().message, "invalid_grammar");
  *schema = *std::move(whole);
  return {};
}

ApiStatus TakeWanted(WantedGrammar* wanted) {
  if (wanted->kind == GrammarKind::kJsonSchema) {
    return TakeSchema(wanted->path, wanted->strict, &wanted->schema);
  }
  if (wanted->kind == GrammarKind::kRegex) {
    const Status status = CheckRegex(wanted->source);
    if (!status) return Refuse(wanted->path, status.error().message, kTooComplex);
  }
  if (!wanted->structural.is_null()) {
    for (json::value& part : wanted->structural.at("structures").as_array()) {
      RETURN_IF_ERROR(TakeSchema(wanted->path, wanted->strict, &part.at("schema")));
    }
  }
  return {};
}

bool IsStrict(const json::value& tool) {
  const json::value* strict = tool.at("function").as_object().if_contains("strict");
  return strict != nullptr && *strict == json::value(true);
}

// Where the parameters of a tool stand in the API's form.
std::string ParametersPath(Endpoint endpoint, size_t tool) {
  const std::string_view name = endpoint == kMessages    ? "input_schema"
                                : endpoint == kResponses ? "parameters"
                                                         : "function.parameters";
  return fmt::format("tools[{}].{}", tool, name);
}

bool IsAllowed(const std::vector<std::string>& names, std::string_view name) {
  return names.empty() || std::ranges::find(names, name) != names.end();
}

// The tools that may be called, with what can be enforced of their parameters.
Result<json::array, ApiError> CallableTools(const ApiRequest& request, bool strict_only) {
  json::array callable;
  for (size_t i = 0; i < request.tools.size(); ++i) {
    json::value tool = request.tools[i];
    json::object& function = tool.at("function").as_object();
    if (!IsAllowed(request.allowed_tools, function.at("name").as_string())) continue;
    json::value* parameters = function.if_contains("parameters");
    if (parameters != nullptr && (IsStrict(tool) || !strict_only)) {
      RETURN_IF_ERROR(TakeSchema(ParametersPath(request.endpoint, i), IsStrict(tool), parameters));
    }
    callable.push_back(std::move(tool));
  }
  return callable;
}

// The token after which the grammar begins.
Result<TokenId, ApiError> EndOfThinking(const ServerContext& context, const std::string& path) {
  const std::optional<TokenId> close =
      context.tokenizer->TokenToId(context.card.reasoning.tags.close);
  if (close) return *close;
  return Refuse(path, "the tag that ends this model's thinking is not one token; turn thinking off",
                "unsupported_parameter");
}

// The grammar of an answer that may call tools: it must call one, or is JSON otherwise, or is text
// in which calls of strict tools match their schemas.
Result<std::string, ApiError> ToolText(const ServerContext& context, const ApiRequest& request,
                                       const json::value* otherwise) {
  const bool lazy = request.tool_choice == ToolChoice::kAuto && otherwise == nullptr;
  ASSIGN_OR_RETURN(const json::array callable, CallableTools(request, lazy));
  const ReasoningTags& reasoning = context.card.reasoning.tags;
  const ToolGrammar grammar{.format = *context.card.tools,
                            .tools = callable,
                            .parallel = request.parallel_tool_calls.value_or(true),
                            .otherwise = otherwise,
                            .lazy = lazy,
                            .marks = {reasoning.open, reasoning.close}};
  Result<std::string> text = ToolGrammarText(grammar, context.grammars->tokenizer());
  if (text) return *std::move(text);
  size_t index = 0;
  for (; index + 1 < request.tools.size(); ++index) {
    const json::value& name = request.tools[index].at("function").at("name");
    if (name == json::value(text.error().field)) break;
  }
  return Refuse(ParametersPath(request.endpoint, index), text.error().message, "invalid_grammar");
}

}  // namespace

ApiError GrammarRefusal(const std::string& path, const Error& error) {
  if (error.code == ErrorCode::kUnavailable) {
    return {503, fmt::format("{}: {}", path, error.message), path, "overloaded"};
  }
  return Refuse(path, error.message,
                error.code == ErrorCode::kExhausted ? kTooComplex : "invalid_grammar");
}

Result<PlannedGrammar, ApiError> PlanGrammar(const ServerContext& context,
                                             const ApiRequest& request, std::string_view tenant,
                                             bool reasons) {
  const bool forced = request.tool_choice == ToolChoice::kRequired;
  const bool offers = request.tool_choice == ToolChoice::kAuto && !request.tools.empty();
  // With tool_choice auto, calls are restricted to the allowed tools, and calls of strict tools to
  // their schemas.
  const bool holds =
      offers && (!request.allowed_tools.empty() || std::ranges::any_of(request.tools, IsStrict));
  if (!forced && !holds && !request.grammar) return PlannedGrammar{};
  PlannedGrammar plan{.path = forced                          ? "tool_choice"
                              : request.grammar               ? request.grammar->path
                              : request.allowed_tools.empty() ? "tools"
                                                              : "tool_choice"};
  if (context.grammars == nullptr) {
    return Refuse(plan.path, "constrained output needs a tokenizer, which this model does not have",
                  "unsupported_parameter");
  }
  const Tokenizer& tokenizer = context.grammars->tokenizer();
  std::optional<WantedGrammar> wanted;
  if (request.grammar && !forced) {
    wanted = *request.grammar;
    RETURN_IF_ERROR(TakeWanted(&*wanted));
  }
  if (forced || holds || (offers && context.card.tools != nullptr)) {
    if (context.card.tools == nullptr) {
      return Refuse(plan.path, "the tool-call format of this model is unknown; set --tool-parser",
                    "unsupported_parameter");
    }
    if (wanted && wanted->kind != GrammarKind::kJsonSchema) {
      return Refuse(plan.path, "with tools, only a JSON schema is supported", kTooComplex);
    }
    // Calls that are drafted in the thinking would pass as calls of the answer.
    if (reasons && !request.separate_reasoning.value_or(true)) {
      return Refuse("separate_reasoning",
                    "must be true while thinking is on with a required call, strict or allowed "
                    "tools, or tools beside a JSON schema: the grammar does not cover the thinking",
                    "unsupported_parameter");
    }
    ASSIGN_OR_RETURN(auto text, ToolText(context, request, wanted ? &wanted->schema : nullptr));
    plan.text = GrammarText(GrammarKind::kLark, text, tenant);
  } else {
    const std::string source =
        wanted->kind == GrammarKind::kJsonSchema ? json::serialize(OneLineSchema(wanted->schema))
        : wanted->structural.is_null()           ? wanted->source
                                                 : StructuralTagText(wanted->structural, tokenizer);
    plan.text = GrammarText(wanted->kind, source, tenant);
  }
  if (!reasons) return plan;
  ASSIGN_OR_RETURN(plan.after, EndOfThinking(context, plan.path));
  return plan;
}

}  // namespace braid
