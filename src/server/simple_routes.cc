// See the header.
#include "server/simple_routes.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "server/api/limit_table.h"
#include "server/api/limits.h"
#include "server/dialects/answer_blocks.h"
#include "server/serving/prepare.h"

namespace braid {
namespace {

json::object ModelJson(const ModelCard& card) {
  return {{"id", card.name},
          {"object", "model"},
          {"created", card.created},
          {"owned_by", "braid"},
          {"max_model_len", card.context_tokens_max}};
}

// "a%2Fb" is "a/b"; what is not an escape stays as it is.
std::string PercentDecoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* digits = text.data() + i + 1;
    bool escape = text[i] == '%' && i + 2 <= text.size() - 1 &&
                  std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2;
    out += escape ? static_cast<char>(value) : text[i];
    if (escape) i += 2;
  }
  return out;
}

json::value OrNull(const std::optional<double>& value) {
  return value ? json::value(*value) : json::value(nullptr);
}

json::object DefaultsJson(const GenerationDefaults& defaults) {
  return {
      {"do_sample", defaults.do_sample ? json::value(*defaults.do_sample) : json::value(nullptr)},
      {"temperature", OrNull(defaults.temperature)},
      {"top_p", OrNull(defaults.top_p)},
      {"top_k", defaults.top_k ? json::value(*defaults.top_k) : json::value(nullptr)},
      {"min_p", OrNull(defaults.min_p)},
      {"repetition_penalty", OrNull(defaults.repetition_penalty)}};
}

}  // namespace

HttpResponse JsonResponse(const json::value& body) { return {.body = json::serialize(body)}; }

ApiStatus CheckModel(const ModelCard& card, const std::string& model) {
  if (model.empty() || model == card.name) return {};
  std::string shown = json::serialize(json::string(model.substr(0, limits::kMetadataBytesMax)));
  return ApiError{404,
                  fmt::format("model: {} is not served here; this is \"{}\"", shown, card.name),
                  "model", "model_not_found"};
}

HttpResponse ListModels(const ModelCard& card) {
  return JsonResponse(json::object{{"object", "list"}, {"data", json::array{ModelJson(card)}}});
}

HttpResponse OneModel(const ModelCard& card, std::string_view id) {
  if (const ApiStatus served = CheckModel(card, PercentDecoded(id)); !served) {
    return ErrorResponse(served.error());
  }
  return JsonResponse(ModelJson(card));
}

HttpResponse ServerInformation(const Service& service) {
  const ModelCard& card = service.context.card;
  json::object out = service.context.server_information;
  out["version"] = service.config.version;
  out["model"] = card.name;
  out["context_tokens_max"] = card.context_tokens_max;
  out["vocabulary"] = card.vocabulary;
  out["eos_token_ids"] = json::array(card.eos_tokens.begin(), card.eos_tokens.end());
  out["tool_parser"] = card.tools == nullptr ? "none" : std::string(card.tools->name);
  out["reasoning_separated"] = card.reasoning.separates();
  out["generation_defaults"] = DefaultsJson(card.defaults);
  DriverStats stats = service.context.driver.stats();
  out["scheduler"] = json::object{{"running", stats.scheduler.running},
                                  {"waiting", stats.scheduler.waiting},
                                  {"cache_pages_total", stats.scheduler.pages_total},
                                  {"cache_pages_used", stats.scheduler.pages_used},
                                  {"cache_pages_cached", stats.scheduler.pages_cached},
                                  {"steps", stats.scheduler.steps}};
  out["limits"] = LimitsJson(service);
  return JsonResponse(out);
}

HttpResponse Tokenize(const ServerContext& context, const ApiRequest& request) {
  if (context.tokenizer == nullptr) {
    return ErrorResponse({400, "this model has no tokenizer", "prompt"});
  }
  std::string text;
  if (request.messages.empty()) {
    text = std::get<std::string>(request.prompts.front());
  } else {
    auto rendered = RenderChat(context, request);
    if (!rendered) return ErrorResponse(rendered.error());
    text = *std::move(rendered);
  }
  bool add_special = request.add_special_tokens.value_or(request.messages.empty());
  Result<std::vector<TokenId>> tokens = context.tokenizer->Encode(text, add_special);
  if (!tokens) return ErrorResponse(ToApiError(tokens.error()));
  return JsonResponse(json::object{{"count", tokens->size()},
                                   {"max_model_len", context.card.context_tokens_max},
                                   {"tokens", json::array(tokens->begin(), tokens->end())}});
}

HttpResponse Detokenize(const ServerContext& context, const ApiRequest& request) {
  if (context.tokenizer == nullptr) {
    return ErrorResponse({400, "this model has no tokenizer", "tokens"});
  }
  bool skip = request.skip_special_tokens.value_or(false);
  return JsonResponse(json::object{{"prompt", context.tokenizer->Decode(request.tokens, skip)}});
}

HttpResponse CountTokens(const ServerContext& context, const ApiRequest& request) {
  auto text = RenderChat(context, request);
  if (!text) return ErrorResponse(text.error(), true);
  Result<std::vector<TokenId>> tokens = context.tokenizer->Encode(*text, false);
  if (!tokens) return ErrorResponse(ToApiError(tokens.error()), true);
  return JsonResponse(json::object{{"input_tokens", tokens->size()}});
}

HttpResponse ParseCalls(const ServerContext& context, const ApiRequest& request) {
  const ToolFormat* format =
      request.parser.empty() ? context.card.tools : FindToolFormat(request.parser);
  if (format == nullptr) {
    return ErrorResponse(
        {400, "tool_call_parser: must be one of " + ToolFormatNames(), "tool_call_parser"});
  }
  const AnswerSyntax syntax{.split_reasoning = false,
                            .reasoning_tags = {},
                            .tools = format,
                            .schemas = ToolSchemas(request.tools)};
  AnswerParser parser(syntax, false);
  AnswerEvents events = parser.Push(request.text);
  for (AnswerEvent& event : parser.Flush(false)) AddEvent(std::move(event), &events);
  AnswerBlocks blocks;
  blocks.Add(events, {});
  json::array calls;
  for (const AnswerBlock& block : blocks.blocks()) {
    if (block.kind != AnswerBlock::Kind::kCall) continue;
    calls.push_back(
        json::object{{"tool_index", block.call}, {"name", block.name}, {"parameters", block.text}});
  }
  return JsonResponse(json::object{{"normal_text", JoinedText(events, AnswerEvent::Kind::kText)},
                                   {"calls", std::move(calls)}});
}

HttpResponse SeparateReasoning(const ServerContext& context, const ApiRequest& request) {
  const ReasoningFormat* format = &context.card.reasoning;
  if (!request.parser.empty()) format = FindReasoningFormat(request.parser);
  if (format == nullptr) {
    return ErrorResponse(
        {400, "reasoning_parser: must be one of " + ReasoningFormatNames(), "reasoning_parser"});
  }
  if (!format->separates()) {
    return JsonResponse(json::object{{"reasoning_text", ""}, {"text", request.text}});
  }
  ReasoningSplitter splitter(format->tags, StartsInReasoning(*format, ""));
  ReasoningSplitter::Piece piece = splitter.Push(request.text);
  const ReasoningSplitter::Piece rest = splitter.Flush();
  return JsonResponse(json::object{{"reasoning_text", piece.reasoning + rest.reasoning},
                                   {"text", piece.content + rest.content}});
}

HttpResponse Loads(const Service& service) {
  const SchedulerStats stats = service.context.driver.stats().scheduler;
  const double total = std::max<double>(1, static_cast<double>(stats.pages_total));
  json::object load{{"dp_rank", 0},
                    {"num_running_reqs", stats.running},
                    {"num_waiting_reqs", stats.waiting},
                    {"num_total_reqs", stats.running + stats.waiting},
                    {"token_usage", static_cast<double>(stats.pages_used) / total}};
  return JsonResponse(json::object{{"version", service.config.version},
                                   {"dp_rank_count", 1},
                                   {"loads", json::array{std::move(load)}}});
}

HttpResponse ApplyTemplate(const ServerContext& context, const ApiRequest& request) {
  auto text = RenderChat(context, request);
  if (!text) return ErrorResponse(text.error());
  return JsonResponse(json::object{{"prompt", *text}});
}

}  // namespace braid
