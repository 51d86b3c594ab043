// Dispatch, readiness, and the way of a generating request from body to Answer.
#include "server/router.h"

#include <fmt/core.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/api_answer.h"
#include "server/limits.h"
#include "server/prepare.h"
#include "server/simple_routes.h"

namespace braid {
namespace {

struct PostRoute {
  std::string_view path;
  Route route;
};

constexpr PostRoute kPosts[] = {
    {"/v1/chat/completions", kChat},
    {"/v1/completions", kCompletions},
    {"/tokenize", kTokenize},
    {"/v1/tokenize", kTokenize},
    {"/detokenize", kDetokenize},
    {"/v1/detokenize", kDetokenize},
    {"/apply_template", kApplyTemplate},
    {"/apply-template", kApplyTemplate},
};

constexpr std::string_view kGets[] = {"/",        "/health",      "/ready",    "/version",
                                      "/metrics", "/server_info", "/v1/models"};
constexpr std::string_view kFlushPath = "/flush_cache";  // takes no body
constexpr std::string_view kModelPrefix = "/v1/models/";

const PostRoute* FindPost(std::string_view path) {
  for (const PostRoute& post : kPosts) {
    if (post.path == path) return &post;
  }
  return nullptr;
}

bool IsGet(std::string_view path) {
  return std::find(std::begin(kGets), std::end(kGets), path) != std::end(kGets) ||
         path.starts_with(kModelPrefix);
}

// "application/json; charset=utf-8" is JSON, and so is a body without a type.
bool IsJson(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  return content_type.empty() || type == "application/json" ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

std::string Printable(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, limits::kNameBytesMax)) out += c >= ' ' && c < 127 ? c : '?';
  return out;
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
  if (request.route == kChat) {
    shape.logprobs = request.wants_logprobs.value_or(false)
                         ? static_cast<int32_t>(request.logprobs.value_or(0))
                         : -1;
  }
  shape.prompt_logprobs = static_cast<int32_t>(request.prompt_logprobs.value_or(-1));
  return shape;
}

}  // namespace

Router::Router(const ServerConfig& config)
    : config_(config),
      seed_base_(config.seed_base != 0 ? config.seed_base
                                       : MixBits(static_cast<uint64_t>(UnixSeconds()) ^
                                                 (static_cast<uint64_t>(MonotonicUs()) << 20))) {}

Router::~Router() = default;

void Router::SetLoading(std::string reason) {
  std::lock_guard lock(mutex_);
  loading_reason_ = std::move(reason);
}

void Router::SetReady(ServerContext context) {
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
  if (Service* service = ready_.load()) service->metrics.rejections.Increment();
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
  reply.content = Dispatch(request, std::move(wake));
  auto* response = std::get_if<HttpResponse>(&reply.content);
  if (response != nullptr && response->status >= 400) {
    if (Service* service = ready_.load()) service->metrics.rejections.Increment();
    LogDebug("{} {} {} {}", request.method, Printable(request.path), response->status,
             reply.request_id);
  }
  return reply;
}

Router::Content Router::Dispatch(const HttpRequest& request, Wake wake) {
  const PostRoute* post = FindPost(request.path);
  if (request.method == "POST" && request.path == kFlushPath) return Flush();
  if (request.method == "POST" && post != nullptr)
    return Post(post->route, request, std::move(wake));
  if (request.method == "GET" && IsGet(request.path)) return Get(request);
  const bool posts = post != nullptr || request.path == kFlushPath;
  if (posts || IsGet(request.path)) {
    std::string right = posts ? "POST" : "GET";
    HttpResponse response = ErrorResponse(
        {405, fmt::format("{} takes {}, not {}", request.path, right, Printable(request.method))});
    response.allow = right;
    return response;
  }
  return ErrorResponse({404, fmt::format("no such path: {}", Printable(request.path))});
}

HttpResponse Router::Health() const {
  const Service* service = ready_.load();
  if (service == nullptr) return JsonResponse(json::object{{"status", "loading"}});
  // The engine's loop beats in every turn, working or idle; a step lasts one turn.
  int64_t silent_us = MonotonicUs() - service->context.driver.stats().heartbeat_us;
  if (silent_us > int64_t{config_.step_seconds_max} * 1'000'000) {
    return ErrorResponse({503,
                          fmt::format("the engine has been silent for {} s", silent_us / 1'000'000),
                          {},
                          "stalled"});
  }
  return JsonResponse(json::object{{"status", "ok"}});
}

HttpResponse Router::Ready() const {
  if (draining_) return ErrorResponse({503, "shutting down", {}, "draining"});
  if (ready_.load() == nullptr) return ErrorResponse({503, LoadingReason(), {}, "loading"});
  return JsonResponse(json::object{{"status", "ready"}});
}

HttpResponse Router::Get(const HttpRequest& request) {
  const std::string& path = request.path;
  if (path == "/") {
    return {.content_type = "text/html; charset=utf-8", .body = config_.page_html};
  }
  if (path == "/health") return Health();
  if (path == "/ready") return Ready();
  if (path == "/version") return JsonResponse(json::object{{"version", config_.version}});
  Service* service = ready_.load();
  if (service == nullptr) return ErrorResponse({503, LoadingReason(), {}, "loading"});
  const ModelCard& card = service->context.card;
  if (path == "/v1/models") return ListModels(card);
  if (path == "/server_info") return ServerInformation(*service);
  if (path == "/metrics") {
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
            .body = service->metrics.Text(service->context.driver.stats())};
  }
  return OneModel(card, std::string_view(path).substr(kModelPrefix.size()));
}

// Takes effect before the engine's next step; what running requests use stays.
HttpResponse Router::Flush() {
  Service* service = ready_.load();
  if (service == nullptr) return ErrorResponse({503, LoadingReason(), {}, "loading"});
  service->context.driver.FlushCache();
  return JsonResponse(json::object{{"status", "ok"}});
}

Router::Content Router::Post(Route route, const HttpRequest& request, Wake wake) {
  if (!IsJson(request.content_type)) {
    return ErrorResponse({415, fmt::format("Content-Type must be application/json, got {}",
                                           Printable(request.content_type))});
  }
  if (!request.content_encoding.empty() && request.content_encoding != "identity") {
    return ErrorResponse({415, "Content-Encoding must be identity"});
  }
  Service* service = ready_.load();
  if (service == nullptr) return ErrorResponse({503, LoadingReason(), {}, "loading"});
  std::vector<std::string> unknown;
  auto parsed = ParseApiRequest(route, request.body, service->limits(), &unknown);
  if (auto* error = std::get_if<ApiError>(&parsed)) return ErrorResponse(*error);
  WarnOfUnknown(unknown, request.path);
  auto& api_request = std::get<ApiRequest>(parsed);
  if (Refusal refusal = CheckModel(service->context.card, api_request.model)) {
    return ErrorResponse(*refusal);
  }
  switch (route) {
    case kTokenize:
      return Tokenize(service->context, api_request);
    case kDetokenize:
      return Detokenize(service->context, api_request);
    case kApplyTemplate:
      return ApplyTemplate(service->context, api_request);
    case kChat:
    case kCompletions:
      break;
  }
  return Generate(std::move(api_request), request, std::move(wake));
}

Router::Content Router::Generate(ApiRequest request, const HttpRequest& http, Wake wake) {
  Service& service = *ready_.load();
  if (draining_) return ErrorResponse({503, "the server is shutting down", {}, "shutting_down"});
  AnswerShape shape = ShapeOf(request, service.context.tokenizer);
  auto plan = PlanGeneration(service, std::move(request));
  if (auto* error = std::get_if<ApiError>(&plan)) return ErrorResponse(*error);
  const bool chat = shape.route == kChat;
  GenerationOrigin origin{.path = chat ? "/v1/chat/completions" : "/v1/completions",
                          .id_prefix = chat ? "chatcmpl-" : "cmpl-",
                          .request_id = http.request_id,
                          .received_us = http.received_us};
  auto started = Generation::Start(service, std::get<0>(std::move(plan)), origin, std::move(wake));
  if (auto* error = std::get_if<ApiError>(&started)) return ErrorResponse(*error);
  return std::make_unique<ApiAnswer>(std::get<0>(std::move(started)), shape);
}

// Once for each key, and for so many keys that a client cannot fill the log.
void Router::WarnOfUnknown(const std::vector<std::string>& fields, const std::string& path) {
  for (const std::string& field : fields) {
    std::string shown = Printable(field);
    {
      std::lock_guard lock(mutex_);
      if (warned_.size() >= limits::kUnknownFieldsWarnedMax || !warned_.insert(shown).second) {
        continue;
      }
    }
    LogWarning("{}: the field \"{}\" is not known and has no effect", path, shown);
  }
}

}  // namespace braid
