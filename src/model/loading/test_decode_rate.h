// Cases of decode_rate.h, for its unit test and for the test that each of its planted mistakes
// fails one. The spec is that of braid-tiny; rates are made up.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"
#include "model/families/families.h"
#include "model/loading/decode_rate.h"

namespace braid {

class DecodeRateCases {
 public:
  // What went wrong, a line for each.
  static std::vector<std::string> Failed() {
    DecodeRateCases cases;
    cases.Work();
    cases.Formats();
    cases.Times();
    cases.Texts();
    return cases.failed_;
  }

 private:
  DecodeRateCases() {
    Result<ModelSpec> spec = ReadModelSpec(BRAID_SOURCE_DIR "/models/braid-tiny");
    CHECK(spec.ok());
    spec_ = *std::move(spec);
  }

  // Two bytes for each element, but for the experts'.
  LoadReport Report(int64_t of_experts) const {
    LoadReport report;
    for (const WeightSpec& weight : WeightsOf(spec_)) {
      const bool routed = weight.part == "experts";
      report.weights.push_back(
          {.name = weight.name,
           .part = weight.part,
           .packed_bytes = (routed ? of_experts : 2) * weight.count * weight.n * weight.k});
    }
    return report;
  }
  void Expect(bool holds, const std::string& what) {
    if (!holds) failed_.push_back(what);
  }
  void ExpectNear(double got, double want, const std::string& what) {
    Expect(std::abs(got - want) <= 1e-9 * std::abs(want), what);
  }

  // With one format, the whole of CostsOf.
  void Work() {
    const DecodeWork work = DecodeWorkOf(spec_, Report(2), DType::kF32);
    const StepShape shape{.tokens = 1, .sequences = 1, .kv_dtype = DType::kF32};
    double bytes = 0, flops = 0, got_flops = work.routed_flops;
    for (const Cost& cost : CostsOf(spec_, shape, 1)) {
      bytes += cost.bytes;
      flops += cost.flops;
    }
    for (const Cost& cost : work.parts) got_flops += cost.flops;
    ExpectNear(work.bytes(), bytes, "bytes");
    ExpectNear(got_flops, flops, "operations");
    double routed = 0;
    int32_t mixtures = 0;
    for (const LayerSpec& layer : spec_.layers) {
      const MoeFfn* moe = std::get_if<MoeFfn>(&layer.ffn);
      if (moe == nullptr) continue;
      routed += 2.0 * 3 * moe->top_k * moe->width * spec_.hidden;
      ++mixtures;
    }
    CHECK(mixtures > 1);
    ExpectNear(work.routed_bytes, routed, "bytes of experts");
    ExpectNear(work.routed_flops, routed, "operations of experts: two for two bytes");
    Expect(work.mixtures == mixtures, "mixtures");
  }

  void Formats() {
    const DecodeWork even = DecodeWorkOf(spec_, Report(2), DType::kF32);
    const DecodeWork wide = DecodeWorkOf(spec_, Report(4), DType::kF32);
    ExpectNear(wide.routed_bytes, 2 * even.routed_bytes, "experts of another format");
    ExpectNear(wide.bytes() - wide.routed_bytes, even.bytes() - even.routed_bytes,
               "experts of another format leave the others");
    LoadReport report = Report(2);
    report.weights.push_back({.name = "mtp", .part = "draft_head", .packed_bytes = 1 << 20});
    for (WeightStorage& weight : report.weights) {
      if (weight.part == "embedding" || weight.part == "head") weight.packed_bytes *= 3;
    }
    ExpectNear(DecodeWorkOf(spec_, report, DType::kF32).bytes(), even.bytes(),
               "a token reads no draft head, and one row of the embedding");
    const DecodeWork narrow = DecodeWorkOf(spec_, Report(2), DType::kI8);
    Expect(narrow.bytes() < even.bytes(), "keys and values of another type");
  }

  void Times() {
    const DecodeWork work{.parts = {{.flops = 10, .bytes = 100}, {.flops = 1000, .bytes = 10}},
                          .routed_bytes = 500,
                          .routed_flops = 100,
                          .mixtures = 3,
                          .kernels = 40};
    DeviceRates rates{
        .bytes_per_second = 10, .operations_per_second = 100, .submission_seconds = 7};
    rates.start_seconds = 0.5;
    const DecodeTime alone = DecodeTimeOf(work, rates);
    ExpectNear(alone.device, 10 + 10 + 50, "each part waits for bytes or for operations");
    Expect(alone.host == 0, "the host has nothing");
    ExpectNear(alone.submissions, 7, "a step is one submission");
    ExpectNear(alone.starts, 20, "each kernel has a start");
    ExpectNear(alone.seconds(), 97, "all together");
    rates.host_bytes_per_second = 25;
    const DecodeTime both = DecodeTimeOf(work, rates);
    ExpectNear(both.device, 20, "the device has no experts");
    ExpectNear(both.host, 20 / kReachedOnCpu, "the host reads the experts");
    ExpectNear(both.submissions, 28, "each mixture is a submission more");
    ExpectNear(both.starts, 20, "kernels are those that were counted");
    ExpectNear(both.seconds(), 68 + 20 / kReachedOnCpu, "all together, with the host");
  }

  void Texts() {
    DeviceRates rates{
        .bytes_per_second = 8.04e9, .operations_per_second = 31e9, .submission_seconds = 0.001};
    rates.start_seconds = 8e-6;
    const DecodeWork work{.kernels = 250};
    DecodeTime time{.device = 0.029, .starts = 0.002, .submissions = 0.001};
    Expect(RateText(work, time, rates) ==
               "one sequence decodes about 31 tokens/s: of a token's 32.0 ms the device has 29.0, "
               "starts of 250 kernels 2.0, submissions 1.0 (measured: 8.0 GB/s, 31 Gop/s, 8.0 us "
               "a start)",
           RateText(work, time, rates));
    rates.host_bytes_per_second = 20e9;
    time.host = 0.168;
    Expect(RateText(work, time, rates) ==
               "one sequence decodes about 5.0 tokens/s: of a token's 200.0 ms the device has "
               "29.0, starts of 250 kernels 2.0, experts on the CPU 168.0, submissions 1.0 "
               "(measured: 8.0 GB/s, 31 Gop/s, 8.0 us a start, the CPU 20.0 GB/s)",
           RateText(work, time, rates));
  }

  ModelSpec spec_;
  std::vector<std::string> failed_;
};

}  // namespace braid
