// The forecast of one mesh: memory, steps, speeds.
#include "forecast/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "base/block.h"
#include "base/check.h"
#include "base/math.h"
#include "forecast/formulas.h"
#include "model/loading/memory_plan.h"
#include "model/loading/weight_choice.h"
#include "parallel/rank_view.h"

namespace braid {
namespace {

constexpr double kActivationBytes = 2;  // of what ranks send each other: bf16

int64_t RowCount(const std::vector<RowRange>& rows) {
  int64_t count = 0;
  for (const RowRange& range : rows) count += range.count;
  return count;
}

// Bytes of an element of a packed matrix, its share of the scales included.
double BytesPerWeight(ops::WeightFormat format, int64_t k) {
  return ops::PackedMatrix{.format = format, .n = 1, .k = k}.bytes_per_weight();
}

// What a rank's mixer or feed-forward gathers from the others before its last product.
double InnerWidth(const FullAttention& m) { return static_cast<double>(m.heads) * m.head_dim; }
double InnerWidth(const LatentAttention& m) { return static_cast<double>(m.heads) * m.value_dim; }
double InnerWidth(const LinearAttention& m) {
  return static_cast<double>(m.value_heads) * m.value_dim;
}
double InnerWidth(const DenseFfn& f) { return f.width; }
double InnerWidth(const MoeFfn& f) { return f.shared_width; }

using Step = StepRows;

// Whether all of a group of so many ranks are joined by links is whether they are on one node.
int32_t NodesOf(const Mesh& mesh, const Hardware& hardware, int32_t ranks) {
  return NodesOfGroup(mesh.ranks(), ranks, static_cast<int32_t>(hardware.link_devices));
}

// Ranks of several groups share experts, so tokens travel. Ranks of one group have all tokens, and
// each computes the routed experts for its part of them.
bool TokensTravel(const Mesh& mesh) { return mesh.tp % mesh.ep != 0; }

// Of a sequence that decodes: the one that is sampled, and the drafts before the first wrong one.
double TokensPerStep(const ForecastOptions& options) {
  double tokens = 1;
  for (int32_t i = 1; i <= options.drafts; ++i) tokens += std::pow(options.draft_acceptance, i);
  return tokens;
}

class Forecaster {
 public:
  Forecaster(const ModelSpec& spec, const RankView& view, const Hardware& hardware,
             const ForecastOptions& options)
      : spec_(spec), view_(view), mesh_(view.mesh), hardware_(hardware), options_(options) {
    // Costs of the head are those of the rank's rows of it.
    shard_ = view.spec;
    shard_.vocabulary = static_cast<int32_t>(view.tensor().Of(spec.vocabulary).count);
  }

  StepForecast StepOf(const Step& step) const;
  StepForecast StepOf(const Step& prompts, const Step& decodes) const;
  // A step of prompts, whose tokens go through the draft head as well.
  StepForecast PromptStepOf(const Step& step) const;
  // Every sequence decodes a token and verifies drafts, then the draft head proposes the next ones.
  StepForecast DraftingStepOf(Step decodes) const;
  MemoryForecast MemoryOf(const Workload& workload, int64_t sequences) const;

 private:
  StepShape ShapeOf(const Step& step) const;
  // Of layers that a step runs: the model's or its draft head's, whole and as the rank has them.
  struct Layers {
    const std::vector<LayerSpec>& whole;
    const ModelSpec& shard;
  };
  StepForecast Forecasted(const Layers& layers, const Step& step, std::vector<Cost> costs) const;
  StepForecast DraftPassOf(const Step& pass) const;
  void AddCommunication(const std::vector<LayerSpec>& layers, const Step& step,
                        StepForecast& out) const;
  void AddRouted(const MoeFfn& moe, double tokens, double element_bytes, StepForecast& out) const;
  void AddTransfer(double bytes, int32_t ranks, double hops, StepForecast& out) const;
  // Of the fullest rank; no rank has more than everything.
  double ExpertLoad() const { return std::min<double>(1 / options_.expert_balance, mesh_.ep); }
  // Rows travel as the experts' products read them: of integers with a scale of 4 bytes each.
  double RoutedElementBytes() const {
    if (ops::RowOf(options_.format).integers) return RoutedBytes(1, 1, 1, 1, spec_.hidden);
    return options_.format == ops::WeightFormat::kF8 ? 1 : kActivationBytes;
  }

  const ModelSpec& spec_;
  const RankView& view_;
  const Mesh mesh_;
  const Hardware& hardware_;
  const ForecastOptions& options_;
  ModelSpec shard_;
};

StepShape Forecaster::ShapeOf(const Step& step) const {
  // Of each rank that shares experts with this one, the part of its group's tokens that is its own.
  const int64_t routed = CeilDiv(step.tokens * mesh_.ep, int64_t{mesh_.tp});
  return {.tokens = step.tokens,
          .sequences = step.sequences,
          .context_tokens = step.context_tokens,
          .routed_tokens = routed,
          .expert_share = 1.0 / mesh_.ep,
          .expert_load = ExpertLoad(),
          .bytes_per_weight = BytesPerWeight(options_.format, spec_.hidden),
          .bytes_per_head_weight = 2,
          .kv_dtype = options_.kv_dtype};
}

void Forecaster::AddTransfer(double bytes, int32_t ranks, double hops, StepForecast& out) const {
  const bool linked = NodesOf(mesh_, hardware_, ranks) == 1;
  const double rate = linked ? hardware_.link_bytes_per_second : hardware_.network_bytes_per_second;
  out.sent_bytes += bytes;
  out.link_seconds += hops * bytes / rate + hardware_.exchange_seconds;
}

// Over links a token goes to each of its experts. Over the network it goes once to each node that
// has some of them, whose links then pass it on while the next ones come; outputs return the same
// way and are summed within a node first.
void Forecaster::AddRouted(const MoeFfn& moe, double tokens, double element_bytes,
                           StepForecast& out) const {
  const auto hidden = static_cast<double>(spec_.hidden);
  const int32_t nodes = NodesOf(mesh_, hardware_, mesh_.ep);
  if (nodes == 1) {
    const double away = (mesh_.ep - 1.0) / mesh_.ep;
    AddTransfer(RoutedBytes(tokens, moe.top_k, hidden, element_bytes) * away, mesh_.ep,
                hardware_.mean_hops, out);
    return;
  }
  const double of_node = static_cast<double>(mesh_.ep) / nodes;
  const double others =
      NodesOfToken(moe.experts, moe.top_k, moe.router.groups, moe.router.groups_kept, nodes) *
      (nodes - 1) / nodes;
  const double network = RoutedBytes(tokens, others, hidden, element_bytes);
  const double links =
      RoutedBytes(tokens, moe.top_k, hidden, element_bytes) * (of_node - 1) / of_node;
  out.sent_bytes += network + links;
  const double passed_on = links > 0 ? links / hardware_.link_bytes_per_second : 0;
  out.link_seconds += std::max(network / hardware_.network_bytes_per_second, passed_on) +
                      hardware_.exchange_seconds;
}

void Forecaster::AddCommunication(const std::vector<LayerSpec>& layers, const Step& step,
                                  StepForecast& out) const {
  if (options_.without_communication) return;
  const double tokens = static_cast<double>(step.tokens);
  const double hidden = spec_.hidden;
  for (const LayerSpec& layer : layers) {
    const auto gather = [&](const auto& kind) {
      if (mesh_.tp == 1) return;
      const double width = InnerWidth(kind) + hidden;
      AddTransfer(GatherBytes(tokens, width, kActivationBytes, mesh_.tp), mesh_.tp, 1, out);
    };
    std::visit(gather, layer.mixer);
    std::visit(gather, layer.ffn);
    const MoeFfn* moe = std::get_if<MoeFfn>(&layer.ffn);
    if (moe == nullptr || mesh_.ep == 1) continue;
    const double away = (mesh_.ep - 1.0) / mesh_.ep;
    if (TokensTravel(mesh_)) {
      // A rank sends its part of the group's tokens to their experts and the outputs return; the
      // rank with the fullest experts receives and returns most.
      for (const double element_bytes : {RoutedElementBytes(), kActivationBytes}) {
        AddRouted(*moe, tokens / mesh_.tp * ExpertLoad(), element_bytes, out);
      }
    } else {
      // Outputs of the experts are summed over the ranks: scatter the sums, then gather them.
      AddTransfer(2 * tokens * hidden * kActivationBytes * away, mesh_.ep, 1, out);
    }
  }
}

StepForecast Forecaster::StepOf(const Step& step) const {
  return Forecasted({spec_.layers, shard_}, step, CostsOf(shard_, ShapeOf(step), step.logits_rows));
}

StepForecast Forecaster::StepOf(const Step& prompts, const Step& decodes) const {
  if (prompts.tokens == 0) return StepOf(decodes);
  if (decodes.tokens == 0) return StepOf(prompts);
  const Step all{.tokens = prompts.tokens + decodes.tokens,
                 .sequences = prompts.sequences + decodes.sequences,
                 .logits_rows = prompts.logits_rows + decodes.logits_rows};
  std::vector<Cost> costs = CostsOf(shard_, ShapeOf(all), all.logits_rows);
  const std::vector<Cost> a = CostsOf(shard_, ShapeOf(prompts), prompts.logits_rows);
  const std::vector<Cost> b = CostsOf(shard_, ShapeOf(decodes), decodes.logits_rows);
  CHECK(a.size() == costs.size() && b.size() == costs.size());
  for (size_t i = 0; i < costs.size(); ++i) {
    if (costs[i].weight_bytes > 0) continue;
    costs[i].flops = a[i].flops + b[i].flops;
    costs[i].bytes = a[i].bytes + b[i].bytes;
  }
  return Forecasted({spec_.layers, shard_}, all, costs);
}

// The head's layers, its product of embedding and state, and the output head.
StepForecast Forecaster::DraftPassOf(const Step& pass) const {
  ModelSpec head = shard_;
  head.layers = shard_.draft->layers;
  std::vector<Cost> costs = CostsOf(head, ShapeOf(pass), pass.logits_rows);
  const double projection = 2.0 * spec_.hidden * spec_.hidden / mesh_.tp;
  costs.front().flops += 2 * projection * static_cast<double>(pass.tokens);
  costs.front().bytes += 2 * projection;
  costs.front().weight_bytes += 2 * projection;
  return Forecasted({spec_.draft->layers, head}, pass, std::move(costs));
}

void AddTimes(const StepForecast& step, double times, PartForecast& part, StepForecast& out) {
  for (const PartForecast& p : step.parts) {
    part.flops += times * p.flops;
    part.bytes += times * p.bytes;
    part.arithmetic_seconds += times * p.arithmetic_seconds;
    part.memory_seconds += times * p.memory_seconds;
    part.seconds += times * p.seconds;
  }
  out.compute_seconds += times * step.compute_seconds;
  out.sent_bytes += times * step.sent_bytes;
  out.link_seconds += times * step.link_seconds;
}

StepForecast Forecaster::PromptStepOf(const Step& step) const {
  StepForecast out = StepOf(step);
  if (options_.drafts == 0) return out;
  PartForecast part{.part = "draft head"};
  AddTimes(DraftPassOf(step), 1, part, out);
  out.parts.push_back(part);
  return out;
}

// The first pass of the head sees every token that the step brought, those after it the draft
// before. Between whole tokens of a sequence its time is interpolated.
StepForecast Forecaster::DraftingStepOf(Step decodes) const {
  if (options_.drafts == 0) return StepOf(decodes);
  Step pass = decodes;
  decodes.tokens *= 1 + options_.drafts;
  decodes.logits_rows = decodes.tokens;
  StepForecast out = StepOf(decodes);
  PartForecast part{.part = "draft head"};
  const double brought = TokensPerStep(options_), whole = std::floor(brought);
  for (const double tokens : {whole, whole + 1}) {
    Step first = pass;
    first.tokens *= static_cast<int64_t>(tokens);
    const double share = 1 - std::abs(brought - tokens);
    if (share > 0) AddTimes(DraftPassOf(first), share, part, out);
  }
  if (options_.drafts > 1) AddTimes(DraftPassOf(pass), options_.drafts - 1, part, out);
  out.parts.push_back(part);
  return out;
}

StepForecast Forecaster::Forecasted(const Layers& layers, const Step& step,
                                    std::vector<Cost> costs) const {
  StepForecast out;
  if (hardware_.calibration.has(kRowWork)) costs.push_back(RowWorkOf(layers.shard, step.tokens));
  for (const Cost& cost : costs) {
    auto at = std::ranges::find(out.parts, cost.part, &PartForecast::part);
    if (at == out.parts.end()) at = out.parts.insert(at, PartForecast{.part = cost.part});
    // Products with quantised weights have a peak of their own; the head, which comes first, and
    // parts without weights compute as bf16.
    const bool quantised = cost.weight_bytes > 0 && &cost != &costs.front();
    const double peak = quantised ? hardware_.FlopsFor(options_.format) : hardware_.bf16_flops;
    const double bytes = cost.bytes - (options_.without_weight_bytes ? cost.weight_bytes : 0);
    at->flops += cost.flops;
    at->bytes += bytes;
    at->arithmetic_seconds += cost.flops / peak;
    at->memory_seconds += bytes / hardware_.memory_bytes_per_second;
    double seconds = LimitSeconds(cost.flops, peak, bytes, hardware_.memory_bytes_per_second);
    if (!hardware_.calibration.empty()) {
      seconds = hardware_.calibration.Seconds(
          {.part = cost.part,
           .format = quantised ? ops::NameOf(options_.format) : "",
           .flops = cost.flops,
           .bytes = bytes,
           .arithmetic_seconds = cost.flops / peak,
           .memory_seconds = bytes / hardware_.memory_bytes_per_second});
    }
    at->seconds += seconds;
    out.compute_seconds += seconds;
  }
  AddCommunication(layers.whole, step, out);
  out.host_seconds = hardware_.host_seconds +
                     hardware_.host_sequence_seconds * static_cast<double>(step.sequences);
  return out;
}

MemoryForecast Forecaster::MemoryOf(const Workload& workload, int64_t sequences) const {
  MemoryForecast memory;
  const WeightChoice choice{.format = options_.format};
  double expert_bytes = 0;
  int64_t inner = 0;  // columns of the widest weight's output
  for (const WeightSpec& weight : WeightsOf(spec_)) {
    const int64_t rows = weight.count * weight.n, held = RowCount(view_.RowsOf(weight));
    const int64_t packed = PackedBytes(weight, LayoutOf(weight, ops::WeightFormat::kBF16, choice));
    const double share = static_cast<double>(held) / static_cast<double>(rows);
    memory.weights += static_cast<int64_t>(std::ceil(static_cast<double>(packed) * share));
    const bool experts = !weight.units.empty() && weight.units[0].unit == ShardUnit::kExpert;
    if (experts)
      expert_bytes += static_cast<double>(packed) / static_cast<double>(weight.units[0].count);
    if (!experts && weight.use == WeightUse::kMatrix && weight.quantisable != Quantisable::kHead) {
      inner = std::max(inner, held);
    }
  }
  const CachePlan cache = CachePlanOf(view_.spec, options_.kv_dtype);
  for (const GroupGeometry& group : cache.groups) {
    const int64_t tokens = workload.input_tokens + workload.output_tokens;
    if (group.kind == GroupKind::kFull) {
      memory.kv += sequences * CeilDiv(tokens, int64_t{kBlockTokens}) * group.block_bytes;
    } else {
      // A row of drafts may end in a state that is not the last one.
      memory.state +=
          sequences * group.block_bytes *
          (options_.drafts > 0 ? StateBlocksPrefill(tokens) : StateBlocksDecode(tokens));
    }
  }
  const int64_t prompts = options_.prompts_elsewhere ? 0 : sequences * workload.input_tokens;
  const int64_t tokens = std::max(sequences, std::min(options_.step_tokens_max, prompts));
  memory.workspace = 4 * (tokens * (3 * int64_t{spec_.hidden} + inner) +
                          sequences * (1 + options_.drafts) * int64_t{spec_.vocabulary});
  if (options_.drafts > 0) {  // the states that the head reads, as HeadDrafter::Bytes
    memory.workspace += sequences * (4 * kBlockTokens * int64_t{spec_.hidden} + cache.draft.bytes);
  }
  memory.balance_buffers = static_cast<int64_t>(
      std::ceil(expert_bytes * static_cast<double>(options_.redundant_experts) / mesh_.ep));
  memory.weights -= memory.balance_buffers;
  if (TokensTravel(mesh_)) {
    double row_bytes = 0;  // of the layer that sends most
    for (const LayerSpec& layer : spec_.layers) {
      if (const MoeFfn* moe = std::get_if<MoeFfn>(&layer.ffn)) {
        row_bytes = std::max(row_bytes, RoutedBytes(1, moe->top_k, spec_.hidden,
                                                    RoutedElementBytes() + kActivationBytes));
      }
    }
    memory.exchange_buffers =
        static_cast<int64_t>(2 * row_bytes * static_cast<double>(tokens) / mesh_.tp);
  }
  return memory;
}

using SecondsOf = double (StepForecast::*)() const;

struct Run {
  const Forecaster& forecaster;
  const Hardware& hardware;
  const Workload& workload;
  const ForecastOptions& options;
  const Mesh& mesh;
  int64_t sequences;  // of a group
  double tokens_per_step;
};

// Of so many prompts that share their steps, from the first step to the last.
double PromptSeconds(const Run& run, int64_t prompts, SecondsOf seconds_of) {
  if (run.options.prompts_elsewhere) return 0;
  double seconds = 0;
  const int64_t chunk = std::min(run.options.step_tokens_max / prompts, run.workload.input_tokens);
  for (int64_t at = 0; at < run.workload.input_tokens; at += chunk) {
    const int64_t tokens = std::min(chunk, run.workload.input_tokens - at);
    const bool last = at + tokens == run.workload.input_tokens;
    const StepForecast step = run.forecaster.PromptStepOf({.tokens = prompts * tokens,
                                                           .sequences = prompts,
                                                           .context_tokens = at,
                                                           .logits_rows = last ? prompts : 0});
    seconds += (step.*seconds_of)();
  }
  return seconds;
}

// A group's devices alternate between prompts and steps that generate a token of every sequence:
// in the time of `sequences` requests, each has its prompt computed once and all of its steps.
// Prompts share steps as far as the limit of tokens allows. Those that share a request's own steps
// delay none of its later tokens.
SpeedForecast SpeedOf(const Run& run, const StepForecast& decode, SecondsOf seconds_of) {
  const int64_t together = std::clamp<int64_t>(
      run.options.step_tokens_max / run.workload.input_tokens, 1, run.sequences);
  const double n = static_cast<double>(run.sequences), k = static_cast<double>(together);
  const double prompt = PromptSeconds(run, together, seconds_of) / k;
  // The prompt's last step gives the first token.
  const double steps = static_cast<double>(run.workload.output_tokens - 1) / run.tokens_per_step;
  const double step = (decode.*seconds_of)();
  const double tokens = std::max(1.0, static_cast<double>(run.workload.output_tokens - 1));
  const double cycle = n * prompt + steps * step;
  const double requests_per_second = static_cast<double>(run.workload.concurrency) / cycle;
  SpeedForecast speed{
      .output_tokens_per_second =
          requests_per_second * static_cast<double>(run.workload.output_tokens),
      .input_tokens_per_second =
          requests_per_second * static_cast<double>(run.workload.input_tokens),
      .first_token_seconds = PromptSeconds(run, 1, seconds_of),
      .first_token_seconds_burst = prompt * (n + k) / 2,
      .inter_token_seconds = step / run.tokens_per_step,
      .inter_token_seconds_mean = steps > 0 ? ((n - k) * prompt + steps * step) / tokens : 0};
  if (run.hardware.dollars_per_hour > 0) {
    speed.dollars_per_million_output = DollarsPerMillion(
        run.hardware.dollars_per_hour * run.mesh.ranks(), speed.output_tokens_per_second);
  }
  if (run.hardware.watts > 0) {
    speed.joules_per_million_output =
        run.hardware.watts * run.mesh.ranks() / speed.output_tokens_per_second * 1e6;
  }
  return speed;
}

// Copies of experts are experts of their own, chosen as often as others; the router's work grows
// with them by less than their share.
ModelSpec WithCopies(ModelSpec spec, int32_t copies) {
  const auto add = [copies](std::vector<LayerSpec>& layers) {
    for (LayerSpec& layer : layers) {
      MoeFfn* moe = std::get_if<MoeFfn>(&layer.ffn);
      if (moe != nullptr) moe->experts += copies;
    }
  };
  add(spec.layers);
  if (spec.draft) add(spec.draft->layers);
  return spec;
}

// Of the ranks of a group, and of those that share experts.
Status CheckLinks(const Mesh& mesh, const Hardware& hardware) {
  for (const int32_t together : {mesh.tp, mesh.ep}) {
    if (together == 1) continue;
    const int32_t nodes = NodesOf(mesh, hardware, together);
    // Links pass on what comes to a node for its experts.
    const bool passed_on = together == mesh.ep && TokensTravel(mesh) && together > nodes;
    const bool links = nodes == 1 || passed_on;
    std::string_view missing;
    if (nodes > 1 && !(hardware.network_bytes_per_second > 0)) missing = "network_bytes_per_second";
    if (links && !(hardware.link_bytes_per_second > 0)) missing = "link_bytes_per_second";
    if (missing.empty()) continue;
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: {} devices on {} {} exchange data, and links of {} join {}: its "
                             "file gives no {}",
                             MeshText(mesh), together, nodes, nodes == 1 ? "node" : "nodes",
                             hardware.name, hardware.link_devices, missing)};
  }
  return {};
}

// Whether the mesh can divide the model with its copies of experts, and has the links.
Status Check(const ModelSpec& spec, Mesh mesh, const Hardware& hardware,
             const ForecastOptions& options) {
  mesh.redundant = options.redundant_experts;
  RETURN_IF_ERROR(CheckMesh(spec, mesh));
  return CheckLinks(mesh, hardware);
}

}  // namespace

Status CheckWorkload(const ModelSpec& spec, const Workload& workload,
                     const ForecastOptions& options) {
  if (workload.input_tokens < 1 || workload.output_tokens < 1 || workload.concurrency < 1 ||
      options.step_tokens_max < 1) {
    return Error{ErrorCode::kInvalid,
                 "the workload needs in, out, concurrency and tokens of a step of at least 1"};
  }
  if (!(options.expert_balance > 0 && options.expert_balance <= 1)) {
    return Error{ErrorCode::kInvalid, "the balance of experts must be above 0 and at most 1"};
  }
  if (options.drafts > 0 && !HasDraftHead(spec)) {
    return Error{ErrorCode::kInvalid, "drafts need a draft head, which the model does not have"};
  }
  if (options.drafts < 0 || options.draft_acceptance < 0 || options.draft_acceptance > 1) {
    return Error{ErrorCode::kInvalid,
                 "drafts must be at least 0, and the part of them that is right from 0 to 1"};
  }
  const int64_t tokens = workload.input_tokens + workload.output_tokens;
  if (spec.context_tokens_max > 0 && tokens > spec.context_tokens_max) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("in={} and out={} are {} tokens; the model's context is {}",
                             workload.input_tokens, workload.output_tokens, tokens,
                             spec.context_tokens_max)};
  }
  return {};
}

std::string_view NameOf(Bound bound) {
  constexpr std::string_view kNames[] = {"arithmetic", "memory", "link", "host"};
  return kNames[static_cast<int>(bound)];
}

double StepForecast::seconds_with_overlap() const {
  return std::max(compute_seconds, link_seconds) + host_seconds;
}

Bound StepForecast::bound() const {
  double arithmetic = 0, memory = 0;
  for (const PartForecast& part : parts) {
    (part.bound() == Bound::kArithmetic ? arithmetic : memory) += part.seconds;
  }
  if (host_seconds > std::max(compute_seconds, link_seconds)) return Bound::kHost;
  if (link_seconds > compute_seconds) return Bound::kLink;
  return arithmetic > memory ? Bound::kArithmetic : Bound::kMemory;
}

Result<Forecast> ForecastOf(const ModelSpec& spec, const Mesh& mesh, const Hardware& hardware,
                            const Workload& workload, const ForecastOptions& options) {
  RETURN_IF_ERROR(CheckWorkload(spec, workload, options));
  RETURN_IF_ERROR(Check(spec, mesh, hardware, options));
  const ModelSpec copied = WithCopies(spec, options.redundant_experts);
  // The last rank's shares are as large as any (Share::Of).
  ASSIGN_OR_RETURN(const RankView view, ViewOf(copied, mesh, mesh.ranks() - 1));
  const Forecaster forecaster(copied, view, hardware, options);
  const int64_t sequences = CeilDiv(workload.concurrency, int64_t{mesh.dp});
  Forecast forecast{.memory = forecaster.MemoryOf(workload, sequences)};
  forecast.fits = static_cast<double>(forecast.memory.total()) <= hardware.memory_bytes;
  const int64_t first = std::min(options.step_tokens_max, workload.input_tokens);
  forecast.prefill = forecaster.StepOf(
      {.tokens = first, .sequences = 1, .logits_rows = first == workload.input_tokens ? 1 : 0});
  forecast.tokens_per_step = TokensPerStep(options);
  forecast.decode = forecaster.DraftingStepOf(
      {.tokens = sequences,
       .sequences = sequences,
       .context_tokens = workload.input_tokens + workload.output_tokens / 2,
       .logits_rows = sequences});
  const Run run{forecaster, hardware, workload, options, mesh, sequences, forecast.tokens_per_step};
  forecast.serial = SpeedOf(run, forecast.decode, &StepForecast::seconds_without_overlap);
  forecast.overlapped = SpeedOf(run, forecast.decode, &StepForecast::seconds_with_overlap);
  return forecast;
}

struct StepClock::State {
  ModelSpec spec;
  Hardware hardware;
  ForecastOptions options;
  RankView view;
  std::optional<Forecaster> forecaster;
};

StepClock::StepClock(std::unique_ptr<State> state) : state_(std::move(state)) {}
StepClock::StepClock(StepClock&&) noexcept = default;
StepClock::~StepClock() = default;

Result<StepClock> StepClock::Create(const ModelSpec& spec, const Mesh& mesh,
                                    const Hardware& hardware, const ForecastOptions& options) {
  RETURN_IF_ERROR(Check(spec, mesh, hardware, options));
  auto state = std::make_unique<State>(State{.spec = WithCopies(spec, options.redundant_experts),
                                             .hardware = hardware,
                                             .options = options});
  ASSIGN_OR_RETURN(state->view, ViewOf(state->spec, mesh, mesh.ranks() - 1));
  state->forecaster.emplace(state->spec, state->view, state->hardware, state->options);
  return StepClock(std::move(state));
}

StepForecast StepClock::StepOf(const StepRows& prompts, const StepRows& decodes) const {
  return state_->forecaster->StepOf(prompts, decodes);
}

void StepClock::SetExpertBalance(double balance) {
  CHECK(balance > 0 && balance <= 1, "a balance of {}", balance);
  state_->options.expert_balance = balance;
}

Result<CacheGeometry> StepClock::Cache(int64_t tokens, int32_t running_max) const {
  // A step of the most tokens, of as many sequences.
  const Workload workload{.input_tokens = state_->options.step_tokens_max, .output_tokens = 1};
  const MemoryForecast memory = state_->forecaster->MemoryOf(workload, running_max);
  const int64_t fixed =
      memory.weights + memory.balance_buffers + memory.workspace + memory.exchange_buffers;
  const auto device = static_cast<int64_t>(state_->hardware.memory_bytes);
  ASSIGN_OR_RETURN(const MemoryPlan plan,
                   PlanMemory(state_->view.spec, {.kv_dtype = state_->options.kv_dtype,
                                                  .available_bytes = device,
                                                  .weight_bytes = fixed,
                                                  .total_bytes = device,
                                                  .model_len_max = static_cast<int32_t>(tokens),
                                                  .running_max = running_max}));
  return plan.geometry;
}

}  // namespace braid
