// Checks in this order: Host and Origin, the key, the method, the body.
#include "server/router.h"

#include <fmt/core.h>

#include <algorithm>

#include "server/http/framing.h"
#include "server/serving/prepare.h"

namespace braid {
namespace {

// "application/json; charset=utf-8" is JSON in letters of either case, and so is a body without a
// type.
bool IsJson(std::string_view content_type) {
  constexpr std::string_view kApplication = "application/", kJson = "+json";
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  if (content_type.empty() || EqualsIgnoringCase(type, "application/json")) return true;
  return type.size() >= kApplication.size() + kJson.size() &&
         EqualsIgnoringCase(type.substr(0, kApplication.size()), kApplication) &&
         EqualsIgnoringCase(type.substr(type.size() - kJson.size()), kJson);
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
  service_->memory = &state_.memory;
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
  const std::optional<Caller> caller = state_.gate.Find(request);
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

RouteAnswer Router::Answer(const HttpRequest& request, const PathMatch& match,
                           const std::optional<Caller>& caller, Wake wake) {
  RETURN_IF_ERROR(CheckHost(request, state_.config));
  const bool preflight = request.method == "OPTIONS";
  if (!preflight) {
    RETURN_IF_ERROR(CheckOrigin(request, EffectOf(request, match), state_.config));
  } else if (!request.origin.empty()) {
    return ReplyContent(AnswerPreflight(request, state_.config));
  }
  // Unknown paths need a key too, so that nobody learns without one which paths exist.
  const Access access = match.any() == nullptr ? Access::kKey : match.any()->access;
  ASSIGN_OR_RETURN(const Caller known, state_.gate.Authorize(request, access, caller));
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
  if (reads && !call.http.content_encoding.empty() &&
      !EqualsIgnoringCase(call.http.content_encoding, "identity")) {
    return ApiError{415, "Content-Encoding must be identity"};
  }
  if (call.ready == nullptr && !call.route.before_ready) return state_.Loading();
  if (!reads) return {};
  RequestLimits bounds = call.service().limits();
  if (body->endpoint == kResponses) {
    bounds.responses = {.store = &call.service().responses,
                        .key = call.caller.name,
                        .bytes_max = BodyBytesMax(),
                        .memory = &call.server.memory};
  }
  ASSIGN_OR_RETURN(call.body, ParseApiRequest(body->endpoint, call.http.body, bounds));
  return CheckModel(call.service().context.card, call.body.model);
}

}  // namespace braid
