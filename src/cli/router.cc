// `braid router`: one address for several engines. The main thread waits for signals, as `serve`.
#include <fmt/core.h>
#include <unistd.h>

#include <csignal>

#include "base/log.h"
#include "cli/command/access_flags.h"
#include "cli/command/command_factories.h"
#include "cli/command/version.h"
#include "engine/model_text.h"
#include "router/router_server.h"

namespace braid {
namespace {

constexpr int32_t kPort = 8080;

class RouterCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("CONFIG", file_, "JSON file with the engines; SIGHUP reloads it");
    access_.AddTo(flags);
    flags.Text("--tokenizer", tokenizer_,
               "The engines' model, whose tokenizer and chat template are used: texts are then "
               "known by their tokens, as engines' KV events name them");
    flags.Bytes("--server-memory", memory_, "Memory for requests: their bodies, and reading them");
  }
  Status Run() override;

 private:
  Status SetKeys(RouterServer& server) const;
  void ReadAgain(RouterServer& server) const;

  AccessFlags access_{kPort};
  std::string file_, tokenizer_;
  int64_t memory_ = int64_t{1} << 30;
};

Status RouterCommand::SetKeys(RouterServer& server) const {
  ASSIGN_OR_RETURN(std::vector<ApiKey> keys, access_.ReadKeys());
  server.SetKeys(std::move(keys));
  return {};
}

// A file that cannot be read leaves the previous version in use.
void RouterCommand::ReadAgain(RouterServer& server) const {
  access_.ReadAgain([&] { return SetKeys(server); }, [&] { return server.ReloadTls(); });
  // It logs what is wrong with the file.
  const Status engines = server.Reload();
  (void)engines.ok();
}

Status RouterCommand::Run() {
  constexpr int64_t kMemoryMin = int64_t{64} << 20;
  if (memory_ < kMemoryMin) {
    return Error{ErrorCode::kInvalid, "--server-memory: must be at least 64M"};
  }
  RouterServerConfig config;
  RETURN_IF_ERROR(access_.Fill(config));
  std::signal(SIGPIPE, SIG_IGN);
  SignalQueue signals{SIGINT, SIGTERM, SIGHUP};
  RETURN_IF_ERROR(access_.Start());
  config.version = kVersion;
  config.file = file_;
  config.memory_bytes = memory_;
  config.request_log = access_.request_log();
  if (!tokenizer_.empty()) {
    ASSIGN_OR_RETURN(ModelText text, ReadModelText(tokenizer_));
    if (!text.tokenizer) {
      return Error{ErrorCode::kInvalid, tokenizer_ + " has no tokenizer", "--tokenizer"};
    }
    config.reader.emplace(*std::move(text.tokenizer), std::move(text.chat));
  }
  ASSIGN_OR_RETURN(config.keys, access_.ReadKeys());
  ASSIGN_OR_RETURN(const std::unique_ptr<RouterServer> server,
                   RouterServer::Start(std::move(config)));
  std::string begun = fmt::format("listening on {}\n", server->url());
  if (access_.has_admin_port()) {
    begun += fmt::format("administration at port {}\n", server->admin_port());
  }
  Announce(STDOUT_FILENO, begun);
  if (!access_.has_keys()) {
    LogInfo(
        "no keys here: engines check them and count wrong ones of all clients against this "
        "router's address; give the router the engines' --api-key-file, or start them with "
        "--login-failures 0");
  }
  access_.WaitForStop(signals, [&] { ReadAgain(*server); });
  access_.Drain(
      signals, [&](int32_t seconds) { server->Drain(seconds); }, [&] { server->StopNow(); });
  LogInfo("stopped");
  return {};
}

}  // namespace

CommandPointer MakeRouterCommand() { return std::make_unique<RouterCommand>(); }

}  // namespace braid
