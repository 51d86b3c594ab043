// `braid serve`: the HTTP server starts first and says 503 while the engine loads. The main thread
// waits for signals: the first drains, the second stops at once.
#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/quantities.h"
#include "base/system/file.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "cli/command/version.h"
#include "cli/terminal/signals.h"
#include "engine/generate.h"
#include "engine/output_queue.h"
#include "server/server.h"

namespace braid {

extern const std::string_view kPageHtml;  // web/dist/index.html, bundled by the build

namespace {

// "a,b" as its parts; empty ones do not count.
std::vector<std::string> SplitList(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// The default bound on the delay that a prompt causes to running answers.
constexpr int64_t kDecodeLatencyUs = 15'000;

class ServeCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    options_.scheduler.decode_latency_us = kDecodeLatencyUs;
    flags.Required("MODEL", options_.model_dir, "Directory of the checkpoint");
    flags.Text("--host", host_, "Address to listen on; :: for all addresses");
    flags.Number("--port", port_, {0, 65535}, "Port to listen on; 0: any free port");
    flags.Text("--served-model-name", name_, "Name in /v1/models (default: the directory's)");
    flags.Number("--drain-seconds", drain_seconds_, {0, 86400},
                 "Seconds that running requests may continue after SIGTERM");
    AddSchedulerFlags(flags, Offered::kServe, options_.scheduler);
    flags.Choice("--log-level", log_level_, {"debug", "info", "warning", "error", "off"},
                 "Lowest level that is logged to standard error");
    flags.Switch("--log-json", log_json_, "Log in JSON, one object per line");
    flags.Text("--api-key", api_key_, "Key that clients must send; it also allows administration");
    flags.Text("--api-key-file", api_key_file_,
               "JSON file of keys with names and limits; SIGHUP reloads it");
    flags.Text("--admin-api-key", admin_api_key_,
               "Key for administration; --api-key then no longer allows it");
    flags.Number("--admin-port", admin_port_, {0, 65535},
                 "Serve administration (abort, flush, pause) only on this port");
    flags.Text("--admin-host", admin_host_, "Address that --admin-port listens on");
    flags.Number("--login-failures", login_failures_, {0, 1 << 20},
                 "Wrong keys per second from one address before it is blocked; 0: no limit");
    flags.Text("--tls-cert", tls_certificate_,
               "PEM file with the certificate chain; turns on HTTPS; SIGHUP reloads it");
    flags.Text("--tls-key", tls_key_, "PEM file with the private key of --tls-cert");
    flags.Number("--queue-seconds", queue_seconds_, {1, 86400},
                 "Seconds that a request may wait in the queue");
    flags.Number("--request-seconds", request_seconds_, {1, 86400},
                 "Seconds that a request may take in total");
    flags.Bytes(
        "--stored-responses", responses_bytes_,
        "Memory for stored responses of /v1/responses, for all keys together; 0: store none");
    flags.Number("--watchdog-seconds", watchdog_seconds_, {1, 86400},
                 "/health reports an error when a step takes longer than this");
    flags.Text("--request-log", request_log_,
               "Log each request, without its text, to this file; -: standard output");
    flags.Choice("--metrics-compat", metrics_compat_, {"none", "vllm"},
                 "Also export metrics under the names of this server");
    flags.Text("--cors-origins", cors_origins_,
               "Origins whose web pages may use the API: https://a.example,… or *");
    flags.Text("--allowed-hosts", allowed_hosts_,
               "Host names accepted on a loopback address besides localhost: a.example,… or * for "
               "any");
    flags.Bytes("--server-memory", server_memory_,
                "Memory of the server besides --memory: bodies, parsing, tokenisation, stored "
                "responses (default: what the longest prompt needs plus 256 MiB of bodies)");
    flags.Text("--tool-parser", tool_parser_,
               "Format of the model's tool calls: auto (from its chat template), none, " +
                   ToolFormatNames());
    flags.Text(
        "--reasoning-parser", reasoning_parser_,
        "Format of the model's thinking: auto (from its chat template), " + ReasoningFormatNames());
    flags.Number("--grammar-cpu-ms", grammar_budget_.cpu_ms, {10, 60000},
                 "Most CPU time for compiling the grammar of a request");
    flags.Bytes("--grammar-memory", grammar_budget_.memory_bytes,
                "Most memory for compiling the grammar of a request");
    AddEngineFlags(flags, options_);
  }
  Status Run() override;

 private:
  void StartLog() const;
  std::string ModelName() const;
  Status SetKeys(Server& server) const;
  void ReadAgain(Server& server) const;
  ServerConfig ConfigOf() const;
  Status CheckParsers() const;
  Status CheckOrigins() const;
  void ChooseParsers(const ChatTemplate* chat, ModelCard* card) const;
  ServerContext ContextOf(Engine& engine) const;
  Status ServeUntilSignal(Engine& engine, Server& server, SignalQueue& signals);

  EngineOptions options_;
  GrammarBudget grammar_budget_;
  std::string host_ = "127.0.0.1";
  std::string name_;
  std::string log_level_ = "info";
  std::string api_key_;
  std::string api_key_file_;
  std::string admin_api_key_;
  std::string admin_host_ = "127.0.0.1";
  std::string tls_certificate_;
  std::string tls_key_;
  std::string request_log_;
  std::string metrics_compat_ = "none";
  std::string cors_origins_;
  std::string allowed_hosts_;
  std::string tool_parser_ = "auto";
  std::string reasoning_parser_ = "auto";
  int64_t server_memory_ = 0;
  int32_t port_ = 8000;
  int32_t drain_seconds_ = 30;
  std::optional<int32_t> admin_port_;
  int32_t login_failures_ = 10;
  int32_t queue_seconds_ = 60;
  int32_t request_seconds_ = 3600;
  int32_t watchdog_seconds_ = 300;
  int64_t responses_bytes_ = int64_t{64} << 20;
  bool log_json_ = false;
  std::unique_ptr<RequestLog> log_;
};

void ServeCommand::StartLog() const {
  constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};
  uint8_t level = 0;
  while (kNames[level] != log_level_) ++level;
  InitLog(static_cast<LogLevel>(level), log_json_);
}

std::string ServeCommand::ModelName() const {
  if (!name_.empty()) return name_;
  std::error_code error;
  const auto path = std::filesystem::weakly_canonical(options_.model_dir, error);
  const std::string last = error ? "" : path.filename().string();
  return last.empty() ? "model" : last;
}

Status ServeCommand::SetKeys(Server& server) const {
  std::vector<ApiKey> keys;
  if (!api_key_file_.empty()) {
    constexpr size_t kBytesMax = 4 << 20;
    ASSIGN_OR_RETURN(const std::string text, ReadFile(api_key_file_, kBytesMax));
    ASSIGN_OR_RETURN(keys, ParseApiKeys(text, api_key_file_));
  }
  const bool two = !admin_api_key_.empty();
  if (!api_key_.empty()) keys.push_back({.name = "default", .key = api_key_, .admin = !two});
  if (two) keys.push_back({.name = "admin", .key = admin_api_key_, .admin = true});
  server.SetKeys(std::move(keys));
  return {};
}

Status ServeCommand::CheckParsers() const {
  const bool tools =
      tool_parser_ == "auto" || tool_parser_ == "none" || FindToolFormat(tool_parser_) != nullptr;
  if (!tools) {
    return Error{ErrorCode::kInvalid, fmt::format("--tool-parser {}: must be auto, none, {}",
                                                  tool_parser_, ToolFormatNames())};
  }
  if (reasoning_parser_ != "auto" && !FindReasoningFormat(reasoning_parser_)) {
    return Error{ErrorCode::kInvalid, fmt::format("--reasoning-parser {}: must be auto, {}",
                                                  reasoning_parser_, ReasoningFormatNames())};
  }
  return {};
}

void ServeCommand::ChooseParsers(const ChatTemplate* chat, ModelCard* card) const {
  const std::string source = chat == nullptr ? std::string() : chat->Source();
  card->tools = tool_parser_ == "auto" ? DetectToolFormat(source) : FindToolFormat(tool_parser_);
  card->reasoning = reasoning_parser_ == "auto" ? DetectReasoningFormat(source)
                                                : *FindReasoningFormat(reasoning_parser_);
}

ServerContext ServeCommand::ContextOf(Engine& engine) const {
  ServerContext context{.driver = engine.driver(),
                        .tokenizer = engine.tokenizer(),
                        .chat = engine.chat_template(),
                        .grammars = engine.grammars(),
                        .card = {.name = ModelName(),
                                 .created = UnixSeconds(),
                                 .context_tokens_max = engine.limits().context_tokens_max,
                                 .vocabulary = engine.spec().vocabulary,
                                 .eos_tokens = engine.eos_tokens(),
                                 .defaults = engine.defaults(),
                                 .reasoning = ReasoningOf(engine)},
                        .load_seconds = engine.load_seconds(),
                        .server_information = engine.PlanObject()};
  for (const char* part : {"weight_bytes", "workspace_bytes", "cache_bytes"}) {
    context.engine_bytes += context.server_information.at(part).as_int64();
  }
  if (engine.experts() != nullptr) {
    static_assert(kExpertWindows == ExpertRecorder::kWindows);
    context.expert_balances = [&engine] { return engine.experts()->balances(); };
  }
  ChooseParsers(engine.chat_template(), &context.card);
  return context;
}

// Makes the allocator return large freed blocks to the kernel and keep few heaps, so that memory
// from a burst of requests does not stay resident.
void ReturnFreedMemory() {
  constexpr int kHeaps = 4, kLargeBytes = 256 << 10, kKeptBytes = 4 << 20;
  ::mallopt(M_ARENA_MAX, kHeaps);
  ::mallopt(M_MMAP_THRESHOLD, kLargeBytes);
  ::mallopt(M_TRIM_THRESHOLD, kKeptBytes);
}

// Runs one short request, so that every op chooses its implementation before real requests come.
Status WarmUp(Engine& engine) {
  Request request;
  request.prompt.assign(8, 0);
  request.stop.new_tokens_max = 2;
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  return RunRequests(engine.driver(), std::move(requests), 1, [](size_t, RequestResult) {});
}

// Reloads files on SIGHUP. A file that cannot be read leaves the previous version in use.
void ServeCommand::ReadAgain(Server& server) const {
  if (const Status status = SetKeys(server); status) {
    LogInfo("the API keys were read again");
  } else {
    LogError("the API keys stay as they were: {}", status.error().message);
  }
  if (const Status status = server.ReloadTls(); !status) {
    LogError("the certificate stays as it was: {}", status.error().message);
  }
  if (log_ != nullptr) log_->Reopen();
}

// An orderly stop waits for running work; this does not.
void EndSoon() {
  const auto kOrderly = std::chrono::milliseconds(700);
  std::thread([kOrderly] {
    std::this_thread::sleep_for(kOrderly);
    LogWarning("some work did not end in time; the process ends without it");
    std::_Exit(0);
  }).detach();
}

Status ServeCommand::ServeUntilSignal(Engine& engine, Server& server, SignalQueue& signals) {
  while (true) {
    const int signal = signals.Wait(-1);
    if (signal == SIGINT || signal == SIGTERM) break;
    if (signal != SIGHUP) continue;
    ReadAgain(server);
  }
  LogInfo("draining for up to {} s; a second signal stops at once", drain_seconds_);
  std::atomic<bool> drained{false};
  std::thread drain([&] {
    server.Drain(drain_seconds_);
    drained = true;
  });
  constexpr int kLookEveryMs = 50;
  bool stopped = false;
  while (!drained) {
    const int signal = signals.Wait(kLookEveryMs);
    if ((signal != SIGINT && signal != SIGTERM) || stopped) continue;
    LogInfo("stopping at once");
    stopped = true;
    EndSoon();
    engine.Stop(true);
    server.StopNow();
  }
  drain.join();
  engine.Stop(true);
  engine.Join();
  server.StopNow();
  LogInfo("stopped");
  return {};
}

ServerConfig ServeCommand::ConfigOf() const {
  ServerConfig config;
  config.http.host = host_;
  config.http.port = static_cast<uint16_t>(port_);
  config.http.admin_host = admin_host_;
  config.http.admin_port = admin_port_.value_or(-1);
  config.http.tls.certificate = tls_certificate_;
  config.http.tls.key = tls_key_;
  config.page_html = std::string(kPageHtml);
  config.version = kVersion;
  config.login_failures_per_second = login_failures_;
  config.queue_seconds_max = queue_seconds_;
  config.request_seconds_max = request_seconds_;
  config.step_seconds_max = watchdog_seconds_;
  config.responses_bytes_max = responses_bytes_;
  config.grammar_budget = grammar_budget_;
  config.vllm_metrics = metrics_compat_ == "vllm";
  config.request_log = log_.get();
  config.memory_bytes = server_memory_;
  config.cors_origins = SplitList(cors_origins_);
  config.allowed_hosts = SplitList(allowed_hosts_);
  return config;
}

// An origin that no browser sends would silently allow nothing.
Status ServeCommand::CheckOrigins() const {
  for (const std::string& origin : SplitList(cors_origins_)) {
    const size_t at = origin.find("://");
    const bool whole = at != std::string::npos && at > 0 && at + 3 < origin.size() &&
                       origin.find('/', at + 3) == std::string::npos;
    if (whole || origin == "*" || origin == "null") continue;
    return Error{ErrorCode::kInvalid,
                 fmt::format("--cors-origins {}: must be scheme://host[:port] without a path, as "
                             "browsers send it, or *",
                             origin)};
  }
  return {};
}

Status ServeCommand::Run() {
  RETURN_IF_ERROR(CheckParsers());
  RETURN_IF_ERROR(CheckOrigins());
  constexpr int64_t kGrammarBytesMin = int64_t{16} << 20;
  if (grammar_budget_.memory_bytes < kGrammarBytesMin) {
    return Error{ErrorCode::kInvalid, "--grammar-memory: must be at least 16M"};
  }
  options_.grammar_budget = grammar_budget_;
  StartLog();
  std::signal(SIGPIPE, SIG_IGN);
  SignalQueue signals{SIGINT, SIGTERM, SIGHUP};
  if (!request_log_.empty()) {
    ASSIGN_OR_RETURN(log_, RequestLog::Open(request_log_, log_json_));
  }
  ReturnFreedMemory();
  const ServerConfig config = ConfigOf();
  ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Start(config));
  RETURN_IF_ERROR(SetKeys(*server));
  const auto stage = [&](std::string what) {
    server->SetLoading(std::move(what));
    const int signal = signals.Wait(0);
    if (signal == SIGINT || signal == SIGTERM) std::_Exit(0);
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(options_, stage));
  fmt::print(stderr, "{}", engine->PlanText());
  fmt::print(stderr, "grammars: at most {} ms and {} to compile one, {} for all in use\n",
             grammar_budget_.cpu_ms, ByteText(grammar_budget_.memory_bytes),
             ByteText(GrammarLibraryOptions{}.bytes_max));
  if (options_.explain_ops) {
    RETURN_IF_ERROR(WarmUp(*engine));
    fmt::print(stderr, "{}", engine->ExplainOps());
  }
  const ServerContext context = ContextOf(*engine);
  const int64_t memory = ServerMemory(config, context.card.context_tokens_max);
  const int64_t least = LeastServerMemory(config, context.card.context_tokens_max);
  if (memory < least) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("--server-memory {} is too small: requests of this model need {}",
                             ByteText(memory), ByteText(least))};
  }
  fmt::print(stderr, "server {} beside that, {} in all\n", ByteText(memory),
             ByteText(memory + context.engine_bytes));
  server->SetReady(context);
  fmt::print("listening on {}\nchat page: {}/\n", server->url(), server->url());
  if (admin_port_) fmt::print("administration at port {}\n", server->admin_port());
  std::fflush(stdout);
  return ServeUntilSignal(*engine, *server, signals);
}

}  // namespace

CommandPointer MakeServeCommand() { return std::make_unique<ServeCommand>(); }

}  // namespace braid
