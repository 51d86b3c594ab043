// `braid bench offline`: measures prefill and decode through the driver that serving uses, on
// random tokens, and compares them with the machine's limits, measured in the same run.
#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"
#include "base/math.h"
#include "base/progress.h"
#include "base/rng.h"
#include "cli/bench/machine_limits.h"
#include "cli/bench/statistics.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "engine/engine.h"
#include "engine/engine_ranks.h"
#include "engine/output_queue.h"

namespace braid {
namespace {

// Of a prompt that brings the weights of small models into the caches, all experts' too.
constexpr size_t kWarmTokens = 64;

// The machine's limits: the peak of the unit that multiplies, and the bandwidth.
struct Peaks {
  double flops = 0;
  double bytes = 0;
};

Peaks PeaksNow(Unit unit, const MemoryMeter& memory, ThreadPool& pool) {
  return {.flops = MeasureUnit(unit, pool), .bytes = memory.Read(0.3)};
}

// One repeat, with the limits measured before and after it, because they change on a shared
// machine.
struct Sample {
  double prefill_seconds = 0;  // to the last sequence's first token
  double first_seconds = 0;    // one sequence alone
  double step_seconds = 0;     // every sequence decodes one token, in the mean
  Peaks peaks;
};

// Medians over the repeats; fractions are of each repeat's own limits.
struct OfflineSpeed {
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;
  double time_to_first_token_ms = 0;
  double compute_fraction = 0;
  double bandwidth_fraction = 0;
  double prefill_limit_fraction = 0;
  double decode_limit_fraction = 0;
  Peaks peaks;
};

Cost SumOf(std::span<const Cost> costs) {
  Cost sum;
  for (const Cost& cost : costs) {
    sum.flops += cost.flops;
    sum.bytes += cost.bytes;
  }
  return sum;
}

// Parts run one after the other, each bound by arithmetic or by memory.
double LimitSeconds(std::span<const Cost> costs, const Peaks& peaks) {
  double seconds = 0;
  for (const Cost& cost : costs) {
    seconds += std::max(cost.flops / peaks.flops, cost.bytes / peaks.bytes);
  }
  return seconds;
}

class BenchOfflineCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("MODEL", options_.model_dir, "Directory of the checkpoint");
    flags.Number("--input-tokens", input_tokens_, {1, 1 << 24}, "Prompt tokens per sequence");
    flags.Number("--output-tokens", output_tokens_, {2, 1 << 24}, "Generated tokens per sequence");
    flags.Number("--sequences", sequences_, {1, 1 << 16}, "Sequences that run at the same time");
    flags.Number("--repeat", repeat_, {1, 1000},
                 "Number of measurements; the medians are reported");
    flags.Seed("--seed", seed_, "Seed of the random prompts (default: 0)");
    flags.Switch("--json", json_, "Print a JSON object");
    AddEngineFlags(flags, options_);
  }
  Status Run() override;

 private:
  Request PromptOf(const Engine& engine, int32_t sequence, int32_t new_tokens) const;
  Status WarmCaches(Engine& engine) const;
  Result<std::vector<RequestResult>> RunBatch(Engine& engine, int32_t sequences,
                                              int32_t new_tokens) const;
  Result<double> PrefillSeconds(Engine& engine, int32_t sequences) const;
  Result<Sample> DecodeSample(Engine& engine) const;
  Result<std::vector<Sample>> Measure(Engine& engine, ThreadPool& pool, Unit unit) const;
  OfflineSpeed SpeedOf(const Engine& engine, std::span<const Sample> samples) const;
  void Print(Engine& engine, const OfflineSpeed& speed, Unit unit) const;

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

// Measuring the memory displaces what a running engine keeps in the caches of the CPU.
Status BenchOfflineCommand::WarmCaches(Engine& engine) const {
  Request request = PromptOf(engine, 0, 2);
  request.prompt.resize(std::min<size_t>(request.prompt.size(), kWarmTokens));
  std::vector<Request> requests;
  requests.push_back(std::move(request));
  return RunRequests(engine.driver(), std::move(requests), 1, [](size_t, RequestResult) {});
}

// From submitting all prompts to the last first token.
Result<double> BenchOfflineCommand::PrefillSeconds(Engine& engine, int32_t sequences) const {
  const int64_t start_us = MonotonicUs();
  ASSIGN_OR_RETURN(const std::vector<RequestResult> results, RunBatch(engine, sequences, 1));
  int64_t end_us = start_us;
  for (const RequestResult& result : results) end_us = std::max(end_us, result.token_us.front());
  return static_cast<double>(end_us - start_us) * 1e-6;
}

// The time in which every sequence decodes one token: all of them run at once, for they may
// generate as many tokens more as prefill takes steps. The times of prefill are those of one
// sequence.
Result<Sample> BenchOfflineCommand::DecodeSample(Engine& engine) const {
  const SchedulerConfig& limits = engine.limits();
  const int64_t prompt_tokens = int64_t{input_tokens_} * sequences_;
  const int64_t rest = std::max(1, limits.step_tokens_max - sequences_);
  const int64_t chunk = limits.chunk_tokens_max > 0 ? limits.chunk_tokens_max : rest;
  const int64_t prefill_steps =
      2 * CeilDiv(prompt_tokens, std::min(rest, chunk * sequences_)) + sequences_;
  const int64_t room = limits.context_tokens_max - input_tokens_;
  const int64_t new_tokens =
      sequences_ == 1 ? output_tokens_ : std::min(output_tokens_ + prefill_steps, room);
  const int64_t start_us = MonotonicUs();
  ASSIGN_OR_RETURN(const std::vector<RequestResult> results,
                   RunBatch(engine, sequences_, static_cast<int32_t>(new_tokens)));
  std::vector<std::vector<int64_t>> token_us;
  int64_t last_us = start_us;
  for (const RequestResult& result : results) {
    token_us.push_back(result.token_us);
    last_us = std::max(last_us, result.token_us.front());
  }
  const double first = static_cast<double>(last_us - start_us) * 1e-6;
  return Sample{.prefill_seconds = first,
                .first_seconds = first,
                .step_seconds = TokenSecondsOf(token_us, output_tokens_)};
}

Result<std::vector<Sample>> BenchOfflineCommand::Measure(Engine& engine, ThreadPool& pool,
                                                         Unit unit) const {
  std::vector<Sample> samples;
  ProgressBar bar("bench", 0);
  RETURN_IF_ERROR(RunBatch(engine, 1, 2).ok()
                      ? Status()
                      : Status(Error{ErrorCode::kInternal, "the warm-up failed"}));
  const MemoryMeter memory(engine.machine().device.isa, pool);
  for (int32_t i = 0; i < repeat_; ++i) {
    bar.Show(static_cast<double>(i) / repeat_);
    const Peaks before = PeaksNow(unit, memory, pool);
    RETURN_IF_ERROR(WarmCaches(engine));
    ASSIGN_OR_RETURN(Sample sample, DecodeSample(engine));
    if (sequences_ > 1) {
      ASSIGN_OR_RETURN(sample.first_seconds, PrefillSeconds(engine, 1));
      ASSIGN_OR_RETURN(sample.prefill_seconds, PrefillSeconds(engine, sequences_));
    }
    const Peaks after = PeaksNow(unit, memory, pool);
    sample.peaks = {(before.flops + after.flops) / 2, (before.bytes + after.bytes) / 2};
    samples.push_back(sample);
  }
  return samples;
}

OfflineSpeed BenchOfflineCommand::SpeedOf(const Engine& engine,
                                          std::span<const Sample> samples) const {
  const int64_t prompt_tokens = int64_t{input_tokens_} * sequences_;
  const RunningFormats formats = engine.weight_formats();
  const auto bytes_per_weight = [&](ops::WeightFormat format) {
    return ops::PackedMatrix{.format = format, .n = 1, .k = engine.spec().hidden}
        .bytes_per_weight();
  };
  StepShape shape{.tokens = prompt_tokens,
                  .sequences = sequences_,
                  .context_tokens = 0,
                  .bytes_per_weight = bytes_per_weight(formats.layers),
                  .bytes_per_head_weight = bytes_per_weight(formats.head),
                  .kv_dtype = engine.machine().kv_dtype};
  const std::vector<Cost> prefill = CostsOf(engine.spec(), shape, sequences_);
  shape.tokens = sequences_;
  shape.context_tokens = input_tokens_ + output_tokens_ / 2;
  const std::vector<Cost> decode = CostsOf(engine.spec(), shape, sequences_);
  const double prefill_flops = SumOf(prefill).flops, decode_bytes = SumOf(decode).bytes;
  auto median = [&](auto of) {
    std::vector<double> values;
    for (const Sample& sample : samples) values.push_back(of(sample));
    return Median(values);
  };
  return {
      .prefill_tokens_per_second = static_cast<double>(prompt_tokens) /
                                   median([](const Sample& s) { return s.prefill_seconds; }),
      .decode_tokens_per_second =
          sequences_ / median([](const Sample& s) { return s.step_seconds; }),
      .time_to_first_token_ms = median([](const Sample& s) { return s.first_seconds; }) * 1e3,
      .compute_fraction = median(
          [&](const Sample& s) { return prefill_flops / s.prefill_seconds / s.peaks.flops; }),
      .bandwidth_fraction =
          median([&](const Sample& s) { return decode_bytes / s.step_seconds / s.peaks.bytes; }),
      .prefill_limit_fraction = median(
          [&](const Sample& s) { return LimitSeconds(prefill, s.peaks) / s.prefill_seconds; }),
      .decode_limit_fraction =
          median([&](const Sample& s) { return LimitSeconds(decode, s.peaks) / s.step_seconds; }),
      .peaks = {.flops = median([](const Sample& s) { return s.peaks.flops; }),
                .bytes = median([](const Sample& s) { return s.peaks.bytes; })}};
}

// Of all that ran, the warm-up included: by place, the share of the drafts there that were right.
json::array AcceptanceByPlace(const DraftCounts& counts) {
  json::array shares;
  for (size_t i = 0; i < kDraftPlaces && counts.drafted[i] > 0; ++i) {
    shares.push_back(static_cast<double>(counts.accepted[i]) /
                     static_cast<double>(counts.drafted[i]));
  }
  return shares;
}

void BenchOfflineCommand::Print(Engine& engine, const OfflineSpeed& speed, Unit unit) const {
  const Peaks& peaks = speed.peaks;
  const SchedulerStats stats = engine.driver().stats().scheduler;
  const json::array accepted = AcceptanceByPlace(stats.drafts_by_place);
  if (json_) {
    json::object out{{"input_tokens", input_tokens_},
                     {"output_tokens", output_tokens_},
                     {"sequences", sequences_},
                     {"repeat", repeat_},
                     {"prefill_tokens_per_second", speed.prefill_tokens_per_second},
                     {"decode_tokens_per_second", speed.decode_tokens_per_second},
                     {"time_to_first_token_ms", speed.time_to_first_token_ms},
                     {"fraction_of_compute_peak", speed.compute_fraction},
                     {"fraction_of_bandwidth", speed.bandwidth_fraction},
                     {"prefill_fraction_of_limit", speed.prefill_limit_fraction},
                     {"decode_fraction_of_limit", speed.decode_limit_fraction},
                     {"peak_unit", std::string(KeyOf(unit))},
                     {"peak_flops_per_second", peaks.flops},
                     {"peak_bytes_per_second", peaks.bytes},
                     {"drafts", stats.drafts},
                     {"drafts_accepted", stats.drafts_accepted},
                     {"draft_acceptance_by_place", accepted},
                     {"engine", engine.PlanObject()}};
    fmt::print("{}\n", json::serialize(out));
    return;
  }
  fmt::print("{} sequences of {} + {} tokens, {} threads, {}\n", sequences_, input_tokens_,
             output_tokens_, engine.machine().threads, NameOf(engine.machine().device.isa));
  fmt::print(
      "prefill             {:>10.1f} tokens/s   {:.1f} % of {:.1f} GFLOP/s ({}), {:.1f} % of its "
      "limit\n",
      speed.prefill_tokens_per_second, speed.compute_fraction * 100, peaks.flops * 1e-9,
      NameOf(unit), speed.prefill_limit_fraction * 100);
  fmt::print(
      "decode              {:>10.1f} tokens/s   {:.1f} % of {:.1f} GB/s, {:.1f} % of its limit\n",
      speed.decode_tokens_per_second, speed.bandwidth_fraction * 100, peaks.bytes * 1e-9,
      speed.decode_limit_fraction * 100);
  fmt::print("time to first token {:>10.1f} ms, one sequence\n", speed.time_to_first_token_ms);
  if (stats.drafts == 0) return;
  fmt::print("drafts              {:>10} verified in {} steps, {} accepted; by place", stats.drafts,
             stats.steps, stats.drafts_accepted);
  for (const json::value& share : accepted) fmt::print(" {:.1f} %", share.as_double() * 100);
  fmt::print("\n");
}

Status BenchOfflineCommand::Run() {
  options_.scheduler.running_max = sequences_;
  // All are submitted at once.
  options_.scheduler.waiting_max = std::max(options_.scheduler.waiting_max, sequences_);
  // Repeats use the same prompts and must compute them again.
  options_.scheduler.prefix_cache = false;
  if (FollowsAsRank()) return Engine::Follow(options_);
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
  const Unit unit = UnitFor(machine.device, engine->weight_formats().layers);
  ThreadPool pool(machine.threads, machine.places);
  ASSIGN_OR_RETURN(const std::vector<Sample> samples, Measure(*engine, pool, unit));
  Print(*engine, SpeedOf(*engine, samples), unit);
  if (options_.explain_ops) fmt::print(stderr, "{}", engine->ExplainOps());
  return {};
}

}  // namespace

CommandPointer MakeBenchOfflineCommand() { return std::make_unique<BenchOfflineCommand>(); }

}  // namespace braid
