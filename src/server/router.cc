// Dispatch, readiness, and the way of a generating request from body to Answer.
#include "server/router.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "server/access/browser_guard.h"
#include "server/api/limits.h"
#include "server/api/openapi.h"
#include "server/dialects/api_answer.h"
#include "server/http/framing.h"
#include "server/response_routes.h"
#include "server/route_table.h"
#include "server/running_routes.h"
#include "server/serving/prepare.h"
#include "server/simple_routes.h"

namespace braid {
namespace {

// What the page's own policy, a meta element, cannot say.
constexpr std::string_view kPageHeaders =
    "Content-Security-Policy: frame-ancestors 'none'\r\nX-Frame-Options: DENY\r\n"
    "Referrer-Policy: no-referrer\r\n";
constexpr std::string_view kHealthGenerate = "/health_generate";

// "application/json; charset=utf-8" is JSON, and so is a body without a type.
bool IsJson(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  return content_type.empty() || type == "application/json" ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

HttpResponse NoSuchPath(const std::string& path) {
  const std::string shown = Printable(path);
  if (const std::string_view part = AbsentPart(path); !part.empty()) {
    return ErrorResponse(
        {404,
         fmt::format(
             "this server has no {}: {} is not served here; GET /openapi.json lists what is", part,
             shown),
         {},
         "not_supported"});
  }
  const std::string versioned = "/v1" + path;
  if (FindPost(versioned) != nullptr || FindGet(versioned) != nullptr) {
    return ErrorResponse(
        {404, fmt::format("no such path: {}; it is served as /v1{}", shown, shown)});
  }
  return ErrorResponse({404, fmt::format("no such path: {}", shown)});
}

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
  AnswerShape shape{.route = request.route,
                    .stream = request.stream.value_or(false),
                    .include_usage = request.include_usage.value_or(false),
                    .continuous_usage = request.continuous_usage.value_or(false),
                    .echo = request.echo.value_or(false)};
  shape.return_token_ids = request.return_token_ids.value_or(false) || tokenizer == nullptr;
  shape.explain_reuse = request.explain_reuse;
  shape.logprobs = static_cast<int32_t>(request.logprobs.value_or(-1));
  if (IsChat(request.route)) {
    shape.logprobs = request.wants_logprobs.value_or(false)
                         ? static_cast<int32_t>(request.logprobs.value_or(0))
                         : -1;
  }
  if (request.route == kResponses) shape.request_echo = EchoOf(request);
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
  for (const UnnamedItem& item : items) text_bytes += item.text.size() + limits::kNameBytesMax;
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

}  // namespace

Router::Router(const ServerConfig& config)
    : config_(config),
      seed_base_(config.seed_base != 0 ? config.seed_base
                                       : MixBits(static_cast<uint64_t>(UnixSeconds()) ^
                                                 (static_cast<uint64_t>(MonotonicUs()) << 20))),
      memory_({.server_bytes = RequestMemory(config, 0)}),
      logins_(config.login_failures_per_second) {}

Router::~Router() = default;

void Router::SetLoading(std::string reason) {
  std::lock_guard lock(mutex_);
  loading_reason_ = std::move(reason);
}

void Router::SetReady(ServerContext context) {
  const int64_t server = ServerMemory(config_, context.card.context_tokens_max);
  memory_.SetLimits(
      {.server_bytes = RequestMemory(config_, context.card.context_tokens_max),
       .process_bytes = context.engine_bytes == 0 ? 0 : context.engine_bytes + server});
  service_ = std::make_unique<Service>(config_, std::move(context), seed_base_);
  ready_.store(service_.get());
}

std::string Router::LoadingReason() const {
  std::lock_guard lock(mutex_);
  return loading_reason_;
}

size_t Router::BodyBytesMax() const {
  const Service* service = ready_.load();
  return limits::BodyBytesMax(service == nullptr ? 0 : service->context.card.context_tokens_max);
}

HttpResponse Router::Refuse(int status, std::string message) {
  if (Service* service = ready_.load()) service->metrics.CountRejection(status);
  HttpResponse response = ErrorResponse({status, std::move(message)});
  response.close = true;
  return response;
}

std::string Router::NewRequestId() {
  return fmt::format("req-{:016x}", RandomBits(seed_base_ ^ 1, next_request_.fetch_add(1)));
}

Reply Router::Respond(HttpRequest request, Wake wake) {
  Reply reply;
  reply.request_id = request.request_id.empty() ? NewRequestId() : request.request_id;
  reply.headers = CorsHeaders(request, config_);
  reply.content = Dispatch(request, std::move(wake));
  auto* response = std::get_if<HttpResponse>(&reply.content);
  if (response != nullptr) NoteResponse(request, *response, reply.request_id);
  return reply;
}

void Router::NoteResponse(const HttpRequest& request, const HttpResponse& response,
                          const std::string& id) {
  const std::string path = Printable(request.path);
  if (response.status >= 400) {
    if (Service* service = ready_.load()) service->metrics.CountRejection(response.status);
    LogDebug("{} {} {} {}", request.method, path, response.status, id);
  }
  if (config_.request_log == nullptr) return;
  const std::optional<ApiKey> owner = keys_.Find(request.key);
  config_.request_log->Add({.unix_seconds = UnixSeconds(),
                            .method = request.method,
                            .path = path,
                            .status = response.status,
                            .id = id,
                            .tenant = owner ? owner->name : "",
                            .finish = {},
                            .total_us = MonotonicUs() - request.received_us});
}

// Why a browser may not send this request for its page; nullopt if it may, or none does.
ApiStatus Router::CheckBrowser(const HttpRequest& request) const {
  RETURN_IF_ERROR(CheckHost(request, config_));
  if (request.method == "OPTIONS") return {};
  const PostRoute* post = FindPost(request.path);
  const GetRoute* get = FindGet(request.path);
  if (post != nullptr && post->admin) return CheckOrigin(request, Effect::kAdministers, config_);
  const bool safe = request.method == "GET" && (get == nullptr || !get->generates);
  return CheckOrigin(request, safe ? Effect::kNone : Effect::kGenerates, config_);
}

// Why the request's key does not open its path; nullopt if it does. What does not exist is asked
// for with a key too, so that nobody learns more without one.
std::optional<HttpResponse> Router::CheckKey(const HttpRequest& request) {
  const PostRoute* post = FindPost(request.path);
  const GetRoute* get = FindGet(request.path);
  if (get != nullptr && get->open) return std::nullopt;
  const bool anthropic = post != nullptr && IsAnthropic(post->route);
  const int64_t now_us = MonotonicUs();
  const std::optional<ApiKey> owner = keys_.Find(request.key);
  if (!logins_.Allows(request.peer.address, owner ? owner->name : "", now_us)) {
    return ErrorResponse({429, "too many wrong API keys from this address", {}, "too_many_logins"},
                         anthropic);
  }
  if (!owner) {
    if (!request.key.empty()) logins_.Failed(request.peer.address, now_us);
    HttpResponse response =
        ErrorResponse({401,
                       "the API key is missing or wrong; send it as Authorization: Bearer KEY",
                       {},
                       "invalid_api_key"},
                      anthropic);
    response.headers = "WWW-Authenticate: Bearer\r\n";
    return response;
  }
  logins_.Succeeded(request.peer.address, owner->name);
  if (post == nullptr || !post->admin) return std::nullopt;
  if (config_.admin_port >= 0 && !request.peer.admin_listener) {
    return ErrorResponse({404, fmt::format("{} is served on the admin port only", request.path)});
  }
  // Without keys everybody is an admin; who reaches a loopback address has an account here.
  if (keys_.empty() && !request.peer.admin_listener && !request.peer.loopback_listener) {
    return ErrorResponse({403,
                          fmt::format("{} needs a key at an address that is not loopback; start "
                                      "the server with --admin-api-key, or with --admin-port",
                                      request.path),
                          {},
                          "admin_key_required"});
  }
  if (owner->admin) return std::nullopt;
  return ErrorResponse(
      {403, fmt::format("{} needs an admin's key", request.path), {}, "admin_key_required"});
}

Router::Content Router::Dispatch(const HttpRequest& request, Wake wake) {
  const PostRoute* post = FindPost(request.path);
  if (const ApiStatus allowed = CheckBrowser(request); !allowed) {
    return ErrorResponse(allowed.error(), post != nullptr && IsAnthropic(post->route));
  }
  if (request.method == "OPTIONS" && !request.origin.empty()) {
    return AnswerPreflight(request, config_);
  }
  if (std::optional<HttpResponse> refusal = CheckKey(request)) return *std::move(refusal);
  const GetRoute* get = FindGet(request.path);
  if (request.method == "POST" && post != nullptr) return Post(*post, request, std::move(wake));
  if (request.method == "GET" && get != nullptr) {
    return request.path == kHealthGenerate ? HealthGenerate(request, std::move(wake))
                                           : Content(Get(*get, request));
  }
  const bool deletes = get != nullptr && !get->delete_summary.empty();
  if (request.method == "DELETE" && deletes) return Delete(*get, request);
  if (post == nullptr && get == nullptr) {
    return NoSuchPath(request.path);
  }
  const std::string right = post != nullptr ? "POST" : deletes ? "GET, DELETE" : "GET";
  HttpResponse response = ErrorResponse(
      {405, fmt::format("{} takes {}, not {}", request.path, right, Printable(request.method))});
  response.allow = right;
  return response;
}

HttpResponse Router::Health() const {
  const Service* service = ready_.load();
  if (service == nullptr) return JsonResponse(json::object{{"status", "loading"}});
  // The engine's loop beats in every turn, working or idle; a step lasts one turn.
  const DriverStats stats = service->context.driver.stats();
  const int64_t now_us = MonotonicUs();
  const int64_t silent_us = now_us - stats.heartbeat_us;
  if (silent_us > int64_t{config_.step_seconds_max} * 1'000'000) {
    const std::string what =
        stats.step_started_us == 0
            ? "between two steps"
            : fmt::format("in a step of {} rows and {} tokens that began {} s ago", stats.step_rows,
                          stats.step_tokens, (now_us - stats.step_started_us) / 1'000'000);
    return ErrorResponse(
        {503,
         fmt::format("the engine has been silent for {} s, {}", silent_us / 1'000'000, what),
         {},
         "stalled"});
  }
  return JsonResponse(json::object{{"status", "ok"}, {"paused", stats.paused}});
}

HttpResponse Router::Ready() const {
  if (draining_) return ErrorResponse({503, "shutting down", {}, "draining"});
  if (ready_.load() == nullptr) return ErrorResponse({503, LoadingReason(), {}, "loading"});
  return JsonResponse(json::object{{"status", "ready"}});
}

HttpResponse Router::Get(const GetRoute& route, const HttpRequest& request) {
  const std::string_view path = route.path;
  if (path == "/") {
    return {.content_type = "text/html; charset=utf-8",
            .body = config_.page_html,
            .headers = std::string(kPageHeaders)};
  }
  if (path == "/health") return Health();
  if (path == "/ready") return Ready();
  if (path == "/version") return JsonResponse(json::object{{"version", config_.version}});
  Service* service = ready_.load();
  if (service == nullptr) return ErrorResponse({503, LoadingReason(), {}, "loading"});
  const ModelCard& card = service->context.card;
  const std::string_view id = *MatchPath(route.path, request.path);
  if (path == "/v1/models") return ListModels(card);
  if (path == "/v1/models/{id}") return OneModel(card, id);
  if (path == "/v1/running") return ListRunning(*service, WhoseOf(request));
  if (path == "/v1/responses/{id}") return OneResponse(*service, request, id, WhoseOf(request));
  if (path == "/v1/responses/{id}/input_items") {
    return ResponseInput(*service, request, id, WhoseOf(request));
  }
  if (path == "/openapi.json") {
    return JsonResponse(OpenApiDocument(service->limits(), config_.version));
  }
  if (path == "/v1/loads") return Loads(*service);
  if (path == "/metrics") return MetricsOf(*service);
  return ServerInformation(*service);
}

HttpResponse Router::Delete(const GetRoute& route, const HttpRequest& request) {
  Service* service = ready_.load();
  if (service == nullptr) return ErrorResponse({503, LoadingReason(), {}, "loading"});
  return DeleteResponse(*service, *MatchPath(route.path, request.path), WhoseOf(request));
}

HttpResponse Router::MetricsOf(Service& service) const {
  const RequestLog* log = config_.request_log;
  const GrammarLibrary* grammars = service.context.grammars;
  return {
      .content_type = "text/plain; version=0.0.4; charset=utf-8",
      .body = service.metrics.Text({.driver = service.context.driver.stats(),
                                    .log_lines_dropped = log == nullptr ? 0 : log->dropped(),
                                    .memory = memory_.stats(),
                                    .responses = service.responses.stats(),
                                    .grammar_bytes = grammars == nullptr ? 0 : grammars->bytes()})};
}

// An admin sees and ends everybody's requests, anybody else those of the same name.
RunningBoard::Whose Router::WhoseOf(const HttpRequest& request) const {
  const std::optional<ApiKey> owner = keys_.Find(request.key);
  if (!owner) return {.all = false, .tenant = "\n"};  // nobody's: the key has just been removed
  return {.all = owner->admin, .tenant = owner->name};
}

// What changes the engine and takes nothing of a body; the cache is flushed, and a pause begins,
// before the engine's next step.
HttpResponse Router::Control(Route route, const HttpRequest& request) {
  Service* service = ready_.load();
  if (service == nullptr) return ErrorResponse({503, LoadingReason(), {}, "loading"});
  Driver& driver = service->context.driver;
  if (route == kCancel) {
    const std::string id(*MatchPath(FindPost(request.path)->path, request.path));
    return CancelResponse(*service, id, WhoseOf(request));
  }
  if (route == kFlushCache) driver.FlushCache();
  if (route == kPause) driver.SetPaused(true);
  if (route == kResume) driver.SetPaused(false);
  return JsonResponse(json::object{{"status", "ok"}});
}

Router::Content Router::Post(const PostRoute& post, const HttpRequest& request, Wake wake) {
  const Route route = post.route;
  const bool has_body = NeedsBody(route) || (route == kPause && !request.body.empty());
  if (!has_body) return Control(route, request);
  const bool anthropic = IsAnthropic(route);
  if (!IsJson(request.content_type)) {
    return ErrorResponse({415, fmt::format("Content-Type must be application/json, got {}",
                                           Printable(request.content_type))},
                         anthropic);
  }
  if (!request.content_encoding.empty() && request.content_encoding != "identity") {
    return ErrorResponse({415, "Content-Encoding must be identity"}, anthropic);
  }
  Service* service = ready_.load();
  if (service == nullptr) return ErrorResponse({503, LoadingReason(), {}, "loading"}, anthropic);
  RequestLimits bounds = service->limits();
  if (route == kResponses) {
    bounds.responses = {
        .store = &service->responses, .key = WhoseOf(request).tenant, .bytes_max = BodyBytesMax()};
  }
  auto parsed = ParseApiRequest(route, request.body, bounds);
  if (!parsed) return ErrorResponse(parsed.error(), anthropic);
  ApiRequest& api_request = *parsed;
  if (const ApiStatus served = CheckModel(service->context.card, api_request.model); !served) {
    return ErrorResponse(served.error(), anthropic);
  }
  switch (route) {
    case kTokenize:
      return Tokenize(service->context, api_request);
    case kDetokenize:
      return Detokenize(service->context, api_request);
    case kApplyTemplate:
      return ApplyTemplate(service->context, api_request);
    case kParseCalls:
      return ParseCalls(service->context, api_request);
    case kSeparateReasoning:
      return SeparateReasoning(service->context, api_request);
    case kAbort:
      return JsonResponse(
          json::object{{"aborted", service->running.End(api_request.request_id, {.all = true})}});
    case kCountTokens:
      return CountTokens(service->context, api_request);
    case kPause:
      if (api_request.abort_all.value_or(false)) service->running.End("", {.all = true});
      return Control(route, request);
    case kFlushCache:  // answered above
    case kResume:
    case kCancel:
    case kChat:
    case kCompletions:
    case kResponses:
    case kMessages:
      break;
  }
  return Generate(std::move(api_request), request, std::move(wake));
}

// One token from the model: what a probe asks that wants to know whether answers still come.
Router::Content Router::HealthGenerate(const HttpRequest& http, Wake wake) {
  if (ready_.load() == nullptr) return ErrorResponse({503, LoadingReason(), {}, "loading"});
  ApiRequest request;
  request.route = kCompletions;
  request.prompts.emplace_back(std::vector<TokenId>{0});
  request.max_tokens = 1;
  request.temperature = 0;
  return Generate(std::move(request), http, std::move(wake));
}

Router::Content Router::Generate(ApiRequest request, const HttpRequest& http, Wake wake) {
  Service& service = *ready_.load();
  const bool anthropic = IsAnthropic(request.route);
  if (draining_)
    return ErrorResponse({503, "the server is shutting down", {}, "shutting_down"}, anthropic);
  AnswerShape shape = ShapeOf(request, service.context.tokenizer);
  const std::string client_id = IsRequestId(request.request_id) ? request.request_id : "";
  const std::optional<ApiKey> owner = keys_.Find(http.key);
  if (!owner) return ErrorResponse({401, "the API key is not valid any more"}, anthropic);
  const ApiKey& tenant = *owner;
  if (request.route == kResponses) {
    const ApiStatus planned = PlanStoring(service, request, tenant.name, &shape);
    if (!planned) {
      return ErrorResponse(planned.error());
    }
  }
  auto made = PlanGeneration(service, std::move(request), tenant.name);
  if (!made) return ErrorResponse(made.error(), anthropic);
  GenerationPlan plan = *std::move(made);
  const PostRoute* post = FindPost(http.path);
  Planned planned{.origin = {.path = post == nullptr ? kHealthGenerate : post->path,
                             .id_prefix = post == nullptr ? "cmpl-" : post->id_prefix,
                             .request_id = http.request_id.empty() ? client_id : http.request_id,
                             .received_us = http.received_us},
                  .shape = std::move(shape),
                  .tenant = tenant,
                  .address = http.peer.address,
                  .wake = std::move(wake)};
  if (plan.grammar.text.empty()) return Begin(std::move(plan), planned);
  if (const std::optional<Status> known = service.context.grammars->Known(plan.grammar.text)) {
    if (*known) return Begin(std::move(plan), planned);
    return ErrorResponse(GrammarRefusal(plan.grammar.path, known->error()), anthropic);
  }
  HttpRequest asked = http;
  asked.body.clear();
  return CompileThenBegin(std::move(plan), std::move(planned), std::move(asked));
}

ApiError Router::OverLimit(const ApiKey& tenant, const TenantLoad::Entry& entry) const {
  const bool tokens = entry.retry_after_seconds > 0;
  return {429,
          tokens ? fmt::format("{} has used up the {} tokens a minute that its key allows",
                               tenant.name, tenant.tokens_per_minute)
                 : fmt::format("{} has {} requests already, as many as its key allows", tenant.name,
                               tenant.requests_max),
          {},
          "rate_limit_exceeded",
          tokens ? entry.retry_after_seconds : RetryAfter()};
}

// What waits may be several times what the cache can hold, not more.
ApiStatus Router::CheckWaiting(const Service& service, int64_t prompt_tokens) const {
  const SchedulerConfig& config = service.context.driver.config();
  const int64_t most = limits::kWaitingTokensTimesPool * config.cache.pages * kBlockTokens;
  const int64_t waiting = service.running.WaitingTokens();
  if (waiting == 0 || waiting + prompt_tokens <= most) return {};
  return ApiError{503,
                  fmt::format("{} prompt tokens wait already, no more than {} may", waiting, most),
                  {},
                  "overloaded",
                  RetryAfter()};
}

// When the queue should have a place again.
int32_t Router::RetryAfter() const {
  Service& service = *ready_.load();
  const int64_t waiting = service.context.driver.stats().scheduler.waiting;
  return service.drain_rate.SecondsFor(waiting, MonotonicUs());
}

}  // namespace braid
