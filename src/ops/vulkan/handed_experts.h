// Experts whose weights stay with the host, of a model that runs on a device (--experts cpu). The
// device gives their inputs and the router's choice to the host, whose kernels compute while the
// device has the shared expert, and adds what comes back. Engine thread.
#pragma once

#include <array>
#include <cstdint>

#include "base/result.h"
#include "ops/experts.h"
#include "ops/op.h"
#include "vulkan/gpu.h"

namespace braid::ops {

class HandedExperts {
 public:
  // On that device, of the host.
  explicit HandedExperts(const Device& host) : host_(host) {}

  // Of an op's inputs and outputs, and of the host's scratch: what Reserve allocates is the most
  // that was measured. The context's pool has as many members as later.
  void Measure(const OpContext& context, const ExpertsArgs& args);
  Status Reserve(vulkan::Gpu& gpu);
  // Of host memory, beside the weights.
  int64_t host_bytes() const { return passed_bytes_ + workspace_bytes_; }

  // Recorded between the two: what the device does meanwhile. End sets `out` to the sum over the
  // experts, or adds it.
  void Begin(const OpContext& context, const ExpertsArgs& args);
  void End(const OpContext& context, const ExpertsArgs& args, bool add);

 private:
  // The op on the host, of one hand-over.
  struct Job final : vulkan::HostWork {
    OpContext context;
    ExpertsArgs args;
    void Run() override;
  };
  // Where what passes lies, from the beginning of the memory on.
  struct Places {
    explicit Places(const ExpertsArgs& args);
    int64_t x = 0, ids = 0, weights = 0, out = 0, bytes = 0;
  };
  OpContext OnHost(const OpContext& context, Workspace& workspace) const;
  ExpertsArgs RoutedOf(const ExpertsArgs& args) const;

  Device host_;
  int64_t passed_bytes_ = 0, workspace_bytes_ = 0;
  vulkan::Memory passed_;  // both sides read and write it
  Workspace workspace_;
  std::array<Job, 2> jobs_;  // the next is recorded before the last has run
  size_t next_ = 0;
};

namespace gpu {
// The op on a device whose context says `handed`.
void HandOverExperts(const OpContext& context, const ExpertsArgs& args);
}  // namespace gpu

}  // namespace braid::ops
