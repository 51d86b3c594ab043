// Checks in this order: Host and Origin, the key, the method, the body.
#include "server/router.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"
#include "server/access/browser_guard.h"
#include "server/http/framing.h"
#include "server/serving/prepare.h"

namespace braid {
namespace {

// "application/json; charset=utf-8" is JSON, and so is a body without a type.
bool IsJson(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  return content_type.empty() || type == "application/json" ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

ApiError NoSuchPath(const std::string& path) {
  const std::string shown = Printable(path);
  if (const std::string_view part = AbsentPart(path); !part.empty()) {
    return {404,
            fmt::format("not supported: {} ({}); GET /openapi.json lists the paths", part, shown),
            {},
            "not_supported"};
  }
  if (MatchPath("/v1" + path).any() != nullptr) {
    return {404, fmt::format("no such path: {}; use /v1{}", shown, shown)};
  }
  return {404, fmt::format("no such path: {}", shown)};
}

HttpResponse WrongMethod(const HttpRequest& request, const PathMatch& match) {
  std::string allowed;
  for (size_t i = 0; i < kMethodNames.size(); ++i) {
    if (match.by_method[i] == nullptr) continue;
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", kMethodNames[i]);
  }
  HttpResponse response = ErrorResponse({405, fmt::format("{} accepts {}, not {}", request.path,
                                                          allowed, Printable(request.method))});
  response.allow = std::move(allowed);
  return response;
}

bool AnswersInAnthropicsForm(const Route* route) {
  return route != nullptr && route->body && IsAnthropic(route->body->endpoint);
}

// What a page of another origin could cause with a request.
Effect EffectOf(const HttpRequest& request, const PathMatch& match) {
  const Route* any = match.any();
  if (any != nullptr && any->access == Access::kAdmin) return Effect::kAdministers;
  const Route* route = match.Find(request.method);
  const bool safe = request.method == "GET" && (route == nullptr || !route->generates);
  return safe ? Effect::kNone : Effect::kGenerates;
}

}  // namespace

void Router::SetReady(ServerContext context) {
  const ServerConfig& config = state_.config;
  const int32_t tokens = context.card.context_tokens_max;
  const int64_t process =
      context.engine_bytes == 0 ? 0 : context.engine_bytes + ServerMemory(config, tokens);
  state_.memory.SetLimits(
      {.server_bytes = RequestMemory(config, tokens), .process_bytes = process});
  service_ = std::make_unique<Service>(config, std::move(context), state_.seed_base);
  state_.ready.store(service_.get());
}

void Router::StopCompiling() {
  Service* service = state_.ready.load();
  if (service != nullptr && service->compiles != nullptr) service->compiles->Stop();
}

bool Router::IsQuick(const HttpRequest& request) const {
  if (request.method == "OPTIONS") return true;
  if (request.method != "GET") return false;
  const Route* route = MatchPath(request.path).Find("GET");
  return route == nullptr || !route->prepared;
}

bool Router::IsProbe(std::string_view path) const {
  const Route* route = MatchPath(path).Find("GET");
  return route != nullptr && route->probe;
}

HttpResponse Router::Refuse(int status, std::string message) {
  if (Service* service = state_.ready.load()) service->metrics.CountRejection(status);
  HttpResponse response = ErrorResponse({status, std::move(message)});
  response.close = true;
  return response;
}

Reply Router::Respond(HttpRequest request, Wake wake) {
  const PathMatch match = MatchPath(request.path);
  const std::optional<Caller> caller = state_.keys.Find(PresentedKey(request));
  Reply reply{.request_id = request.request_id.empty() ? state_.NewRequestId() : request.request_id,
              .headers = CorsHeaders(request, state_.config),
              .content = HttpResponse{}};
  RouteAnswer content = Answer(request, match, caller, std::move(wake));
  if (content) {
    reply.content = *std::move(content);
  } else {
    reply.content = ErrorResponse(content.error(), AnswersInAnthropicsForm(match.any()));
  }
  if (auto* response = std::get_if<HttpResponse>(&reply.content)) {
    state_.NoteResponse(request, *response, reply.request_id, caller ? caller->name : "");
  }
  return reply;
}

// Admin routes need a caller's key to be an admin's, and the listener for administration if there
// is one.
ApiStatus Router::CheckAdmin(const HttpRequest& request, const Caller& caller) const {
  if (state_.config.http.admin_port >= 0 && !request.peer.admin_listener) {
    return ApiError{404, fmt::format("{} is served on the admin port only", request.path)};
  }
  // Without keys every caller is an admin; one at a loopback address has an account here.
  if (state_.keys.empty() && !request.peer.admin_listener && !request.peer.loopback_listener) {
    return ApiError{403,
                    fmt::format("{} needs a key at an address that is not loopback; start "
                                "the server with --admin-api-key, or with --admin-port",
                                request.path),
                    {},
                    "admin_key_required"};
  }
  if (caller.admin) return {};
  return ApiError{
      403, fmt::format("{} needs an admin's key", request.path), {}, "admin_key_required"};
}

// Unknown paths need a key too, so that nobody learns without one which paths exist.
Result<Caller, ApiError> Router::Authorize(const HttpRequest& request, const Route* route,
                                           const std::optional<Caller>& caller) {
  if (route != nullptr && route->access == Access::kPublic) return caller.value_or(Caller{});
  const int64_t now_us = MonotonicUs();
  if (!state_.logins.Allows(request.peer.address, caller ? caller->name : "", now_us)) {
    return ApiError{429, "too many wrong API keys from this address", {}, "too_many_logins"};
  }
  if (!caller) {
    if (!PresentedKey(request).empty()) state_.logins.Failed(request.peer.address, now_us);
    return ApiError{401,
                    "the API key is missing or wrong; send it as Authorization: Bearer KEY",
                    {},
                    "invalid_api_key"};
  }
  state_.logins.Succeeded(request.peer.address, caller->name);
  if (route != nullptr && route->access == Access::kAdmin) {
    RETURN_IF_ERROR(CheckAdmin(request, *caller));
  }
  return *caller;
}

RouteAnswer Router::Answer(const HttpRequest& request, const PathMatch& match,
                           const std::optional<Caller>& caller, Wake wake) {
  RETURN_IF_ERROR(CheckHost(request, state_.config));
  const bool preflight = request.method == "OPTIONS";
  if (!preflight) {
    RETURN_IF_ERROR(CheckOrigin(request, EffectOf(request, match), state_.config));
  } else if (!request.origin.empty()) {
    return ReplyContent(AnswerPreflight(request, state_.config));
  }
  ASSIGN_OR_RETURN(const Caller known, Authorize(request, match.any(), caller));
  if (match.any() == nullptr) return NoSuchPath(request.path);
  const Route* route = match.Find(request.method);
  if (route == nullptr) return ReplyContent(WrongMethod(request, match));
  RouteCall call{.server = state_,
                 .ready = state_.ready.load(),
                 .route = *route,
                 .http = request,
                 .caller = known,
                 .id = std::string(match.id),
                 .wake = std::move(wake)};
  RETURN_IF_ERROR(ReadBody(call));
  return route->handler(call);
}

// Checks and parses the body if the route takes one, and that the model is ready if it is needed.
ApiStatus Router::ReadBody(RouteCall& call) const {
  const std::optional<RouteBody>& body = call.route.body;
  const bool reads = body && !(body->optional && call.http.body.empty());
  if (reads && !IsJson(call.http.content_type)) {
    return ApiError{415, fmt::format("Content-Type must be application/json, got {}",
                                     Printable(call.http.content_type))};
  }
  if (reads && !call.http.content_encoding.empty() && call.http.content_encoding != "identity") {
    return ApiError{415, "Content-Encoding must be identity"};
  }
  if (call.ready == nullptr && !call.route.before_ready) return state_.Loading();
  if (!reads) return {};
  RequestLimits bounds = call.service().limits();
  if (body->endpoint == kResponses) {
    bounds.responses = {
        .store = &call.service().responses, .key = call.caller.name, .bytes_max = BodyBytesMax()};
  }
  ASSIGN_OR_RETURN(call.body, ParseApiRequest(body->endpoint, call.http.body, bounds));
  return CheckModel(call.service().context.card, call.body.model);
}

}  // namespace braid
