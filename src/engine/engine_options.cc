// Options resolved on this machine. Pure except for the detection of the CPU.
#include "engine/engine_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/quantities.h"
#include "runtime/drafts/head_drafter.h"
#include "runtime/drafts/lookup_drafter.h"

namespace braid {

WeightChoice WeightChoiceOf(std::string_view weights, bool head) {
  return {.format = ops::FindWeightFormat(weights), .head = head};
}

Overlap EngineOptions::overlap(bool as_processes) const {
  if (two_batch_overlap == "on") return Overlap::kOn;
  return two_batch_overlap == "auto" && as_processes ? Overlap::kAuto : Overlap::kOff;
}

DispatchRule EngineOptions::dispatch() const {
  if (ep_dispatch == "throughput") return {.form = DispatchForm::kThroughput};
  if (ep_dispatch == "latency") return {.form = DispatchForm::kLatency};
  return {};
}

WeightChoice EngineOptions::weight_choice(bool inputs_in_order) const {
  WeightChoice choice = WeightChoiceOf(weights, quantise_head);
  choice.inputs_in_order = inputs_in_order;
  return choice;
}

void DraftChoice::Apply(SchedulerConfig& config) const {
  config.draft_tokens_max = tokens_max;
  config.draft_adapt = adapt;
  config.draft_lookup = lookup;
  config.draft_head = head;
}

Result<DraftChoice> ParseDraft(std::string_view text, bool has_head) {
  if (text == "off" || text == "0") return DraftChoice{};
  if (text == "auto") return DraftChoice{.tokens_max = kDraftTokensAuto, .head = has_head};
  if (text == "ngram") return DraftChoice{.tokens_max = kDraftTokensAuto};
  int32_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 0 ||
      count > kDraftTokensMost) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("--draft {}: expected auto, off, ngram or a number from 1 to {}", text,
                             kDraftTokensMost),
                 "draft"};
  }
  return DraftChoice{.tokens_max = count, .adapt = false, .lookup = !has_head, .head = has_head};
}

int64_t DraftBytes(const ModelSpec& spec, const CachePlan& cache, const SchedulerConfig& limits,
                   int32_t context_tokens_max) {
  if (limits.draft_tokens_max == 0) return 0;
  const int32_t longest =
      context_tokens_max > 0 ? context_tokens_max : std::numeric_limits<int32_t>::max();
  const int64_t head = limits.draft_head ? HeadDrafter::Bytes(spec, cache, limits.running_max) : 0;
  return LookupDrafter::Bytes(limits.running_max, longest) + head;
}

std::string DraftsText(const SchedulerConfig& limits, int64_t bytes) {
  if (limits.draft_tokens_max == 0) return "";
  return fmt::format("drafts: {}{} a sequence and step, {}; {} beside the cache\n",
                     limits.draft_adapt ? "up to " : "", limits.draft_tokens_max,
                     limits.draft_head && limits.draft_lookup ? "of the head or looked up"
                     : limits.draft_head                      ? "of the head"
                                                              : "looked up",
                     ByteText(bytes));
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
  machine.state_dtype = options.state_dtype == "int8"   ? DType::kI8
                        : options.state_dtype == "bf16" ? DType::kBF16
                                                        : DType::kF32;
  machine.threads = options.threads > 0 ? options.threads : cpu.topology.DefaultThreads();
  machine.places = cpu.topology.PlacesOf(machine.threads);
  return machine;
}

Result<Machine> ResolveMachine(const EngineOptions& options) {
  return ResolveMachine(options, DetectCpu());
}

Status TakeRecorded(const EngineOptions& options, int32_t vocabulary, MemoryPlan& memory) {
  const CacheGeometry& cache = options.recorded->cache;
  const auto same = [](const GroupGeometry& a, const GroupGeometry& b) {
    return a.kind == b.kind && a.block_bytes == b.block_bytes;
  };
  const auto& groups = memory.geometry.groups;
  if (options.recorded->vocabulary != vocabulary ||
      !std::equal(groups.begin(), groups.end(), cache.groups.begin(), cache.groups.end(), same)) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: --kv-dtype, --state-dtype or the model differs from the recorded "
                             "run, or it ran on several ranks, which replay repeats without "
                             "--model only: vocabularies or cache blocks do not match",
                             options.model_dir)};
  }
  memory.geometry = cache;
  memory.arena_bytes = cache.page_bytes * cache.pages;
  memory.model_len_max = options.recorded->context_tokens_max;
  memory.running_max = options.recorded->running_max;
  return {};
}

}  // namespace braid
