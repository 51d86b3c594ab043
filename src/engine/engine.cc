// Assembles the engine. Load runs on the calling thread. Afterwards scheduler and executor belong
// to the engine thread; the rest is immutable.
#include "engine/engine.h"

#include <fmt/core.h>
#include <pthread.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/quantities.h"
#include "base/system/control_groups.h"
#include "base/system/file.h"
#include "base/trace.h"
#include "comm/launch.h"
#include "engine/device_choice.h"
#include "engine/engine_experts.h"
#include "engine/engine_ranks.h"
#include "engine/engine_tier.h"
#include "engine/model_text.h"
#include "engine/partners/partner_grammars.h"
#include "engine/ranks/rank_reports.h"
#include "handoff/handoff_executor.h"
#include "model/checkpoint/checkpoint.h"
#include "model/families/families.h"
#include "model/loading/keep_rows.h"
#include "model/loading/load_weights.h"
#include "model/loading/memory_plan.h"
#include "model/loading/weight_binding.h"
#include "parallel/rank_view.h"
#include "runtime/lock_step.h"
#include "runtime/model_executor.h"

namespace braid {

// A rank beside the one that leads, on a thread of its own.
struct ThreadFollower {
  std::unique_ptr<ExpertRecorder> experts;  // used by the executor; null: the model has none
  std::unique_ptr<ModelExecutor> executor;
  std::unique_ptr<RankThread> thread;
};

struct Engine::State {
  EngineOptions options;
  Machine machine;
  std::unique_ptr<EngineRanks> ranks;  // null: one
  ExpertSlots experts_at;              // on several ranks
  std::vector<RankView> views;         // of the ranks of this process
  ModelSpec spec;
  std::optional<Checkpoint> checkpoint;
  std::unique_ptr<Trace> trace;  // with --trace
  LoadReport report;
  MemoryPlan memory;
  std::unique_ptr<TrialProcess> trial;          // compiles grammars first; null: no trials
  std::unique_ptr<GrammarLibrary> grammars;     // used by the executor
  std::map<std::string_view, int64_t> formats;  // bytes of weights
  std::unique_ptr<ExpertRecorder> experts;      // used by the executor; null: the model has none
  std::unique_ptr<PartnerGrammars> partner_grammars;  // used by the partners; null: none ask
  std::unique_ptr<handoff::Partners> partners;        // used by the executor; null: there are none
  std::unique_ptr<kv::Publisher> kv_events;           // used by the driver; null: there is none
  EngineDevice device;                                // of the executor
  std::unique_ptr<RankTiers> tier;                    // used by the executor; null: none
  RankReports reports;                                // used by the leader
  std::unique_ptr<ExpertBalancer> balancer;           // used by the executor; null: experts stay
  std::unique_ptr<ModelExecutor> executor;
  std::unique_ptr<handoff::HandoffExecutor> partnered;  // around it; null: there are no partners
  std::vector<ThreadFollower> followers;
  std::unique_ptr<EventLogWriter> event_log;  // null: the run is not recorded
  SchedulerConfig limits;
  std::unique_ptr<RankLeader> leader;        // null: nobody follows
  std::unique_ptr<LeadingExecutor> leading;  // around the executors, with it
  mutable std::mutex lost_mutex;
  Status lost;  // why the group of ranks has ended
  std::unique_ptr<Driver> driver;
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;
  std::vector<TokenId> eos;
  GenerationDefaults defaults;
  double load_seconds = 0;
  std::thread thread;
  bool closed = false;

  Status LoadText();
  Status ChooseDrafts();
  int64_t move_bytes = 0;      // beside the cache
  int64_t DraftBytes() const;  // at most, beside the cache
  int64_t StagingBytes() const {
    return StagingBytesOf(options, spec, machine.kv_dtype, device.used());
  }
  Status PlanCache(const Binding& binding);
  Status OpenRanks();
  Result<Binding> Bind(const RankView& view) const;
  Result<ModelWeights> LoadModelWeights(Binding binding,
                                        const std::function<void(std::string)>& stage);
  Result<Reopened> ReopenDevice();
  Status LoadRanks(Binding first, const std::function<void(std::string)>& stage);
  Status SetLimits();
  std::unique_ptr<ModelExecutor> ExecutorOf(const RankView& view, ModelWeights weights,
                                            ExpertRecorder* recorder);
  std::string files_text;  // of ranks that are processes
  LogStart SharedStart() const {
    LogStart start = StartOfRun(limits, spec, options, machine, experts_at);
    start.model += files_text;
    return start;
  }
  FingerprintParts fingerprint_parts() const {
    FingerprintParts parts{spec,    *checkpoint, machine,           memory.geometry,
                           formats, options.mla, device.PagesText()};
    parts.tokens = TokensDigest(tokenizer, eos);
    return parts;
  }
  void StartFollowers();
  Status Prepare(const std::function<void(std::string)>& stage);
  std::string MachineText() const {
    return TextOf(machine, device.name(), options.mla, FormatsText(formats));
  }
  Status StartEngine();
  Status FindPartners();
  Status StartTrace();
  void WriteTrace() const;
};

Status Engine::State::LoadText() {
  ASSIGN_OR_RETURN(ModelText text, ReadModelText(options.model_dir));
  tokenizer = std::move(text.tokenizer);
  chat = std::move(text.chat);
  eos = std::move(text.eos);
  if (tokenizer && tokenizer->vocabulary_size() > spec.vocabulary) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: the tokenizer has ids up to {}, the model's vocabulary has {}",
                             options.model_dir, tokenizer->vocabulary_size() - 1, spec.vocabulary)};
  }
  // A file may name an id that the model cannot give; it ends no answer.
  std::erase_if(eos, [&](TokenId id) { return id >= spec.vocabulary; });
  if (tokenizer && !eos.empty()) {
    if (options.grammar_budget) {
      ASSIGN_OR_RETURN(trial, TrialProcess::Start(PackVocabulary(*tokenizer, eos.front()),
                                                  *options.grammar_budget, SpawnSelfAsTrial));
    }
    ASSIGN_OR_RETURN(grammars,
                     GrammarLibrary::Create(*tokenizer, eos.front(), {.trial = trial.get()}));
  }
  ASSIGN_OR_RETURN(defaults, ReadGenerationDefaults(DirectoryOf(options.model_dir)));
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
  PlanState(spec, scheduler.draft_tokens_max, machine.state_dtype);
  return {};
}

int64_t Engine::State::DraftBytes() const {
  return braid::DraftBytes(spec, CachePlanOf(views[0].spec, machine.kv_dtype), options.scheduler,
                           options.context_tokens_max);
}

// Runs before the weights are read, so that a model that does not fit fails at once.
Status Engine::State::PlanCache(const Binding& binding) {
  MemoryRequest request;
  request.kv_dtype = machine.kv_dtype;
  const int32_t ranks_here = ranks ? ranks->on_this_machine() : 1;
  RETURN_IF_ERROR(CheckHostMemory(options, ranks_here));
  const int64_t beside = HostBytesHere(options, ranks_here) + StagingBytes();
  request.available_bytes = (AvailableMemory() - beside) / ranks_here;
  formats = WeightBytesOf(report);
  for (const auto& [format, bytes] : formats) request.weight_bytes += bytes;
  request.workspace_bytes =
      WorkspaceBytes(spec, options.scheduler.step_tokens_max) + DraftBytes() + move_bytes;
  if (ranks && options.overlap(ranks->as_processes()) != Overlap::kOff) {
    request.workspace_bytes += WorkspaceBytes(spec, options.scheduler.step_tokens_max / 2);
  }
  if (!ranks && !device.used()) request.pageable_bytes = PageableBytes(binding);
  if (options.cache_bytes > 0) request.arena_bytes = options.cache_bytes;
  if (options.recorded) {
    request.arena_bytes = options.recorded->cache.page_bytes * options.recorded->cache.pages;
  }
  if (options.memory_bytes > 0) {
    const int64_t staged = device.used() ? 0 : StagingBytes();  // --memory is the device's
    RETURN_IF_ERROR(CheckStaging(options, staged));
    request.total_bytes = (options.memory_bytes - staged) / ranks_here;
  }
  request.model_len_max = options.context_tokens_max;
  request.drafts = options.scheduler.draft_tokens_max > 0;
  request.running_max = std::min(options.scheduler.running_max, options.scheduler.step_tokens_max);
  ASSIGN_OR_RETURN(memory, device.Plan(views[0].spec, request, binding));
  return options.recorded ? TakeRecorded(options, spec.vocabulary, memory) : Status();
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

Result<Reopened> Engine::State::ReopenDevice() {
  const auto load = [&]() -> Result<ModelWeights> {
    ASSIGN_OR_RETURN(Binding binding, Bind(views[0]));
    return LoadModelWeights(std::move(binding), [](const std::string&) {});
  };
  return device.Reopen(load, spec, limits, machine.kv_dtype);
}

// One rank, or those of the mesh that are in this process.
Status Engine::State::OpenRanks() {
  std::vector<int32_t> here = {0};
  RETURN_IF_ERROR(CheckLaunch());
  ASSIGN_OR_RETURN(experts_at, ExpertSlotsOf(options, spec, options.mesh));
  RETURN_IF_ERROR(CheckMesh(spec, options.mesh));
  RETURN_IF_ERROR(CheckRankChoices(options, options.mesh));
  if (options.mesh.ranks() > 1 || LaunchHere().several()) {
    ASSIGN_OR_RETURN(ranks, EngineRanks::Create(options));
    ranks->BeginLoading();  // samples of weights and a cache's folder take time too
    here = ranks->here();
    if (experts_at.ranks_per_node == 0) experts_at.ranks_per_node = ranks->of_a_node();
  }
  for (const int32_t rank : here) {
    ASSIGN_OR_RETURN(RankView view, ViewOf(spec, options.mesh, rank, experts_at.placement));
    views.push_back(std::move(view));
  }
  return {};
}

Result<Binding> Engine::State::Bind(const RankView& view) const {
  const WeightChoice choice = options.weight_choice(device.used());
  ASSIGN_OR_RETURN(Binding binding, BindWeights(spec, *checkpoint, choice));
  if (ranks) KeepRows([&](const WeightSpec& weight) { return view.RowsOf(weight); }, binding);
  return binding;
}

std::unique_ptr<ModelExecutor> Engine::State::ExecutorOf(const RankView& view, ModelWeights weights,
                                                         ExpertRecorder* recorder) {
  const Machine own = ranks ? ranks->ShareOf(machine, view.rank) : machine;
  const bool first = view.rank == views[0].rank;
  ModelExecutorConfig config{.cache = memory.geometry,
                             .running_max = limits.running_max,
                             .step_tokens_max = limits.step_tokens_max,
                             .context_tokens_max = limits.context_tokens_max,
                             .kv_dtype = machine.kv_dtype,
                             .device = machine.device,
                             .threads = own.threads,
                             .places = own.places,
                             .trace = first ? trace.get() : nullptr,
                             .sampled_vocabulary = tokenizer ? tokenizer->vocabulary_size() : 0,
                             .constraints = grammars.get(),
                             .draft_tokens_max = limits.draft_tokens_max,
                             .rehearsal = options.rehearsal,
                             .experts = recorder,
                             .home = device.home(),
                             .reopen = [this] { return ReopenDevice(); },
                             .dispatch = options.dispatch(),
                             .reduce_fast = options.reduce == "fast",
                             .experts_at = experts_at,
                             .moves = move_bytes > 0 ? &ranks->Moves(view.rank) : nullptr,
                             .move_limits = {.step_bytes = options.balance_step_bytes},
                             .balancer = view.rank == 0 ? balancer.get() : nullptr,
                             .movers = {partners ? &partners->MoverOf(view.rank) : nullptr,
                                        tier ? &tier->MoverOf(view.rank) : nullptr}};
  if (ranks) ranks->AddTo(view.rank, options, config);
  return std::make_unique<ModelExecutor>(view.spec, std::move(weights), config);
}

Status Engine::State::SetLimits() {
  std::vector<int32_t> least = {memory.geometry.pages, memory.model_len_max};
  if (ranks) RETURN_IF_ERROR(ranks->Agree(least));
  memory.geometry.pages = least[0];
  memory.arena_bytes = memory.geometry.page_bytes * least[0];
  memory.model_len_max = least[1];
  limits = options.scheduler;
  limits.cache = memory.geometry;
  limits.context_tokens_max = memory.model_len_max;
  limits.running_max = memory.running_max;
  limits.vocabulary = spec.vocabulary;
  limits.dp_ranks = options.mesh.dp;
  limits.tier = tier != nullptr;
  // Those that sample, beside rank 0. Threads share its grammars.
  if (grammars && ranks && ranks->as_processes()) limits.grammar_ranks = options.mesh.dp - 1;
  if (options.recorded) limits = *options.recorded;
  limits.report_freed = kPoisonFreed;
  RETURN_IF_ERROR(ModelExecutor::CanRun(limits, options.mesh.dp));
  limits.handoff = partners != nullptr;
  limits.report_prefixes = kv_events != nullptr;
  return {};
}

Status Engine::State::FindPartners() {
  RETURN_IF_ERROR(DescribeTo(options, fingerprint_parts()));
  partner_grammars = GrammarsFor(*options.partners, grammars.get());
  ASSIGN_OR_RETURN(partners, handoff::Partners::Create(*options.partners));
  return {};
}

Status Engine::State::LoadRanks(Binding first, const std::function<void(std::string)>& stage) {
  std::vector<ModelWeights> weights;
  for (size_t i = 0; i < views.size(); ++i) {
    Binding binding = std::move(first);
    if (i > 0) {
      ASSIGN_OR_RETURN(binding, Bind(views[i]));
    }
    ASSIGN_OR_RETURN(ModelWeights loaded, LoadModelWeights(std::move(binding), stage));
    weights.push_back(std::move(loaded));
  }
  memory.weight_bytes = weights[0].bytes;
  memory.mapped_bytes = weights[0].mapped_bytes;
  // While ranks still wait for each other: on a slow disk the samples take time.
  if (ranks && ranks->as_processes()) files_text = FilesTextOf(fingerprint_parts());
  RETURN_IF_ERROR(SetLimits());
  RETURN_IF_ERROR(device.Move(spec, weights[0], limits, machine.kv_dtype));
  if (move_bytes > 0 && views[0].rank == 0) balancer = BalancerOf(options, spec, experts_at);
  executor = ExecutorOf(views[0], std::move(weights[0]), experts.get());
  for (size_t i = 1; i < views.size(); ++i) {
    auto counts = experts ? std::make_unique<ExpertRecorder>(experts->header()) : nullptr;
    ExpertRecorder* recorder = counts.get();
    followers.push_back(
        {std::move(counts), ExecutorOf(views[i], std::move(weights[i]), recorder), {}});
  }
  memory.workspace_bytes = executor->workspace_bytes() + DraftBytes() + move_bytes;
  device.Divide(memory);
  return {};
}

void Engine::State::StartFollowers() {
  for (size_t i = 0; i < followers.size(); ++i) {
    followers[i].thread = std::make_unique<RankThread>(*ranks, views[i + 1].rank,
                                                       *followers[i].executor, SharedStart());
  }
  leader = std::make_unique<RankLeader>(
      *ranks->Groups(0).all, SharedStart(),
      [this](const Error& error) {
        std::lock_guard lock(lost_mutex);
        lost = error;
      },
      &reports);
}

Status Engine::State::StartEngine() {
  ASSIGN_OR_RETURN(Scheduler scheduler, Scheduler::Create(limits));
  if (!options.event_log.empty()) {
    const std::string on = ranks ? MeshText(options.mesh) + ", " : "";
    const LogStart start{.config = limits, .model = options.model_dir + "; " + on + MachineText()};
    ASSIGN_OR_RETURN(event_log, EventLogWriter::Create(options.event_log, start));
  }
  if (ranks) StartFollowers();
  if (partners)
    partnered = std::make_unique<handoff::HandoffExecutor>(*executor, *partners, limits);
  Executor* runs = partnered ? static_cast<Executor*>(partnered.get()) : executor.get();
  if (leader) runs = (leading = std::make_unique<LeadingExecutor>(*runs, *leader)).get();
  // No step is planned ahead: docs/decisions/011-no-overlap-on-a-cpu.md.
  driver = std::make_unique<Driver>(
      std::move(scheduler), *runs,
      DriverConfig{.overlap_depth = 0,
                   .event_log = event_log.get(),
                   .prompts_elsewhere = partners && partners->receives(),
                   .clear_tiers = [this](bool wait) { tier ? tier->Clear(wait) : void(); },
                   .prefixes = kv_events.get(),
                   .followers = leader.get(),
                   .reports_us = ranks && ranks->as_processes() ? kReportsUs : kHeartbeatUs});
  if (partners) partners->Serve(*driver);
  reports.Serve(tier.get(), *driver);
  thread = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "braid-engine");
    executor->BindEngineThread();
    (void)driver->Run();  // an error is the group's end, of which the leader has told
  });
  return {};
}

// This file, and that of loads, is created before the model is loaded: a bad path fails at once.
Status Engine::State::StartTrace() {
  if (options.trace_file.empty()) return {};
  RETURN_IF_ERROR(WriteFile(options.trace_file, ""));
  constexpr int64_t kEventsMax = 1 << 19;  // per thread: 20 MiB, about a minute of small steps
  trace = std::make_unique<Trace>(machine.threads, kEventsMax, device.used());
  return {};
}

void Engine::State::WriteTrace() const {
  if (!trace) return;
  const Status written = WriteFile(options.trace_file, trace->ToJson());
  const std::string said = written ? "trace: " + options.trace_file : written.error().message;
  std::fputs((said + '\n').c_str(), stderr);  // fmt would throw on a full disk
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Engine::~Engine() {
  Close();
  state_->partners.reset();  // while the driver still takes what it posts
  state_->tier.reset();
}

void Engine::Close() {
  if (std::exchange(state_->closed, true)) return;
  Stop(true);
  Join();
  if (state_->balancer) state_->balancer->Stop();
  state_->leader.reset();  // the others end
  for (ThreadFollower& follower : state_->followers) follower.thread.reset();
  const Status done = state_->experts ? state_->experts->Close(state_->ranks != nullptr) : Status();
  if (!done) std::fputs((done.error().message + '\n').c_str(), stderr);
  state_->WriteTrace();
}

// All that a rank does before the run begins.
Status Engine::State::Prepare(const std::function<void(std::string)>& stage) {
  stage("reading config.json");
  ASSIGN_OR_RETURN(machine, device.Open(options));
  RETURN_IF_ERROR(StartTrace());
  ASSIGN_OR_RETURN(options.model_dir, FindModel(options.model_dir));
  ASSIGN_OR_RETURN(OpenedModel model, OpenModel(options.model_dir));
  spec = std::move(model.spec);
  if (options.expanded_mla()) {
    if (spec.quantization.panels()) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("{}: a mapped checkpoint has no keys for --mla expanded; load the "
                               "one that it was made from",
                               options.model_dir),
                   "mla"};
    }
    ExpandLatentAttention(spec, kExpandedTokensMin);
  }
  checkpoint = std::move(model.checkpoint);
  ASSIGN_OR_RETURN(experts, RecorderOf(options, spec, device.used()));
  RETURN_IF_ERROR(ChooseDrafts());
  RETURN_IF_ERROR(LoadText());
  RETURN_IF_ERROR(OpenRanks());
  ASSIGN_OR_RETURN(Binding binding, Bind(views[0]));
  report = binding.report;
  const bool asked = options.expand || options.weight_choice().format;
  RETURN_IF_ERROR(asked ? Status() : CheckExpansion(report, options.model_dir));
  ASSIGN_OR_RETURN(move_bytes, MoveBytesOf(options, spec, binding));
  RETURN_IF_ERROR(PlanCache(binding));
  if (options.partners) RETURN_IF_ERROR(FindPartners());
  ASSIGN_OR_RETURN(kv_events, OpenEvents(options, views[0].rank));
  ASSIGN_OR_RETURN(
      tier, OpenTier(options, fingerprint_parts(), ranks ? ranks->here() : std::vector<int32_t>()));
  if (!options.cache_dir.empty()) memory.tier_bytes = options.cache_disk_bytes / options.mesh.tp;
  return LoadRanks(std::move(binding), stage);
}

Result<std::unique_ptr<Engine>> Engine::Load(const EngineOptions& options,
                                             const std::function<void(std::string)>& stage) {
  const int64_t start_us = MonotonicUs();
  auto state = std::make_unique<State>();
  state->options = options;
  const Status prepared = OrEnd(state->Prepare(stage), state->ranks.get());
  if (EngineDevice::GivesWay(options, prepared)) {
    state.reset();  // its ports and memory are needed again
    return Load(OnCpu(options), stage);
  }
  RETURN_IF_ERROR(prepared);
  stage("starting the engine");
  RETURN_IF_ERROR(state->StartEngine());
  state->load_seconds = static_cast<double>(MonotonicUs() - start_us) * 1e-6;
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

Status Engine::Follow(const EngineOptions& options) {
  State state;
  state.options = options;
  state.options.trace_file.clear();
  LeaveSignalsToRank0();
  RETURN_IF_ERROR(OrEnd(state.Prepare([](std::string) {}), state.ranks.get()));
  const int32_t rank = state.views[0].rank;
  state.executor->BindEngineThread();
  FollowerReports reports(state.options.mesh, rank, state.tier.get(), state.grammars.get());
  const Status status = OrEnd(FollowRun(*state.ranks->Groups(rank).all, state.SharedStart(),
                                        *state.executor, reports.parts()),
                              state.ranks.get());
  state.tier.reset();
  return status;
}

Status Engine::group_status() const {
  std::lock_guard lock(state_->lost_mutex);
  return state_->lost;
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
std::string Engine::ModelLines() const { return ModelLinesOf(state_->fingerprint_parts()); }
handoff::Partners* Engine::partners() const { return state_->partners.get(); }
const ExpertRecorder* Engine::experts() const { return state_->experts.get(); }
int64_t Engine::tier_ahead_bytes() const {
  return state_->tier ? state_->tier->ahead_bytes() : 0;
}
const kv::Publisher* Engine::kv_events() const { return state_->kv_events.get(); }
double Engine::load_seconds() const { return state_->load_seconds; }
const ExpertMover* Engine::mover() const { return state_->executor->mover(); }
const RankCounts* Engine::rank_counts() const { return state_->executor->rank_counts(); }
RunningFormats Engine::weight_formats() const { return RunningFormatsOf(state_->report); }
std::string Engine::PlanText() const {
  const State& s = *state_;
  std::string text;
  if (s.ranks) {
    text += fmt::format("ranks: {}, {}; of each:\n", MeshText(s.options.mesh),
                        s.ranks->as_processes() ? "processes" : "threads of this process");
  }
  for (const std::string& line : DescribePlan(s.memory)) text += line + '\n';
  text += "machine: " + s.MachineText() + '\n';
  if (s.device.used()) text += s.device.rate_text() + '\n';
  text += fmt::format("steps: at most {} tokens, {} sequences\n", s.limits.step_tokens_max,
                      s.limits.running_max);
  if (s.tier) text += TierText(*s.tier, s.options);
  text += StagingText(s.StagingBytes());
  text += DraftsText(s.limits, s.DraftBytes());
  for (const std::string& line : s.report.draft) text += line + '\n';
  for (const std::string& line : s.report.skipped) text += line + '\n';
  text += fmt::format("loaded {} in {:.2f} s\n", s.spec.architecture, s.load_seconds);
  return text;
}

json::object Engine::PlanObject() const {
  const State& s = *state_;
  json::object object = MemoryObject(s.memory);
  object.insert({{"architecture", s.spec.architecture},
                 {"prefix_cache", s.limits.prefix_cache},
                 {"cache_dir", s.options.cache_dir},
                 {"cache_disk_bytes", s.options.cache_disk_bytes},
                 {"cache_host_bytes", s.options.cache_host_bytes},
                 {"handoff_staging_bytes", s.StagingBytes()},
                 {"draft_tokens_max", s.limits.draft_tokens_max},
                 {"draft_adapt", s.limits.draft_adapt},
                 {"draft_lookup", s.limits.draft_lookup},
                 {"draft_head", s.limits.draft_head},
                 {"draft_bytes", s.DraftBytes()},
                 {"context_tokens_max", s.limits.context_tokens_max},
                 {"step_tokens_max", s.limits.step_tokens_max},
                 {"running_max", s.limits.running_max},
                 {"dp", s.options.mesh.dp},
                 {"tp", s.options.mesh.tp},
                 {"ep", s.options.mesh.ep},
                 {"device", s.device.name()},
                 {"expected_tokens_per_second", s.device.tokens_per_second()},
                 {"decode_kernels", s.device.decode_kernels()},
                 {"kernel_start_seconds", s.device.start_seconds()},
                 {"threads", s.machine.threads},
                 {"isa", std::string(NameOf(s.machine.device.isa))},
                 {"compute", s.machine.device.compute == Compute::kF32 ? "fp32" : "bf16"},
                 {"kv_dtype", std::string(NameOf(s.machine.kv_dtype))},
                 {"state_dtype", std::string(NameOf(s.machine.state_dtype))},
                 {"mla", s.options.mla},
                 {"weights", FormatsText(s.formats)},
                 {"load_seconds", s.load_seconds}});
  return object;
}
int64_t Engine::ProcessBytesMax() const {
  const State& s = *state_;
  const auto ranks = static_cast<int32_t>(s.views.size());
  return (s.memory.weight_bytes + s.memory.workspace_bytes + s.memory.arena_bytes) * ranks +
         s.memory.host_weight_bytes + s.memory.host_scratch_bytes +
         HostBytesHere(s.options, ranks) + s.StagingBytes();
}
void Engine::Stop(bool now) { state_->driver->Stop(now); }
void Engine::Join() {
  if (state_->thread.joinable()) state_->thread.join();
}

}  // namespace braid
