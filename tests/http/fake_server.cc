// The real HTTP server on a fake model, for the HTTP tests: the scheduler drives the hash LM, whose
// next token is a hash of all tokens before it. Tokenizer and chat template are those of MODEL_DIR.
//
//   fake_server MODEL_DIR [KEY=VALUE…]    prints "listening on http://127.0.0.1:PORT"
//
// Keys: port, context, step_us (a step's length), running, waiting, drain_seconds, loading_ms, and
// the times and counts of ServerConfig by name. SIGTERM drains, a second one stops at once.
#include <fmt/core.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "scheduler/driver.h"
#include "server/server.h"
#include "sim/hash_executor.h"
#include "text/chat/chat_template.h"
#include "text/tokens/eos.h"
#include "text/tokens/tokenizer.h"

namespace braid {
namespace {

[[noreturn]] void Fail(const std::string& message) {
  fmt::print(stderr, "fake_server: {}\n", message);
  std::exit(1);
}

template <class T>
T Must(Result<T> result) {
  if (!result) Fail(result.error().message);
  return *std::move(result);
}

using Options = std::map<std::string, int32_t>;

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 2; i < argc; ++i) {
    std::string_view text = argv[i];
    size_t equals = text.find('=');
    if (equals == std::string_view::npos) Fail(fmt::format("{} is not KEY=VALUE", text));
    std::string_view value = text.substr(equals + 1);
    int32_t number = 0;
    auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size()) {
      Fail(fmt::format("{} is not a number", value));
    }
    options[std::string(text.substr(0, equals))] = number;
  }
  return options;
}

// Removes the key, so that what is left at the end is unknown.
int32_t Take(Options* options, const std::string& key, int32_t otherwise) {
  auto node = options->extract(key);
  return node ? node.mapped() : otherwise;
}

ServerConfig ConfigOf(Options* options) {
  ServerConfig config;
  auto take = [&](const char* key, int32_t* member) { *member = Take(options, key, *member); };
  config.http.port = static_cast<uint16_t>(Take(options, "port", 0));
  config.page_html = "<!doctype html><title>fake</title>";
  config.memory_bytes = Take(options, "memory_bytes", 0);
  take("connections_max", &config.http.connections_max);
  take("connections_per_address_max", &config.http.connections_per_address_max);
  take("header_seconds_max", &config.http.header_seconds_max);
  take("body_seconds_base", &config.http.body_seconds_base);
  take("idle_seconds_max", &config.http.idle_seconds_max);
  take("write_seconds_max", &config.http.write_seconds_max);
  take("heartbeat_seconds", &config.http.heartbeat_seconds);
  take("request_seconds_max", &config.request_seconds_max);
  take("step_seconds_max", &config.step_seconds_max);
  take("queue_seconds_max", &config.queue_seconds_max);
  take("login_failures_per_second", &config.login_failures_per_second);
  return config;
}

SchedulerConfig SchedulerConfigOf(int32_t vocabulary, Options* options) {
  SchedulerConfig config;
  config.context_tokens_max = Take(options, "context", 8192);
  config.running_max = Take(options, "running", 64);
  config.waiting_max = Take(options, "waiting", 4096);
  config.vocabulary = vocabulary;
  config.cache = {.groups = {{.name = "attention", .kind = GroupKind::kFull, .block_bytes = 64},
                             {.name = "state", .kind = GroupKind::kState, .block_bytes = 64}},
                  .page_bytes = 64,
                  .pages = Take(options, "pages", 20000)};
  return config;
}

struct Model {
  Tokenizer tokenizer;
  ChatTemplate chat;
  ModelCard card;
};

Model LoadText(const std::string& dir, int32_t context) {
  Model model{Must(Tokenizer::Load(dir)), Must(ChatTemplate::Load(dir)), {}};
  model.card = {.name = "fake",
                .created = UnixSeconds(),
                .context_tokens_max = context,
                .vocabulary = model.tokenizer.vocabulary_size(),
                .eos_tokens = Must(EosTokens(dir, &model.tokenizer)),
                .defaults = Must(ReadGenerationDefaults(dir)),
                .tools = DetectToolFormat(model.chat.Source()),
                .reasoning = DetectReasoningFormat(model.chat.Source())};
  return model;
}

int Serve(const std::string& dir, Options options) {
  // Signals arrive here only, at the two points that wait for them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const int32_t drain_seconds = Take(&options, "drain_seconds", 5);
  const int32_t loading_ms = Take(&options, "loading_ms", 0);
  const int32_t step_us = Take(&options, "step_us", 0);
  const ServerConfig config = ConfigOf(&options);
  Tokenizer sizes = Must(Tokenizer::Load(dir));
  const SchedulerConfig scheduler_config = SchedulerConfigOf(sizes.vocabulary_size(), &options);
  if (!options.empty()) Fail("unknown key " + options.begin()->first);

  HashExecutorOptions pace;
  if (step_us > 0) {
    pace.before_step = [step_us] {
      std::this_thread::sleep_for(std::chrono::microseconds(step_us));
    };
  }
  Model model = LoadText(dir, scheduler_config.context_tokens_max);
  HashExecutor executor(scheduler_config.cache, scheduler_config.vocabulary, pace);
  Driver driver(Must(Scheduler::Create(scheduler_config)), executor, {});
  std::unique_ptr<Server> server = Must(Server::Start(config));
  server->SetLoading("loading the fake model");
  fmt::print("listening on {}\n", server->url());
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::milliseconds(loading_ms));
  std::thread engine([&] { (void)driver.Run(); });
  server->SetReady({.driver = driver,
                    .tokenizer = &model.tokenizer,
                    .chat = &model.chat,
                    .card = model.card,
                    .server_information = {{"fake", true}}});

  int signal = 0;
  sigwait(&signals, &signal);
  std::thread second([&] {
    int again = 0;
    sigwait(&signals, &again);
    server->StopNow();
  });
  server->Drain(drain_seconds);
  pthread_kill(second.native_handle(), SIGTERM);
  second.join();
  driver.Stop(true);
  engine.join();
  return 0;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  if (argc < 2) braid::Fail("usage: fake_server MODEL_DIR [KEY=VALUE…]");
  braid::InitLog(braid::LogLevel::kInfo, false);
  return braid::Serve(argv[1], braid::ParseOptions(argc, argv));
}
