// Where a model runs: the CPU, or a device that Vulkan offers (--device).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/engine_options.h"
#include "model/loading/decode_rate.h"
#include "model/loading/device_plan.h"
#include "model/loading/memory_plan.h"
#include "model/loading/weight_binding.h"
#include "runtime/model_device.h"
#include "runtime/model_executor.h"
#include "vulkan/gpu.h"

namespace braid {

// The index of the device that `text` means: "vulkan" the first that can be used, "vulkan:N" the
// N-th, "auto" the first that can be used and is no software; -1: the CPU ("cpu", or "auto" where
// no other is). Pure.
Result<int> PickDevice(std::string_view text, std::span<const vulkan::DeviceFacts> devices);

// Null: the CPU. Errors name options that do not go with a device; with "auto" these mean the CPU.
// `note` says why "auto" takes the CPU.
Result<std::unique_ptr<vulkan::Gpu>> OpenDevice(const EngineOptions& options, std::string& note);

// The machine as it is used, in a line.
std::string TextOf(const Machine& machine, std::string_view device, std::string_view mla,
                   std::string_view formats);

// The same options, for the CPU.
EngineOptions OnCpu(EngineOptions options);

// The engine's device, from its choice to the model's home there; of the CPU there is nothing.
class EngineDevice {
 public:
  // What the options say; the machine as it is used then: a device computes in fp32, and keeps keys
  // and values so unless told otherwise. Prints why "auto" takes the CPU.
  Result<Machine> Open(const EngineOptions& options);
  bool used() const { return gpu_ != nullptr || home_ != nullptr; }
  const std::string& name() const { return name_; }
  // Of the device's memory, or the CPU's. Of the binding's weights, the host may keep those of
  // experts. Then measures the rates that the expected one is made of.
  Result<MemoryPlan> Plan(const ModelSpec& spec, const MemoryRequest& request,
                          const Binding& binding);
  // Of one sequence without drafts, after Move, for the start-up plan: a line, empty on the CPU;
  // tokens per second, 0 where nothing was measured.
  const std::string& rate_text() const { return rate_text_; }
  double tokens_per_second() const { return tokens_per_second_; }
  // What it is made of: kernels and copies of a decode step, and what the start of one takes.
  int64_t decode_kernels() const { return decode_.kernels; }
  double start_seconds() const { return rates_ ? rates_->start_seconds : 0; }
  // The weights, and all else that a step needs.
  Status Move(const ModelSpec& spec, ModelWeights& weights, const SchedulerConfig& limits,
              DType kv_dtype);
  ModelDevice* home() const { return home_.get(); }
  // After Move, when the plan's weights are those that were loaded: takes the host's from them.
  void Divide(MemoryPlan& plan) const;
  // What decides about the bits of its pages: device, driver, who computes the experts; empty: the
  // CPU computes everything.
  std::string PagesText() const;
  // Gives up the device, which has failed, and opens it again; weights are loaded again, for the
  // device had the only copy.
  Result<Reopened> Reopen(const std::function<Result<ModelWeights>()>& load, const ModelSpec& spec,
                          const SchedulerConfig& limits, DType kv_dtype);

  // Whether "auto" takes the CPU after this error, which is then printed.
  static bool GivesWay(const EngineOptions& options, const Status& prepared);

 private:
  std::unique_ptr<vulkan::Gpu> gpu_;  // until Move
  std::unique_ptr<ModelDevice> home_;
  Machine host_;
  ExpertsWith experts_ = ExpertsWith::kAuto;  // as asked for
  bool hands_over_ = false;                   // routed experts stay with the host
  bool pages_move_ = false;                   // there are a tier or partners
  std::string computes_;                      // name and driver
  std::string name_ = "cpu";
  int index_ = -1;
  std::optional<DeviceRates> rates_;  // what Plan measured
  DecodeWork decode_;
  std::string rate_text_;
  double tokens_per_second_ = 0;
  Status OpenAgain();
  void Measure(const ModelSpec& spec, const MemoryRequest& request, const LoadReport& report,
               int64_t host_bytes);
  void Expect();
};

}  // namespace braid
