// See the header. The engine's thread ends before the server's memory goes.
#include "cli/bench/local_server.h"

#include "base/clock.h"
#include "engine/generate.h"

namespace braid {

ServerContext ContextOf(Engine& engine, std::string model_name) {
  return {.driver = engine.driver(),
          .tokenizer = engine.tokenizer(),
          .chat = engine.chat_template(),
          .grammars = engine.grammars(),
          .card = {.name = std::move(model_name),
                   .created = UnixSeconds(),
                   .context_tokens_max = engine.limits().context_tokens_max,
                   .vocabulary = engine.spec().vocabulary,
                   .eos_tokens = engine.eos_tokens(),
                   .defaults = engine.defaults(),
                   .reasoning = ReasoningOf(engine)},
          .load_seconds = engine.load_seconds(),
          .server_information = engine.PlanObject()};
}

Result<std::unique_ptr<LocalServer>> LocalServer::Start(const EngineOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Load(options));
  ServerConfig config;
  config.http.port = 0;
  ASSIGN_OR_RETURN(std::unique_ptr<Server> server, Server::Start(std::move(config)));
  server->SetReady(ContextOf(*engine, "model"));
  return std::unique_ptr<LocalServer>(new LocalServer(std::move(engine), std::move(server)));
}

LocalServer::~LocalServer() {
  server_->StopNow();
  engine_->Stop(true);
  engine_->Join();
}

}  // namespace braid
