// Assembles the engine; see the header. Load runs on the calling thread; afterwards scheduler and
// executor belong to the engine thread, the rest is immutable.
#include "cli/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "cli/progress.h"
#include "model/checkpoint.h"
#include "model/families/families.h"
#include "model/machine_memory.h"
#include "model/memory_plan.h"
#include "model/quantities.h"
#include "model/weights.h"
#include "runtime/model_executor.h"
#include "text/eos.h"

namespace braid {

struct Engine::State {
  EngineOptions options;
  Machine machine;
  ModelSpec spec;
  std::optional<Checkpoint> checkpoint;
  LoadReport report;
  MemoryPlan memory;
  std::unique_ptr<ModelExecutor> executor;
  SchedulerConfig limits;
  std::unique_ptr<Driver> driver;
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;
  std::vector<TokenId> eos;
  GenerationDefaults defaults;
  double load_seconds = 0;
  std::thread thread;

  Status LoadText();
  Status PlanCache();
  Result<ModelWeights> LoadModelWeights(const std::function<void(std::string)>& stage);
  Status StartEngine(ModelWeights weights);
};

Status Engine::State::LoadText() {
  const std::string& dir = options.model_dir;
  if (FileExists(dir + "/tokenizer.json")) {
    ASSIGN_OR_RETURN(tokenizer, Tokenizer::Load(dir));
    if (tokenizer->vocabulary_size() > spec.vocabulary) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("{}/tokenizer.json has ids up to {}, the model's vocabulary has {}",
                               dir, tokenizer->vocabulary_size() - 1, spec.vocabulary)};
    }
    if (auto chat_template = ChatTemplate::Load(dir); chat_template) {
      chat = *std::move(chat_template);
    } else if (chat_template.error().code != ErrorCode::kNotFound) {
      return chat_template.error();
    }
  }
  ASSIGN_OR_RETURN(eos, EosTokens(dir, tokenizer ? &*tokenizer : nullptr));
  ASSIGN_OR_RETURN(defaults, ReadGenerationDefaults(dir));
  return {};
}

// Before the weights are read: what does not fit is said at once.
Status Engine::State::PlanCache() {
  MemoryRequest request;
  request.kv_dtype = machine.kv_dtype;
  request.available_bytes = AvailableMemory();
  request.weight_bytes = WeightBytesOf(spec, DType::kBF16);
  // Activations of a step: about 24 vectors of the hidden size per token, and 64 rows of logits.
  request.workspace_bytes = int64_t{4} * (int64_t{24} * options.step_tokens_max * spec.hidden +
                                          int64_t{64} * spec.vocabulary);
  if (options.cache_bytes > 0) request.arena_bytes = options.cache_bytes;
  if (options.memory_bytes > 0) request.total_bytes = options.memory_bytes;
  request.model_len_max = options.context_tokens_max;
  request.running_max = std::min(options.running_max, options.step_tokens_max);
  ASSIGN_OR_RETURN(memory, PlanMemory(spec, request));
  return {};
}

Result<ModelWeights> Engine::State::LoadModelWeights(
    const std::function<void(std::string)>& stage) {
  ThreadPool pool(machine.threads);
  ProgressBar bar("loading " + ByteText(checkpoint->total_bytes()), 0.5);
  return LoadWeights(
      spec, *checkpoint, pool,
      [&](double fraction) {
        bar.Show(fraction);
        stage(fmt::format("loading weights, {:.0f} %", fraction * 100));
      },
      &report);
}

Status Engine::State::StartEngine(ModelWeights weights) {
  memory.weight_bytes = weights.bytes;
  limits.cache = memory.geometry;
  limits.context_tokens_max = memory.model_len_max;
  limits.step_tokens_max = options.step_tokens_max;
  limits.chunk_tokens_max = options.chunk_tokens_max;
  limits.running_max = memory.running_max;
  limits.vocabulary = spec.vocabulary;
  limits.prefix_cache = !options.no_prefix_cache;
  ASSIGN_OR_RETURN(Scheduler scheduler, Scheduler::Create(limits));
  const ModelExecutorConfig config{
      .cache = memory.geometry,
      .running_max = limits.running_max,
      .step_tokens_max = limits.step_tokens_max,
      .context_tokens_max = limits.context_tokens_max,
      .kv_dtype = machine.kv_dtype,
      .device = machine.device,
      .threads = machine.threads,
      .sampled_vocabulary = tokenizer ? tokenizer->vocabulary_size() : 0};
  executor = std::make_unique<ModelExecutor>(spec, std::move(weights), config);
  memory.workspace_bytes = executor->workspace_bytes();
  driver = std::make_unique<Driver>(std::move(scheduler), *executor, DriverConfig{});
  thread = std::thread([this] { driver->Run(); });
  return {};
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Engine::~Engine() {
  Stop(true);
  Join();
}

Result<std::unique_ptr<Engine>> Engine::Load(const EngineOptions& options,
                                             const std::function<void(std::string)>& stage) {
  const int64_t start_us = MonotonicUs();
  auto state = std::make_unique<State>();
  State& s = *state;
  s.options = options;
  if (!IsDirectory(options.model_dir)) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is not a directory; a model is a directory with config.json and "
                             "safetensors files",
                             options.model_dir)};
  }
  stage("reading config.json");
  ASSIGN_OR_RETURN(s.machine, ResolveMachine(options));
  ASSIGN_OR_RETURN(s.spec, ReadModelSpec(options.model_dir));
  ASSIGN_OR_RETURN(s.checkpoint, Checkpoint::Open(options.model_dir));
  s.spec = FitToCheckpoint(std::move(s.spec), *s.checkpoint);
  RETURN_IF_ERROR(s.LoadText());
  RETURN_IF_ERROR(s.PlanCache());
  ASSIGN_OR_RETURN(ModelWeights weights, s.LoadModelWeights(stage));
  stage("starting the engine");
  RETURN_IF_ERROR(s.StartEngine(std::move(weights)));
  s.load_seconds = static_cast<double>(MonotonicUs() - start_us) * 1e-6;
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

const ModelSpec& Engine::spec() const { return state_->spec; }
const Machine& Engine::machine() const { return state_->machine; }
const SchedulerConfig& Engine::limits() const { return state_->limits; }
Driver& Engine::driver() { return *state_->driver; }
const Tokenizer* Engine::tokenizer() const {
  return state_->tokenizer ? &*state_->tokenizer : nullptr;
}
const ChatTemplate* Engine::chat_template() const {
  return state_->chat ? &*state_->chat : nullptr;
}
const std::vector<TokenId>& Engine::eos_tokens() const { return state_->eos; }
const GenerationDefaults& Engine::defaults() const { return state_->defaults; }
const EngineOptions& Engine::options() const { return state_->options; }
std::string Engine::ExplainOps() const { return state_->executor->ExplainOps(); }
std::string Engine::PlanText() const {
  const State& s = *state_;
  std::string text;
  for (const std::string& line : DescribePlan(s.memory)) text += line + '\n';
  text += fmt::format("machine: {} threads, ISA {}, compute {}, keys and values {}\n",
                      s.machine.threads, NameOf(s.machine.device.isa),
                      s.machine.device.compute == Compute::kF32 ? "fp32" : "bf16",
                      NameOf(s.machine.kv_dtype));
  text += fmt::format("steps: at most {} tokens, {} sequences\n", s.limits.step_tokens_max,
                      s.limits.running_max);
  for (const std::string& line : s.report.draft) text += line + '\n';
  for (const std::string& line : s.report.skipped) text += line + '\n';
  text += fmt::format("loaded {} in {:.2f} s\n", s.spec.architecture, s.load_seconds);
  return text;
}

json::object Engine::PlanObject() const {
  const State& s = *state_;
  json::array capacity;
  for (const MemoryPlan::Capacity& c : s.memory.Capacities()) {
    capacity.push_back(json::object{{"tokens", c.tokens},
                                    {"resumable_conversations", c.resumable},
                                    {"running_sequences", c.running}});
  }
  return {{"architecture", s.spec.architecture},
          {"weight_bytes", s.memory.weight_bytes},
          {"workspace_bytes", s.memory.workspace_bytes},
          {"cache_bytes", s.memory.arena_bytes},
          {"kv_bytes_per_token", s.memory.kv_bytes_per_token},
          {"state_bytes_per_sequence", s.memory.state_bytes_per_sequence},
          {"cache_tokens_one_sequence", SequenceTokensMax(s.memory.geometry)},
          {"capacity", std::move(capacity)},
          {"prefix_cache", s.limits.prefix_cache},
          {"context_tokens_max", s.limits.context_tokens_max},
          {"step_tokens_max", s.limits.step_tokens_max},
          {"running_max", s.limits.running_max},
          {"threads", s.machine.threads},
          {"isa", std::string(NameOf(s.machine.device.isa))},
          {"compute", s.machine.device.compute == Compute::kF32 ? "fp32" : "bf16"},
          {"kv_dtype", std::string(NameOf(s.machine.kv_dtype))},
          {"load_seconds", s.load_seconds}};
}

void Engine::Stop(bool now) { state_->driver->Stop(now); }
void Engine::Join() {
  if (state_->thread.joinable()) state_->thread.join();
}

Result<std::vector<TokenId>> EncodeText(const Engine& engine, std::string_view text,
                                        bool add_special_tokens) {
  if (engine.tokenizer() == nullptr) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} has no tokenizer.json: give token ids instead of text",
                             engine.options().model_dir)};
  }
  return engine.tokenizer()->Encode(text, add_special_tokens);
}

Result<RenderedPrompt> RenderPrompt(const Engine& engine, const json::object& context) {
  if (engine.chat_template() == nullptr) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} has no chat template: use plain text or token ids",
                             engine.options().model_dir)};
  }
  RenderedPrompt prompt;
  ASSIGN_OR_RETURN(prompt.text, engine.chat_template()->Render(context));
  ASSIGN_OR_RETURN(prompt.tokens, EncodeText(engine, prompt.text, false));
  return prompt;
}

}  // namespace braid
