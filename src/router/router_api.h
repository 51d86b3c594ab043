// The API behind the router's HTTP server: its own routes, about itself and its engines, and those
// of the engines, which it passes on.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "router/engine_relay.h"
#include "router/fleet.h"
#include "router/prompts/prompt_reader.h"
#include "router/router_metrics.h"
#include "server/access/gate.h"
#include "server/http/types.h"
#include "server/request_log.h"
#include "server/routes/table.h"

namespace braid {

struct RouterServerConfig : AccessConfig {
  std::string version = "0.1.0";
  std::string file;                         // of RouterConfig; read again by a reload
  std::vector<ApiKey> keys = {};            // hold from the first connection on
  int64_t memory_bytes = 1 << 30;           // of requests: bodies, and reading them
  std::optional<PromptReader> reader = {};  // none: texts are known by their bytes
  RequestLog* request_log = nullptr;        // null: none; outlives the server
};

class RouterApi final : public HttpApi {
 public:
  // `config` must outlive the object; `reload` is called off the network thread.
  RouterApi(const RouterServerConfig& config, RouterConfig engines, std::function<Status()> reload);

  Fleet& fleet() { return fleet_; }  // network thread
  void SetKeys(std::vector<ApiKey> keys) { gate_.SetKeys(std::move(keys)); }
  void SetDraining() { draining_ = true; }
  // On the network thread.
  void Apply(RouterConfig engines);

  size_t BodyBytesMax() const override;
  int64_t PrepareTimesBody() const override;
  MemoryBudget& memory() override { return memory_; }
  bool IsQuick(const HttpRequest& request) const override;
  bool IsProbe(std::string_view path) const override;
  Reply Respond(HttpRequest request, Wake wake) override;
  HttpResponse Refuse(int status, std::string message) override;

 private:
  struct OwnRoute;
  struct OwnMatch {
    const OwnRoute* route = nullptr;  // null: it is none of the router's paths
    std::string_view name;            // what {name} stands for
    bool method = false;              // it has the request's method
    std::string allow = {};           // the methods of the path: "POST, GET"
  };
  using Content = Result<ReplyContent, ApiError>;
  static OwnMatch MatchOwn(const HttpRequest& request);

  Content Answer(HttpRequest& request, const OwnMatch& own, const PathMatch& match,
                 const std::optional<Caller>& caller, const std::string& id);
  Content PassOn(HttpRequest& request, const Route& route, const PathMatch& match,
                 const Caller& caller, const std::string& id);
  Content Health(const HttpRequest&, std::string_view);
  Content Ready(const HttpRequest&, std::string_view);
  Content Version(const HttpRequest&, std::string_view);
  Content Metrics(const HttpRequest&, std::string_view);
  Content Engines(const HttpRequest&, std::string_view);
  Content ReloadFile(const HttpRequest&, std::string_view);
  Content Drain(const HttpRequest&, std::string_view name);
  Content Resume(const HttpRequest&, std::string_view name);
  Content Register(const HttpRequest& request, std::string_view name);
  Content Choose(const HttpRequest& request, std::string_view path);
  PromptKeys PromptOf(const HttpRequest& request, const Route& route, const PathMatch& match,
                      std::string_view tenant) const;
  Content SetEngineDraining(std::string_view name, bool draining);
  std::string SessionHeader() const;
  const PromptReader* reader() const { return config_.reader ? &*config_.reader : nullptr; }
  void Log(const HttpRequest& request, int status, const std::string& id, const std::string& tenant,
           int64_t first_byte_us) const;

  const RouterServerConfig& config_;
  const std::function<Status()> reload_;
  const uint64_t seed_;
  MemoryBudget memory_;
  Gate gate_;
  TenantLoad tenants_;
  RouterMetrics metrics_;
  Fleet fleet_;
  std::atomic<uint64_t> next_request_{0};
  std::atomic<bool> draining_{false};
  mutable std::mutex mutex_;  // guards what follows
  std::string session_header_;
};

}  // namespace braid
