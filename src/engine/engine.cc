// Assembles the engine. Load runs on the calling thread. Afterwards scheduler and executor belong
// to the engine thread; the rest is immutable.
#include "engine/engine.h"

#include <fmt/core.h>
#include <pthread.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/quantities.h"
#include "base/system/control_groups.h"
#include "base/system/file.h"
#include "base/trace.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/gguf_file.h"
#include "model/families/families.h"
#include "model/loading/load_weights.h"
#include "model/loading/memory_plan.h"
#include "model/loading/weight_binding.h"
#include "runtime/head_drafter.h"
#include "runtime/lookup_drafter.h"
#include "runtime/model_executor.h"
#include "text/tokens/eos.h"
#include "text/tokens/gguf_text.h"

namespace braid {

struct Engine::State {
  EngineOptions options;
  Machine machine;
  ModelSpec spec;
  std::optional<Checkpoint> checkpoint;
  std::unique_ptr<Trace> trace;  // with --trace
  LoadReport report;
  MemoryPlan memory;
  std::unique_ptr<TrialProcess> trial;          // compiles grammars first; null: no trials
  std::unique_ptr<GrammarLibrary> grammars;     // used by the executor
  std::map<std::string_view, int64_t> formats;  // bytes of weights
  std::unique_ptr<ExpertRecorder> experts;      // used by the executor; null: the model has none
  std::unique_ptr<ModelExecutor> executor;
  std::unique_ptr<EventLogWriter> event_log;  // null: the run is not recorded
  SchedulerConfig limits;
  std::unique_ptr<Driver> driver;
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;
  std::vector<TokenId> eos;
  GenerationDefaults defaults;
  double load_seconds = 0;
  std::thread thread;

  Status LoadText();
  Status LoadGgufText();
  Status ChooseDrafts();
  int64_t DraftBytes() const;  // at most, beside the cache
  Status PlanCache();
  Result<ModelWeights> LoadModelWeights(Binding binding,
                                        const std::function<void(std::string)>& stage);
  Status TakeRecorded();
  std::string MachineText() const;
  Status StartEngine(ModelWeights weights);
  Status StartTrace();
  Status StartExpertRecorder();
  void WriteTrace() const;
};

// The metadata of the tokenizer of a GGUF file, or of a checkpoint that was made from one.
Result<json::object> GgufTokenizerOf(const std::string& model) {
  if (!IsDirectory(model)) return ReadGgufTokenizer(model);
  const std::string path = fmt::format("{}/{}", model, kGgufTokenizerFile);
  if (!FileExists(path)) return json::object();
  ASSIGN_OR_RETURN(json::value metadata, ReadJsonFile(path));
  if (metadata.is_object()) return std::move(metadata.get_object());
  return Error{ErrorCode::kInvalid, path + ": is no JSON object"};
}

// Tokenizer and template inside a GGUF file.
Status Engine::State::LoadGgufText() {
  ASSIGN_OR_RETURN(const json::object metadata, GgufTokenizerOf(options.model_dir));
  Result<std::optional<GgufText>> text = ReadGgufText(metadata);
  if (!text) {
    return Error{text.error().code, options.model_dir + ": " + text.error().message,
                 text.error().field};
  }
  if (!*text) return {};
  tokenizer = std::move((*text)->tokenizer);
  chat = std::move((*text)->chat_template);
  eos = std::move((*text)->eos);
  return {};
}

Status Engine::State::LoadText() {
  std::string dir = options.model_dir;
  RETURN_IF_ERROR(LoadGgufText());
  if (!IsDirectory(dir)) {
    dir = std::filesystem::absolute(dir).parent_path().string();
  }
  const bool beside = !tokenizer;
  if (beside && Tokenizer::IsIn(dir)) {
    ASSIGN_OR_RETURN(tokenizer, Tokenizer::Load(dir));
  }
  if (tokenizer && tokenizer->vocabulary_size() > spec.vocabulary) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: the tokenizer has ids up to {}, the model's vocabulary has {}",
                             options.model_dir, tokenizer->vocabulary_size() - 1, spec.vocabulary)};
  }
  if (beside && tokenizer) {
    if (auto chat_template = ChatTemplate::Load(dir); chat_template) {
      chat = *std::move(chat_template);
    } else if (chat_template.error().code != ErrorCode::kNotFound) {
      return chat_template.error();
    }
  }
  if (beside) {
    ASSIGN_OR_RETURN(eos, EosTokens(dir, tokenizer ? &*tokenizer : nullptr));
  }
  if (tokenizer && !eos.empty()) {
    if (options.grammar_budget) {
      ASSIGN_OR_RETURN(trial, TrialProcess::Start(PackVocabulary(*tokenizer, eos.front()),
                                                  *options.grammar_budget, SpawnSelfAsTrial));
    }
    ASSIGN_OR_RETURN(grammars,
                     GrammarLibrary::Create(*tokenizer, eos.front(), {.trial = trial.get()}));
  }
  ASSIGN_OR_RETURN(defaults, ReadGenerationDefaults(dir));
  return {};
}

// Sequences keep room for drafts in their state, so this comes before the cache is planned.
Status Engine::State::ChooseDrafts() {
  SchedulerConfig& scheduler = options.scheduler;
  if (options.recorded) {
    scheduler.draft_tokens_max = options.recorded->draft_tokens_max;
    scheduler.draft_head = options.recorded->draft_head;
  } else {
    ASSIGN_OR_RETURN(const DraftChoice draft, ParseDraft(options.draft, HasDraftHead(spec)));
    draft.Apply(scheduler);
  }
  if (scheduler.draft_head && !HasDraftHead(spec)) {
    return Error{
        ErrorCode::kInvalid,
        fmt::format("the recorded run drafted with a draft head; {} has none", options.model_dir)};
  }
  if (scheduler.draft_head) UseDraftHead(spec);
  ReserveDrafts(spec, scheduler.draft_tokens_max);
  return {};
}

int64_t Engine::State::DraftBytes() const {
  const SchedulerConfig& scheduler = options.scheduler;
  const int32_t longest = options.context_tokens_max > 0 ? options.context_tokens_max
                                                         : std::numeric_limits<int32_t>::max();
  int64_t bytes = 0;
  if (scheduler.draft_tokens_max > 0) {
    bytes += LookupDrafter::Bytes(scheduler.running_max, longest);
  }
  if (scheduler.draft_head) {
    const CachePlan cache = CachePlanOf(spec, machine.kv_dtype);
    bytes += HeadDrafter::Bytes(spec, cache, scheduler.running_max);
  }
  return bytes;
}

// Runs before the weights are read, so that a model that does not fit fails at once.
Status Engine::State::PlanCache() {
  MemoryRequest request;
  request.kv_dtype = machine.kv_dtype;
  request.available_bytes = AvailableMemory();
  formats = WeightBytesOf(report);
  for (const auto& [format, bytes] : formats) request.weight_bytes += bytes;
  // Activations of a step: about 24 vectors of the hidden size per token, and 64 rows of logits.
  request.workspace_bytes =
      int64_t{4} * (int64_t{24} * options.scheduler.step_tokens_max * spec.hidden +
                    int64_t{64} * spec.vocabulary) +
      DraftBytes();
  if (options.cache_bytes > 0) request.arena_bytes = options.cache_bytes;
  if (options.recorded) {
    request.arena_bytes = options.recorded->cache.page_bytes * options.recorded->cache.pages;
  }
  if (options.memory_bytes > 0) request.total_bytes = options.memory_bytes;
  request.model_len_max = options.context_tokens_max;
  request.drafts = options.scheduler.draft_tokens_max > 0;
  request.running_max = std::min(options.scheduler.running_max, options.scheduler.step_tokens_max);
  ASSIGN_OR_RETURN(memory, PlanMemory(spec, request));
  return options.recorded ? TakeRecorded() : Status();
}

// Replaces the planned arena with that of a recorded run, if it suits the model.
Status Engine::State::TakeRecorded() {
  const CacheGeometry& cache = options.recorded->cache;
  const auto same = [](const GroupGeometry& a, const GroupGeometry& b) {
    return a.kind == b.kind && a.block_bytes == b.block_bytes;
  };
  const auto& groups = memory.geometry.groups;
  if (options.recorded->vocabulary != spec.vocabulary ||
      !std::equal(groups.begin(), groups.end(), cache.groups.begin(), cache.groups.end(), same)) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} is not the model of the recorded run, or --kv-dtype differs: "
                             "vocabularies or cache blocks do not match",
                             options.model_dir)};
  }
  memory.geometry = cache;
  memory.arena_bytes = cache.page_bytes * cache.pages;
  memory.model_len_max = options.recorded->context_tokens_max;
  memory.running_max = options.recorded->running_max;
  return {};
}

Result<ModelWeights> Engine::State::LoadModelWeights(
    Binding binding, const std::function<void(std::string)>& stage) {
  ThreadPool pool(machine.threads, machine.places);
  ProgressBar bar("loading " + ByteText(checkpoint->total_bytes()), 0.5);
  return LoadWeights(std::move(binding), pool, [&](double fraction) {
    bar.Show(fraction);
    stage(fmt::format("loading weights, {:.0f} %", fraction * 100));
  });
}

std::string Engine::State::MachineText() const {
  return fmt::format("{} threads, ISA {}, compute {}, keys and values {}, mla {}, weights {}",
                     machine.threads, NameOf(machine.device.isa),
                     machine.device.compute == Compute::kF32 ? "fp32" : "bf16",
                     NameOf(machine.kv_dtype), options.mla, FormatsText(formats));
}

Status Engine::State::StartEngine(ModelWeights weights) {
  memory.weight_bytes = weights.bytes;
  memory.mapped_bytes = weights.mapped_bytes;
  limits = options.scheduler;
  limits.cache = memory.geometry;
  limits.context_tokens_max = memory.model_len_max;
  limits.running_max = memory.running_max;
  limits.vocabulary = spec.vocabulary;
  if (options.recorded) limits = *options.recorded;
  limits.report_freed = kPoisonFreed;
  RETURN_IF_ERROR(ModelExecutor::CanRun(limits));
  ASSIGN_OR_RETURN(Scheduler scheduler, Scheduler::Create(limits));
  const ModelExecutorConfig config{
      .cache = memory.geometry,
      .running_max = limits.running_max,
      .step_tokens_max = limits.step_tokens_max,
      .context_tokens_max = limits.context_tokens_max,
      .kv_dtype = machine.kv_dtype,
      .device = machine.device,
      .threads = machine.threads,
      .places = machine.places,
      .trace = trace.get(),
      .sampled_vocabulary = tokenizer ? tokenizer->vocabulary_size() : 0,
      .constraints = grammars.get(),
      .draft_tokens_max = limits.draft_tokens_max,
      .experts = experts.get()};
  executor = std::make_unique<ModelExecutor>(spec, std::move(weights), config);
  memory.workspace_bytes = executor->workspace_bytes() + DraftBytes();
  if (!options.event_log.empty()) {
    ASSIGN_OR_RETURN(event_log,
                     EventLogWriter::Create(
                         options.event_log,
                         {.config = limits, .model = options.model_dir + "; " + MachineText()}));
  }
  // No step is planned ahead: the engine thread computes too, and its work between two steps is 2 %
  // of a step of the smallest model (docs/decisions/011-no-overlap-on-a-cpu.md).
  driver = std::make_unique<Driver>(std::move(scheduler), *executor,
                                    DriverConfig{.overlap_depth = 0, .event_log = event_log.get()});
  thread = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "braid-engine");
    executor->BindEngineThread();
    if (const Status status = driver->Run(); !status) LogError("{}", status.error().message);
  });
  return {};
}

// Creates the file before the model is loaded, so that a bad path fails at once.
Status Engine::State::StartTrace() {
  if (options.trace_file.empty()) return {};
  RETURN_IF_ERROR(WriteFile(options.trace_file, ""));
  constexpr int64_t kEventsMax = 1 << 19;  // per thread: 20 MiB, about a minute of small steps
  trace = std::make_unique<Trace>(machine.threads, kEventsMax);
  return {};
}

// Like the trace's, the file is created before the model is loaded.
Status Engine::State::StartExpertRecorder() {
  ExpertLoads header{.model = std::filesystem::path(options.model_dir).filename().string()};
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const MoeFfn* moe = std::get_if<MoeFfn>(&spec.layers[i].ffn);
    if (moe == nullptr) continue;
    CHECK(header.layers.empty() || (moe->experts == header.experts && moe->top_k == header.top_k));
    header.layers.push_back(static_cast<int32_t>(i));
    header.experts = moe->experts;
    header.top_k = moe->top_k;
  }
  if (!header.layers.empty()) experts = std::make_unique<ExpertRecorder>(std::move(header));
  if (options.expert_loads.empty()) return {};
  if (!experts) {
    return Error{ErrorCode::kInvalid,
                 options.model_dir + " has no experts; leave out --expert-loads", "expert_loads"};
  }
  return experts->Open(options.expert_loads);
}

void Engine::State::WriteTrace() const {
  if (!trace) return;
  const Status written = WriteFile(options.trace_file, trace->ToJson());
  fmt::print(stderr, "{}\n", written ? "trace: " + options.trace_file : written.error().message);
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Engine::~Engine() {
  Stop(true);
  Join();
  if (state_->experts) {
    const Status written = state_->experts->Close();
    if (!written) fmt::print(stderr, "{}\n", written.error().message);
  }
  state_->WriteTrace();
}

Result<std::unique_ptr<Engine>> Engine::Load(const EngineOptions& options,
                                             const std::function<void(std::string)>& stage) {
  const int64_t start_us = MonotonicUs();
  auto state = std::make_unique<State>();
  State& s = *state;
  s.options = options;
  stage("reading config.json");
  ASSIGN_OR_RETURN(s.machine, ResolveMachine(options));
  RETURN_IF_ERROR(s.StartTrace());
  ASSIGN_OR_RETURN(s.options.model_dir, FindModel(options.model_dir));
  ASSIGN_OR_RETURN(OpenedModel model, OpenModel(s.options.model_dir));
  s.spec = std::move(model.spec);
  if (options.expanded_mla()) {
    if (s.spec.quantization.panels()) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("{}: a mapped checkpoint has no keys for --mla expanded; load the "
                               "one that it was made from",
                               s.options.model_dir),
                   "mla"};
    }
    ExpandLatentAttention(s.spec, kExpandedTokensMin);
  }
  s.checkpoint = std::move(model.checkpoint);
  RETURN_IF_ERROR(s.StartExpertRecorder());
  RETURN_IF_ERROR(s.ChooseDrafts());
  RETURN_IF_ERROR(s.LoadText());
  ASSIGN_OR_RETURN(Binding binding, BindWeights(s.spec, *s.checkpoint, options.weight_choice()));
  s.report = std::move(binding.report);
  RETURN_IF_ERROR(s.PlanCache());
  ASSIGN_OR_RETURN(ModelWeights weights, s.LoadModelWeights(std::move(binding), stage));
  stage("starting the engine");
  RETURN_IF_ERROR(s.StartEngine(std::move(weights)));
  s.load_seconds = static_cast<double>(MonotonicUs() - start_us) * 1e-6;
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

const ModelSpec& Engine::spec() const { return state_->spec; }
const Machine& Engine::machine() const { return state_->machine; }
const SchedulerConfig& Engine::limits() const { return state_->limits; }
Driver& Engine::driver() { return *state_->driver; }
Executor& Engine::executor() { return *state_->executor; }
const Tokenizer* Engine::tokenizer() const {
  return state_->tokenizer ? &*state_->tokenizer : nullptr;
}
const ChatTemplate* Engine::chat_template() const {
  return state_->chat ? &*state_->chat : nullptr;
}
GrammarLibrary* Engine::grammars() const { return state_->grammars.get(); }
const std::vector<TokenId>& Engine::eos_tokens() const { return state_->eos; }
const GenerationDefaults& Engine::defaults() const { return state_->defaults; }
const EngineOptions& Engine::options() const { return state_->options; }
std::string Engine::ExplainOps() const { return state_->executor->ExplainOps(); }
const ExpertRecorder* Engine::experts() const { return state_->experts.get(); }
RunningFormats Engine::weight_formats() const { return RunningFormatsOf(state_->report); }
std::string Engine::PlanText() const {
  const State& s = *state_;
  std::string text;
  for (const std::string& line : DescribePlan(s.memory)) text += line + '\n';
  text += "machine: " + s.MachineText() + '\n';
  text += fmt::format("steps: at most {} tokens, {} sequences\n", s.limits.step_tokens_max,
                      s.limits.running_max);
  if (s.limits.draft_tokens_max > 0) {
    text += fmt::format("drafts: {}{} a sequence and step, {}; {} beside the cache\n",
                        s.limits.draft_adapt ? "up to " : "", s.limits.draft_tokens_max,
                        s.limits.draft_head && s.limits.draft_lookup ? "of the head or looked up"
                        : s.limits.draft_head                        ? "of the head"
                                                                     : "looked up",
                        ByteText(s.DraftBytes()));
  }
  for (const std::string& line : s.report.draft) text += line + '\n';
  for (const std::string& line : s.report.skipped) text += line + '\n';
  text += fmt::format("loaded {} in {:.2f} s\n", s.spec.architecture, s.load_seconds);
  return text;
}

double Engine::load_seconds() const { return state_->load_seconds; }

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
          {"mapped_weight_bytes", s.memory.mapped_bytes},
          {"workspace_bytes", s.memory.workspace_bytes},
          {"cache_bytes", s.memory.arena_bytes},
          {"kv_bytes_per_token", s.memory.kv_bytes_per_token},
          {"state_bytes_per_sequence", s.memory.state_bytes_per_sequence},
          {"cache_tokens_one_sequence", SequenceTokensMax(s.memory.geometry)},
          {"capacity", std::move(capacity)},
          {"prefix_cache", s.limits.prefix_cache},
          {"draft_tokens_max", s.limits.draft_tokens_max},
          {"draft_adapt", s.limits.draft_adapt},
          {"draft_lookup", s.limits.draft_lookup},
          {"draft_head", s.limits.draft_head},
          {"draft_bytes", s.DraftBytes()},
          {"context_tokens_max", s.limits.context_tokens_max},
          {"step_tokens_max", s.limits.step_tokens_max},
          {"running_max", s.limits.running_max},
          {"threads", s.machine.threads},
          {"isa", std::string(NameOf(s.machine.device.isa))},
          {"compute", s.machine.device.compute == Compute::kF32 ? "fp32" : "bf16"},
          {"kv_dtype", std::string(NameOf(s.machine.kv_dtype))},
          {"mla", s.options.mla},
          {"weights", FormatsText(s.formats)},
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
                 fmt::format("{} has no tokenizer: give token ids instead of text",
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
