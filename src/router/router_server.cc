// What concerns the engines runs on the HTTP server's thread.
#include "router/router_server.h"

#include <fmt/core.h>

#include <boost/asio/post.hpp>
#include <future>

#include "base/log.h"
#include "base/system/file.h"
#include "server/http/http_server.h"

namespace braid {
namespace {

constexpr size_t kFileBytesMax = 4 << 20;

Result<RouterConfig> ReadConfig(const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kFileBytesMax));
  return ParseRouterConfig(text, file);
}

}  // namespace

struct RouterServer::State {
  State(RouterServerConfig server_config, RouterConfig engines, std::function<Status()> reload)
      : config(std::move(server_config)), api(config, std::move(engines), std::move(reload)) {}

  // Runs a task on the network thread and waits for it.
  template <class Task>
  void OnNetworkThread(Task task) {
    std::promise<void> done;
    asio::post(http->executor(), [&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  const RouterServerConfig config;
  RouterApi api;
  std::unique_ptr<HttpServer> http;  // after the API: connections hold its relays
  std::mutex mutex;  // one reload at a time, none before the engines are asked or after the stop
  bool stopped = false;
};

RouterServer::RouterServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<RouterServer>> RouterServer::Start(RouterServerConfig config) {
  if (config.http.tls.certificate.empty() != config.http.tls.key.empty()) {
    return Error{ErrorCode::kInvalid, "--tls-cert and --tls-key belong together", "tls_key"};
  }
  ASSIGN_OR_RETURN(RouterConfig engines, ReadConfig(config.file));
  std::unique_ptr<RouterServer> server(new RouterServer(nullptr));
  RouterServer& self = *server;
  server->state_ = std::make_unique<State>(std::move(config), std::move(engines),
                                           [&self] { return self.Reload(); });
  State& state = *server->state_;
  state.api.SetKeys(state.config.keys);
  std::lock_guard lock(state.mutex);  // a request for a reload may come as soon as it listens
  ASSIGN_OR_RETURN(state.http, HttpServer::Start(state.config.http, state.api));
  state.OnNetworkThread([&] { state.api.fleet().Start(state.http->executor()); });
  return server;
}

RouterServer::~RouterServer() { StopNow(); }

uint16_t RouterServer::admin_port() const { return state_->http->admin_port(); }

std::string RouterServer::url() const { return UrlOf(state_->config.http, state_->http->port()); }

void RouterServer::SetKeys(std::vector<ApiKey> keys) { state_->api.SetKeys(std::move(keys)); }

Status RouterServer::ReloadTls() {
  if (state_->config.http.tls.certificate.empty()) return {};
  return state_->http->ReloadTls(state_->config.http);
}

Status RouterServer::Reload() {
  Result<RouterConfig> engines = ReadConfig(state_->config.file);
  if (!engines) {
    LogError("the engines stay as they were: {}", engines.error().message);
    return engines.error();
  }
  std::lock_guard lock(state_->mutex);
  if (state_->stopped) return Error{ErrorCode::kUnavailable, "the server is shutting down"};
  state_->OnNetworkThread([&] { state_->api.Apply(*std::move(engines)); });
  LogInfo("the engines were read again");
  return {};
}

void RouterServer::Drain(int32_t seconds) {
  state_->api.SetDraining();
  state_->http->Drain(seconds);
}

void RouterServer::StopNow() {
  if (!state_ || !state_->http) return;
  {
    std::lock_guard lock(state_->mutex);
    if (!std::exchange(state_->stopped, true)) {
      // Sockets must not outlive the network's thread.
      state_->OnNetworkThread([&] { state_->api.fleet().Close(); });
    }
  }
  state_->http->Stop();
}

}  // namespace braid
