// From bytes to pages, and from pages to tokens and sequences.
#include "model/loading/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/math.h"
#include "base/quantities.h"
#include "cache/page_part.h"

namespace braid {
namespace {

CacheGeometry GeometryOf(std::vector<GroupGeometry> groups) {
  CacheGeometry geometry{.groups = std::move(groups)};
  for (const GroupGeometry& group : geometry.groups) {
    geometry.page_bytes = std::max(geometry.page_bytes, group.block_bytes);
  }
  for (GroupGeometry& group : geometry.groups) {
    group.blocks_per_page =
        static_cast<int32_t>(std::min<int64_t>(geometry.page_bytes / group.block_bytes, 65536));
  }
  return geometry;
}

int64_t PagesOfSequence(const CacheGeometry& geometry, int64_t tokens) {
  return PagesFor(geometry, BlocksOfSequence(geometry, tokens));
}

// The most pages for which every group's block ids stay below 2^31.
int64_t PagesMax(const CacheGeometry& geometry) {
  int64_t most = std::numeric_limits<int32_t>::max();
  for (const GroupGeometry& group : geometry.groups) {
    most = std::min<int64_t>(most, std::numeric_limits<int32_t>::max() / group.blocks_per_page);
  }
  return most;
}

// The bytes that the arena may have, before rounding to pages.
Result<int64_t> ArenaBytes(const MemoryRequest& request, const CacheGeometry& geometry,
                           int32_t model_len) {
  const int64_t fixed = request.weight_bytes + request.workspace_bytes;
  const int64_t least = (1 + PagesOfSequence(geometry, 1)) * geometry.page_bytes;
  auto too_small = [&](int64_t given, std::string_view what) {
    return Error{
        ErrorCode::kExhausted,
        fmt::format("{} of {} is too small: weights need {}, workspace {}, and the cache at "
                    "least {}: {} in total",
                    what, ByteText(given), ByteText(request.weight_bytes),
                    ByteText(request.workspace_bytes), ByteText(least), ByteText(fixed + least)),
        "memory"};
  };
  if (request.arena_bytes) {
    if (*request.arena_bytes >= least) return *request.arena_bytes;
    return Error{ErrorCode::kExhausted,
                 fmt::format("a cache of {} is too small: it needs at least {}",
                             ByteText(*request.arena_bytes), ByteText(least)),
                 "memory"};
  }
  const int64_t room = request.total_bytes.value_or(request.available_bytes);
  const int64_t held = fixed - request.pageable_bytes;
  // Experts that may stay on disk make room where the whole model has none.
  const bool paged = request.pageable_bytes > 0 && room < fixed + least && room >= held + least;
  if (request.total_bytes && !paged) {
    if (room < fixed + least) return too_small(room, "memory");
    return room - fixed;
  }
  const auto left = static_cast<double>(room - (paged ? held : fixed));
  const auto part = static_cast<int64_t>((paged ? kArenaShareBesideExperts : kArenaShare) * left);
  // Beside experts there is room for one sequence as long as was asked for, or of 4096 tokens.
  const int64_t tokens =
      request.model_len_max > 0 ? request.model_len_max : std::min(model_len, 4096);
  const int64_t one = (1 + PagesOfSequence(geometry, tokens)) * geometry.page_bytes;
  const int64_t share =
      paged ? std::clamp(one, part, std::max(part, static_cast<int64_t>(left))) : part;
  if (share < least) return too_small(room, "available memory");
  // All running sequences at full length: the arena can never use more.
  const int64_t each = PagesOfSequence(geometry, model_len) * geometry.page_bytes;
  const int64_t useful =
      CheckedMul(each, request.running_max).value_or(share) + geometry.page_bytes;
  return std::clamp(useful, least, share);
}

// Fills in what stays on disk.
void PlanDisk(const ModelSpec& spec, const MemoryRequest& request, MemoryPlan& plan) {
  const int64_t room = request.total_bytes.value_or(request.available_bytes);
  const int64_t needed = plan.weight_bytes + plan.workspace_bytes + plan.arena_bytes;
  if (request.pageable_bytes == 0 || needed <= room) return;
  plan.on_disk_bytes = std::min(needed - room, request.pageable_bytes);
  double chosen = 0, layers = 0;
  for (const LayerSpec& layer : spec.layers) {
    const auto* moe = std::get_if<MoeFfn>(&layer.ffn);
    if (moe == nullptr) continue;
    chosen += static_cast<double>(moe->top_k) / moe->experts;
    ++layers;
  }
  plan.disk_bytes_per_token = static_cast<int64_t>(static_cast<double>(plan.on_disk_bytes) *
                                                   chosen / std::max(1.0, layers));
}

}  // namespace

int64_t MemoryPlan::SequencesOf(int64_t tokens) const {
  return (geometry.pages - 1) / std::max<int64_t>(1, PagesOfSequence(geometry, tokens));
}

// Keys and values of all whole blocks, and the states at the ends of the last prompt and answer.
int64_t MemoryPlan::StoredConversations(int64_t tokens) const {
  const auto stored = [&](GroupKind kind) {
    return RoundUp(PartBytes(geometry, kind), kStoredAlignment);
  };
  const int64_t bytes =
      tokens / kBlockTokens * stored(GroupKind::kFull) + 2 * stored(GroupKind::kState);
  return tier_bytes / std::max<int64_t>(bytes, 1);
}

std::vector<MemoryPlan::Capacity> MemoryPlan::Capacities() const {
  std::set<int64_t> lengths = {model_len_max};
  for (int64_t tokens : {512, 4096, 32768})
    lengths.insert(std::min<int64_t>(tokens, model_len_max));
  std::vector<Capacity> capacities;
  for (int64_t tokens : lengths) {
    capacities.push_back({.tokens = tokens,
                          .resumable = ResumableConversations(geometry, tokens),
                          .running = std::min<int64_t>(SequencesOf(tokens), running_max),
                          .stored = StoredConversations(tokens)});
  }
  return capacities;
}

int64_t WorkspaceBytes(const ModelSpec& spec, int64_t step_tokens_max) {
  return int64_t{4} * (24 * step_tokens_max * spec.hidden + int64_t{64} * spec.vocabulary);
}

Result<MemoryPlan> PlanMemory(const ModelSpec& spec, const MemoryRequest& request) {
  if (request.model_len_max > spec.context_tokens_max) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} tokens are more than the model's context of {}",
                             request.model_len_max, spec.context_tokens_max),
                 "max_model_len"};
  }
  CachePlan cache = CachePlanOf(spec, request.kv_dtype);
  MemoryPlan plan{
      .geometry = GeometryOf(std::move(cache.groups)),
      .slices = std::move(cache.slices),
      .weight_bytes = request.weight_bytes,
      .workspace_bytes = request.workspace_bytes,
      .model_len_max = request.model_len_max > 0 ? request.model_len_max : spec.context_tokens_max,
      .running_max = request.running_max};
  CacheGeometry& geometry = plan.geometry;
  ASSIGN_OR_RETURN(const int64_t bytes, ArenaBytes(request, geometry, plan.model_len_max));
  geometry.pages = static_cast<int32_t>(std::min(bytes / geometry.page_bytes, PagesMax(geometry)));
  RETURN_IF_ERROR(CheckGeometry(geometry));
  plan.arena_bytes = geometry.pages * geometry.page_bytes;
  PlanDisk(spec, request, plan);
  for (const GroupGeometry& group : geometry.groups) {
    if (group.kind == GroupKind::kFull) plan.kv_bytes_per_token += group.block_bytes / kBlockTokens;
    if (group.kind == GroupKind::kState) {
      const int32_t states = request.drafts ? StateBlocksPrefill(plan.model_len_max)
                                            : StateBlocksDecode(plan.model_len_max);
      plan.state_bytes_per_sequence += states * group.block_bytes;
    }
  }
  if (const int64_t fits = SequenceTokensMax(geometry); fits < plan.model_len_max) {
    if (request.model_len_max > 0) {
      return Error{ErrorCode::kExhausted,
                   fmt::format("one sequence of {} tokens needs {} of cache and there are {}: give "
                               "it more memory, or at most {} tokens",
                               plan.model_len_max,
                               ByteText((1 + PagesOfSequence(geometry, plan.model_len_max)) *
                                        geometry.page_bytes),
                               ByteText(plan.arena_bytes), fits),
                   "max_model_len"};
    }
    plan.model_len_max = static_cast<int32_t>(fits);
    plan.model_len_cut = true;
  }
  return plan;
}

namespace {

std::string MappedText(const MemoryPlan& plan) {
  if (plan.mapped_bytes == 0) return {};
  return fmt::format(" ({} of them mapped: in the page cache, for all processes once)",
                     ByteText(plan.mapped_bytes));
}

}  // namespace

std::vector<std::string> DescribePlan(const MemoryPlan& plan) {
  const CacheGeometry& geometry = plan.geometry;
  std::vector<std::string> lines = {
      fmt::format("weights {}{}, workspace {}, cache {} ({} pages of {})",
                  ByteText(plan.weight_bytes), MappedText(plan), ByteText(plan.workspace_bytes),
                  ByteText(plan.arena_bytes), geometry.pages, ByteText(geometry.page_bytes))};
  if (plan.host_weight_bytes > 0) {
    lines.push_back(fmt::format(
        "beside them, in the host's memory: experts {}, which the CPU computes, and {} of scratch "
        "({})",
        ByteText(plan.host_weight_bytes), ByteText(plan.host_scratch_bytes), plan.host_reason));
  }
  if (plan.on_disk_bytes > 0) {
    lines.push_back(fmt::format(
        "{} of the experts stay on disk: a token reads about {} of them, less if some experts are "
        "chosen often",
        ByteText(plan.on_disk_bytes), ByteText(plan.disk_bytes_per_token)));
  }
  for (const GroupGeometry& group : geometry.groups) {
    lines.push_back(fmt::format("cache group {}: blocks of {}, {} in a page", group.name,
                                ByteText(group.block_bytes), group.blocks_per_page));
  }
  lines.push_back(
      fmt::format("each token needs {} of keys and values, each running sequence {} of state",
                  ByteText(plan.kv_bytes_per_token), ByteText(plan.state_bytes_per_sequence)));
  lines.push_back(fmt::format("sequences of at most {} tokens{}, at most {} at once",
                              plan.model_len_max, plan.model_len_cut ? " (limited by memory)" : "",
                              plan.running_max));
  for (const MemoryPlan::Capacity& c : plan.Capacities()) {
    lines.push_back(fmt::format("conversations of {} tokens: {} resumable, or {} running{}",
                                c.tokens, c.resumable, c.running,
                                plan.tier_bytes > 0 ? fmt::format("; {} on disk", c.stored) : ""));
  }
  return lines;
}

}  // namespace braid
