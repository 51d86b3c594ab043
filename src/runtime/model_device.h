// A model's home on a Vulkan device: its weights, the cache's arena, the workspace, and the little
// that passes between host and device at each step: in go tokens, changes of block tables and what
// is wanted of distributions, out come sampled tokens and the logits of rows that the host samples.
// All of it is allocated at start; a step allocates nothing. Used by the engine
// thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/trace.h"
#include "cache/geometry.h"
#include "model/spec.h"
#include "model/weights.h"
#include "ops/op.h"
#include "ops/vulkan/batch.h"
#include "ops/vulkan/constants.h"
#include "ops/vulkan/handed_experts.h"
#include "ops/vulkan/sample.h"
#include "scheduler/mover.h"
#include "scheduler/plan.h"
#include "vulkan/gpu.h"
#include "vulkan/transfer.h"

namespace braid {

class Slots;  // runtime/slots.h

struct ModelDeviceConfig {
  CacheGeometry cache;
  int32_t running_max = 0;
  int32_t step_tokens_max = 0;
  int32_t context_tokens_max = 0;
  DType kv_dtype = DType::kF32;
  int32_t draft_tokens_max = 0;
  // Where routed experts stay with the host: whose kernels compute them, in so many threads.
  std::optional<Device> experts_on;
  int threads = 1;
  bool pages_move = false;  // movers take part (ModelExecutorConfig::movers)
};

// What ops see of a Vulkan device: fp32 arithmetic, whatever the CPU does.
inline Device VulkanDevice() { return {.vulkan = true}; }

// A pass of tokens through layers, as it was laid.
struct DevicePass {
  ops::DeviceBatch batch;     // outlives the recording of the pass
  TokenId* tokens = nullptr;  // on the device
};

class ModelDevice {
 public:
  // Moves the weights to the device; afterwards they point there, but for those of experts that
  // stay with the host. Errors name an op that the device cannot run for this model, or memory that
  // it does not have.
  static Result<std::unique_ptr<ModelDevice>> Create(std::unique_ptr<vulkan::Gpu> gpu,
                                                     const ModelSpec& spec, ModelWeights& weights,
                                                     const ModelDeviceConfig& config);

  vulkan::Gpu& gpu() { return *gpu_; }
  const vulkan::Gpu& gpu() const { return *gpu_; }
  std::byte* arena() const { return arena_.address(); }
  // For movers; nothing where pages do not move.
  Arena moved_arena() { return pages_ ? Arena{arena_.address(), &*pages_} : Arena(); }
  int64_t arena_bytes() const { return arena_.bytes(); }
  Workspace MakeWorkspace() const { return {workspace_.address(), workspace_.bytes()}; }

  // How experts on the host are computed; null: they are on the device.
  ops::HandedExperts* handed() const { return handed_.get(); }

  // The plan's admissions and changes of tables, as `slots` has them since Slots::Begin.
  void Apply(const Plan& plan, Slots& slots);
  // An entry of a sequence's table, for what is submitted from now on; null: a hole.
  void Point(SlotId slot, int32_t group, int64_t index, const std::byte* block);
  // The inputs of all passes of a submission lie beside each other. There is room for a pass of the
  // most tokens and for those of chains of drafts. BeginPasses makes all of it free again, so
  // passes that were laid before must have been submitted.
  void BeginPasses();
  bool HasRoom(int64_t tokens) const;
  // Sequences, each with its slot, and their tokens, which the device writes where none are given.
  DevicePass LayPass(std::span<const SlotId> slots, const ops::SequenceIndex& sequences,
                     std::span<const TokenId> tokens);
  // The tokens whose states are looked at, of the model's own pass.
  void LayWanted(std::span<const int32_t> wanted);
  // What is wanted of the distributions after `wanted` tokens, or of those of drafts.
  void LayDraws(std::span<const ops::gpu::DeviceDraw> draws);
  const ops::gpu::DeviceDraw* draws() const;
  // Where the device says what became of each draw; the host reads it after Finish.
  ops::gpu::DeviceDrawn* drawn() const {
    return reinterpret_cast<ops::gpu::DeviceDrawn*>(drawn_.address());
  }
  std::span<const ops::gpu::DeviceDrawn> drawn_seen() const {
    return {reinterpret_cast<const ops::gpu::DeviceDrawn*>(drawn_.host()),
            static_cast<size_t>(draws_max())};
  }
  // HeadDrafter::Bytes of the device's own; null: the model uses no draft head.
  std::byte* draft_memory() const { return draft_memory_.address(); }
  const int32_t* wanted() const;
  // What a decode step of one sequence asks of the device, of one whose token the device chooses
  // and that has nothing in the cache, when all constants are there.
  const vulkan::Counters& decode_step() const { return decode_step_; }
  // Written by the host: for this step, and once for all.
  int64_t bytes_laid() const { return bytes_laid_; }
  int64_t bytes_kept() const { return constants_->bytes_written(); }

  // The device's times of what is submitted from now on go there; null: nothing is timed.
  void SetTrace(Trace* trace);
  vulkan::Recorder& recorder() { return recorder_; }
  // Records that rows come back: the host sees them after Finish, until something is recorded
  // again.
  Matrix Return(Matrix rows);
  // Submits what was recorded and waits.
  Status Finish();

 private:
  // The arena, for movers' threads.
  class Pages final : public ArenaAccess {
   public:
    explicit Pages(std::unique_ptr<vulkan::Transfer> transfer) : transfer_(std::move(transfer)) {}
    Status Fetch(std::span<const Piece> pieces) override;
    Status Store(std::span<const Piece> pieces) override;

   private:
    std::unique_ptr<vulkan::Transfer> transfer_;
  };

  ModelDevice(std::unique_ptr<vulkan::Gpu> gpu, const ModelDeviceConfig& config)
      : gpu_(std::move(gpu)), config_(config), recorder_(*gpu_) {}
  Status MoveWeights(ModelWeights& weights);
  // Says in `moved` where what lay where lies now.
  Status MoveBuffer(const Buffer& buffer, std::span<Weight* const> all, int64_t piece_max,
                    std::map<const std::byte*, std::byte*>& moved);
  Status Reserve(const ModelSpec& spec, int64_t workspace_bytes);
  Status CountStep(const ModelSpec& spec, const ModelWeights& weights,
                   std::span<const ops::SequenceSpan> spans, vulkan::Counters& counters);
  void CountDecodeStep(const ModelSpec& spec, const ModelWeights& weights);
  // kInvalid: they have more workgroups than the device takes.
  Status CheckLargestSteps(const ModelSpec& spec, const ModelWeights& weights);
  // Rows of logits that a step draws from: of the tokens whose states are wanted, or of drafts.
  int64_t draws_max() const {
    return std::max(int64_t{2} * config_.step_tokens_max,
                    int64_t{config_.running_max} * config_.draft_tokens_max);
  }
  int64_t passes_max() const { return std::max(config_.draft_tokens_max, 1); }
  template <class T>
  T* Host(int64_t offset) const {
    return reinterpret_cast<T*>(inputs_.host() + offset);
  }
  int64_t TableEntry(SlotId slot, int32_t group, int64_t index) const {
    return (int64_t{slot.value} * groups_ + group) * entries_ + index;
  }

  std::unique_ptr<vulkan::Gpu> gpu_;
  ModelDeviceConfig config_;
  std::vector<vulkan::Memory> weights_;
  vulkan::Memory arena_, workspace_, inputs_, results_, drawn_, draft_memory_;
  // Offsets into the inputs, which begin with the tables of all passes.
  int64_t spans_at_ = 0, span_of_at_ = 0, tokens_at_ = 0, wanted_at_ = 0, draws_at_ = 0;
  int64_t tables_at_ = 0;
  int32_t groups_ = 0, entries_ = 0;
  int64_t tokens_max_ = 0;                // of the passes of a submission
  int64_t passes_ = 0, pass_tokens_ = 0;  // laid so far
  int64_t results_used_ = 0;
  int64_t bytes_laid_ = 0;
  std::unique_ptr<ops::DeviceConstants> constants_;
  std::unique_ptr<ops::HandedExperts> handed_;
  std::optional<Pages> pages_;  // lies in the arena
  vulkan::Recorder recorder_;
  vulkan::Counters decode_step_;
  Trace* trace_ = nullptr;
};

}  // namespace braid
