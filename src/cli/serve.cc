// `braid serve`: the HTTP server starts first and says 503 while the engine loads. The main thread
// waits for signals: the first drains, the second stops at once.
#include <fmt/core.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/quantities.h"
#include "base/system/file.h"
#include "cli/command/access_flags.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "cli/command/register_flags.h"
#include "cli/command/version.h"
#include "cli/terminal/signals.h"
#include "engine/engine_ranks.h"
#include "engine/generate.h"
#include "engine/output_queue.h"
#include "server/server.h"

namespace braid {

extern const std::string_view kPageHtml;  // web/dist/index.html, bundled by the build

namespace {

// The default bound on the delay that a prompt causes to running answers.
constexpr int64_t kDecodeLatencyUs = 12'000;

class ServeCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    options_.scheduler.decode_latency_us = kDecodeLatencyUs;
    flags.Required("MODEL", options_.model_dir, "Directory of the checkpoint");
    flags.Text("--served-model-name", name_, "Name in /v1/models (default: the directory's)");
    access_.AddTo(flags);
    AddSchedulerFlags(flags, Offered::kServe, options_.scheduler);
    flags.Number("--queue-seconds", queue_seconds_, {1, 86400},
                 "Seconds that a request may wait in the queue");
    flags.Number("--request-seconds", request_seconds_, {1, 86400},
                 "Seconds that a request may take in total");
    flags.Bytes(
        "--stored-responses", responses_bytes_,
        "Memory for stored responses of /v1/responses, for all keys together; 0: store none");
    flags.Number("--watchdog-seconds", watchdog_seconds_, {1, 86400},
                 "/health reports an error when a step takes longer than this");
    flags.Choice("--metrics-compat", metrics_compat_, {"none", "vllm"},
                 "Also export metrics under the names of this server");
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
    flags.Choice("--role", role_, {"both", "prefill", "decode"},
                 "What of requests this engine computes: all; prompts, for decode engines; or "
                 "answers to prompts that prefill engines compute (docs/guides/disaggregation.md)");
    flags.Text("--handoff-listen", handoff_listen_,
               "With --role prefill: HOST:PORT at which decode engines come for pages");
    flags.Text("--prefill", prefills_,
               "With --role decode: the --handoff-listen of prefill engines, HOST:PORT,…");
    flags.NonEmpty("--handoff-key-file", handoff_key_file_,
                   "File with the secret that partners must share, or several, one a line; needed "
                   "to listen on other than a loopback address; SIGHUP reloads it");
    flags.Number("--handoff-seconds", handoff_seconds_, {1, 86400},
                 "A prompt whose pages have not come after so long is computed here");
    register_.AddTo(flags);
    flags.Text("--kv-events", options_.kv_events.bind,
               "Publish which prefixes can be resumed here, for gateways: tcp://HOST:PORT or "
               "tcp://*:PORT to listen at (docs/guides/kv_events.md)");
    flags.Text("--kv-events-connect", options_.kv_events.connect,
               "The same to a gateway that listens at this tcp://HOST:PORT");
    flags.Text("--kv-events-replay", options_.kv_events.replay,
               "tcp://HOST:PORT at which gateways ask for events that they missed");
    flags.Text("--kv-events-topic", options_.kv_events.topic, "Name of this engine's events");
    AddEngineFlags(flags, options_);
  }
  Status Run() override;

 private:
  std::string ModelName() const;
  Status SetKeys(Server& server) const;
  Result<ServerConfig> ConfigOf() const;
  Status CheckParsers() const;
  Result<std::vector<std::string>> ReadPartnerKeys() const;
  void ReadPartnerKeysAgain(Engine& engine) const;
  Status FindPartners();
  void ChooseParsers(const ChatTemplate* chat, ModelCard* card) const;
  ServerContext ContextOf(Engine& engine) const;
  void Register(const Engine& engine, const Server& server, const ServerConfig& config);
  std::string PlacesOf(const Engine& engine, const Server& server) const;
  Status ServeUntilSignal(Engine& engine, Server& server, SignalQueue& signals);

  EngineOptions options_;
  GrammarBudget grammar_budget_;
  AccessFlags access_{8000};
  RegisterFlags register_;
  bool reloads_first_ = false;  // SIGHUP came while the model was loaded
  std::unique_ptr<Announcer> announcer_;  // null: it does not register
  std::string name_;
  std::string metrics_compat_ = "none";
  std::string tool_parser_ = "auto";
  std::string reasoning_parser_ = "auto";
  int64_t server_memory_ = 0;
  int32_t queue_seconds_ = 60;
  int32_t request_seconds_ = 3600;
  int32_t watchdog_seconds_ = 300;
  int64_t responses_bytes_ = int64_t{64} << 20;
  std::string role_ = "both", handoff_listen_, prefills_, handoff_key_file_;
  int32_t handoff_seconds_ = 300;
};

Result<std::vector<std::string>> ServeCommand::ReadPartnerKeys() const {
  constexpr size_t kBytesMax = 4096;
  ASSIGN_OR_RETURN(const std::string text, ReadFile(handoff_key_file_, kBytesMax));
  auto keys = handoff::KeysIn(text);
  if (keys) return keys;
  return Error{ErrorCode::kInvalid,
               fmt::format("--handoff-key-file {}: {}", handoff_key_file_, keys.error().message),
               "handoff-key-file"};
}

void ServeCommand::ReadPartnerKeysAgain(Engine& engine) const {
  if (handoff_key_file_.empty() || engine.partners() == nullptr) return;
  if (auto keys = ReadPartnerKeys()) {
    engine.partners()->SetKeys(*std::move(keys));
    LogInfo("the partners' secrets were read again");
  } else {
    LogError("the partners' secrets stay as they were: {}", keys.error().message);
  }
}

// What the flags say of partners.
Status ServeCommand::FindPartners() {
  const auto bad = [](std::string message) { return Error{ErrorCode::kInvalid, message, "role"}; };
  if ((role_ == "prefill") == handoff_listen_.empty()) {
    return bad("--role prefill and --handoff-listen HOST:PORT go together");
  }
  // Routers name prefill engines to decode engines.
  const bool found = !prefills_.empty() || (role_ == "decode" && register_.used());
  if ((role_ == "decode") != found) {
    return bad(
        "--role decode and --prefill HOST:PORT,… go together; with --register "
        "routers may name the prefill engines");
  }
  if (role_ == "both") return {};
  handoff::PartnerOptions& partners = options_.partners.emplace();
  partners.side = role_ == "prefill" ? handoff::Side::kPrefill : handoff::Side::kDecode;
  partners.decode.room_us = partners.prefill.room_us = int64_t{handoff_seconds_} * 1'000'000;
  for (const std::string& text : SplitList(prefills_)) {
    ASSIGN_OR_RETURN(handoff::HostPort at, handoff::ParseHostPort(text));
    partners.prefills.push_back(std::move(at));
  }
  if (!handoff_key_file_.empty()) {
    ASSIGN_OR_RETURN(partners.keys, ReadPartnerKeys());
  }
  if (role_ == "decode") return {};
  ASSIGN_OR_RETURN(partners.listen, handoff::ParseHostPort(handoff_listen_));
  const std::string& host = partners.listen.host;
  const bool loopback = host == "localhost" || host == "::1" || host.starts_with("127.");
  if (!loopback && handoff_key_file_.empty()) {
    return bad(
        fmt::format("--handoff-listen {}: everybody who reaches it could read prompts' "
                    "pages; give all partners a --handoff-key-file",
                    handoff_listen_));
  }
  return {};
}

std::string ServeCommand::ModelName() const {
  if (!name_.empty()) return name_;
  std::error_code error;
  const auto path = std::filesystem::weakly_canonical(options_.model_dir, error);
  const std::string last = error ? "" : path.filename().string();
  return last.empty() ? "model" : last;
}

Status ServeCommand::SetKeys(Server& server) const {
  ASSIGN_OR_RETURN(std::vector<ApiKey> keys, access_.ReadKeys());
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
                        .engine_bytes = engine.ProcessBytesMax(),
                        .server_information = engine.PlanObject()};
  if (engine.experts() != nullptr) {
    static_assert(kExpertWindows == ExpertRecorder::kWindows);
    context.expert_balances = [&engine] { return engine.experts()->balances(); };
    context.expert_loads = [&engine] {
      const ExpertLoads& header = engine.experts()->header();
      LoadWindow window = engine.experts()->last();
      ExpertLoadView view{.experts = header.experts,
                          .top_k = header.top_k,
                          .layers = header.layers,
                          .passes = window.passes,
                          .tokens = window.tokens,
                          .counts = std::move(window.counts)};
      if (engine.rank_counts() != nullptr) {  // of the same steps: 100, at first 10
        view.rank_rows = engine.rank_counts()->last(1).rows;
        if (view.rank_rows.empty()) view.rank_rows = engine.rank_counts()->last(0).rows;
      }
      return view;
    };
  }
  if (engine.partners() != nullptr) {
    context.handoffs = [&engine] {
      const handoff::PartnerStats s = engine.partners()->stats();
      return HandoffCounts{s.partners, s.done, s.failed, s.bytes, s.early_bytes};
    };
  }
  context.tier_ahead_bytes = [&engine] { return engine.tier_ahead_bytes(); };
  context.tier_on_disk =
      !engine.options().cache_dir.empty() || engine.options().cache_host_bytes == 0;
  if (engine.rank_counts() != nullptr) {
    context.expert_rank_count = engine.options().mesh.ranks();
    context.expert_ranks = [&engine] {
      ExpertRanks ranks;
      for (size_t w = 0; w < ranks.balances.size(); ++w) {
        const RankRows window = engine.rank_counts()->last(w);
        if (!window.rows.empty()) ranks.balances[w] = window.Balance();
      }
      for (const std::vector<int64_t>& layer : engine.rank_counts()->last(0).rows) {
        ranks.rows.resize(layer.size());
        for (size_t r = 0; r < layer.size(); ++r) ranks.rows[r] += layer[r];
      }
      if (engine.mover() != nullptr) {
        const MoveProgress moves = engine.mover()->progress();
        ranks.moves_done = moves.done;
        ranks.moves_dropped = moves.dropped;
        ranks.moved_bytes = moves.bytes;
      }
      return ranks;
    };
  }
  ChooseParsers(engine.chat_template(), &context.card);
  return context;
}

// Makes the allocator return large freed blocks to the kernel, so that memory from a burst of
// requests does not stay resident, and gives each thread a heap of its own: while a heap of many
// small blocks is trimmed, which takes up to 0.5 s, threads that share it cannot allocate.
void ReturnFreedMemory() {
  constexpr int kOtherThreads = 16, kLargeBytes = 256 << 10, kKeptBytes = 4 << 20;
  ::mallopt(M_ARENA_MAX, static_cast<int>(std::thread::hardware_concurrency()) + kOtherThreads);
  ::mallopt(M_MMAP_THRESHOLD, kLargeBytes);
  ::mallopt(M_TRIM_THRESHOLD, kKeptBytes);
}

// Runs one short request, so that every op chooses its implementation before real requests come.
Status WarmUp(Engine& engine) {
  Request request;
  request.prompt.assign(8, 0);
  request.tenant = kOwnTenant;
  request.stop.new_tokens_max = 2;
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  return RunRequests(engine.driver(), std::move(requests), 1, [](size_t, RequestResult) {});
}

// A prefill engine's prompts come by no connection of the server: waits until they are computed and
// their pages taken, and takes no more. Returns the seconds that are left.
int32_t DrainPartners(Engine& engine, int32_t seconds) {
  if (engine.partners() == nullptr || engine.partners()->receives()) return seconds;
  const int64_t stop_us = MonotonicUs(), end_us = stop_us + int64_t{seconds} * 1'000'000;
  engine.Stop(false);
  while (MonotonicUs() < end_us) {
    const DriverStats stats = engine.driver().stats();
    const bool heard = stats.heartbeat_us > stop_us;
    if (heard && stats.scheduler.running + stats.scheduler.waiting == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return static_cast<int32_t>(std::max<int64_t>(0, end_us - MonotonicUs()) / 1'000'000);
}

void ServeCommand::Register(const Engine& engine, const Server& server,
                            const ServerConfig& config) {
  if (!register_.used()) return;
  RegisterFlags::Engine told{
      .host = config.http.host,
      .port = server.port(),
      .version = kVersion,
      .fingerprint = fmt::format("the model's name: {}\n{}", InPlainBytes(ModelName()),
                                 engine.ModelLines()),
      .events = {},
      .handoff_host = {},
      .on_prefills = nullptr};
  // Routers come to where this engine listens, by TCP.
  const kv::Publisher* events = engine.kv_events();
  if (events != nullptr && !options_.kv_events.bind.empty()) {
    const auto tcp = [](const std::string& at) { return at.starts_with("tcp://") ? at : ""; };
    told.events.events = tcp(events->events_at());
    if (!told.events.events.empty()) told.events.replay = tcp(events->replay_at());
  }
  if (role_ == "prefill") {
    told.handoff_host = options_.partners->listen.host;
    told.handoff_port = engine.partners()->port();
  }
  if (role_ == "decode") {
    told.on_prefills = [partners = engine.partners()](const std::vector<std::string>& found) {
      std::vector<handoff::HostPort> prefills;
      for (const std::string& text : found) {
        if (auto at = handoff::ParseHostPort(text)) prefills.push_back(*std::move(at));
      }
      partners->SetPrefills(prefills);
    };
  }
  announcer_ = register_.Start(std::move(told));
}

Status ServeCommand::ServeUntilSignal(Engine& engine, Server& server, SignalQueue& signals) {
  const auto reload = [&] {
    access_.ReadAgain([&] { return SetKeys(server); }, [&] { return server.ReloadTls(); });
    ReadPartnerKeysAgain(engine);
  };
  if (reloads_first_) reload();
  access_.WaitForStop(signals, reload, [&] { return !engine.group_status().ok(); });
  announcer_.reset();
  if (const Status group = engine.group_status(); !group) {
    constexpr std::chrono::milliseconds kErrorsLeave{700};
    std::this_thread::sleep_for(kErrorsLeave);
    server.StopNow();
    return group;
  }
  access_.Drain(
      signals,
      [&](int32_t seconds) {
        server.Drain(DrainPartners(engine, seconds));
        engine.Close();
      },
      [&] {
        engine.Stop(true);
        server.StopNow();
      });
  LogInfo("stopped");
  return {};
}

Result<ServerConfig> ServeCommand::ConfigOf() const {
  ServerConfig config;
  RETURN_IF_ERROR(access_.Fill(config));
  config.page_html = std::string(kPageHtml);
  config.version = kVersion;
  config.queue_seconds_max = queue_seconds_;
  config.request_seconds_max = request_seconds_;
  config.step_seconds_max = watchdog_seconds_;
  config.responses_bytes_max = responses_bytes_;
  config.grammar_budget = grammar_budget_;
  config.vllm_metrics = metrics_compat_ == "vllm";
  config.request_log = access_.request_log();
  config.memory_bytes = server_memory_;
  if (register_.used() && !config.http.tls.certificate.empty()) {
    return Error{ErrorCode::kInvalid,
                 "--register and --tls-cert: routers reach engines by HTTP only", "register"};
  }
  return config;
}

std::string ServeCommand::PlacesOf(const Engine& engine, const Server& server) const {
  std::string places = fmt::format("listening on {0}\nchat page: {0}/\n", server.url());
  if (engine.partners() != nullptr && role_ == "prefill") {
    places += fmt::format("decode engines may come to port {}\n", engine.partners()->port());
  }
  if (const auto* events = engine.kv_events()) {
    places += fmt::format("KV events at {}\n", events->events_at());
    if (!events->replay_at().empty()) {
      places += fmt::format("KV events again at {}\n", events->replay_at());
    }
  }
  if (access_.has_admin_port()) {
    places += fmt::format("administration at port {}\n", server.admin_port());
  }
  return places;
}

Status ServeCommand::Run() {
  RETURN_IF_ERROR(CheckParsers());
  constexpr int64_t kGrammarBytesMin = int64_t{16} << 20;
  if (grammar_budget_.memory_bytes < kGrammarBytesMin) {
    return Error{ErrorCode::kInvalid, "--grammar-memory: must be at least 16M"};
  }
  options_.grammar_budget = grammar_budget_;
  RETURN_IF_ERROR(register_.Check());
  RETURN_IF_ERROR(FindPartners());
  if (FollowsAsRank()) return Engine::Follow(options_);
  std::signal(SIGPIPE, SIG_IGN);
  SignalQueue signals{SIGINT, SIGTERM, SIGHUP};
  RETURN_IF_ERROR(access_.Start());
  ReturnFreedMemory();
  ASSIGN_OR_RETURN(const ServerConfig config, ConfigOf());
  ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Start(config));
  RETURN_IF_ERROR(SetKeys(*server));
  const auto stage = [&](std::string what) {
    server->SetLoading(std::move(what));
    while (const int signal = signals.Wait(0)) {
      if (signal != SIGHUP) std::_Exit(0);
      reloads_first_ = true;
    }
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(options_, stage));
  Announce(STDERR_FILENO, engine->PlanText());
  Announce(STDERR_FILENO,
           fmt::format("grammars: at most {} ms and {} to compile one, {} for all in use\n",
                       grammar_budget_.cpu_ms, ByteText(grammar_budget_.memory_bytes),
                       ByteText(GrammarLibraryOptions{}.bytes_max)));
  if (options_.explain_ops) {
    RETURN_IF_ERROR(WarmUp(*engine));
    Announce(STDERR_FILENO, engine->ExplainOps());
  }
  const ServerContext context = ContextOf(*engine);
  const int64_t memory = ServerMemory(config, context.card.context_tokens_max);
  const int64_t least = LeastServerMemory(config, context.card.context_tokens_max);
  if (memory < least) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("--server-memory {} is too small: requests of this model need {}",
                             ByteText(memory), ByteText(least))};
  }
  Announce(STDERR_FILENO, fmt::format("server {} beside that, {} in all\n", ByteText(memory),
                                      ByteText(memory + context.engine_bytes)));
  server->SetReady(context);
  Announce(STDOUT_FILENO, PlacesOf(*engine, *server));
  Register(*engine, *server, config);
  return ServeUntilSignal(*engine, *server, signals);
}

}  // namespace

CommandPointer MakeServeCommand() { return std::make_unique<ServeCommand>(); }

}  // namespace braid
