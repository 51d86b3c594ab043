// Every kind becomes one text that the library compiles and keeps.
#include "server/grammar_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"
#include "text/schema_limits.h"
#include "text/tool_grammar.h"

namespace braid {
namespace {

constexpr std::string_view kTooComplex = "grammar_too_complex";

ApiError Wrong(const std::string& path, const std::string& message, std::string_view code) {
  return {400, fmt::format("{}: {}", path, message), path, std::string(code)};
}

// Limits that have names of their own; what is left is the compiler's.
Refusal CheckWanted(const WantedGrammar& wanted) {
  Status status;
  if (wanted.kind == GrammarKind::kJsonSchema) status = CheckSchema(wanted.schema);
  if (wanted.kind == GrammarKind::kRegex) status = CheckRegex(wanted.source);
  if (!wanted.structural.is_null()) {
    for (const json::value& part : wanted.structural.at("structures").as_array()) {
      if (status) status = CheckSchema(part.at("schema"));
    }
  }
  if (status) return std::nullopt;
  return Wrong(wanted.path, status.error().message, kTooComplex);
}

// The tools that may be called.
json::array Callable(const ApiRequest& request) {
  const std::vector<std::string>& names = request.allowed_tools;
  if (names.empty()) return request.tools;
  json::array only;
  for (const json::value& tool : request.tools) {
    const std::string_view name = tool.at("function").at("name").as_string();
    if (std::find(names.begin(), names.end(), name) != names.end()) only.push_back(tool);
  }
  return only;
}

Refusal CheckToolSchemas(const json::array& tools) {
  for (size_t i = 0; i < tools.size(); ++i) {
    const json::value* parameters = tools[i].at("function").as_object().if_contains("parameters");
    if (parameters == nullptr) continue;
    const Status status = CheckSchema(*parameters);
    if (!status) {
      return Wrong(fmt::format("tools[{}].function.parameters", i), status.error().message,
                   kTooComplex);
    }
  }
  return std::nullopt;
}

// Compiling takes no tenant more than its share of a preparation thread.
Refusal Compile(Service& service, const std::string& path, std::string_view tenant,
                const std::string& text) {
  GrammarLibrary& library = *service.context.grammars;
  const std::string name(tenant);
  if (!name.empty() && !library.Has(text)) {
    if (const int32_t seconds = service.tenants.SecondsUntilCompile(name, MonotonicUs())) {
      return ApiError{429,
                      fmt::format("{}: {} has had grammars compiled for too long; those that were "
                                  "compiled already are taken at any time",
                                  path, tenant),
                      path, "rate_limit_exceeded", seconds};
    }
  }
  const GrammarLibrary::Checked checked = library.Check(text);
  if (!name.empty()) service.tenants.SpendCompile(name, checked.work_us, MonotonicUs());
  if (checked.status) return std::nullopt;
  return Wrong(path, checked.status.error().message, "invalid_grammar");
}

}  // namespace

OrRefusal<PlannedGrammar> PlanGrammar(Service& service, const ApiRequest& request,
                                      std::string_view tenant, bool reasons) {
  const ServerContext& context = service.context;
  const bool forced = request.tool_choice == ToolChoice::kRequired;
  if (!forced && !request.grammar && !request.allowed_tools.empty()) {
    return Wrong("tool_choice",
                 "calls are held to allowed_tools where one must be made, or where a JSON schema "
                 "is asked for; send the mode required, or these tools only",
                 "unsupported_parameter");
  }
  if (!forced && !request.grammar) return PlannedGrammar{};
  const std::string path = forced ? "tool_choice" : request.grammar->path;
  if (context.grammars == nullptr) {
    return Wrong(path, "constrained output needs a tokenizer, which this model does not have",
                 "unsupported_parameter");
  }
  const bool offers = request.tool_choice == ToolChoice::kAuto && !request.tools.empty();
  const ToolFormat* format = context.card.tools;
  PlannedGrammar plan;
  if (forced || (offers && format != nullptr)) {
    if (format == nullptr) {
      return Wrong(path, "it is not known how this model writes tool calls; see --tool-parser",
                   "unsupported_parameter");
    }
    if (!forced && request.grammar->kind != GrammarKind::kJsonSchema) {
      return Wrong(path, "beside tools only a JSON schema can be asked for", kTooComplex);
    }
    if (!forced) {
      if (Refusal refusal = CheckWanted(*request.grammar)) return *refusal;
    }
    const json::array tools = Callable(request);
    if (Refusal refusal = CheckToolSchemas(tools)) return *refusal;
    plan.text =
        GrammarText(GrammarKind::kLark,
                    ToolGrammarText({.format = *format,
                                     .tools = tools,
                                     .parallel = request.parallel_tool_calls.value_or(true),
                                     .otherwise = forced ? nullptr : &request.grammar->schema},
                                    context.grammars->tokenizer()),
                    tenant);
  } else {
    const WantedGrammar& wanted = *request.grammar;
    if (Refusal refusal = CheckWanted(wanted)) return *refusal;
    const Tokenizer& tokenizer = context.grammars->tokenizer();
    plan.text = GrammarText(
        wanted.kind,
        wanted.kind == GrammarKind::kJsonSchema ? json::serialize(OneLineSchema(wanted.schema))
        : wanted.structural.is_null()           ? wanted.source
                                                : StructuralTagText(wanted.structural, tokenizer),
        tenant);
  }
  if (Refusal refusal = Compile(service, path, tenant, plan.text)) return *refusal;
  if (reasons) {
    const std::optional<TokenId> close =
        context.tokenizer->TokenToId(context.card.reasoning.tags.close);
    if (!close) {
      return Wrong(path, "this model's end of thinking is not one token; turn thinking off",
                   "unsupported_parameter");
    }
    plan.after = *close;
  }
  return plan;
}

}  // namespace braid
