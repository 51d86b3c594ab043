// Routes that generate. A request whose grammar is known, or that has none, begins at once; another
// waits in the queue of grammars (compile_queue.h) while a PendingAnswer stands for its answer.
#include <fmt/core.h>

#include "base/clock.h"
#include "server/dialects/api_answer.h"
#include "server/routes/route.h"
#include "server/serving/pending_answer.h"
#include "server/serving/prepare.h"

namespace braid {
namespace {

constexpr size_t kItemIdBytesMax = 64;  // of the ids that a response gives its items

// What a Responses answer repeats of its request.
json::object EchoOf(const ApiRequest& request) {
  const auto number = [](const auto& value) {
    return value ? json::value(*value) : json::value(nullptr);
  };
  json::array tools;
  for (const json::value& tool : request.tools) {
    json::object flat = tool.at("function").as_object();
    flat["type"] = "function";
    flat.emplace("parameters", nullptr);
    flat.emplace("strict", false);
    tools.push_back(std::move(flat));
  }
  const json::value& choice = request.tool_choice_sent;
  return {
      {"instructions", request.system.empty() ? json::value(nullptr) : json::value(request.system)},
      {"max_output_tokens", number(request.max_tokens)},
      {"temperature", number(request.temperature)},
      {"top_p", number(request.top_p)},
      {"parallel_tool_calls", request.parallel_tool_calls.value_or(true)},
      {"background", false},
      {"previous_response_id", request.previous_response_id.empty()
                                   ? json::value(nullptr)
                                   : json::value(request.previous_response_id)},
      {"store", request.store.value_or(true)},
      {"tool_choice", choice.is_null() ? json::value("auto") : choice},
      {"tools", std::move(tools)},
      {"truncation", "disabled"},
      {"metadata", request.metadata}};
}

AnswerShape ShapeOf(const ApiRequest& request, const Tokenizer* tokenizer) {
  AnswerShape shape{.endpoint = request.endpoint,
                    .stream = request.stream.value_or(false),
                    .include_usage = request.include_usage.value_or(false),
                    .continuous_usage = request.continuous_usage.value_or(false),
                    .echo = request.echo.value_or(false)};
  shape.return_token_ids = request.return_token_ids.value_or(false) || tokenizer == nullptr;
  shape.explain_reuse = request.explain_reuse;
  shape.logprobs = static_cast<int32_t>(request.logprobs.value_or(-1));
  if (IsChat(request.endpoint)) {
    shape.logprobs = request.wants_logprobs.value_or(false)
                         ? static_cast<int32_t>(request.logprobs.value_or(0))
                         : -1;
  }
  if (request.endpoint == kResponses) shape.request_echo = EchoOf(request);
  shape.prompt_logprobs = static_cast<int32_t>(request.prompt_logprobs.value_or(-1));
  return shape;
}

// Fills in shape->store if the response is to be kept and is small enough. A request that asks for
// it, other than by saying nothing, is refused where it cannot be.
ApiStatus PlanStoring(Service& service, const ApiRequest& request, const std::string& key,
                      AnswerShape* shape) {
  shape->request_echo["store"] = false;
  if (!request.store.value_or(true)) return {};
  std::vector<UnnamedItem> items = ItemsToStore(request);
  size_t text_bytes = json::serialize(shape->request_echo).size();
  for (const UnnamedItem& item : items) text_bytes += item.text.size() + kItemIdBytesMax;
  const int64_t bytes = ResponseStore::BytesOf(items.size(), text_bytes);
  // The other half is for the answer.
  const int64_t most = service.responses.KeyBytes(key) / 2;
  if (bytes <= most) {
    shape->request_echo["store"] = true;
    shape->store.emplace(service.responses, key, std::move(items));
  } else if (request.store) {
    return ApiError{400,
                    fmt::format("store: the conversation takes {} bytes, at most {} are stored; "
                                "send false",
                                bytes, most),
                    "store"};
  }
  return {};
}

// What is kept of a request while its grammar is compiled.
struct Planned {
  GenerationOrigin origin;
  AnswerShape shape;
  Caller caller;
  std::string address;  // of the client
  Wake wake;
};

ApiError OverLimit(const Service& service, const Caller& caller, const TenantLoad::Entry& entry) {
  const bool tokens = entry.retry_after_seconds > 0;
  return {429,
          tokens ? fmt::format("the key of {} has used its {} tokens per minute", caller.name,
                               caller.tokens_per_minute)
                 : fmt::format("the key of {} has {} requests, its limit", caller.name,
                               caller.requests_max),
          {},
          "rate_limit_exceeded",
          tokens ? entry.retry_after_seconds : service.RetryAfterSeconds()};
}

// Waiting prompts may have several times the tokens that the cache holds, not more.
ApiStatus CheckWaiting(const Service& service, int64_t prompt_tokens) {
  const SchedulerConfig& config = service.context.driver.config();
  const int64_t most = limits::kWaitingTokensTimesPool * config.cache.pages * kBlockTokens;
  const int64_t waiting = service.active.WaitingTokens();
  if (waiting == 0 || waiting + prompt_tokens <= most) return {};
  return ApiError{503,
                  fmt::format("{} prompt tokens are waiting; at most {} may wait", waiting, most),
                  {},
                  "overloaded",
                  service.RetryAfterSeconds()};
}

// Submits the plan. From here on the request counts among its tenant's.
RouteAnswer Begin(Service& service, GenerationPlan plan, const Planned& planned) {
  if (!plan.grammar.text.empty()) {
    Result<GrammarLibrary::Hold> hold = service.context.grammars->HoldFor(
        plan.grammar.text, static_cast<int64_t>(plan.choices.size()));
    if (!hold) return GrammarRefusal(plan.grammar.path, hold.error());
    plan.hold = *std::move(hold);
  }
  int64_t prompt_tokens = 0;
  for (const PlannedChoice& choice : plan.choices) {
    prompt_tokens += static_cast<int64_t>(choice.request.prompt.size());
  }
  RETURN_IF_ERROR(CheckWaiting(service, prompt_tokens));  // before it costs the tenant tokens
  TenantLoad::Entry entry = service.tenants.Enter(planned.caller, prompt_tokens, MonotonicUs());
  if (entry.place == nullptr) return OverLimit(service, planned.caller, entry);
  plan.place = std::move(entry.place);
  Result<std::unique_ptr<Generation>, ApiError> started =
      Generation::Start(service, std::move(plan), planned.origin, planned.wake);
  if (!started) {
    ApiError error = started.error();
    error.retry_after_seconds = service.RetryAfterSeconds();
    return error;
  }
  return ReplyContent(std::make_unique<ApiAnswer>(*std::move(started), planned.shape));
}

// The continuation of a request whose grammar has been compiled: an answer or an error, which is
// counted and logged here because the router has long returned.
PendingAnswer::Begin BeginWhenCompiled(const RouteCall& call, Planned planned) {
  // What the log needs of it: a copy of all would keep the body's memory.
  HttpRequest http{
      .method = call.http.method, .path = call.http.path, .received_us = call.http.received_us};
  return [&server = call.server, &service = call.service(), planned = std::move(planned),
          http = std::move(http)](GenerationPlan plan, const ApiStatus& compiled) -> ReplyContent {
    RouteAnswer content = compiled.ok() ? Begin(service, std::move(plan), planned)
                                        : RouteAnswer(compiled.error());
    if (content) return *std::move(content);
    HttpResponse response = ErrorResponse(content.error(), IsAnthropic(planned.shape.endpoint));
    server.NoteResponse(http, response, planned.origin.request_id, planned.caller.name);
    return response;
  };
}

// Compiling takes no tenant more than its share of a thread, also for requests whose clients leave
// meanwhile. Without keys, clients are told apart by their addresses.
RouteAnswer CompileThenBegin(RouteCall& call, GenerationPlan plan, Planned planned) {
  Service& service = call.service();
  const std::string path = plan.grammar.path, name = planned.caller.name;
  if (!name.empty()) {
    if (const int32_t seconds = service.tenants.SecondsUntilCompile(name, MonotonicUs())) {
      return ApiError{
          429,
          fmt::format("{}: the key of {} has used its time for compiling grammars; grammars that "
                      "are compiled already are still accepted",
                      path, name),
          path, "rate_limit_exceeded", seconds};
    }
  }
  plan.shown = ListRequest(service, plan, planned.origin, name, planned.wake);
  CompileQueue::Spend spend;
  if (!name.empty()) {
    spend = [&service, name](int64_t work_us) {
      service.tenants.SpendCompile(name, work_us, MonotonicUs());
    };
  }
  Result<CompileQueue::Ticket> ticket =
      service.compiles->Enter(name.empty() ? planned.address : name, plan.grammar.text,
                              planned.wake, std::move(spend));
  if (!ticket) {
    const bool own = ticket.error().code == ErrorCode::kExhausted;
    return ApiError{own ? 429 : 503, fmt::format("{}: {}", path, ticket.error().message), path,
                    own ? "rate_limit_exceeded" : "overloaded"};
  }
  const PendingAnswer::Deadline deadline{planned.origin.received_us,
                                         service.config.queue_seconds_max};
  return ReplyContent(std::make_unique<PendingAnswer>(*std::move(ticket), std::move(plan), deadline,
                                                      BeginWhenCompiled(call, std::move(planned))));
}

RouteAnswer Generate(RouteCall& call) {
  Service& service = call.service();
  if (call.server.draining) {
    return ApiError{503, "the server is shutting down", {}, "shutting_down"};
  }
  ApiRequest& request = call.body;
  AnswerShape shape = ShapeOf(request, service.context.tokenizer);
  const std::string client_id = request.request_id;
  if (request.endpoint == kResponses) {
    RETURN_IF_ERROR(PlanStoring(service, request, call.caller.name, &shape));
  }
  ASSIGN_OR_RETURN(GenerationPlan plan,
                   PlanGeneration(service, std::move(request), call.caller.name));
  const HttpRequest& http = call.http;
  Planned planned{.origin = {.path = call.route.path,
                             .id_prefix = call.route.id_prefix,
                             .request_id = http.request_id.empty() ? client_id : http.request_id,
                             .body_id = client_id,
                             .received_us = http.received_us},
                  .shape = std::move(shape),
                  .caller = call.caller,
                  .address = http.peer.address,
                  .wake = std::move(call.wake)};
  if (plan.grammar.text.empty()) return Begin(service, std::move(plan), planned);
  if (const std::optional<Status> known = service.context.grammars->Known(plan.grammar.text)) {
    if (*known) return Begin(service, std::move(plan), planned);
    return GrammarRefusal(plan.grammar.path, known->error());
  }
  return CompileThenBegin(call, std::move(plan), std::move(planned));
}

// One token from the model, for probes that test whether the whole path still answers.
RouteAnswer HealthGenerate(RouteCall& call) {
  call.body.endpoint = kCompletions;
  call.body.prompts.emplace_back(std::vector<TokenId>{0});
  call.body.max_tokens = 1;
  call.body.temperature = 0;
  return Generate(call);
}

constexpr Route kGenerateRows[] = {
    {.method = Method::kPost,
     .path = "/v1/chat/completions",
     .handler = Generate,
     .summary = "Answer a conversation",
     .body = RouteBody{kChat, "messages"},
     .id_prefix = "chatcmpl-"},
    {.method = Method::kPost,
     .path = "/v1/completions",
     .handler = Generate,
     .summary = "Continue a text",
     .body = RouteBody{kCompletions, "prompt"},
     .id_prefix = "cmpl-"},
    {.method = Method::kPost,
     .path = "/v1/responses",
     .handler = Generate,
     .summary = "Answer a conversation as items",
     .body = RouteBody{kResponses, "input"},
     .id_prefix = "resp_"},
    {.method = Method::kPost,
     .path = "/v1/messages",
     .handler = Generate,
     .summary = "Answer a conversation as blocks",
     .body = RouteBody{kMessages, "messages max_tokens"},
     .id_prefix = "msg_"},
    {.path = "/health_generate",
     .handler = HealthGenerate,
     .summary = "Generate one token, to test the model",
     .id_prefix = "cmpl-",
     .generates = true},
};

}  // namespace

constinit const std::span<const Route> kGenerateRoutes = kGenerateRows;

}  // namespace braid
