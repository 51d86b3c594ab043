// Routes that work on text without the model: tokens, templates, tool calls, thinking.
#include "server/dialects/answer_blocks.h"
#include "server/routes/json_response.h"
#include "server/routes/route.h"
#include "server/serving/prepare.h"

namespace braid {
namespace {

RouteAnswer Tokenize(RouteCall& call) {
  const ServerContext& context = call.service().context;
  const ApiRequest& request = call.body;
  if (context.tokenizer == nullptr) {
    return ApiError{400, "this model has no tokenizer", "prompt"};
  }
  std::string text;
  if (request.messages.empty()) {
    text = std::get<std::string>(request.prompts.front());
  } else {
    ASSIGN_OR_RETURN(const std::string rendered, RenderChat(context, request));
    text = rendered;
  }
  bool add_special = request.add_special_tokens.value_or(request.messages.empty());
  Result<std::vector<TokenId>> tokens =
      context.tokenizer->Encode(text, add_special, {.tenant = call.caller.name});
  if (!tokens) return ToApiError(tokens.error());
  return JsonResponse({{"count", tokens->size()},
                       {"max_model_len", context.card.context_tokens_max},
                       {"tokens", json::array(tokens->begin(), tokens->end())}});
}

RouteAnswer Detokenize(RouteCall& call) {
  const ServerContext& context = call.service().context;
  const ApiRequest& request = call.body;
  if (context.tokenizer == nullptr) {
    return ApiError{400, "this model has no tokenizer", "tokens"};
  }
  bool skip = request.skip_special_tokens.value_or(false);
  return JsonResponse({{"prompt", context.tokenizer->Decode(request.tokens, skip)}});
}

RouteAnswer CountTokens(RouteCall& call) {
  const ServerContext& context = call.service().context;
  const ApiRequest& request = call.body;
  ASSIGN_OR_RETURN(const std::string text, RenderChat(context, request));
  Result<std::vector<TokenId>> tokens =
      context.tokenizer->Encode(text, false, {.tenant = call.caller.name});
  if (!tokens) return ToApiError(tokens.error());
  return JsonResponse({{"input_tokens", tokens->size()}});
}

RouteAnswer ParseCalls(RouteCall& call) {
  const ServerContext& context = call.service().context;
  const ApiRequest& request = call.body;
  const ToolFormat* format =
      request.parser.empty() ? context.card.tools : FindToolFormat(request.parser);
  if (format == nullptr) {
    return ApiError{400, "tool_call_parser: must be one of " + ToolFormatNames(),
                    "tool_call_parser"};
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
  return JsonResponse(
      {{"normal_text", JoinedText(events, AnswerEvent::Kind::kText)}, {"calls", std::move(calls)}});
}

RouteAnswer SeparateReasoning(RouteCall& call) {
  const ServerContext& context = call.service().context;
  const ApiRequest& request = call.body;
  const ReasoningFormat* format = &context.card.reasoning;
  if (!request.parser.empty()) format = FindReasoningFormat(request.parser);
  if (format == nullptr) {
    return ApiError{400, "reasoning_parser: must be one of " + ReasoningFormatNames(),
                    "reasoning_parser"};
  }
  if (!format->separates()) {
    return JsonResponse({{"reasoning_text", ""}, {"text", request.text}});
  }
  ReasoningSplitter splitter(format->tags, StartsInReasoning(*format, ""));
  ReasoningSplitter::Piece piece = splitter.Push(request.text);
  const ReasoningSplitter::Piece rest = splitter.Flush();
  return JsonResponse({{"reasoning_text", piece.reasoning + rest.reasoning},
                       {"text", piece.content + rest.content}});
}

RouteAnswer ApplyTemplate(RouteCall& call) {
  const ServerContext& context = call.service().context;
  const ApiRequest& request = call.body;
  ASSIGN_OR_RETURN(const std::string text, RenderChat(context, request));
  return JsonResponse({{"prompt", text}});
}

constexpr Route kTextRows[] = {
    {.method = Method::kPost,
     .path = "/v1/messages/count_tokens",
     .handler = CountTokens,
     .summary = "Count the tokens of a conversation",
     .body = RouteBody{kCountTokens, "messages"}},
    {.method = Method::kPost,
     .path = "/tokenize",
     .handler = Tokenize,
     .summary = "Token ids of a text or a conversation",
     .aliases = {"/v1/tokenize"},
     .body = RouteBody{kTokenize}},
    {.method = Method::kPost,
     .path = "/detokenize",
     .handler = Detokenize,
     .summary = "The text of token ids",
     .aliases = {"/v1/detokenize"},
     .body = RouteBody{kDetokenize, "tokens"}},
    {.method = Method::kPost,
     .path = "/apply_template",
     .handler = ApplyTemplate,
     .summary = "The prompt of a conversation",
     .aliases = {"/apply-template"},
     .body = RouteBody{kApplyTemplate, "messages"}},
    {.method = Method::kPost,
     .path = "/parse_function_call",
     .handler = ParseCalls,
     .summary = "The tool calls in a model's text",
     .body = RouteBody{kParseCalls, "text"}},
    {.method = Method::kPost,
     .path = "/separate_reasoning",
     .handler = SeparateReasoning,
     .summary = "Separate a model's thinking from its content",
     .body = RouteBody{kSeparateReasoning, "text"}},
};

}  // namespace

constinit const std::span<const Route> kTextRoutes = kTextRows;

}  // namespace braid
