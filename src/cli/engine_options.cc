// See the header. Pure but for the detection of the CPU.
#include "cli/engine_options.h"

#include <fmt/core.h>

namespace braid {

void AddDeviceFlags(Flags& flags, EngineOptions& options) {
  flags.Choice("--compute", options.compute, {"fp32", "bf16", "auto"},
               "Operands of matrix products; auto: bf16 where the CPU multiplies it, else fp32");
  flags.Choice("--isa", options.isa, {"auto", "base", "avx2", "avx512", "amx"},
               "Highest instruction set to use");
  flags.Number("--threads", options.threads, {1, 1024},
               "Compute threads (default: physical cores, fewer under a CPU quota)");
}

void AddKvFlag(Flags& flags, EngineOptions& options) {
  flags.Choice("--kv-dtype", options.kv_dtype, {"fp32", "bf16", "int8", "auto"},
               "Keys and values in the cache; auto: as --compute");
}

void AddMlaFlag(Flags& flags, EngineOptions& options) {
  flags.Choice("--mla", options.mla, {"absorbed", "expanded"},
               "Latent attention of long prompts: in the latent space, or with keys and values of "
               "heads, which is faster and rounds otherwise");
}

void AddWeightFlags(Flags& flags, std::string& weights, bool& head) {
  flags.Choice("--weights", weights, {"auto", "fp32", "bf16", "fp8", "int8", "int4"},
               "Format of the matrices in memory; auto: as the checkpoint stores them");
  flags.Switch("--quantize-head", head,
               "With fp8, int8 or int4: the embedding and the output head too");
}

WeightChoice WeightChoiceOf(std::string_view weights, bool head) {
  WeightChoice choice{.format = {}, .head = head};
  using enum ops::WeightFormat;
  for (auto format : {kF32, kBF16, kF8, kI8, kI4}) {
    if (weights == ops::NameOf(format)) choice.format = format;
  }
  return choice;
}

WeightChoice EngineOptions::weight_choice() const { return WeightChoiceOf(weights, quantise_head); }

void AddEngineFlags(Flags& flags, EngineOptions& options) {
  AddDeviceFlags(flags, options);
  AddWeightFlags(flags, options.weights, options.quantise_head);
  AddKvFlag(flags, options);
  AddMlaFlag(flags, options);
  flags.Bytes("--memory", options.memory_bytes,
              "Memory for weights, workspace and cache (default: most of what is free)");
  flags.Number("--max-model-len", options.context_tokens_max, {1, 1 << 30},
               "Tokens of one sequence, prompt and answer (default: the model's, or what fits)");
  flags.Number("--max-batch-tokens", options.step_tokens_max, {1, 1 << 20},
               "Tokens of one step, all sequences together");
  flags.Number("--chunk-tokens", options.chunk_tokens_max, {0, 1 << 20},
               "Prompt tokens of one sequence in one step (default: the step's)");
  flags.Number("--decode-latency-ms", options.decode_latency_ms, {0, 1 << 20},
               "Ration prompts so that steps in which answers grow take no longer (0: do not)");
  flags.Switch("--no-prefix-cache", options.no_prefix_cache,
               "Compute every prompt from its first token");
  flags.Text("--event-log", options.event_log,
             "Record the run in this file; `braid replay FILE` repeats it");
  flags.Text("--trace", options.trace_file,
             "Write what each thread did when into FILE (for chrome://tracing or Perfetto)");
  flags.Switch("--explain-ops", options.explain_ops,
               "Print which implementation each op got, and why not a better one");
}

Result<Machine> ResolveMachine(const EngineOptions& options, const CpuFeatures& cpu) {
  Machine machine;
  machine.cpu = cpu;
  machine.device.isa = BestIsa(cpu);
  if (options.isa != "auto") {
    ASSIGN_OR_RETURN(const Isa wanted, ParseIsa(options.isa));
    if (wanted > machine.device.isa) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("--isa {}: this CPU ({}) has at most {}", options.isa,
                               cpu.model_name, NameOf(machine.device.isa))};
    }
    machine.device.isa = wanted;
  }
  const bool multiplies_bf16 = cpu.avx512_bf16 && machine.device.isa >= Isa::kAvx512;
  const bool bf16 = options.compute == "bf16" || (options.compute == "auto" && multiplies_bf16);
  machine.device = DeviceOf(cpu, machine.device.isa, bf16 ? Compute::kBF16 : Compute::kF32);
  const bool bf16_kv = options.kv_dtype == "bf16" || (options.kv_dtype == "auto" && bf16);
  machine.kv_dtype = options.kv_dtype == "int8" ? DType::kI8 : bf16_kv ? DType::kBF16 : DType::kF32;
  machine.threads = options.threads > 0 ? options.threads : cpu.topology.DefaultThreads();
  machine.places = cpu.topology.PlacesOf(machine.threads);
  return machine;
}

Result<Machine> ResolveMachine(const EngineOptions& options) {
  return ResolveMachine(options, DetectCpu());
}

}  // namespace braid
