// Cases of device_plan.h at the borders of its decisions, for its unit test and for the test that
// each of its planted mistakes fails one. Sizes are made up; the spec is that of braid-tiny.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/quantities.h"
#include "model/families/families.h"
#include "model/loading/device_plan.h"

namespace braid {

class DevicePlanCases {
 public:
  // What went wrong, a line for each.
  static std::vector<std::string> Failed() {
    DevicePlanCases cases;
    cases.Totals();
    cases.Lengths();
    cases.Hosts();
    cases.Devices();
    cases.Allocations();
    return cases.failed_;
  }

 private:
  static constexpr int64_t kMiB = int64_t{1} << 20;
  static constexpr int64_t kWeights = 100 * kMiB, kRouted = 80 * kMiB, kWorkspace = 10 * kMiB;
  static constexpr int64_t kRoutedWeight = 20 * kMiB, kOtherWeight = 16 * kMiB;  // largest
  static constexpr int64_t kFixed = kWeights + kWorkspace, kMuch = 10240 * kMiB;

  DevicePlanCases() {
    Result<ModelSpec> spec = ReadModelSpec(BRAID_SOURCE_DIR "/models/braid-tiny");
    CHECK(spec.ok());
    spec_ = *std::move(spec);
    geometry_ = PlanMemory(spec_, Request())->geometry;
  }

  static MemoryRequest Request() {
    return {.kv_dtype = DType::kF32,
            .available_bytes = kMuch,
            .weight_bytes = kWeights,
            .workspace_bytes = kWorkspace,
            .total_bytes = {},
            .arena_bytes = {}};
  }
  static DeviceRoom Room() {
    return {.memory_bytes = kMuch,
            .buffer_bytes_max = kMuch,
            .routed_bytes = kRouted,
            .routed_weight_max = kMiB,
            .other_weight_max = kMiB};
  }
  // The least arena for a sequence of so many tokens.
  int64_t Arena(int64_t tokens) const {
    return (1 + PagesFor(geometry_, BlocksOfSequence(geometry_, tokens))) * geometry_.page_bytes;
  }
  // The free memory of which an arena for so many tokens is the default share, or a little more.
  int64_t Free(int64_t tokens) const {
    return static_cast<int64_t>(static_cast<double>(Arena(tokens)) / kArenaShare) + 2;
  }

  void Fail(const std::string& what, const std::string& got) {
    failed_.push_back(what + ": " + got);
  }
  // Expects a plan with so many bytes on the host, and the reason.
  void Is(const std::string& what, int64_t on_host, const std::string& reason = "") {
    const Result<MemoryPlan> plan = PlanDeviceMemory(spec_, request_, room_);
    if (!plan) return Fail(what, plan.error().message);
    if (plan->host_weight_bytes != on_host || plan->weight_bytes != kWeights - on_host) {
      Fail(what, fmt::format("{} on the host, {} on the device", plan->host_weight_bytes,
                             plan->weight_bytes));
    }
    const bool said = plan->host_reason.find(reason) != std::string::npos;
    if (!said || plan->host_reason.empty() != (on_host == 0)) Fail(what, plan->host_reason);
    if (!request_.total_bytes && plan->arena_bytes > room_.buffer_bytes_max) {
      Fail(what, fmt::format("an arena of {}", plan->arena_bytes));
    }
  }
  // Expects an error that has all of `parts` and no word of `absent`.
  void Refuses(const std::string& what, const std::vector<std::string>& parts,
               const std::string& absent = "nothing absent") {
    const Result<MemoryPlan> plan = PlanDeviceMemory(spec_, request_, room_);
    if (plan) return Fail(what, "a plan");
    const std::string& message = plan.error().message;
    if (plan.error().field != "device") Fail(what, "field " + plan.error().field);
    for (const std::string& part : parts) {
      if (message.find(part) == std::string::npos) Fail(what, message);
    }
    if (message.find(absent) != std::string::npos) Fail(what, message);
  }
  void Reset(int64_t total = 0) {
    request_ = Request();
    if (total > 0) request_.total_bytes = total;
    room_ = Room();
  }

  void Totals() {
    const int64_t whole = kFixed + Arena(kTokensBesideExperts);
    Reset(whole);
    Is("just enough for all", 0);
    Reset(whole - 1);
    Is("a byte less", kRouted,
       fmt::format("weights and workspace need {} of the device's {}, which leaves room for",
                   ByteText(kFixed), ByteText(whole - 1)));
    room_.experts = ExpertsWith::kDevice;
    Is("a byte less, with everything on the device", 0);
    Reset(kFixed - 1);
    Is("too little for all weights", kRouted, "with them, weights and workspace need");
    room_.experts = ExpertsWith::kDevice;
    Refuses("--experts device", {"is too small: weights need " + ByteText(kWeights)}, "on the CPU");
    Reset(kFixed - 1);
    room_.routed_bytes = 0;
    Refuses("no experts", {"is too small: weights need " + ByteText(kWeights)}, "on the CPU");
    const int64_t rest = kFixed - kRouted + Arena(1);
    Reset(rest);
    Is("just enough for the rest", kRouted);
    Reset(rest - 1);
    Refuses("too little for the rest",
            {"weights need " + ByteText(kWeights), "with 80.0 MiB of experts on the CPU",
             fmt::format("still need {} of {}", ByteText(kFixed - kRouted), ByteText(rest - 1))});
    room_.experts = ExpertsWith::kHost;
    Refuses("--experts cpu", {"weights need " + ByteText(kWeights - kRouted)});
  }

  void Lengths() {
    Reset(kFixed + Arena(512));
    request_.model_len_max = 512;
    Is("as long as asked for", 0);
    Reset(kFixed + Arena(512) - 1);
    request_.model_len_max = 512;
    Is("shorter than asked for", kRouted);
    Reset(kFixed + Arena(spec_.context_tokens_max));
    request_.model_len_max = spec_.context_tokens_max;
    Is("as long as the model can", 0);
    spec_.context_tokens_max = 2048;
    Reset(kFixed + Arena(2048));
    Is("a model of a short context", 0);
    request_.model_len_max = 2049;
    if (PlanDeviceMemory(spec_, request_, room_).error().field != "max_model_len") {
      Fail("longer than the model can", "not an error of the length");
    }
    spec_.context_tokens_max = 8192;
  }

  void Hosts() {
    Reset(kFixed - 1);
    request_.available_bytes = kRouted;
    Is("a host with just enough", kRouted);
    request_.available_bytes = kRouted - 1;
    Refuses("a host with too little", {"is too small: weights need " + ByteText(kWeights),
                                       "experts on the CPU need 80.0 MiB of the host's memory"});
    Reset();
    request_.available_bytes = kRouted - 1;
    Is("everything on the device needs no host", 0);
    room_.experts = ExpertsWith::kHost;
    Refuses("--experts cpu on a host with too little", {"of the host's memory, of which"});
    request_.available_bytes = kRouted;
    Is("--experts cpu", kRouted, "--experts cpu");
  }

  void Devices() {
    Reset();
    room_.memory_bytes = kFixed + Free(kTokensBesideExperts);
    Is("a card with just enough", 0);
    room_.memory_bytes -= 4;
    Is("a card with a little less", kRouted);
    room_.shared = true;
    Is("a part of the host's memory", kRouted);
    room_.memory_bytes = kMuch;
    request_.available_bytes = kFixed + Free(kTokensBesideExperts) - 4;
    Is("all of the host's memory, where nothing is gained", 0);
    request_.available_bytes = kFixed;
    Refuses("all of the host's memory, which is too little", {"on the CPU"});
    Reset();
    room_.buffer_bytes_max = Arena(kTokensBesideExperts) - 1;
    Is("no larger allocation, where nothing is gained", 0);
  }

  void Allocations() {
    const std::string wrong = "the largest weight has 20.0 MiB, and the device allows at most ";
    Reset();
    room_.routed_weight_max = kRoutedWeight;
    room_.other_weight_max = kOtherWeight;
    room_.buffer_bytes_max = kRoutedWeight;
    Is("just the largest weight", 0);
    room_.buffer_bytes_max = kRoutedWeight - 1;
    Is("less than the largest weight of experts", kRouted, wrong);
    request_.available_bytes = kRouted - 1;
    Refuses("and a host with too little", {wrong, "of the host's memory, of which"});
    Reset();
    room_.routed_weight_max = kRoutedWeight;
    room_.other_weight_max = kOtherWeight;
    room_.buffer_bytes_max = kRoutedWeight - 1;
    room_.experts = ExpertsWith::kDevice;
    Refuses("--experts device, which cannot have them", {wrong}, "on the CPU");
    room_.experts = ExpertsWith::kHost;
    room_.buffer_bytes_max = kOtherWeight;
    Is("--experts cpu, and just the largest of the others", kRouted, "--experts cpu");
    room_.buffer_bytes_max = kOtherWeight - 1;
    Refuses("--experts cpu does not help", {"the largest weight has 16.0 MiB"});
    room_.experts = ExpertsWith::kAuto;
    Refuses("nor does auto", {wrong}, "on the CPU");
  }

  ModelSpec spec_;
  CacheGeometry geometry_;
  MemoryRequest request_;
  DeviceRoom room_;
  std::vector<std::string> failed_;
};

}  // namespace braid
