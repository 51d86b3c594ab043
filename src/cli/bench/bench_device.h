// A Vulkan device that the cases of `braid bench ops` run on: it takes their data, and times what
// they record.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/engine_options.h"
#include "ops/op.h"
#include "ops/sequence.h"
#include "ops/vulkan/batch.h"
#include "vulkan/gpu.h"
#include "vulkan/measure.h"

namespace braid {

class BenchDevice {
 public:
  // That of --device; null: the CPU.
  static Result<std::unique_ptr<BenchDevice>> Open(const EngineOptions& options);

  const vulkan::DeviceFacts& facts() const { return gpu_->facts(); }
  const vulkan::DeviceLimits& limits() const { return limits_; }  // of `braid doctor`
  Result<double> MeasureReading() { return vulkan::MeasureReading(*gpu_); }
  json::object LimitsObject() const {
    return {{"fma_fp32", limits_.fp32_operations_per_second},
            {"memory_read", limits_.read_bytes_per_second},
            {"kernel_start_seconds", limits_.start_seconds}};
  }

  // A case's data moves: afterwards the pointer is the device's. An error sticks until the next
  // case begins.
  void BeginCase();
  const Status& status() const { return status_; }
  std::byte* MoveBytes(const std::byte* data, int64_t bytes);
  template <class T>
  void Move(T*& data, int64_t count) {
    using Bytes = std::conditional_t<std::is_const_v<T>, const std::byte*, std::byte*>;
    data = reinterpret_cast<T*>(static_cast<Bytes>(MoveBytes(
        reinterpret_cast<const std::byte*>(data), count * static_cast<int64_t>(sizeof(T)))));
  }
  // What kernels see of a step's sequences, whose blocks are the device's already; the spans stay
  // where they are.
  ops::DeviceBatch Lay(const ops::SequenceIndex& sequences);

  // So much scratch of a case.
  Workspace MakeWorkspace(int64_t bytes);
  vulkan::Recorder& recorder() { return recorder_; }

 private:
  explicit BenchDevice(std::unique_ptr<vulkan::Gpu> gpu) : gpu_(std::move(gpu)), recorder_(*gpu_) {}
  std::byte* Take(int64_t bytes);

  std::unique_ptr<vulkan::Gpu> gpu_;
  vulkan::DeviceLimits limits_;
  std::vector<vulkan::Memory> memory_;  // of the case
  Status status_;
  vulkan::Recorder recorder_;
};

}  // namespace braid
