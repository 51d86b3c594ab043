// What a model costs on a mesh of devices before anybody buys or starts them: memory per device,
// the parts of a step with what bounds each, communication, throughput and latencies. Everything is
// derived from the spec, by the same CostsOf as the benchmarks, of what a rank holds (RankView), at
// the limits of the hardware. Experts are chosen uniformly, or as uneven as ForecastOptions say.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/geometry.h"
#include "forecast/hardware.h"
#include "model/spec.h"
#include "parallel/mesh.h"
#include "tensor/dtype.h"

namespace braid {

// All requests are alike, and `concurrency` of them run at any time, shared evenly by the groups.
struct Workload {
  int64_t input_tokens = 1024;
  int64_t output_tokens = 256;
  int64_t concurrency = 1;
};

struct ForecastOptions {
  ops::WeightFormat format = ops::WeightFormat::kBF16;  // of matrices that may be quantised
  DType kv_dtype = DType::kBF16;
  int64_t step_tokens_max = 8192;  // prompt tokens of a group in a step
  int32_t redundant_experts = 0;   // further copies per layer; ep divides experts and copies
  // Mean load of the ranks that share experts over that of the fullest, which decides a step.
  double expert_balance = 1;
  // Tokens that a draft head proposes for each sequence that decodes, and the part of them that is
  // right, one after the other: a wrong one ends the chain. Memory is that of the spec, so the head
  // counts if UseDraftHead has said so, and room for drafts in states if PlanState has.
  int32_t drafts = 0;
  double draft_acceptance = 0.5;
  // Another engine computes the prompts and hands them over: nothing but decoding takes time here.
  bool prompts_elsewhere = false;
  // Ablations: leave a cost out to see what it is worth.
  bool without_communication = false;
  bool without_weight_bytes = false;
};

enum class Bound : uint8_t { kArithmetic, kMemory, kLink, kHost };
std::string_view NameOf(Bound bound);

// A part of a step over all layers, on one device.
struct PartForecast {
  std::string_view part;
  double flops = 0;
  double bytes = 0;
  double arithmetic_seconds = 0;
  double memory_seconds = 0;
  double seconds = 0;  // layer by layer the longer of both
  Bound bound() const {
    return arithmetic_seconds > memory_seconds ? Bound::kArithmetic : Bound::kMemory;
  }
};

struct StepForecast {
  std::vector<PartForecast> parts;
  double compute_seconds = 0;
  double sent_bytes = 0;  // by a device
  double link_seconds = 0;
  double host_seconds = 0;
  // Communication after computation, or all of it at the same time.
  double seconds_without_overlap() const { return compute_seconds + link_seconds + host_seconds; }
  double seconds_with_overlap() const;
  Bound bound() const;  // with overlap
};

// Bytes of the device that holds most.
struct MemoryForecast {
  int64_t weights = 0;
  int64_t kv = 0;
  int64_t state = 0;             // of running sequences
  int64_t workspace = 0;         // activations of the largest step, fp32
  int64_t balance_buffers = 0;   // redundant experts
  int64_t exchange_buffers = 0;  // rows sent to experts and back, twice
  int64_t total() const {
    return weights + kv + state + workspace + balance_buffers + exchange_buffers;
  }
};

// Of all devices together. All groups do the same at the same time, so a group's prompt meets
// prompts of the others at their experts.
struct SpeedForecast {
  double output_tokens_per_second = 0;  // prompts take their time of the same devices
  double input_tokens_per_second = 0;
  double first_token_seconds = 0;        // of a request that does not wait
  double first_token_seconds_burst = 0;  // mean, if all requests arrive at once
  double inter_token_seconds = 0;        // while no prompt runs
  double inter_token_seconds_mean = 0;   // with the prompts of other requests in between
  std::optional<double> dollars_per_million_output;
  std::optional<double> joules_per_million_output;
};

struct Forecast {
  MemoryForecast memory;
  bool fits = false;
  StepForecast prefill;  // the first step of a prompt
  StepForecast decode;   // half of the output generated; with drafts, which are verified and made
  double tokens_per_step = 1;  // of a sequence that decodes
  SpeedForecast serial, overlapped;
};

// An error if the workload is empty or longer than the model's context, or if options are out of
// their range.
Status CheckWorkload(const ModelSpec& spec, const Workload& workload,
                     const ForecastOptions& options);

// An error if the mesh cannot divide the model, if the hardware has no links for it, or if the
// workload is wrong. A model that does not fit is no error.
Result<Forecast> ForecastOf(const ModelSpec& spec, const Mesh& mesh, const Hardware& hardware,
                            const Workload& workload, const ForecastOptions& options = {});

// A kind of rows of a step, of one group: prompts that are computed, or sequences that decode.
struct StepRows {
  int64_t tokens = 0;
  int64_t sequences = 0;
  int64_t context_tokens = 0;  // before these tokens, the mean of the sequences
  int64_t logits_rows = 0;
};

// Times of steps that mix prompts and decoding, on one mesh: products see all tokens at once,
// attention and recurrences the sequences of each kind.
class StepClock {
 public:
  // Errors as of ForecastOf. The arguments are copied.
  static Result<StepClock> Create(const ModelSpec& spec, const Mesh& mesh, const Hardware& hardware,
                                  const ForecastOptions& options);
  StepClock(StepClock&&) noexcept;
  ~StepClock();

  StepForecast StepOf(const StepRows& prompts, const StepRows& decodes) const;
  // Of the steps from now on (ForecastOptions::expert_balance), above 0 and at most 1.
  void SetExpertBalance(double balance);
  // What the cache of the fullest device is made of: pages of what the weights, the workspace of
  // steps and exchange buffers leave of the memory. An error if a sequence of so many tokens does
  // not fit.
  Result<CacheGeometry> Cache(int64_t tokens, int32_t running_max) const;

 private:
  struct State;
  explicit StepClock(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// What is best: most output tokens/s of all devices together, or of each. The second is also the
// lowest price of a token.
enum class SearchAim : uint8_t { kTokens, kTokensPerDevice };

// What --search varies and what it must keep.
struct SearchSpace {
  int32_t devices_max = 8;
  std::vector<ops::WeightFormat> formats = {ops::WeightFormat::kBF16};
  std::optional<double> inter_token_seconds_max;  // mean, with overlap
  std::optional<double> first_token_seconds_max;  // without waiting, with overlap
  SearchAim aim = SearchAim::kTokens;
  int32_t results_max = 5;
  std::function<void(double)> progress = {};  // gets the part that is done, 0 to 1
};
struct SearchResult {
  Mesh mesh;
  ops::WeightFormat format = ops::WeightFormat::kBF16;
  Forecast forecast;
};
// The best meshes and formats (with overlap) of those that fit and keep the bounds, best first, at
// least one; of equals the one with fewest devices. All meshes of at most devices_max devices are
// tried. The error says how many there were and why none will do.
Result<std::vector<SearchResult>> SearchMesh(const ModelSpec& spec, const Hardware& hardware,
                                             const Workload& workload,
                                             const ForecastOptions& options,
                                             const SearchSpace& space);

// Engines that compute prompts and engines that generate answers, all of a side alike.
struct SplitSide {
  Mesh mesh;
  int32_t engines = 1;
  int32_t devices() const { return engines * mesh.ranks(); }
};
enum class SplitBound : uint8_t { kPrompts, kAnswers, kHandoff };
std::string_view NameOf(SplitBound bound);
struct SplitResult {
  SplitSide prefill, decode;
  ops::WeightFormat format = ops::WeightFormat::kBF16;
  double output_tokens_per_second = 0;
  double first_token_seconds = 0;  // of a request that does not wait, with the pages that come last
  double inter_token_seconds = 0;
  double handoff_bytes = 0;  // of a prompt: keys, values and states
  SplitBound bound = SplitBound::kAnswers;
  int32_t devices() const { return prefill.devices() + decode.devices(); }
};
// The best divisions of at most devices_max devices into prefill and decode engines, with overlap,
// best first, at least one. `workload.concurrency` answers are generated at any time, shared evenly
// by the decode engines; prompts come as fast as the slower side allows. Pages travel by the
// network, else by the links, from all devices of an engine, while later ones are computed; those
// of the last step and the states follow it. The error says why there is none.
Result<std::vector<SplitResult>> SearchSplit(const ModelSpec& spec, const Hardware& hardware,
                                             const Workload& workload,
                                             const ForecastOptions& options,
                                             const SearchSpace& space);

}  // namespace braid
