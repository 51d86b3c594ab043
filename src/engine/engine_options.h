// The user's options of the engine, and their resolution on this machine. The flags:
// cli/command/engine_flags.h.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "comm/step_times.h"
#include "handoff/partners.h"
#include "kv_events/publisher.h"
#include "model/loading/memory_plan.h"
#include "model/loading/weight_choice.h"
#include "parallel/mesh.h"
#include "runtime/drafts/rehearsed_drafter.h"
#include "runtime/experts/expert_balancer.h"
#include "runtime/halves/overlap_choice.h"
#include "runtime/rank_results.h"
#include "scheduler/scheduler.h"
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "text/grammar/grammar_trial.h"

namespace braid {

inline constexpr int64_t kCacheDiskBytes = int64_t{16} << 30;

struct EngineOptions {
  std::string model_dir;
  std::string device = "cpu";        // cpu, vulkan, vulkan:N, auto (engine/device_choice.h)
  std::string experts = "auto";      // with a device, the routed ones: cpu, device, auto
  std::string compute = "auto";      // fp32, bf16, auto
  std::string isa = "auto";          // base, avx2, avx512, amx, auto
  std::string kv_dtype = "auto";     // fp32, bf16, int8, auto: as the arithmetic
  std::string state_dtype = "fp32";  // fp32, bf16, int8
  std::string mla = "absorbed";      // expanded: prefill of latent attention in the expanded form
  std::string weights = "auto";      // a format (ops/weight_format.h), or auto: as stored
  bool quantise_head = false;        // a quantised format for embedding and head too
  bool expand = false;               // load a model that takes far more memory than its files
  std::string draft = "auto";        // see ParseDraft
  const Rehearsal* rehearsal = nullptr;  // to measure with, of one process; null: none
  int32_t threads = 0;                   // 0: Topology::DefaultThreads
  int64_t memory_bytes = 0;              // weights, workspace and cache together; 0: derived
  int64_t cache_bytes = 0;               // the cache alone, instead of memory_bytes; 0: derived
  int32_t context_tokens_max = 0;        // 0: the model's, or what fits
  SchedulerConfig scheduler;  // as far as it is the user's to choose: see scheduler/config.h
  Mesh mesh;                  // several ranks: threads of this process, or mpirun's processes
  std::string ep_dispatch = "auto";        // throughput, latency (DispatchForm)
  std::string reduce = "exact";            // fast: experts' rows are added up by rank
  std::string two_batch_overlap = "auto";  // on, off
  int32_t rank_seconds = 10;               // a rank that is not heard of for so long is lost
  bool explain_ops = false;
  std::string trace_file;                       // empty: none
  std::optional<GrammarBudget> grammar_budget;  // nullopt: grammars are compiled without a trial
  std::string event_log;                        // file to record the run in; empty: none
  std::string cache_dir;  // pages that rest are written there and read again; empty: none
  int64_t cache_disk_bytes = kCacheDiskBytes;  // at most, of that directory
  int64_t cache_host_bytes = 0;                // of memory for pages beside the cache; 0: none
  std::optional<int32_t> cache_host_node;      // the NUMA node that it is of; nullopt: any
  std::string cache_key_file;                  // to encrypt them with; empty: they are not
  std::string expert_loads;                    // file to record the experts' loads in; empty: none
  std::string expert_loads_line = "window";    // of that file: window, pass or token
  // The other part of a hand-off is another engine's; none: this one does all. Its fingerprint is
  // the engine's to fill in.
  std::optional<handoff::PartnerOptions> partners;
  kv::PublisherOptions kv_events;  // who hears of stored prefixes
  std::string expert_placement;    // file that says where experts lie; empty: in order
  int32_t redundant_experts = 0;   // further slots of a layer, without such a file
  bool balance_experts = false;    // move experts where the load is
  BalancerOptions balance;         // when
  int64_t balance_step_bytes = int64_t{1} << 20;  // that may travel in a step
  // What the steps take on each rank, threads of this process, to measure with; null: nobody asks.
  std::deque<StepTimes>* step_times = nullptr;
  // A recorded run's figures take the place of what would be derived here.
  std::optional<SchedulerConfig> recorded;

  WeightChoice weight_choice(bool inputs_in_order = false) const;
  DispatchRule dispatch() const;
  // Of ranks; those that are threads share memory, and cut batches only when they are told to.
  Overlap overlap(bool as_processes) const;
  bool expanded_mla() const { return mla == "expanded"; }
};

WeightChoice WeightChoiceOf(std::string_view weights, bool head);

// Drafts in rows: as many as --draft says at most, and by whom.
inline constexpr int32_t kDraftTokensAuto = 4, kDraftTokensMost = 15;
struct DraftChoice {
  int32_t tokens_max = 0;
  bool adapt = true;  // as many as pay; false: always tokens_max
  bool lookup = true;
  bool head = false;

  void Apply(SchedulerConfig& config) const;
};

// "auto": the model's draft head, if it has one, and lookups, whichever is better, as far as it
// pays; "ngram": lookups alone; "off"; a number: always so many, of the head if there is one,
// otherwise looked up.
Result<DraftChoice> ParseDraft(std::string_view text, bool has_head);

// Bytes at most that drafts take beside `cache`, which is a rank's; context_tokens_max 0: any.
int64_t DraftBytes(const ModelSpec& spec, const CachePlan& cache, const SchedulerConfig& limits,
                   int32_t context_tokens_max);

// A line for the start; empty without drafts. `bytes`: beside the cache.
std::string DraftsText(const SchedulerConfig& limits, int64_t bytes);

// What the options come to on this machine.
struct Machine {
  CpuFeatures cpu;
  Device device;
  DType kv_dtype = DType::kF32;
  DType state_dtype = DType::kF32;
  int threads = 1;
  ThreadPlaces places;  // of the threads
};

// kInvalid when an instruction set is asked for that the CPU lacks.
Result<Machine> ResolveMachine(const EngineOptions& options);
Result<Machine> ResolveMachine(const EngineOptions& options, const CpuFeatures& cpu);

// Replaces the planned arena with that of the recorded run, if it suits the model.
Status TakeRecorded(const EngineOptions& options, int32_t vocabulary, MemoryPlan& memory);

}  // namespace braid
