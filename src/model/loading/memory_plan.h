// How the machine's memory is divided before anything is loaded: weights, workspace, the cache's
// arena; and what the arena then holds, in tokens and sequences. Pure: sizes come as numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cache/geometry.h"
#include "model/spec.h"

namespace braid {

// The share of the arena in the memory that it shares with experts of which some stay on disk.
inline constexpr double kArenaShareBesideExperts = 0.25;
// The default share of the arena in the memory that weights and workspace leave free. The rest is
// for page cache, request buffers and other programs.
inline constexpr double kArenaShare = 0.7;

struct MemoryRequest {
  DType kv_dtype = DType::kBF16;
  int64_t available_bytes = 0;  // before loading: AvailableMemory()
  int64_t weight_bytes = 0;     // packed
  int64_t pageable_bytes = 0;   // of them, experts in a mapped file, which may stay on disk
  int64_t workspace_bytes = 0;
  std::optional<int64_t> total_bytes;  // --memory: weights, workspace and arena together
  std::optional<int64_t> arena_bytes;  // or the arena alone
  int32_t model_len_max = 0;  // tokens of the longest sequence; 0: as many as the model has
  int32_t running_max = 64;   // sequences at once
  bool drafts = false;        // rows may carry some: a sequence that decodes keeps a state more
};

// Of a step of so many tokens: about 24 vectors of the hidden size per token, and 64 rows of
// logits.
int64_t WorkspaceBytes(const ModelSpec& spec, int64_t step_tokens_max);

struct MemoryPlan {
  CacheGeometry geometry;
  std::vector<ops::CacheSlice> slices;  // per layer
  int64_t weight_bytes = 0;
  int64_t mapped_bytes = 0;  // of them, in the page cache: shared with other processes
  int64_t workspace_bytes = 0;
  // Of experts that the host computes for a device, beside all the others; and why it does.
  int64_t host_weight_bytes = 0, host_scratch_bytes = 0;
  std::string host_reason;
  // Experts for which there is no room: the kernel reads them when tokens choose them and keeps
  // those that are chosen often. And what a token reads of them, if all are chosen equally often.
  int64_t on_disk_bytes = 0, disk_bytes_per_token = 0;
  int64_t arena_bytes = 0;         // of all pages, the sink's included
  int64_t tier_bytes = 0;          // that a tier below the arena may have; 0: there is none
  int64_t kv_bytes_per_token = 0;  // averaged over a block
  int64_t state_bytes_per_sequence =
      0;                       // while decoding: state and the rows of the block in progress
  int32_t model_len_max = 0;   // of the request, or what fits
  bool model_len_cut = false;  // the model could do more tokens than fit
  int32_t running_max = 0;

  // How many sequences of so many tokens the arena holds at once.
  int64_t SequencesOf(int64_t tokens) const;
  // How many conversations of so many tokens the tier holds.
  int64_t StoredConversations(int64_t tokens) const;
  // What to expect of the arena at some lengths, ascending, up to model_len_max.
  struct Capacity {
    int64_t tokens = 0;
    int64_t resumable = 0;  // conversations that take turns without being recomputed
    int64_t running = 0;    // or sequences at once, running_max at most
    int64_t stored = 0;     // conversations that the tier has room for
  };
  std::vector<Capacity> Capacities() const;
};

// A page has the size of the largest block of any group; each group packs as many of its blocks
// into one as fit. Errors state the memory needed and available.
Result<MemoryPlan> PlanMemory(const ModelSpec& spec, const MemoryRequest& request);

// The plan as lines of text for start-up and `inspect`.
std::vector<std::string> DescribePlan(const MemoryPlan& plan);

}  // namespace braid
