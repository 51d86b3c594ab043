// `braid plan`: what a model needs and gives on hardware that may be elsewhere, from its config.
#include <fmt/format.h>

#include "base/json.h"
#include "base/progress.h"
#include "base/quantities.h"
#include "cli/command/command_factories.h"
#include "cli/command/pairs.h"
#include "forecast/forecast.h"
#include "model/families/families.h"

namespace braid {
namespace {

class PlanCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("MODEL", model_, "Directory with a config.json, or the file; weights unused");
    flags.Text("--hardware", hardware_,
               "h100, h200 (default), b200, tpu_v7x, epyc_2core, or a JSON file of the same form");
    flags.Text("--calibration", calibration_,
               "Lines of braid bench ops --json: their times instead of limits; without "
               "--hardware also their device");
    flags.Text("--mesh", mesh_text_,
               "dp=N,tp=N,ep=N: dp groups of tp devices; ep devices share the experts");
    flags.Text("--workload", workload_text_,
               "in=N,out=N,concurrency=N: tokens of a prompt and of an answer, requests at a time");
    flags.Choice("--weights", weights_, {"bf16", "fp8", "int8", "int4", "fp32", "any"},
                 "Format of the weights; any: with --search the best of bf16, fp8, int8, int4");
    flags.Choice("--kv-dtype", kv_dtype_, {"auto", "fp32", "bf16", "int8"},
                 "Type of keys and values; auto: as in the calibration, else bf16");
    flags.Choice("--state-dtype", state_dtype_, {"fp32", "bf16", "int8"},
                 "Type of recurrent state");
    flags.Number("--step-tokens", step_tokens_, {1, 1 << 20},
                 "Most prompt tokens of a group in a step");
    flags.Number(
        "--redundant-experts", redundant_, {0, kRedundantExpertsMax},
        "Further copies of experts per layer, to balance load; ep divides experts and copies");
    flags.Number("--expert-balance", options_.expert_balance, {0.001, 1},
                 "Mean load of the ranks that share experts over that of the fullest");
    flags.Number("--drafts", options_.drafts, {0, 16},
                 "Tokens that the draft head proposes for each sequence in a decode step");
    flags.Number("--draft-acceptance", options_.draft_acceptance, {0, 1},
                 "Part of the drafts that is right");
    flags.Switch("--without-communication", options_.without_communication,
                 "Leave out what devices send each other, to see what it costs");
    flags.Switch("--without-weight-bytes", options_.without_weight_bytes,
                 "Leave out reading weights from memory, to see what it costs");
    flags.Switch("--search", search_, "Find the mesh and format with most output tokens/s");
    flags.Switch("--split", split_,
                 "With --search: also the best divisions of the devices into engines that compute "
                 "prompts and engines that generate answers");
    flags.Choice("--best", best_, {"tokens", "device"},
                 "With --search: most tokens/s of all devices (default), or of each device, which "
                 "is the lowest price of a token");
    flags.Number("--devices", devices_, {1, 512}, "With --search: most devices");
    flags.Number("--inter-token-ms", inter_token_ms_, {0.001, 1e6},
                 "With --search: longest mean time between two tokens of an answer");
    flags.Number("--first-token-ms", first_token_ms_, {0.001, 1e9},
                 "With --search: longest time to the first token of a request that does not wait");
    flags.Switch("--json", json_, "Print a JSON object");
  }
  Status Run() override;

 private:
  Status ReadFlags();
  SearchSpace Space() const;
  Result<std::vector<SearchResult>> Find(const ModelSpec& spec) const;
  Result<std::vector<SplitResult>> FindSplits(const ModelSpec& spec) const;

  std::string model_, hardware_, calibration_, mesh_text_, workload_text_;
  std::string weights_ = "bf16", kv_dtype_ = "auto", state_dtype_ = "fp32", best_;
  int32_t step_tokens_ = 8192, redundant_ = 0, devices_ = 8;
  std::optional<double> inter_token_ms_, first_token_ms_;
  bool search_ = false, split_ = false, json_ = false;
  Mesh mesh_;
  Workload workload_;
  ForecastOptions options_;
  Hardware machine_;
};

DType DTypeOf(std::string_view text) {
  return text == "fp32" ? DType::kF32 : text == "int8" ? DType::kI8 : DType::kBF16;
}

Status PlanCommand::ReadFlags() {
  int64_t dp = 1, tp = 1, ep = 1;
  RETURN_IF_ERROR(ReadPairs("--mesh", mesh_text_, {{"dp", &dp}, {"tp", &tp}, {"ep", &ep}}));
  mesh_ = {.dp = static_cast<int32_t>(dp),
           .tp = static_cast<int32_t>(tp),
           .ep = static_cast<int32_t>(ep)};
  RETURN_IF_ERROR(ReadPairs("--workload", workload_text_,
                            {{"in", &workload_.input_tokens},
                             {"out", &workload_.output_tokens},
                             {"concurrency", &workload_.concurrency}}));
  if (search_ && !mesh_text_.empty()) {
    return Error{ErrorCode::kInvalid, "--search chooses the mesh; leave out --mesh", "--mesh"};
  }
  if (weights_ == "any" && !search_) {
    return Error{ErrorCode::kInvalid, "--weights any needs --search; name a format", "--weights"};
  }
  if (!best_.empty() && !search_) {
    return Error{ErrorCode::kInvalid, "--best goes with --search", "--best"};
  }
  if (split_ && !search_) {
    return Error{ErrorCode::kInvalid, "--split goes with --search", "--split"};
  }
  options_.format = ops::FindWeightFormat(weights_).value_or(ops::WeightFormat::kBF16);
  options_.step_tokens_max = step_tokens_;
  options_.redundant_experts = redundant_;
  ASSIGN_OR_RETURN(machine_, ReadCalibrated(hardware_, calibration_));
  options_.kv_dtype = kv_dtype_ == "auto" ? machine_.kv_dtype : DTypeOf(kv_dtype_);
  return {};
}

// ---------------------------------------------------------------- text

void PrintStep(std::string_view name, const StepForecast& step) {
  fmt::print("\n{}: {} with overlap, {} without; bound by {}\n", name,
             TimeText(step.seconds_with_overlap()), TimeText(step.seconds_without_overlap()),
             NameOf(step.bound()));
  const auto row = [](std::string_view part, double seconds, std::string_view bound,
                      const std::string& amounts) {
    fmt::print("  {:<30}{:>11}  {:<11}{}\n", part, TimeText(seconds), bound, amounts);
  };
  for (const PartForecast& part : step.parts) {
    row(part.part, part.seconds, NameOf(part.bound()),
        fmt::format("{:.1f} GFLOP, {:.2f} GB", part.flops / 1e9, part.bytes / 1e9));
  }
  if (step.sent_bytes > 0) {
    row("communication", step.link_seconds, "link",
        fmt::format("{:.3f} GB sent", step.sent_bytes / 1e9));
  }
  if (step.host_seconds > 0) row("host", step.host_seconds, "host", "");
}

void PrintSpeeds(const Forecast& f, const Hardware& machine) {
  fmt::print("\n{:<40}{:>16}{:>18}\n",
             machine.calibration.empty() ? "at the limits of the hardware"
                                         : "as measured on " + machine.measured_on,
             "with overlap", "without overlap");
  const auto row = [&](std::string_view name, auto text) {
    fmt::print("  {:<38}{:>16}{:>18}\n", name, text(f.overlapped), text(f.serial));
  };
  using S = SpeedForecast;
  row("output tokens/s",
      [](const S& s) { return fmt::format("{:.0f}", s.output_tokens_per_second); });
  row("input tokens/s",
      [](const S& s) { return fmt::format("{:.0f}", s.input_tokens_per_second); });
  row("time to first token, no queue", [](const S& s) { return TimeText(s.first_token_seconds); });
  row("time to first token, all at once, mean",
      [](const S& s) { return TimeText(s.first_token_seconds_burst); });
  row("inter-token latency, decode alone",
      [](const S& s) { return TimeText(s.inter_token_seconds); });
  row("inter-token latency, prompts between",
      [](const S& s) { return TimeText(s.inter_token_seconds_mean); });
  if (f.serial.dollars_per_million_output) {
    row("dollars per million output tokens",
        [](const S& s) { return fmt::format("{:.3f}", *s.dollars_per_million_output); });
  }
  if (f.serial.joules_per_million_output) {
    row("kJ per million output tokens",
        [](const S& s) { return fmt::format("{:.0f}", *s.joules_per_million_output / 1e3); });
  }
}

// What the search found, if there are several.
void PrintFound(const std::vector<SearchResult>& found) {
  if (found.size() < 2) return;
  fmt::print("\n{:<30}{:>9}{:>11}{:>11}{:>13}  {}\n", "the best, with overlap", "weights",
             "tokens/s", "of each", "inter-token", "bound by");
  for (const SearchResult& result : found) {
    const SpeedForecast& speed = result.forecast.overlapped;
    fmt::print("  {:<28}{:>9}{:>11.0f}{:>11.1f}{:>13}  {}\n", MeshText(result.mesh),
               ops::NameOf(result.format), speed.output_tokens_per_second,
               speed.output_tokens_per_second / result.mesh.ranks(),
               TimeText(speed.inter_token_seconds_mean), NameOf(result.forecast.decode.bound()));
  }
}

void PrintSplits(const std::vector<SplitResult>& splits) {
  if (splits.empty()) return;
  fmt::print("\n{:<30}{:<30}{:>9}{:>11}{:>11}{:>13}{:>13}  {}\n", "prefill engines",
             "decode engines", "weights", "tokens/s", "of each", "first token", "inter-token",
             "bound by");
  const auto side = [](const SplitSide& s) {
    return fmt::format("{} of {}", s.engines, MeshText(s.mesh));
  };
  for (const SplitResult& split : splits) {
    fmt::print("  {:<28}{:<30}{:>9}{:>11.0f}{:>11.1f}{:>13}{:>13}  {}\n", side(split.prefill),
               side(split.decode), ops::NameOf(split.format), split.output_tokens_per_second,
               split.output_tokens_per_second / split.devices(),
               TimeText(split.first_token_seconds), TimeText(split.inter_token_seconds),
               NameOf(split.bound));
  }
  fmt::print("  a prompt hands over {}\n",
             ByteText(static_cast<int64_t>(splits.front().handoff_bytes)));
}

void PrintText(const std::vector<SearchResult>& results, const std::vector<SplitResult>& splits,
               const Hardware& machine, const Workload& workload) {
  const SearchResult& found = results.front();
  const Forecast& f = found.forecast;
  fmt::print("{} x {} ({}), weights {}\n", found.mesh.ranks(), machine.name, MeshText(found.mesh),
             ops::NameOf(found.format));
  fmt::print("{} requests at a time of {} + {} tokens\n", workload.concurrency,
             workload.input_tokens, workload.output_tokens);
  fmt::print("\nmemory of the fullest device: {} of {}{}\n", ByteText(f.memory.total()),
             ByteText(static_cast<int64_t>(machine.memory_bytes)),
             f.fits ? "" : ": DOES NOT FIT; times below are as if it did");
  const auto bytes = [](std::string_view name, int64_t count) {
    if (count > 0) fmt::print("  {:<30}{:>11}\n", name, ByteText(count));
  };
  bytes("weights", f.memory.weights);
  bytes("keys and values", f.memory.kv);
  bytes("recurrent state", f.memory.state);
  bytes("workspace", f.memory.workspace);
  bytes("redundant experts", f.memory.balance_buffers);
  bytes("exchange buffers", f.memory.exchange_buffers);
  PrintStep("first step of a prompt", f.prefill);
  PrintStep(f.tokens_per_step > 1
                ? fmt::format("decode step, half of the answer done, {:.2f} tokens of a sequence",
                              f.tokens_per_step)
                : "decode step, half of the answer done",
            f.decode);
  PrintSpeeds(f, machine);
  PrintFound(results);
  PrintSplits(splits);
  fmt::print("\nsources\n");
  for (const std::string& source : machine.sources) fmt::print("  {}\n", source);
}

// ---------------------------------------------------------------- JSON

json::object ObjectOf(const StepForecast& step) {
  json::array parts;
  for (const PartForecast& part : step.parts) {
    parts.push_back({{"part", part.part},
                     {"flops", part.flops},
                     {"bytes", part.bytes},
                     {"seconds", part.seconds},
                     {"bound", NameOf(part.bound())}});
  }
  return {{"seconds_with_overlap", step.seconds_with_overlap()},
          {"seconds_without_overlap", step.seconds_without_overlap()},
          {"bound", NameOf(step.bound())},
          {"compute_seconds", step.compute_seconds},
          {"link_seconds", step.link_seconds},
          {"host_seconds", step.host_seconds},
          {"sent_bytes", step.sent_bytes},
          {"parts", std::move(parts)}};
}

json::object ObjectOf(const SpeedForecast& speed) {
  json::object out{{"output_tokens_per_second", speed.output_tokens_per_second},
                   {"input_tokens_per_second", speed.input_tokens_per_second},
                   {"first_token_seconds", speed.first_token_seconds},
                   {"first_token_seconds_burst", speed.first_token_seconds_burst},
                   {"inter_token_seconds", speed.inter_token_seconds},
                   {"inter_token_seconds_mean", speed.inter_token_seconds_mean}};
  if (speed.dollars_per_million_output) {
    out["dollars_per_million_output"] = *speed.dollars_per_million_output;
  }
  if (speed.joules_per_million_output) {
    out["joules_per_million_output"] = *speed.joules_per_million_output;
  }
  return out;
}

json::object ObjectOf(const Mesh& mesh) {
  return {{"dp", mesh.dp}, {"tp", mesh.tp}, {"ep", mesh.ep}};
}

json::object ObjectOf(const SplitSide& side) {
  json::object out = ObjectOf(side.mesh);
  out["engines"] = side.engines;
  return out;
}

json::array ArrayOf(const std::vector<SplitResult>& splits) {
  json::array out;
  for (const SplitResult& split : splits) {
    out.push_back({{"prefill", ObjectOf(split.prefill)},
                   {"decode", ObjectOf(split.decode)},
                   {"weights", ops::NameOf(split.format)},
                   {"devices", split.devices()},
                   {"output_tokens_per_second", split.output_tokens_per_second},
                   {"first_token_seconds", split.first_token_seconds},
                   {"inter_token_seconds", split.inter_token_seconds},
                   {"handoff_bytes", split.handoff_bytes},
                   {"bound", NameOf(split.bound)}});
  }
  return out;
}

json::object ObjectOf(const std::vector<SearchResult>& results, const Hardware& machine) {
  const SearchResult& found = results.front();
  const Forecast& f = found.forecast;
  json::array best;
  for (const SearchResult& result : results) {
    best.push_back({{"mesh", ObjectOf(result.mesh)},
                    {"weights", ops::NameOf(result.format)},
                    {"bound", NameOf(result.forecast.decode.bound())},
                    {"with_overlap", ObjectOf(result.forecast.overlapped)}});
  }
  json::array sources;
  for (const std::string& source : machine.sources) sources.emplace_back(source);
  return {{"hardware", machine.name},
          {"mesh", ObjectOf(found.mesh)},
          {"devices", found.mesh.ranks()},
          {"weights", ops::NameOf(found.format)},
          {"fits", f.fits},
          {"memory_bytes",
           {{"device", machine.memory_bytes},
            {"total", f.memory.total()},
            {"weights", f.memory.weights},
            {"kv", f.memory.kv},
            {"state", f.memory.state},
            {"workspace", f.memory.workspace},
            {"balance_buffers", f.memory.balance_buffers},
            {"exchange_buffers", f.memory.exchange_buffers}}},
          {"prefill", ObjectOf(f.prefill)},
          {"decode", ObjectOf(f.decode)},
          {"tokens_per_step", f.tokens_per_step},
          {"with_overlap", ObjectOf(f.overlapped)},
          {"without_overlap", ObjectOf(f.serial)},
          {"best", std::move(best)},
          {"sources", std::move(sources)}};
}

Result<std::vector<SearchResult>> PlanCommand::Find(const ModelSpec& spec) const {
  if (!search_) {
    ASSIGN_OR_RETURN(Forecast forecast, ForecastOf(spec, mesh_, machine_, workload_, options_));
    return std::vector<SearchResult>{
        {.mesh = mesh_, .format = options_.format, .forecast = std::move(forecast)}};
  }
  ProgressBar bar("trying meshes", 0.5);
  SearchSpace space = Space();
  space.progress = [&](double done) { bar.Show(done); };
  return SearchMesh(spec, machine_, workload_, options_, space);
}

Result<std::vector<SplitResult>> PlanCommand::FindSplits(const ModelSpec& spec) const {
  if (!split_) return std::vector<SplitResult>();
  ProgressBar bar("trying splits", 0.5);
  SearchSpace space = Space();
  space.progress = [&](double done) { bar.Show(done); };
  return SearchSplit(spec, machine_, workload_, options_, space);
}

SearchSpace PlanCommand::Space() const {
  SearchSpace space{.devices_max = devices_, .formats = {options_.format}};
  if (weights_ == "any") {
    using enum ops::WeightFormat;
    space.formats = {kBF16, kF8, kI8, kI4};
  }
  if (best_ == "device") space.aim = SearchAim::kTokensPerDevice;
  if (inter_token_ms_) space.inter_token_seconds_max = *inter_token_ms_ / 1e3;
  if (first_token_ms_) space.first_token_seconds_max = *first_token_ms_ / 1e3;
  return space;
}

Status PlanCommand::Run() {
  RETURN_IF_ERROR(ReadFlags());
  ASSIGN_OR_RETURN(ModelSpec spec, ReadModelConfig(model_));
  if (options_.drafts > 0 && HasDraftHead(spec)) UseDraftHead(spec);
  PlanState(spec, options_.drafts, DTypeOf(state_dtype_));
  ASSIGN_OR_RETURN(const std::vector<SearchResult> found, Find(spec));
  ASSIGN_OR_RETURN(const std::vector<SplitResult> splits, FindSplits(spec));
  if (json_) {
    json::object out = ObjectOf(found, machine_);
    if (split_) out["splits"] = ArrayOf(splits);
    fmt::print("{}\n", json::serialize(out));
  } else {
    PrintText(found, splits, machine_, workload_);
  }
  return {};
}

}  // namespace

CommandPointer MakePlanCommand() { return std::make_unique<PlanCommand>(); }

}  // namespace braid
