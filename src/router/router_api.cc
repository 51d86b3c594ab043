// Checks in the same order as the engines' server: Host and Origin, the key, the path, the method.
// The engines check the rest.
#include "router/router_api.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "router/choice_answer.h"
#include "router/passed_fields.h"
#include "server/http/framing.h"
#include "server/routes/json_response.h"

namespace braid {
namespace {

// Reading a body as JSON and hashing it takes about so many times its memory.
constexpr int64_t kReadTimesBody = 8;
// A body that is read in less time than a change of threads takes.
constexpr size_t kQuickBytes = 16 << 10;
// What concerns one engine, not all that stand behind an address.
constexpr std::string_view kOfOneEngine[] = {"/v1/running", "/v1/loads", "/v1/expert_load"};
// The engines among which a gateway asks for one.
constexpr std::string_view kSubsetHeader = "x-gateway-destination-endpoint-subset";

ApiError NotPassedOn(const std::string& path) {
  return {
      404,
      fmt::format("{} concerns one engine; send it to that engine (GET /engines lists them)", path),
      {},
      "not_passed_on"};
}

}  // namespace

struct RouterApi::OwnRoute {
  std::string_view method;
  std::string_view path;  // may begin and end around {name}
  Content (RouterApi::*handler)(const HttpRequest& request, std::string_view name);
  Access access = Access::kKey;
  bool probe = false;
  bool quick = true;
  Effect effect = Effect::kAdministers;  // of methods other than GET
};

RouterApi::OwnMatch RouterApi::MatchOwn(const HttpRequest& request) {
  static constexpr OwnRoute kRows[] = {
      {"GET", "/health", &RouterApi::Health, Access::kPublic, true},
      {"GET", "/ready", &RouterApi::Ready, Access::kPublic, true},
      {"GET", "/version", &RouterApi::Version},
      {"GET", "/metrics", &RouterApi::Metrics},
      {"GET", "/engines", &RouterApi::Engines, Access::kAdmin},
      {"POST", "/reload", &RouterApi::ReloadFile, Access::kAdmin, false, false},
      {"POST", "/engines/{name}/drain", &RouterApi::Drain, Access::kAdmin},
      {"POST", "/engines/{name}/resume", &RouterApi::Resume, Access::kAdmin},
      {"PUT", "/engines/{name}", &RouterApi::Register, Access::kEngine},
      {"POST", "/route/{name}", &RouterApi::Choose, Access::kKey, false, false, Effect::kGenerates},
      {"GET", "/route/{name}", &RouterApi::Choose},
  };
  constexpr std::string_view kName = "{name}";
  const std::string_view path = request.path;
  OwnMatch other;  // with another method
  for (const OwnRoute& row : kRows) {
    // The first path that fits is the request's: /engines/a/drain is no engine called a/drain.
    if (other.route != nullptr && other.route->path != row.path) continue;
    const size_t at = std::min(row.path.find(kName), row.path.size());
    const bool named = at < row.path.size();
    const std::string_view before = row.path.substr(0, at);
    const std::string_view after = named ? row.path.substr(at + kName.size()) : std::string_view();
    const bool same = !named ? path == before
                             : path.size() > before.size() + after.size() &&
                                   path.starts_with(before) && path.ends_with(after);
    if (!same) continue;
    const std::string_view name =
        path.substr(before.size(), path.size() - before.size() - after.size());
    const OwnMatch match{&row, name, row.method == request.method, std::string(row.method)};
    if (match.method) return match;
    if (other.route == nullptr) {
      other = match;
    } else {
      other.allow.append(", ").append(row.method);
    }
  }
  return other;
}

RouterApi::RouterApi(const RouterServerConfig& config, RouterConfig engines,
                     std::function<Status()> reload)
    : config_(config),
      reload_(std::move(reload)),
      seed_(MixBits(static_cast<uint64_t>(UnixSeconds()) ^
                    (static_cast<uint64_t>(MonotonicUs()) << 20))),
      memory_({.server_bytes = config.memory_bytes / 6 * 5}),
      gate_(config),
      fleet_(std::move(engines), metrics_),
      session_header_(fleet_.config().session_header) {}

void RouterApi::Apply(RouterConfig engines) {
  {
    std::lock_guard lock(mutex_);
    session_header_ = engines.session_header;
  }
  fleet_.Apply(std::move(engines));
}

std::string RouterApi::SessionHeader() const {
  std::lock_guard lock(mutex_);
  return session_header_;
}

// Half of the memory is for what reading the largest body takes, a third for bodies and a sixth for
// connections (limits::ConnectionsIn).
size_t RouterApi::BodyBytesMax() const {
  return static_cast<size_t>(config_.memory_bytes / 2 / PrepareTimesBody());
}

int64_t RouterApi::PrepareTimesBody() const {
  return reader() == nullptr ? kReadTimesBody : limits::kPrepareTimesBody;
}

bool RouterApi::IsQuick(const HttpRequest& request) const {
  const OwnMatch own = MatchOwn(request);
  if (own.route != nullptr) return own.route->quick || !own.method;
  return reader() == nullptr ? request.body.size() <= kQuickBytes : request.body.empty();
}

bool RouterApi::IsProbe(std::string_view path) const {
  const OwnMatch own = MatchOwn({.method = "GET", .path = std::string(path)});
  return own.route != nullptr && own.route->probe;
}

HttpResponse RouterApi::Refuse(int status, std::string message) {
  metrics_.CountRejection();
  HttpResponse response = ErrorResponse({status, std::move(message)});
  response.close = true;
  return response;
}

Reply RouterApi::Respond(HttpRequest request, Wake) {
  const OwnMatch own = MatchOwn(request);
  const PathMatch match = own.route == nullptr ? MatchPath(request.path) : PathMatch{};
  const std::optional<Caller> caller = gate_.Find(request);
  Reply reply{.request_id = request.request_id.empty()
                                ? fmt::format("req-{:016x}", RandomBits(seed_, next_request_++))
                                : request.request_id,
              .headers = CorsHeaders(request, config_),
              .content = HttpResponse{}};
  Content content = Answer(request, own, match, caller, reply.request_id);
  if (content) {
    reply.content = *std::move(content);
  } else {
    metrics_.CountRejection();
    reply.content = ErrorResponse(content.error(), AnswersInAnthropicsForm(match.any()));
  }
  if (const auto* response = std::get_if<HttpResponse>(&reply.content)) {
    Log(request, response->status, reply.request_id, caller ? caller->name : "", -1);
  }
  return reply;
}

void RouterApi::Log(const HttpRequest& request, int status, const std::string& id,
                    const std::string& tenant, int64_t first_byte_us) const {
  if (config_.request_log == nullptr) return;
  config_.request_log->Add({.unix_seconds = UnixSeconds(),
                            .method = request.method,
                            .path = Printable(request.path),
                            .status = status,
                            .id = id,
                            .client_id = request.request_id,
                            .tenant = tenant,
                            .finish = {},
                            .first_token_us = first_byte_us,
                            .total_us = MonotonicUs() - request.received_us});
}

RouterApi::Content RouterApi::Answer(HttpRequest& request, const OwnMatch& own,
                                     const PathMatch& match, const std::optional<Caller>& caller,
                                     const std::string& id) {
  RETURN_IF_ERROR(CheckHost(request, config_));
  const bool preflight = request.method == "OPTIONS";
  if (!preflight) {
    const bool own_effect = own.route != nullptr && own.route->method != "GET";
    const Effect effect = own.route == nullptr ? EffectOf(request, match)
                          : own_effect         ? own.route->effect
                                               : Effect::kNone;
    RETURN_IF_ERROR(CheckOrigin(request, effect, config_));
  } else if (!request.origin.empty()) {
    return ReplyContent(AnswerPreflight(request, config_));
  }
  if (own.route != nullptr) {
    RETURN_IF_ERROR(gate_.Authorize(request, own.route->access, caller));
    if (own.method) return (this->*own.route->handler)(request, own.name);
    HttpResponse response =
        ErrorResponse({405, fmt::format("{} accepts {}, not {}", request.path, own.allow,
                                        Printable(request.method))});
    response.allow = own.allow;
    return ReplyContent(std::move(response));
  }
  const Access access = match.any() == nullptr ? Access::kKey : match.any()->access;
  ASSIGN_OR_RETURN(const Caller known, gate_.Authorize(request, access, caller));
  if (match.any() == nullptr) return NoSuchPath(request.path);
  const bool of_one = std::ranges::count(kOfOneEngine, request.path) > 0;
  if (of_one || access == Access::kAdmin) return NotPassedOn(request.path);
  const Route* route = match.Find(request.method);
  if (route == nullptr) return ReplyContent(WrongMethod(request, match));
  return PassOn(request, *route, match, known, id);
}

PromptKeys RouterApi::PromptOf(const HttpRequest& request, const Route& route,
                               const PathMatch& match, std::string_view tenant) const {
  PromptKeys prompt;
  if (route.body) {
    const std::string session(FieldValue(request.fields, SessionHeader()));
    prompt = ReadPromptKeys(route.body->endpoint, request.body,
                            {.tenant = tenant, .session = session}, reader());
  }
  if (route.path.starts_with("/v1/responses/")) prompt.stored_id = match.id;
  return prompt;
}

RouterApi::Content RouterApi::PassOn(HttpRequest& request, const Route& route,
                                     const PathMatch& match, const Caller& caller,
                                     const std::string& id) {
  RelayOrder order{.method = request.method,
                   .target = request.path,
                   .fields = FieldsForEngine(request.fields),
                   .request_id = id,
                   .received_us = request.received_us};
  if (!request.query.empty()) order.target += "?" + request.query;
  if (route.body) order.endpoint = route.body->endpoint;
  order.prompt = PromptOf(request, route, match, caller.name);
  if (order.prompt.generates) {
    if (draining_) return ApiError{503, "the server is shutting down", {}, "shutting_down"};
    Caller counted = caller;
    counted.tokens_per_minute = 0;  // the engines count tokens
    order.place = tenants_.Enter(counted, 0, MonotonicUs()).place;
    if (order.place == nullptr) {
      return ApiError{
          429,
          fmt::format("the key of {} has {} requests, its limit", caller.name, caller.requests_max),
          {},
          "rate_limit_exceeded"};
    }
  }
  order.body = std::move(request.body);
  HttpRequest logged{.method = request.method,
                     .path = request.path,
                     .request_id = request.request_id,
                     .received_us = request.received_us};
  auto report = [this, logged = std::move(logged), id,
                 tenant = caller.name](const RelayOutcome& outcome) {
    Log(logged, outcome.status, id, tenant, outcome.first_byte_us);
  };
  return ReplyContent(RelayPointer(new EngineRelay(fleet_, std::move(order), std::move(report))));
}

RouterApi::Content RouterApi::Health(const HttpRequest&, std::string_view) {
  return JsonResponse({{"status", "ok"}});
}

RouterApi::Content RouterApi::Ready(const HttpRequest&, std::string_view) {
  if (draining_) return ApiError{503, "shutting down", {}, "draining"};
  if (fleet_.AnyReady()) return JsonResponse({{"status", "ready"}});
  return ApiError{503, fmt::format("no engine is ready: {}", fleet_.WhyNone()), {}, "no_engine"};
}

RouterApi::Content RouterApi::Version(const HttpRequest&, std::string_view) {
  return JsonResponse({{"version", config_.version}});
}

RouterApi::Content RouterApi::Metrics(const HttpRequest&, std::string_view) {
  return ReplyContent(HttpResponse{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                                   .body = metrics_.Text()});
}

RouterApi::Content RouterApi::Engines(const HttpRequest&, std::string_view) {
  return JsonResponse(
      {{"object", "list"}, {"policy", NameOf(fleet_.config().policy)}, {"data", fleet_.Json()}});
}

RouterApi::Content RouterApi::ReloadFile(const HttpRequest&, std::string_view) {
  if (const Status status = reload_(); !status) return ToApiError(status.error());
  return JsonResponse({{"status", "ok"}});
}

RouterApi::Content RouterApi::Drain(const HttpRequest&, std::string_view name) {
  return SetEngineDraining(name, true);
}

RouterApi::Content RouterApi::Resume(const HttpRequest&, std::string_view name) {
  return SetEngineDraining(name, false);
}

RouterApi::Content RouterApi::Register(const HttpRequest& request, std::string_view name) {
  if (!fleet_.config().registration) {
    return ApiError{403,
                    "engines cannot register at this router: its configuration has no "
                    "\"registration\": true",
                    {},
                    "registration_off"};
  }
  if (request.body.size() > kRegistrationBytesMax) {
    return ApiError{413, fmt::format("a registration has at most {} bytes, got {}",
                                     kRegistrationBytesMax, request.body.size())};
  }
  const Result<Registration> registration = ParseRegistration(name, request.body);
  if (!registration) return ToApiError(registration.error());
  const Result<RegistrationLease> lease = fleet_.Register(*registration);
  if (!lease) return ApiError{409, lease.error().message, {}, "registration_refused"};
  return ReplyContent(HttpResponse{.body = EncodeLease(*lease)});
}

RouterApi::Content RouterApi::Choose(const HttpRequest& request, std::string_view path) {
  HttpRequest asked{.method = request.method, .path = fmt::format("/{}", path)};
  const PathMatch match = MatchPath(asked.path);
  if (match.any() == nullptr) return NoSuchPath(asked.path);
  const bool of_one = std::ranges::count(kOfOneEngine, asked.path) > 0;
  if (of_one || match.any()->access == Access::kAdmin) return NotPassedOn(asked.path);
  const Route* route = match.Find(request.method);
  if (route == nullptr) return ReplyContent(WrongMethod(asked, match));
  if (draining_) return ApiError{503, "the server is shutting down", {}, "shutting_down"};
  const std::optional<Caller> caller = gate_.Find(request);
  PromptKeys prompt = PromptOf(request, *route, match, caller ? caller->name : "");
  std::string subset(FieldValue(request.fields, kSubsetHeader));
  return ReplyContent(
      RelayPointer(new ChoiceAnswer(fleet_, std::move(prompt), std::move(subset))));
}

RouterApi::Content RouterApi::SetEngineDraining(std::string_view name, bool draining) {
  if (fleet_.SetDraining(name, draining)) return JsonResponse({{"status", "ok"}});
  return ApiError{404,
                  fmt::format("no engine is called {}; GET /engines lists them", Printable(name))};
}

}  // namespace braid
