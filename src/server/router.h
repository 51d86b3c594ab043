// The API behind HttpApi: finds a request's route and its caller, checks that the one may call the
// other, reads the body and calls the route's handler.
#pragma once

#include <memory>
#include <string>

#include "server/http/types.h"
#include "server/routes/table.h"
#include "server/server_state.h"

namespace braid {

class Router final : public HttpApi {
 public:
  // `config` must outlive the object.
  explicit Router(const ServerConfig& config) : state_(config) {}

  void SetLoading(std::string reason) { state_.SetLoading(std::move(reason)); }
  void SetReady(ServerContext context);
  void SetDraining() { state_.draining = true; }
  // Ends the threads that compile grammars.
  void StopCompiling();
  void SetKeys(std::vector<ApiKey> keys) { state_.gate.SetKeys(std::move(keys)); }

  size_t BodyBytesMax() const override { return state_.BodyBytesMax(); }
  MemoryBudget& memory() override { return state_.memory; }
  bool IsQuick(const HttpRequest& request) const override;
  bool IsProbe(std::string_view path) const override;
  Reply Respond(HttpRequest request, Wake wake) override;
  HttpResponse Refuse(int status, std::string message) override;

 private:
  RouteAnswer Answer(const HttpRequest& request, const PathMatch& match,
                     const std::optional<Caller>& caller, Wake wake);
  ApiStatus ReadBody(RouteCall& call) const;

  ServerState state_;
  std::unique_ptr<Service> service_;
};

}  // namespace braid
