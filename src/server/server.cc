// Connects the router (the API) with the HTTP server (the network).
#include "server/server.h"

#include <fmt/core.h>

#include "base/check.h"
#include "server/http/http_server.h"
#include "server/router.h"

namespace braid {
namespace {

Status CheckConfig(const ServerConfig& config) {
  auto positive = [](int64_t value, const char* field) -> Status {
    if (value >= 1) return {};
    return Error{ErrorCode::kInvalid, fmt::format("{} is {}, must be at least 1", field, value),
                 field};
  };
  RETURN_IF_ERROR(positive(config.http.connections_max, "connections_max"));
  RETURN_IF_ERROR(positive(config.http.connections_per_address_max, "connections_per_address_max"));
  RETURN_IF_ERROR(positive(config.http.header_seconds_max, "header_seconds_max"));
  RETURN_IF_ERROR(positive(config.http.body_seconds_base, "body_seconds_base"));
  RETURN_IF_ERROR(positive(config.http.idle_seconds_max, "idle_seconds_max"));
  RETURN_IF_ERROR(positive(config.http.write_seconds_max, "write_seconds_max"));
  RETURN_IF_ERROR(positive(config.http.heartbeat_seconds, "heartbeat_seconds"));
  RETURN_IF_ERROR(positive(config.request_seconds_max, "request_seconds_max"));
  RETURN_IF_ERROR(positive(config.queue_seconds_max, "queue_seconds_max"));
  RETURN_IF_ERROR(positive(config.http.prepare_threads, "prepare_threads"));
  if (config.http.tls.certificate.empty() != config.http.tls.key.empty()) {
    return Error{ErrorCode::kInvalid, "--tls-cert and --tls-key belong together", "tls_key"};
  }
  return {};
}

}  // namespace

int64_t ServerMemory(const ServerConfig& config, int64_t context_tokens_max) {
  return config.memory_bytes > 0
             ? config.memory_bytes
             : limits::DefaultServerMemory(context_tokens_max) + config.responses_bytes_max;
}

int64_t RequestMemory(const ServerConfig& config, int64_t context_tokens_max) {
  const int64_t prepare = limits::PrepareBytes(context_tokens_max);
  const int64_t shared = ServerMemory(config, context_tokens_max) - limits::kProcessBytes -
                         config.responses_bytes_max - prepare;
  return prepare + shared - shared / 3;
}

int64_t LeastServerMemory(const ServerConfig& config, int64_t context_tokens_max) {
  return limits::kProcessBytes + config.responses_bytes_max +
         limits::PrepareBytes(context_tokens_max) +
         static_cast<int64_t>(limits::BodyBytesMax(context_tokens_max)) / 2 * 3;
}

struct Server::State {
  explicit State(ServerConfig server_config) : config(std::move(server_config)), router(config) {}

  const ServerConfig config;
  Router router;
  std::unique_ptr<HttpServer> http;  // after the router: connections hold its answers
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<Server>> Server::Start(ServerConfig config) {
  RETURN_IF_ERROR(CheckConfig(config));
  auto state = std::make_unique<State>(std::move(config));
  ASSIGN_OR_RETURN(state->http, HttpServer::Start(state->config.http, state->router));
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

Server::~Server() { StopNow(); }

uint16_t Server::port() const { return state_->http->port(); }

std::string Server::url() const { return UrlOf(state_->config.http, port()); }

uint16_t Server::admin_port() const { return state_->http->admin_port(); }

Status Server::ReloadTls() {
  if (state_->config.http.tls.certificate.empty()) return {};
  return state_->http->ReloadTls(state_->config.http);
}

void Server::SetKeys(std::vector<ApiKey> keys) { state_->router.SetKeys(std::move(keys)); }

void Server::SetLoading(std::string reason) { state_->router.SetLoading(std::move(reason)); }

void Server::SetReady(ServerContext context) {
  CHECK(context.card.context_tokens_max > 0 && context.card.vocabulary > 0);
  state_->router.SetReady(std::move(context));
}

void Server::Drain(int32_t seconds) {
  state_->router.SetDraining();
  state_->http->Drain(seconds);
}

void Server::StopNow() {
  state_->http->Stop();
  state_->router.StopCompiling();
}

}  // namespace braid
