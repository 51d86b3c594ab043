// The plan and the costs are those of `braid serve` with its default flags.
#include "cli/outlook.h"

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/system/control_groups.h"
#include "cli/bench/machine_limits.h"
#include "engine/engine_options.h"
#include "model/loading/decode_rate.h"
#include "model/loading/load_weights.h"
#include "model/loading/memory_plan.h"

namespace braid {
namespace {

// Caches may hold weights of fewer bytes, and reading them is not what a step waits for.
constexpr int64_t kMeasuredFrom = int64_t{1} << 30;

std::string FormText(const Outlook& outlook, const Expansion& expansion,
                     const WeightChoice& choice) {
  if (choice.format) return fmt::format("runs in {}", ops::NameOf(*choice.format));
  if (outlook.as_stored) return "runs as stored";
  return fmt::format("{} expanded, {:.1f} times the bytes stored ({}){}",
                     outlook.needs_expand ? "runs only with --expand:" : "runs", expansion.times(),
                     fmt::join(expansion.formats, "; "),
                     outlook.needs_expand ? " or with another --weights" : "");
}

}  // namespace

Result<Outlook> OutlookOf(ModelSpec spec, const Checkpoint& checkpoint,
                          const WeightChoice& choice) {
  const EngineOptions options;
  ASSIGN_OR_RETURN(const Machine machine, ResolveMachine(options));
  ASSIGN_OR_RETURN(const DraftChoice draft, ParseDraft(options.draft, HasDraftHead(spec)));
  SchedulerConfig scheduler = options.scheduler;
  draft.Apply(scheduler);
  if (draft.head) UseDraftHead(spec);
  PlanState(spec, draft.tokens_max, machine.state_dtype);
  ASSIGN_OR_RETURN(const Binding binding, BindWeights(spec, checkpoint, choice));
  const LoadReport& report = binding.report;
  const Expansion expansion = ExpansionOf(report);
  const int64_t available = AvailableMemory();
  Outlook out{.as_stored = expansion.formats.empty(),
              .needs_expand = !choice.format && expansion.must_be_asked_for(),
              .weight_bytes = expansion.packed};
  const Result<MemoryPlan> plan = PlanMemory(
      spec, {.kv_dtype = machine.kv_dtype,
             .available_bytes = available,
             .weight_bytes = expansion.packed,
             .pageable_bytes = PageableBytes(binding),
             .workspace_bytes = WorkspaceBytes(spec, scheduler.step_tokens_max) +
                                DraftBytes(spec, CachePlanOf(spec, machine.kv_dtype), scheduler, 0),
             .running_max = scheduler.running_max,
             .drafts = draft.tokens_max > 0});
  for (const WeightStorage& weight : report.weights) {
    if (weight.part == "draft_head") out.draft_head_bytes += weight.packed_bytes;
  }
  out.fits = plan.ok();
  out.context_tokens = plan ? plan->model_len_max : 0;
  out.text = fmt::format("{}: {}", FormText(out, expansion, choice), ByteText(out.weight_bytes));
  if (out.draft_head_bytes > 0) {
    out.text += fmt::format(" with a draft head of {}", ByteText(out.draft_head_bytes));
  }
  out.text += "; ";
  out.text += plan ? fmt::format("fits, with sequences of up to {} tokens", out.context_tokens)
                   : fmt::format("does not fit: {}", plan.error().message);
  out.on_disk_bytes = plan ? plan->on_disk_bytes : 0;
  if (out.on_disk_bytes > 0) {
    out.text += fmt::format("; {} of the experts stay on disk, of which a token reads about {}",
                            ByteText(out.on_disk_bytes), ByteText(plan->disk_bytes_per_token));
    return out;
  }
  if (!out.fits || expansion.packed < kMeasuredFrom) return out;
  ThreadPool pool(machine.threads, machine.places);
  const double bandwidth = MemoryMeter(machine.device.isa, pool).Read(0.3);
  out.tokens_per_second =
      kReachedOnCpu * bandwidth / DecodeWorkOf(spec, report, machine.kv_dtype).bytes();
  out.text += fmt::format("; about {:.{}f} tokens/s", out.tokens_per_second,
                          out.tokens_per_second < 10 ? 1 : 0);
  return out;
}

json::object OutlookObject(const Outlook& outlook) {
  return {{"text", outlook.text},
          {"as_stored", outlook.as_stored},
          {"needs_expand", outlook.needs_expand},
          {"weight_bytes", outlook.weight_bytes},
          {"draft_head_bytes", outlook.draft_head_bytes},
          {"fits", outlook.fits},
          {"context_tokens", outlook.context_tokens},
          {"on_disk_bytes", outlook.on_disk_bytes},
          {"tokens_per_second", outlook.tokens_per_second}};
}

}  // namespace braid
