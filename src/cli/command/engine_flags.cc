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

void AddCacheTypeFlags(Flags& flags, EngineOptions& options) {
  flags.Choice("--kv-dtype", options.kv_dtype, {"fp32", "bf16", "int8", "auto"},
               "Type of cached keys and values; auto: the same as --compute");
  flags.Choice("--state-dtype", options.state_dtype, {"fp32", "bf16", "int8"},
               "Type of the recurrent state of linear layers in the cache; others than fp32 take "
               "less memory and round");
}

void AddMlaFlag(Flags& flags, EngineOptions& options) {
  flags.Choice("--mla", options.mla, {"absorbed", "expanded"},
               "How latent attention processes long prompts. expanded: rebuild keys and values per "
               "head, which is faster and rounds differently");
}

void AddWeightFlags(Flags& flags, std::string& weights, bool& head) {
  std::vector<std::string> formats = {"auto"};
  for (const ops::WeightFormatRow& format : ops::WeightFormats()) formats.emplace_back(format.name);
  flags.Choice("--weights", weights, std::move(formats),
               "Weight format in memory; auto: the format of the checkpoint");
  flags.Switch("--quantize-head", head,
               "With a quantised format: also quantise the embedding and the output head");
}

void AddSchedulerFlags(Flags& flags, Offered offered, SchedulerConfig& config) {
  for (const Setting& s : kSettings) {
    if (s.offered != offered) continue;
    const Range range{static_cast<double>(s.least), static_cast<double>(s.most / s.flag_unit)};
    if (const auto* whole = std::get_if<int32_t SchedulerConfig::*>(&s.member)) {
      flags.Number(s.flag, config.**whole, range, s.help);
    } else if (const auto* wide = std::get_if<int64_t SchedulerConfig::*>(&s.member)) {
      flags.Number(s.flag, config.**wide, s.flag_unit, range, s.help);
    } else if (const auto* on = std::get_if<bool SchedulerConfig::*>(&s.member)) {
      bool& value = config.**on;
      value ? flags.SwitchOff(s.flag, value, s.help) : flags.Switch(s.flag, value, s.help);
    }
  }
}

namespace {

// Where pages lie that the cache has no room for.
void AddTierFlags(Flags& flags, EngineOptions& options) {
  flags.Text("--cache-dir", options.cache_dir,
             "Keep pages of conversations in this directory beside memory; a later start reuses "
             "them (docs/guides/disk_tier.md)");
  flags.Bytes("--cache-disk", options.cache_disk_bytes,
              "With --cache-dir: most bytes of that directory (default: 16GiB)");
  flags.Bytes("--cache-host", options.cache_host_bytes,
              "Keep pages of conversations in so much memory beyond --memory, in huge pages");
  flags.Number("--cache-host-node", options.cache_host_node, {0, 1023},
               "With --cache-host: take that memory from this NUMA node");
  flags.NonEmpty("--cache-key-file", options.cache_key_file,
                 "With --cache-dir: encrypt pages there with the key in FILE, 64 hex digits");
}

void AddExpertFlags(Flags& flags, EngineOptions& options) {
  flags.Text("--expert-loads", options.expert_loads,
             "Record which experts tokens choose in FILE for `braid experts plan FILE`");
  flags.Choice("--expert-loads-line", options.expert_loads_line, {"window", "pass", "token"},
               "What a line of that file counts: 100 steps, one step, or one step with the experts "
               "of every token");
  flags.Text("--expert-placement", options.expert_placement,
             "With --ep: lay experts where FILE of `braid experts plan --write FILE` says");
  flags.Number("--redundant-experts", options.redundant_experts, {0, kRedundantExpertsMax},
               "With --ep: slots for further replicas of each layer's experts; --ep divides "
               "experts and replicas together");
  flags.Switch("--balance-experts", options.balance_experts,
               "With --ep: while serving, move experts so that all ranks get as many tokens");
  flags.Number("--balance-every", options.balance.every_steps, {10, 1 << 30},
               "With --balance-experts: steps between two decisions");
  flags.Number("--balance-below", options.balance.below, {0.01, 1},
               "With --balance-experts: move experts only while the mean rank has less than this "
               "part of the fullest one's tokens");
  flags.Bytes("--balance-step-bytes", options.balance_step_bytes,
              "With --balance-experts: most bytes that a rank sends, or receives, in a step, "
              "from 64K to 1G and at most 32M for each of --rank-seconds (default: 1M)");
}

}  // namespace

void AddPlaceFlags(Flags& flags, EngineOptions& options) {
  flags.Text("--device", options.device,
             "Where the model runs: cpu; vulkan or vulkan:N, a device that `braid doctor` lists; "
             "auto: the first such device that is no software and can run the model, else the CPU");
  flags.Choice(
      "--experts", options.experts, {"auto", "cpu", "device"},
      "With --device: who computes the experts that a router chooses, and has their "
      "weights. cpu: the CPU, beside the shared expert on the device; auto: the device, or "
      "the CPU where the device has no room for them");
}

void AddEngineFlags(Flags& flags, EngineOptions& options) {
  AddPlaceFlags(flags, options);
  AddDeviceFlags(flags, options);
  AddWeightFlags(flags, options.weights, options.quantise_head);
  flags.Switch("--expand", options.expand,
               "Also load a model whose weights take more than 1.5 times its files in memory, "
               "because no memory format holds them as they are stored");
  AddCacheTypeFlags(flags, options);
  AddMlaFlag(flags, options);
  flags.Bytes("--memory", options.memory_bytes,
              "Memory for weights, workspace and cache (default: most of the free memory)");
  flags.Number("--max-model-len", options.context_tokens_max, {1, 1 << 30},
               "Most tokens of a sequence, prompt and answer (default: the model's, or what fits)");
  flags.Text("--draft", options.draft,
             "Drafts that a step verifies for each sequence, which change no answer: auto (as many "
             "as pay, of the draft head or looked up), ngram (looked up only), off, or a number");
  flags.Number(
      "--tp", options.mesh.tp, {1, 4096},
      "Ranks that share the work on every token: threads of this process, or the processes "
      "of a launcher (docs/guides/ranks.md)");
  flags.Number("--dp", options.mesh.dp, {1, 4096},
               "Groups of --tp ranks, which have sequences of their own");
  flags.Number("--ep", options.mesh.ep, {1, 4096}, "Ranks that share the experts of a layer");
  flags.Choice(
      "--ep-dispatch", options.ep_dispatch, {"auto", "throughput", "latency"},
      "How tokens come to the ranks of their experts: counted (throughput), in parcels of "
      "a fixed size, which take a message less (latency), or in parcels while they are few");
  flags.Choice(
      "--reduce", options.reduce, {"exact", "fast"},
      "With --ep: what experts give for a token is added at its home, with the bits of one "
      "rank (exact), or by each rank, with other roundings and fewer bytes (fast)");
  flags.Choice(
      "--two-batch-overlap", options.two_batch_overlap, {"auto", "on", "off"},
      "Whether ranks compute one half of a step's tokens while rows of the other travel; answers "
      "are the same. auto: ranks that are processes, in the steps where it pays");
  flags.Number("--rank-seconds", options.rank_seconds, {1, 3600},
               "A rank that is not heard of for so long is lost, which ends the others");
  AddSchedulerFlags(flags, Offered::kEngine, options.scheduler);
  AddTierFlags(flags, options);
  flags.Text("--event-log", options.event_log,
             "Record the run in FILE for `braid replay FILE` and `braid simulate cluster`");
  AddExpertFlags(flags, options);
  flags.Text("--trace", options.trace_file,
             "Write a trace of all threads to FILE (for chrome://tracing or Perfetto)");
  flags.Switch("--explain-ops", options.explain_ops,
               "Print the implementation chosen for each op, and why others were not");
}

void AddSamplingFlags(Flags& flags, SamplingChoice& choice) {
  flags.Number("--max-tokens", choice.max_tokens, {1, 1 << 30},
               "Most tokens of the answer (default: 1024, or what the context leaves)");
  flags.Number("--temperature", choice.temperature, {0, 100},
               "Sampling temperature; 0: always the most probable token");
  flags.Number("--top-k", choice.top_k, {0, 1 << 30},
               "Sample from the k most probable tokens; 0: all");
  flags.Number("--top-p", choice.top_p, {1e-6, 1},
               "Sample from the most probable tokens with this total probability");
  flags.Number("--min-p", choice.min_p, {0, 1},
               "Drop tokens below this share of the highest probability");
  flags.Seed("--seed", choice.seed,
             "Random seed; equal seeds give equal answers (default: random)");
}

}  // namespace braid
