// What a user may choose of the engine, with the flags for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"
#include "model/weights.h"
#include "scheduler/scheduler.h"
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "text/grammar_trial.h"

namespace braid {

struct EngineOptions {
  std::string model_dir;
  std::string compute = "auto";    // fp32, bf16, auto
  std::string isa = "auto";        // base, avx2, avx512, amx, auto
  std::string kv_dtype = "auto";   // fp32, bf16, int8, auto: as the arithmetic
  std::string mla = "absorbed";    // expanded: prefill of latent attention in the expanded form
  std::string weights = "auto";    // fp32, bf16, fp8, int8, int4, auto: as stored
  bool quantise_head = false;      // a quantised format for embedding and head too
  int32_t threads = 0;             // 0: Topology::DefaultThreads
  int64_t memory_bytes = 0;        // weights, workspace and cache together; 0: derived
  int64_t cache_bytes = 0;         // the cache alone, instead of memory_bytes; 0: derived
  int32_t context_tokens_max = 0;  // 0: the model's, or what fits
  int32_t step_tokens_max = 2048;
  int32_t chunk_tokens_max = 0;  // 0: no limit of its own
  int32_t running_max = 64;
  int32_t decode_latency_ms = 0;  // 0: prompts take what the step's budget leaves
  bool no_prefix_cache = false;
  bool explain_ops = false;
  std::string trace_file;                       // empty: none
  std::optional<GrammarBudget> grammar_budget;  // nullopt: grammars are compiled without a trial
  std::string event_log;                        // file to record the run in; empty: none
  // A recorded run's figures take the place of what would be derived here.
  std::optional<SchedulerConfig> recorded;

  WeightChoice weight_choice() const;
  bool expanded_mla() const { return mla == "expanded"; }
};

// The model as first positional argument is not among them.
void AddEngineFlags(Flags& flags, EngineOptions& options);
// --weights and --quantize-head only, and what they come to.
void AddWeightFlags(Flags& flags, std::string& weights, bool& head);
WeightChoice WeightChoiceOf(std::string_view weights, bool head);
// --threads, --isa, --compute only.
void AddDeviceFlags(Flags& flags, EngineOptions& options);
void AddKvFlag(Flags& flags, EngineOptions& options);
void AddMlaFlag(Flags& flags, EngineOptions& options);

// What the options come to on this machine.
struct Machine {
  CpuFeatures cpu;
  Device device;
  DType kv_dtype = DType::kF32;
  int threads = 1;
  ThreadPlaces places;  // of the threads
};

// kInvalid when an instruction set is asked for that the CPU lacks.
Result<Machine> ResolveMachine(const EngineOptions& options);
Result<Machine> ResolveMachine(const EngineOptions& options, const CpuFeatures& cpu);

}  // namespace braid
