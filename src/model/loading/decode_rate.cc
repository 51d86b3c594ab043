// See the header.
#include "model/loading/decode_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

namespace braid {
namespace {

struct Sizes {
  int64_t bytes = 0, weights = 0;
  double bytes_per_weight() const {
    return weights > 0 ? static_cast<double>(bytes) / static_cast<double>(weights) : 0;
  }
};

int64_t RoutedWeightsOf(const ModelSpec& spec) {
  int64_t weights = 0;
  for (const LayerSpec& layer : spec.layers) {
    const MoeFfn* moe = std::get_if<MoeFfn>(&layer.ffn);
    if (moe != nullptr) weights += int64_t{3} * moe->experts * moe->width * spec.hidden;
  }
  return weights;
}

double SecondsOf(double bytes, double flops, const DeviceRates& rates) {
  return std::max(bytes / rates.bytes_per_second, flops / rates.operations_per_second);
}

std::string SpeedText(double tokens_per_second) {
  return fmt::format("{:.{}f} tokens/s", tokens_per_second, tokens_per_second < 10 ? 1 : 0);
}

}  // namespace

double DecodeWork::bytes() const {
  double sum = routed_bytes;
  for (const Cost& part : parts) sum += part.bytes;
  return sum;
}

DecodeWork DecodeWorkOf(const ModelSpec& spec, const LoadReport& report, DType kv_dtype) {
  Sizes routed{.weights = RoutedWeightsOf(spec)}, rest;
  for (const WeightStorage& weight : report.weights) {
    if (weight.part == "experts") routed.bytes += weight.packed_bytes;
    const bool counted = weight.part != "embedding" && weight.part != "head" &&
                         weight.part != "draft_head" && weight.part != "experts";
    if (counted) rest.bytes += weight.packed_bytes;
  }
  const ParameterCount count = ParametersOf(spec);
  rest.weights = count.total - count.embedding * (spec.tied_head ? 1 : 2) - routed.weights;
  const ops::PackedMatrix head{.format = RunningFormatsOf(report).head, .n = 1, .k = spec.hidden};
  const StepShape shape{.tokens = 1,
                        .sequences = 1,
                        .bytes_per_weight = rest.bytes_per_weight(),
                        .bytes_per_head_weight = head.bytes_per_weight(),
                        .kv_dtype = kv_dtype};
  DecodeWork work;
  ModelSpec without = spec;
  for (LayerSpec& layer : without.layers) {
    MoeFfn* moe = std::get_if<MoeFfn>(&layer.ffn);
    if (moe == nullptr) continue;
    const Cost cost =
        ExpertCost(*moe, spec.hidden, moe->top_k, moe->top_k, routed.bytes_per_weight());
    work.routed_bytes += cost.bytes;
    work.routed_flops += cost.flops;
    work.mixtures += 1;
    moe->width = 0;
  }
  work.parts = CostsOf(without, shape, 1);
  return work;
}

DecodeTime DecodeTimeOf(const DecodeWork& work, const DeviceRates& rates) {
  const bool hands_over = rates.host_bytes_per_second > 0;
  DecodeTime time;
  for (const Cost& part : work.parts) time.device += SecondsOf(part.bytes, part.flops, rates);
  if (hands_over) {
    time.host = work.routed_bytes / (kReachedOnCpu * rates.host_bytes_per_second);
  } else {
    time.device += SecondsOf(work.routed_bytes, work.routed_flops, rates);
  }
  time.starts = static_cast<double>(work.kernels) * rates.start_seconds;
  time.submissions = (1 + (hands_over ? work.mixtures : 0)) * rates.submission_seconds;
  return time;
}

std::string RateText(const DecodeWork& work, const DecodeTime& time, const DeviceRates& rates) {
  std::string text = fmt::format(
      "one sequence decodes about {}: of a token's {:.1f} ms the device has {:.1f}, starts of {} "
      "kernels {:.1f}",
      SpeedText(1 / time.seconds()), time.seconds() * 1e3, time.device * 1e3, work.kernels,
      time.starts * 1e3);
  if (rates.host_bytes_per_second > 0) {
    text += fmt::format(", experts on the CPU {:.1f}", time.host * 1e3);
  }
  return text +
         fmt::format(
             ", submissions {:.1f} (measured: {:.1f} GB/s, {:.0f} Gop/s, {:.1f} us a start{})",
             time.submissions * 1e3, rates.bytes_per_second * 1e-9,
             rates.operations_per_second * 1e-9, rates.start_seconds * 1e6,
             rates.host_bytes_per_second > 0
                 ? fmt::format(", the CPU {:.1f} GB/s", rates.host_bytes_per_second * 1e-9)
                 : std::string());
}

}  // namespace braid
