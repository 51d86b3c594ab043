// `braid bench offline`: prefill and decode through the same driver as serving, on random tokens,
// beside what the machine can do at best, measured in the same run.
#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"
#include "base/math.h"
#include "base/rng.h"
#include "cli/command_factories.h"
#include "cli/engine.h"
#include "cli/machine_limits.h"
#include "cli/output_queue.h"
#include "cli/progress.h"
#include "cli/statistics.h"

namespace braid {
namespace {

// Medians over the repeats.
struct OfflineSpeed {
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;
  double time_to_first_token_ms = 0;
};

// What the machine can do at best, of the unit that multiplies.
struct Peaks {
  Unit unit;
  double flops = 0;
  double bytes = 0;
};

class BenchOfflineCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("MODEL", options_.model_dir, "Directory of the checkpoint");
    flags.Number("--input-tokens", input_tokens_, {1, 1 << 24}, "Prompt tokens per sequence");
    flags.Number("--output-tokens", output_tokens_, {2, 1 << 24}, "Generated tokens per sequence");
    flags.Number("--sequences", sequences_, {1, 1 << 16}, "Sequences at the same time");
    flags.Number("--repeat", repeat_, {1, 1000}, "Measurements; medians are reported");
    flags.Seed("--seed", seed_, "Of the random prompts (default: 0)");
    flags.Switch("--json", json_, "Print a JSON object");
    AddEngineFlags(flags, options_);
  }
  Status Run() override;

 private:
  Request PromptOf(const Engine& engine, int32_t sequence, int32_t new_tokens) const;
  Result<std::vector<RequestResult>> RunBatch(Engine& engine, int32_t sequences,
                                              int32_t new_tokens) const;
  Result<double> PrefillSeconds(Engine& engine, int32_t sequences) const;
  Result<double> DecodeStepSeconds(Engine& engine) const;
  Result<OfflineSpeed> Measure(Engine& engine) const;
  void Print(const Engine& engine, const OfflineSpeed& speed, const Peaks& peaks) const;

  EngineOptions options_;
  int32_t input_tokens_ = 512;
  int32_t output_tokens_ = 128;
  int32_t sequences_ = 1;
  int32_t repeat_ = 3;
  std::optional<uint64_t> seed_;
  bool json_ = false;
};

Request BenchOfflineCommand::PromptOf(const Engine& engine, int32_t sequence,
                                      int32_t new_tokens) const {
  Rng rng(seed_.value_or(0) + static_cast<uint64_t>(sequence));
  Request request;
  for (int32_t i = 0; i < input_tokens_; ++i) {
    request.prompt.push_back(static_cast<TokenId>(rng.Below(engine.spec().vocabulary)));
  }
  request.stop.new_tokens_max = new_tokens;
  return request;
}

Result<std::vector<RequestResult>> BenchOfflineCommand::RunBatch(Engine& engine, int32_t sequences,
                                                                 int32_t new_tokens) const {
  std::vector<Request> requests;
  for (int32_t i = 0; i < sequences; ++i) requests.push_back(PromptOf(engine, i, new_tokens));
  std::vector<RequestResult> results(requests.size());
  RETURN_IF_ERROR(RunRequests(engine.driver(), std::move(requests), results.size(),
                              [&](size_t i, RequestResult r) { results[i] = std::move(r); }));
  return results;
}

// From submitting all prompts to the last first token.
Result<double> BenchOfflineCommand::PrefillSeconds(Engine& engine, int32_t sequences) const {
  const int64_t start_us = MonotonicUs();
  ASSIGN_OR_RETURN(const std::vector<RequestResult> results, RunBatch(engine, sequences, 1));
  int64_t end_us = start_us;
  for (const RequestResult& result : results) end_us = std::max(end_us, result.token_us.front());
  return static_cast<double>(end_us - start_us) * 1e-6;
}

// Seconds of a step in which every sequence decodes one token. The sequence whose first token came
// last sets the clock: from then on all of them run, for they may generate as many tokens more as
// prefill takes steps.
Result<double> BenchOfflineCommand::DecodeStepSeconds(Engine& engine) const {
  const SchedulerConfig& limits = engine.limits();
  const int64_t prompt_tokens = int64_t{input_tokens_} * sequences_;
  const int64_t rest = std::max(1, limits.step_tokens_max - sequences_);
  const int64_t chunk = limits.chunk_tokens_max > 0 ? limits.chunk_tokens_max : rest;
  const int64_t prefill_steps =
      2 * CeilDiv(prompt_tokens, std::min(rest, chunk * sequences_)) + sequences_;
  const int64_t room = limits.context_tokens_max - input_tokens_;
  const int64_t new_tokens =
      sequences_ == 1 ? output_tokens_ : std::min(output_tokens_ + prefill_steps, room);
  ASSIGN_OR_RETURN(const std::vector<RequestResult> results,
                   RunBatch(engine, sequences_, static_cast<int32_t>(new_tokens)));
  const RequestResult* last = &results.front();
  int64_t first_end_us = results.front().token_us.back();
  for (const RequestResult& result : results) {
    if (result.token_us.front() > last->token_us.front()) last = &result;
    first_end_us = std::min(first_end_us, result.token_us.back());
  }
  int64_t steps =
      std::min<int64_t>(output_tokens_, static_cast<int64_t>(last->token_us.size())) - 1;
  while (steps > 1 && last->token_us[static_cast<size_t>(steps)] > first_end_us) --steps;
  const int64_t us = last->token_us[static_cast<size_t>(steps)] - last->token_us.front();
  return static_cast<double>(us) * 1e-6 / static_cast<double>(steps);
}

Result<OfflineSpeed> BenchOfflineCommand::Measure(Engine& engine) const {
  std::vector<double> prefill, first, decode;
  ProgressBar bar("bench", 0);
  RETURN_IF_ERROR(RunBatch(engine, 1, 2).ok()
                      ? Status()
                      : Status(Error{ErrorCode::kInternal, "the warm-up failed"}));
  for (int32_t i = 0; i < repeat_; ++i) {
    bar.Show(static_cast<double>(i) / repeat_);
    ASSIGN_OR_RETURN(const double one, PrefillSeconds(engine, 1));
    ASSIGN_OR_RETURN(const double all, PrefillSeconds(engine, sequences_));
    ASSIGN_OR_RETURN(const double step, DecodeStepSeconds(engine));
    first.push_back(one);
    prefill.push_back(all);
    decode.push_back(step);
  }
  return OfflineSpeed{.prefill_tokens_per_second =
                          input_tokens_ * static_cast<double>(sequences_) / Median(prefill),
                      .decode_tokens_per_second = sequences_ / Median(decode),
                      .time_to_first_token_ms = Median(first) * 1e3};
}

void BenchOfflineCommand::Print(const Engine& engine, const OfflineSpeed& speed,
                                const Peaks& peaks) const {
  const int64_t prompt_tokens = int64_t{input_tokens_} * sequences_;
  const WeightChoice choice = options_.weight_choice();
  const ops::PackedMatrix like{.format = choice.format.value_or(ops::WeightFormat::kBF16),
                               .n = 1,
                               .k = engine.spec().hidden};
  StepShape shape{.tokens = prompt_tokens,
                  .sequences = sequences_,
                  .context_tokens = 0,
                  .bytes_per_weight = like.bytes_per_weight()};
  if (choice.head || !ops::IsQuantised(like.format)) {
    shape.bytes_per_head_weight = shape.bytes_per_weight;
  }
  const Cost prefill = CostOf(engine.spec(), shape, sequences_);
  shape.tokens = sequences_;
  shape.context_tokens = input_tokens_ + output_tokens_ / 2;
  const Cost decode = CostOf(engine.spec(), shape, sequences_);
  const double prefill_seconds =
      static_cast<double>(prompt_tokens) / speed.prefill_tokens_per_second;
  const double step_seconds = sequences_ / speed.decode_tokens_per_second;
  const double compute = prefill.flops / prefill_seconds / peaks.flops;
  const double bandwidth = decode.bytes / step_seconds / peaks.bytes;
  if (json_) {
    json::object out{{"input_tokens", input_tokens_},
                     {"output_tokens", output_tokens_},
                     {"sequences", sequences_},
                     {"repeat", repeat_},
                     {"prefill_tokens_per_second", speed.prefill_tokens_per_second},
                     {"decode_tokens_per_second", speed.decode_tokens_per_second},
                     {"time_to_first_token_ms", speed.time_to_first_token_ms},
                     {"fraction_of_compute_peak", compute},
                     {"fraction_of_bandwidth", bandwidth},
                     {"peak_unit", std::string(KeyOf(peaks.unit))},
                     {"peak_flops_per_second", peaks.flops},
                     {"peak_bytes_per_second", peaks.bytes},
                     {"engine", engine.PlanObject()}};
    fmt::print("{}\n", json::serialize(out));
    return;
  }
  fmt::print("{} sequences of {} + {} tokens, {} threads, {}\n", sequences_, input_tokens_,
             output_tokens_, engine.machine().threads, NameOf(engine.machine().device.isa));
  fmt::print("prefill             {:>10.1f} tokens/s   {:.1f} % of {:.1f} GFLOP/s ({})\n",
             speed.prefill_tokens_per_second, compute * 100, peaks.flops * 1e-9,
             NameOf(peaks.unit));
  fmt::print("decode              {:>10.1f} tokens/s   {:.1f} % of {:.1f} GB/s\n",
             speed.decode_tokens_per_second, bandwidth * 100, peaks.bytes * 1e-9);
  fmt::print("time to first token {:>10.1f} ms, one sequence\n", speed.time_to_first_token_ms);
}

Status BenchOfflineCommand::Run() {
  options_.running_max = sequences_;
  // Repeats use the same prompts and must compute them again.
  options_.no_prefix_cache = true;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(options_));
  if (StderrIsTerminal()) fmt::print(stderr, "{}", engine->PlanText());
  if (engine->limits().running_max < sequences_) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} sequences do not fit at once, {} do: give more --memory",
                             sequences_, engine->limits().running_max)};
  }
  const int32_t context = engine->limits().context_tokens_max;
  if (int64_t{input_tokens_} + output_tokens_ > context) {
    return Error{ErrorCode::kInvalid, fmt::format("{} + {} tokens do not fit the context of {}",
                                                  input_tokens_, output_tokens_, context)};
  }
  const Machine& machine = engine->machine();
  const auto format = options_.weight_choice().format;
  const bool quantised = format && ops::IsQuantised(*format);
  Peaks peaks{.unit = UnitFor(machine.device,
                              quantised ? Operands::kInt8 : ProductOperands(machine.device))};
  {
    ThreadPool pool(machine.threads, machine.binding);
    peaks.flops = MeasureUnit(peaks.unit, pool);
    peaks.bytes = MeasureBandwidth(machine.device.isa, pool).memory_read;
  }
  ASSIGN_OR_RETURN(const OfflineSpeed speed, Measure(*engine));
  Print(*engine, speed, peaks);
  if (options_.explain_ops) fmt::print(stderr, "{}", engine->ExplainOps());
  return {};
}

}  // namespace

CommandPointer MakeBenchOfflineCommand() { return std::make_unique<BenchOfflineCommand>(); }

}  // namespace braid
