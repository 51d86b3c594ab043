// See the header.
#include "engine/engine_tier.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/block.h"
#include "base/log.h"
#include "base/quantities.h"
#include "base/system/control_groups.h"
#include "base/system/topology.h"
#include "handoff/partners.h"
#include "model/loading/memory_plan.h"

namespace braid {

Result<std::unique_ptr<RankTiers>> OpenTier(const EngineOptions& options,
                                            const FingerprintParts& parts,
                                            const std::vector<int32_t>& here) {
  if (options.cache_dir.empty() && !options.cache_key_file.empty()) {
    return Error{ErrorCode::kInvalid,
                 "it encrypts the pages of a directory; name one with --cache-dir",
                 "cache_key_file"};
  }
  if (options.cache_dir.empty() && options.cache_disk_bytes != kCacheDiskBytes) {
    return Error{ErrorCode::kInvalid, "it bounds a directory; name one with --cache-dir",
                 "cache_disk"};
  }
  if (options.cache_dir.empty() && options.cache_host_bytes == 0) {
    return std::unique_ptr<RankTiers>();
  }
  const bool on_disk = !options.cache_dir.empty();
  const auto bad = [&](const char* message) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} {}", on_disk ? "--cache-dir" : "--cache-host", message),
                 on_disk ? "cache_dir" : "cache_host"};
  };
  if (options.reduce != "exact") {
    return bad(
        "keeps pages whose bits do not depend on where experts lie; leave out "
        "--reduce fast");
  }
  if (!options.scheduler.prefix_cache) {
    return bad("keeps prefixes; leave out --no-prefix-cache");
  }
  const int64_t least = parts.cache.page_bytes * options.mesh.ranks();
  const auto no_room = [&](const char* flag, const char* field, int64_t bytes) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} {} has no room for a page of each rank: {} at least", flag,
                             ByteText(bytes), ByteText(least)),
                 field};
  };
  if (on_disk && options.cache_disk_bytes < least) {
    return no_room("--cache-disk", "cache_disk", options.cache_disk_bytes);
  }
  if (options.cache_host_bytes > 0 && options.cache_host_bytes < least) {
    return no_room("--cache-host", "cache_host", options.cache_host_bytes);
  }
  ASSIGN_OR_RETURN(const std::string fingerprint, WholeFingerprintOf(options, parts));
  ASSIGN_OR_RETURN(const std::string files, FilesLine(parts.checkpoint));
  std::optional<PageCipher> cipher;
  if (!options.cache_key_file.empty()) {
    ASSIGN_OR_RETURN(cipher, PageCipher::Load(options.cache_key_file));
  }
  return RankTiers::Open({.directory = options.cache_dir,
                          .bytes_max = options.cache_disk_bytes,
                          .fingerprint = TierFingerprint(fingerprint, files),
                          .cipher = std::move(cipher)},
                         {options.mesh.ranks(), options.mesh.tp, here}, options.cache_host_bytes,
                         options.cache_host_node.value_or(-1));
}

int64_t StagingBytesOf(const EngineOptions& options, const ModelSpec& spec, DType kv_dtype,
                       bool on_device) {
  if (!options.partners || (!on_device && options.mesh.tp == 1)) return 0;
  int64_t block_bytes_max = 0;
  for (const GroupGeometry& group : CachePlanOf(spec, kv_dtype).groups) {
    block_bytes_max = std::max(block_bytes_max, group.block_bytes);
  }
  return handoff::StagingBytes(options.partners->staging_bytes, block_bytes_max);
}

Status CheckStaging(const EngineOptions& options, int64_t staging_bytes) {
  if (options.memory_bytes > staging_bytes) return {};
  return Error{ErrorCode::kInvalid,
               fmt::format("memory of {} is too small: copies of pages between engines take {} of "
                           "it, and weights, workspace and cache need the rest",
                           ByteText(options.memory_bytes), ByteText(staging_bytes)),
               "memory"};
}

std::string StagingText(int64_t bytes) {
  if (bytes == 0) return {};
  return fmt::format("copies of pages between engines, in the host's memory: at most {}\n",
                     ByteText(bytes));
}

int64_t HostBytesHere(const EngineOptions& options, int32_t ranks_here) {
  return options.cache_host_bytes / options.mesh.ranks() * ranks_here;
}

Status CheckHostMemory(const EngineOptions& options, int32_t ranks_here, const std::string& root) {
  if (options.cache_host_bytes == 0) {
    if (!options.cache_host_node) return {};
    return Error{ErrorCode::kInvalid, "it says where --cache-host lies; give it a size",
                 "cache_host_node"};
  }
  const int64_t bytes = HostBytesHere(options, ranks_here);
  if (const int64_t available = AvailableMemory(root); bytes > available) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("--cache-host wants {} on this machine, which has {} free; lower it",
                             ByteText(bytes), ByteText(available)),
                 "cache_host"};
  }
  if (!options.cache_host_node) return {};
  const std::vector<NodeMemory> nodes = MemoryNodes(root);
  const auto at = std::ranges::find(nodes, *options.cache_host_node, &NodeMemory::node);
  if (at == nodes.end()) {
    std::vector<int> there;
    for (const NodeMemory& node : nodes) there.push_back(node.node);
    return Error{
        ErrorCode::kInvalid,
        fmt::format("NUMA node {} has no memory for this process; nodes that have some: {}",
                    *options.cache_host_node,
                    there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", "))),
        "cache_host_node"};
  }
  if (bytes > at->free_bytes) {
    LogWarning(
        "--cache-host wants {} on this machine, and NUMA node {} has {} free: the rest will lie "
        "on others",
        ByteText(bytes), at->node, ByteText(at->free_bytes));
  }
  return {};
}

std::string TierText(const RankTiers& tier, const EngineOptions& options) {
  std::string text;
  if (options.cache_host_bytes > 0) {
    text = fmt::format(
        "pages in memory beside the cache: at most {}{}\n", ByteText(options.cache_host_bytes),
        options.cache_host_node ? fmt::format(" on NUMA node {}", *options.cache_host_node)
                                : std::string());
  }
  if (options.cache_dir.empty()) return text;
  const DiskTierStats stats = tier.stats();
  text += fmt::format("pages on disk: {} of at most {} in {}: {} tokens of earlier conversations",
                      ByteText(stats.bytes), ByteText(options.cache_disk_bytes), options.cache_dir,
                      (stats.parts - stats.states) * kBlockTokens);
  if (stats.states > 0) text += fmt::format(", {} states to resume at", stats.states);
  return text + '\n';
}

Result<std::unique_ptr<kv::Publisher>> OpenEvents(const EngineOptions& options, int32_t rank) {
  RETURN_IF_ERROR(options.kv_events.Check());
  if (!options.kv_events.used() || rank != 0) return std::unique_ptr<kv::Publisher>();
  if (!options.scheduler.prefix_cache) {
    return Error{ErrorCode::kInvalid,
                 "there are no prefixes to publish; leave out --no-prefix-cache", "kv_events"};
  }
  return kv::Publisher::Start(options.kv_events);
}

json::object MemoryObject(const MemoryPlan& memory) {
  json::array capacity;
  for (const MemoryPlan::Capacity& c : memory.Capacities()) {
    json::object row{{"tokens", c.tokens},
                     {"resumable_conversations", c.resumable},
                     {"running_sequences", c.running}};
    if (memory.tier_bytes > 0) row["stored_conversations"] = c.stored;
    capacity.push_back(std::move(row));
  }
  return {{"weight_bytes", memory.weight_bytes},
          {"mapped_weight_bytes", memory.mapped_bytes},
          {"host_weight_bytes", memory.host_weight_bytes},
          {"host_scratch_bytes", memory.host_scratch_bytes},
          {"host_reason", memory.host_reason},
          {"workspace_bytes", memory.workspace_bytes},
          {"cache_bytes", memory.arena_bytes},
          {"kv_bytes_per_token", memory.kv_bytes_per_token},
          {"state_bytes_per_sequence", memory.state_bytes_per_sequence},
          {"cache_tokens_one_sequence", SequenceTokensMax(memory.geometry)},
          {"capacity", std::move(capacity)}};
}

}  // namespace braid
