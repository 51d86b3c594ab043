// The choice is a function of what is listed; opening follows.
#include "engine/device_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "model/loading/load_weights.h"
#include "runtime/device/device_rates.h"

namespace braid {
namespace {

Error Bad(std::string message) { return {ErrorCode::kInvalid, std::move(message), "device"}; }

void SayCpu(const std::string& why) {
  std::fputs(fmt::format("--device auto: the CPU ({})\n", why).c_str(), stderr);
}

std::string NameOf(const vulkan::DeviceFacts& facts) {
  return fmt::format("vulkan:{} ({})", facts.index, facts.name);
}

// What a device cannot do yet.
Status CheckOptions(const EngineOptions& options) {
  const auto refuse = [&](std::string_view what, std::string_view instead) {
    return Bad(fmt::format("--device {} does not go with {}; {}", options.device, what, instead));
  };
  if (options.mesh.ranks() > 1) return refuse("--tp, --dp or --ep", "a device is one rank");
  if (options.compute == "bf16") return refuse("--compute bf16", "a device computes in fp32");
  if (options.state_dtype != "fp32") {
    return refuse("--state-dtype " + options.state_dtype, "a device keeps state in fp32");
  }
  if (!options.expert_loads.empty()) {
    return refuse("--expert-loads", "experts are counted on the CPU only");
  }
  if (options.expanded_mla()) return refuse("--mla expanded", "use --mla absorbed");
  return {};
}

}  // namespace

Result<int> PickDevice(std::string_view text, std::span<const vulkan::DeviceFacts> devices) {
  if (text == "cpu") return -1;
  std::optional<int> wanted;
  if (text.starts_with("vulkan:")) {
    const std::string_view number = text.substr(7);
    int index = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
    if (error == std::errc() && end == number.data() + number.size()) wanted = index;
  }
  if (!wanted && text != "vulkan" && text != "auto") {
    return Bad(fmt::format("--device {}: expected cpu, vulkan, vulkan:N or auto", text));
  }
  std::string why;
  for (const vulkan::DeviceFacts& facts : devices) {
    if (wanted && facts.index != *wanted) continue;
    if (text == "auto" && facts.kind == "software") continue;
    if (facts.missing.empty()) return facts.index;
    why += fmt::format("; device {} ({}): {}", facts.index, facts.name, facts.missing);
  }
  if (text == "auto") return -1;
  if (!wanted) return Bad(fmt::format("--device vulkan: no device can be used{}", why));
  if (!why.empty()) return Bad(fmt::format("--device {}{}", text, why));
  return Bad(fmt::format("--device {}: there are {} Vulkan devices, counted from 0 (braid doctor)",
                         text, devices.size()));
}

Result<std::unique_ptr<vulkan::Gpu>> OpenDevice(const EngineOptions& options, std::string& note) {
  if (options.device == "cpu") return std::unique_ptr<vulkan::Gpu>();
  const bool is_auto = options.device == "auto";
  if (const Status status = CheckOptions(options); !status) {
    if (!is_auto) return status.error();
    note = status.error().message;
    return std::unique_ptr<vulkan::Gpu>();
  }
  // A wrong text is an error wherever it is said.
  const auto devices = vulkan::ListDevices();
  const std::vector<vulkan::DeviceFacts> listed =
      devices ? *devices : std::vector<vulkan::DeviceFacts>();
  const Result<int> index = PickDevice(options.device, listed);
  if (!index) {
    if (devices || index.error().message.find("expected") != std::string::npos) {
      return index.error();
    }
    return Bad(fmt::format("--device {}: {}", options.device, devices.error().message));
  }
  if (*index < 0) {
    note = devices ? "no Vulkan device but software ones" : devices.error().message;
    return std::unique_ptr<vulkan::Gpu>();
  }
  return vulkan::Gpu::Open(*index);
}

std::string TextOf(const Machine& machine, std::string_view device, std::string_view mla,
                   std::string_view formats) {
  return fmt::format(
      "{} threads, device {}, ISA {}, compute {}, keys and values {}, state {}, mla {}, weights {}",
      machine.threads, device, NameOf(machine.device.isa),
      machine.device.compute == Compute::kF32 ? "fp32" : "bf16", NameOf(machine.kv_dtype),
      NameOf(machine.state_dtype), mla, formats);
}

EngineOptions OnCpu(EngineOptions options) {
  options.device = "cpu";
  return options;
}

Result<Machine> EngineDevice::Open(const EngineOptions& options) {
  ASSIGN_OR_RETURN(Machine machine, ResolveMachine(options));
  std::string note;
  ASSIGN_OR_RETURN(gpu_, OpenDevice(options, note));
  if (!note.empty()) SayCpu(note);
  if (!gpu_) return machine;
  index_ = gpu_->facts().index;
  name_ = NameOf(gpu_->facts());
  computes_ = fmt::format("{} ({}, Vulkan {})", gpu_->facts().name, gpu_->facts().driver,
                          gpu_->facts().version);
  machine.device.compute = Compute::kF32;
  if (options.kv_dtype == "auto") machine.kv_dtype = DType::kF32;
  if (options.experts == "cpu") experts_ = ExpertsWith::kHost;
  if (options.experts == "device") experts_ = ExpertsWith::kDevice;
  host_ = machine;
  pages_move_ = !options.cache_dir.empty() || options.cache_host_bytes > 0 || options.partners;
  return machine;
}

Result<Reopened> EngineDevice::Reopen(const std::function<Result<ModelWeights>()>& load,
                                      const ModelSpec& spec, const SchedulerConfig& limits,
                                      DType kv_dtype) {
  const int64_t start_us = MonotonicUs();
  LogWarning("{} has failed; it is opened again", name_);
  const auto loaded = [&]() -> Result<ModelWeights> {
    RETURN_IF_ERROR(OpenAgain());
    ASSIGN_OR_RETURN(ModelWeights weights, load());
    RETURN_IF_ERROR(Move(spec, weights, limits, kv_dtype));
    return weights;
  };
  Result<ModelWeights> weights = loaded();
  if (!weights) {
    const Error error{ErrorCode::kUnavailable,
                      fmt::format("{} has failed and cannot be opened again: {}", name_,
                                  weights.error().message)};
    LogError("{}", error.message);
    return error;
  }
  LogInfo("{} is open again after {:.1f} s", name_,
          static_cast<double>(MonotonicUs() - start_us) * 1e-6);
  return Reopened{home_.get(), *std::move(weights)};
}

Status EngineDevice::OpenAgain() {
  home_.reset();
  ASSIGN_OR_RETURN(gpu_, vulkan::Gpu::Open(index_));
  if (NameOf(gpu_->facts()) == name_) return {};
  return Error{ErrorCode::kUnavailable,
               fmt::format("{} was lost, and in its place is {}", name_, NameOf(gpu_->facts()))};
}

Result<MemoryPlan> EngineDevice::Plan(const ModelSpec& spec, const MemoryRequest& request,
                                      const Binding& binding) {
  if (!gpu_) return PlanMemory(spec, request);
  const vulkan::DeviceFacts& facts = gpu_->facts();
  const LargestWeights largest = LargestWeightsOf(binding);
  const DeviceRoom room{.memory_bytes = facts.memory_bytes,
                        .buffer_bytes_max = facts.buffer_bytes_max,
                        .shared = facts.kind != "discrete",
                        .routed_bytes = RoutedBytes(binding),
                        .routed_weight_max = largest.routed_bytes,
                        .other_weight_max = largest.other_bytes,
                        .experts = experts_};
  ASSIGN_OR_RETURN(MemoryPlan plan, PlanDeviceMemory(spec, request, room));
  hands_over_ = plan.host_weight_bytes > 0;
  Measure(spec, request, binding.report, plan.host_weight_bytes);
  return plan;
}

void EngineDevice::Measure(const ModelSpec& spec, const MemoryRequest& request,
                           const LoadReport& report, int64_t host_bytes) {
  const Result<DeviceRates> rates =
      MeasureRates(*gpu_, {.device_bytes = request.weight_bytes - host_bytes,
                           .host_bytes = host_bytes,
                           .host = host_.device,
                           .threads = host_.threads,
                           .places = host_.places});
  if (!rates) {
    rate_text_ = "no expected rate: " + rates.error().message;
    return;
  }
  rates_ = *rates;
  decode_ = DecodeWorkOf(spec, report, request.kv_dtype);
}

// The model's home knows how many kernels there are.
void EngineDevice::Expect() {
  if (!rates_) return;
  const vulkan::Counters& step = home_->decode_step();
  decode_.kernels = step.dispatches - step.beside + step.copies;
  const DecodeTime time = DecodeTimeOf(decode_, *rates_);
  rate_text_ = RateText(decode_, time, *rates_);
  tokens_per_second_ = 1 / time.seconds();
}

std::string EngineDevice::PagesText() const {
  if (!used()) return "";
  return fmt::format("{}, experts on {}", computes_, hands_over_ ? "the CPU" : "it");
}

void EngineDevice::Divide(MemoryPlan& plan) const {
  if (!hands_over_) return;
  plan.weight_bytes -= plan.host_weight_bytes;
  plan.host_scratch_bytes = home_->handed()->host_bytes();
}

Status EngineDevice::Move(const ModelSpec& spec, ModelWeights& weights,
                          const SchedulerConfig& limits, DType kv_dtype) {
  if (!gpu_) return {};
  ASSIGN_OR_RETURN(
      home_,
      ModelDevice::Create(std::move(gpu_), spec, weights,
                          {.cache = limits.cache,
                           .running_max = limits.running_max,
                           .step_tokens_max = limits.step_tokens_max,
                           .context_tokens_max = limits.context_tokens_max,
                           .kv_dtype = kv_dtype,
                           .draft_tokens_max = limits.draft_tokens_max,
                           .experts_on = hands_over_ ? std::optional(host_.device) : std::nullopt,
                           .threads = host_.threads,
                           .pages_move = pages_move_}));
  Expect();
  return {};
}

bool EngineDevice::GivesWay(const EngineOptions& options, const Status& prepared) {
  if (prepared || options.device != "auto") return false;
  // A device may expand weights that the CPU keeps as they are stored.
  const std::string_view field = prepared.error().field;
  if (field != "device" && field != "expand") return false;
  SayCpu(prepared.error().message);
  return true;
}

}  // namespace braid
