// An op is a list of candidates, best first, that ends in a reference. A candidate's `why_not` may
// depend on the device and on constants of the model (head sizes, formats), never on the number of
// rows: the choice must not depend on the batch (docs/decisions, prefix rule).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/system/thread_pool.h"
#include "base/trace.h"
#include "tensor/device.h"
#include "tensor/tensor.h"
#include "vulkan/gpu.h"

namespace braid::ops {

// Remembers, per op, which candidate was taken and why the better ones refused, and the same of the
// GEMM kernels per format (--explain-ops).
struct OpChoices {
  struct Choice {
    std::string op;
    std::string taken;
    std::vector<std::string> refused;  // "name: reason"
  };
  std::vector<Choice> choices;
  void Note(std::string_view op, std::string_view taken, std::vector<std::string> refused);
};

struct Ranks;         // ops/ranks.h
struct DeviceBatch;   // ops/vulkan/batch.h
class HandedExperts;  // ops/vulkan/handed_experts.h

struct OpContext {
  Device device;
  ThreadPool* pool = nullptr;
  Workspace* workspace = nullptr;  // also measures: with Workspace::Measuring() ops do not run
  OpChoices* choices = nullptr;    // may be null
  Ranks* ranks = nullptr;          // null: one rank
  // Of a Vulkan device, whose candidates record what is to be done; null: ops run at once.
  vulkan::Recorder* recorder = nullptr;
  const DeviceBatch* batch = nullptr;
  HandedExperts* handed = nullptr;  // experts are computed on the host; null: as all else
  std::string* missing = nullptr;   // hears, while measuring, of an op that the device cannot run
};

template <class Args>
struct Impl {
  std::string_view name;
  const char* (*why_not)(const Device&, const Args&);       // nullptr: can run
  int64_t (*scratch_bytes)(const OpContext&, const Args&);  // nullptr: none
  void (*run)(const OpContext&, const Args&, std::byte* scratch);
  bool vulkan = false;  // the device that it is for
};

// Null on a device that cannot run the op.
template <class Args>
const Impl<Args>* Select(std::span<const Impl<Args>> candidates, const Device& device,
                         const Args& args) {
  for (const Impl<Args>& candidate : candidates) {
    if (candidate.vulkan != device.vulkan) continue;
    if (candidate.why_not(device, args) == nullptr) return &candidate;
  }
  CHECK(device.vulkan, "no candidate accepted: a list must end in a reference");
  return nullptr;
}

// "op: reason" of the candidates of this device that refuse, or that it has none.
template <class Args>
std::string Refusals(std::string_view op, std::span<const Impl<Args>> candidates,
                     const Device& device, const Args& args) {
  std::string reasons;
  for (const Impl<Args>& candidate : candidates) {
    if (candidate.vulkan == device.vulkan)
      reasons += std::string(": ") + candidate.why_not(device, args);
  }
  if (reasons.empty()) reasons = ": there is no kernel for it";
  return std::string(op) + reasons;
}

// Takes the first candidate that can run, gives it its scratch and runs it.
template <class Args>
void Dispatch(std::string_view op, std::type_identity_t<std::span<const Impl<Args>>> candidates,
              const OpContext& context, const Args& args) {
  const Impl<Args>* selected = Select(candidates, context.device, args);
  if (selected == nullptr) [[unlikely]] {
    CHECK(context.missing != nullptr, "{} cannot run on this device", op);
    if (context.missing->empty()) {
      *context.missing = Refusals(op, candidates, context.device, args);
    }
    return;
  }
  const Impl<Args>& taken = *selected;
  if (context.choices) [[unlikely]] {
    std::vector<std::string> refused;
    for (const Impl<Args>& candidate : candidates) {
      if (&candidate == &taken) break;
      if (candidate.vulkan != context.device.vulkan) continue;
      refused.push_back(std::string(candidate.name) + ": " +
                        candidate.why_not(context.device, args));
    }
    context.choices->Note(op, taken.name, std::move(refused));
  }
  WorkspaceScope scope(*context.workspace);
  int64_t bytes = taken.scratch_bytes ? taken.scratch_bytes(context, args) : 0;
  std::byte* scratch = context.workspace->Take<std::byte>(bytes);
  if (context.workspace->measuring()) return;
  const TraceSpan span(context.pool->trace(), op);
  taken.run(context, args, scratch);
  if (context.recorder != nullptr) context.recorder->Mark(op);
}

// `count` floats that fill(float*) computes on the host, where the context's device reads them.
template <class Fill>
const float* Constants(const OpContext& context, int64_t count, const Fill& fill) {
  float* to = context.workspace->Take<float>(count);
  if (context.workspace->measuring()) return to;
  if (context.recorder == nullptr) {
    fill(to);
    return to;
  }
  std::vector<float> values(static_cast<size_t>(count));
  fill(values.data());
  context.recorder->Write(std::as_bytes(std::span(values)), reinterpret_cast<std::byte*>(to));
  return to;
}

// Copies between places of the context's device, in the order of its ops.
inline void CopyBytes(const OpContext& context, const void* from, void* to, int64_t bytes) {
  if (context.recorder == nullptr) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  } else {
    context.recorder->Copy(static_cast<const std::byte*>(from), static_cast<std::byte*>(to), bytes);
    context.recorder->Mark("copy");
  }
}
inline void ZeroBytes(const OpContext& context, void* to, int64_t bytes) {
  if (context.recorder == nullptr) {
    std::memset(to, 0, static_cast<size_t>(bytes));
  } else {
    context.recorder->Zero(static_cast<std::byte*>(to), bytes);
  }
}

}  // namespace braid::ops
