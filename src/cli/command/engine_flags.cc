// The flags that commands with an engine share: names, ranges and help.
#include "cli/command/engine_flags.h"

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
  std::vector<std::string> formats = {"auto"};
  for (const ops::WeightFormatRow& format : ops::WeightFormats()) formats.emplace_back(format.name);
  flags.Choice("--weights", weights, std::move(formats),
               "Format of the matrices in memory; auto: as the checkpoint stores them");
  flags.Switch("--quantize-head", head,
               "With a quantised format: the embedding and the output head too");
}

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

void AddSamplingFlags(Flags& flags, SamplingChoice& choice) {
  flags.Number("--max-tokens", choice.max_tokens, {1, 1 << 30},
               "Tokens of the answer at most (default: 1024, or what the context leaves)");
  flags.Number("--temperature", choice.temperature, {0, 100}, "0: always the most probable token");
  flags.Number("--top-k", choice.top_k, {0, 1 << 30}, "Sample among the k most probable; 0: all");
  flags.Number("--top-p", choice.top_p, {1e-6, 1}, "Sample among the most probable of this mass");
  flags.Number("--min-p", choice.min_p, {0, 1}, "Sample above this share of the best probability");
  flags.Seed("--seed", choice.seed, "Same seed, same answer (default: another one every time)");
}

}  // namespace braid
