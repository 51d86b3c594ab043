// The API behind HttpApi: which path is served by what, in which state of the server.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "server/access/api_keys.h"
#include "server/access/login_guard.h"
#include "server/dialects/answer_format.h"
#include "server/http/types.h"
#include "server/route_table.h"
#include "server/service.h"
#include "server/serving/generation.h"

namespace braid {

class Router final : public HttpApi {
 public:
  // `config` must outlive the object.
  explicit Router(const ServerConfig& config);
  ~Router() override;

  void SetLoading(std::string reason);
  void SetReady(ServerContext context);
  void SetDraining() { draining_ = true; }
  // The library of grammars is not asked after this.
  void StopCompiling();
  void SetKeys(std::vector<ApiKey> keys) { keys_.Replace(std::move(keys)); }

  size_t BodyBytesMax() const override;
  MemoryBudget& memory() override { return memory_; }
  bool IsQuick(const HttpRequest& request) const override {
    return request.method == "OPTIONS" ||
           (request.method == "GET" && !request.path.starts_with("/v1/responses/"));
  }
  bool IsProbe(std::string_view path) const override {
    const GetRoute* get = FindGet(path);
    return get != nullptr && get->probe;
  }
  Reply Respond(HttpRequest request, Wake wake) override;
  HttpResponse Refuse(int status, std::string message) override;

 private:
  using Content = ReplyContent;

  Content Dispatch(const HttpRequest& request, Wake wake);
  ApiStatus CheckBrowser(const HttpRequest& request) const;
  std::optional<HttpResponse> CheckKey(const HttpRequest& request);
  void NoteResponse(const HttpRequest& request, const HttpResponse& response,
                    const std::string& id);
  HttpResponse Get(const GetRoute& route, const HttpRequest& request);
  HttpResponse Delete(const GetRoute& route, const HttpRequest& request);
  HttpResponse MetricsOf(Service& service) const;
  RunningBoard::Whose WhoseOf(const HttpRequest& request) const;
  HttpResponse Control(Route route, const HttpRequest& request);
  Content Post(const PostRoute& post, const HttpRequest& request, Wake wake);
  ApiError OverLimit(const ApiKey& tenant, const TenantLoad::Entry& entry) const;
  ApiStatus CheckWaiting(const Service& service, int64_t prompt_tokens) const;
  Content Generate(ApiRequest request, const HttpRequest& http, Wake wake);
  // What stays of a request while its grammar is compiled.
  struct Planned {
    GenerationOrigin origin;
    AnswerShape shape;
    ApiKey tenant;
    std::string address;  // of the client
    Wake wake;
  };
  Content CompileThenBegin(GenerationPlan plan, Planned planned, HttpRequest http);
  Content Begin(GenerationPlan plan, const Planned& planned);
  Content HealthGenerate(const HttpRequest& http, Wake wake);
  int32_t RetryAfter() const;
  HttpResponse Health() const;
  HttpResponse Ready() const;
  std::string LoadingReason() const;
  std::string NewRequestId();

  const ServerConfig& config_;
  const uint64_t seed_base_;
  MemoryBudget memory_;
  std::unique_ptr<Service> service_;
  ApiKeys keys_;
  LoginGuard logins_;
  std::atomic<Service*> ready_{nullptr};  // service_ once it may be used
  std::atomic<bool> draining_{false};
  std::atomic<uint64_t> next_request_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::string loading_reason_ = "starting";
};

}  // namespace braid
