// A server of this process: what `braid serve` offers, on a free port, for commands that measure
// through HTTP.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"
#include "server/server.h"

namespace braid {

// What a server needs to know of an engine.
ServerContext ContextOf(Engine& engine, std::string model_name);

class LocalServer {
 public:
  // Loads the model and serves it at 127.0.0.1; ready on return.
  static Result<std::unique_ptr<LocalServer>> Start(const EngineOptions& options);
  ~LocalServer();  // ends what still runs

  std::string base_url() const { return server_->url() + "/v1"; }
  Engine& engine() { return *engine_; }

 private:
  LocalServer(std::unique_ptr<Engine> engine, std::unique_ptr<Server> server)
      : engine_(std::move(engine)), server_(std::move(server)) {}

  std::unique_ptr<Engine> engine_;  // before the server, which asks its driver
  std::unique_ptr<Server> server_;
};

}  // namespace braid
