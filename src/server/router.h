// The API behind HttpApi: which path is served by what, in which state of the server.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "server/api_keys.h"
#include "server/http_types.h"
#include "server/service.h"

namespace braid {

class Router final : public HttpApi {
 public:
  // `config` must outlive the object.
  explicit Router(const ServerConfig& config);
  ~Router() override;

  void SetLoading(std::string reason);
  void SetReady(ServerContext context);
  void SetDraining() { draining_ = true; }
  void SetKeys(std::vector<ApiKey> keys) { keys_.Replace(std::move(keys)); }

  size_t BodyBytesMax() const override;
  bool IsQuick(const HttpRequest& request) const override { return request.method == "GET"; }
  Reply Respond(HttpRequest request, Wake wake) override;
  HttpResponse Refuse(int status, std::string message) override;

 private:
  using Content = std::variant<HttpResponse, std::unique_ptr<Answer>>;

  Content Dispatch(const HttpRequest& request, Wake wake);
  std::string CorsHeaders(const HttpRequest& request) const;
  std::optional<HttpResponse> CheckKey(const HttpRequest& request) const;
  HttpResponse Get(const HttpRequest& request);
  HttpResponse Flush();
  Content Post(Route route, const HttpRequest& request, Wake wake);
  Content Generate(ApiRequest request, const HttpRequest& http, Wake wake);
  Content HealthGenerate(const HttpRequest& http, Wake wake);
  int32_t RetryAfter() const;
  HttpResponse Health() const;
  HttpResponse Ready() const;
  std::string LoadingReason() const;
  void WarnOfUnknown(const std::vector<std::string>& fields, const std::string& path);
  std::string NewRequestId();

  const ServerConfig& config_;
  const uint64_t seed_base_;
  std::unique_ptr<Service> service_;
  ApiKeys keys_;
  std::atomic<Service*> ready_{nullptr};  // service_ once it may be used
  std::atomic<bool> draining_{false};
  std::atomic<uint64_t> next_request_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::string loading_reason_ = "starting";
  std::set<std::string> warned_;
};

}  // namespace braid
