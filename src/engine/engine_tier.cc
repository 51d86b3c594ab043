// See the header.
#include "engine/engine_tier.h"

#include <fmt/format.h>

#include "base/quantities.h"
#include "engine/engine_ranks.h"
#include "tiers/fingerprint.h"

namespace braid {

Result<std::unique_ptr<DiskTier>> OpenTier(const EngineOptions& options, const ModelSpec& spec,
                                           const Machine& machine, const CacheGeometry& geometry) {
  if (options.cache_dir.empty()) {
    if (options.cache_disk_bytes == kCacheDiskBytes) return std::unique_ptr<DiskTier>();
    return Error{ErrorCode::kInvalid, "it bounds a directory; name one with --cache-dir",
                 "cache_disk"};
  }
  const auto bad = [](const char* message) {
    return Error{ErrorCode::kInvalid, message, "cache_dir"};
  };
  if (options.mesh.ranks() > 1) {
    return bad("--cache-dir keeps the pages of one rank; leave out --tp, --dp and --ep");
  }
  if (options.partners) {
    return bad(
        "--cache-dir is for an engine that computes whole requests; leave it out of one that "
        "hands prompts off or receives them");
  }
  if (!options.scheduler.prefix_cache) {
    return bad("--cache-dir keeps prefixes; leave out --no-prefix-cache");
  }
  const Device& d = machine.device;
  const std::string how = fmt::format(
      "{}\n{}\n{} {} {} {} {}\ndrafts {} {}", options.program,
      StartOfRun(options.scheduler, spec, options, machine, {}).model, d.avx_vnni, d.avx512_bf16,
      d.avx512_vnni, d.avx512_vbmi, machine.cpu.amx_bf16 + 2 * machine.cpu.amx_int8,
      options.scheduler.draft_tokens_max, options.scheduler.draft_head);
  ASSIGN_OR_RETURN(const TierFingerprint fingerprint,
                   MakeFingerprint(options.model_dir, how, geometry));
  return DiskTier::Open({.directory = options.cache_dir,
                         .bytes_max = options.cache_disk_bytes,
                         .fingerprint = fingerprint});
}

std::string TierText(const DiskTier& tier, const EngineOptions& options) {
  const DiskTierStats stats = tier.stats();
  return fmt::format("pages on disk: {} of at most {} in {}; {} parts are this model's\n",
                     ByteText(stats.bytes), ByteText(options.cache_disk_bytes), options.cache_dir,
                     stats.parts);
}

}  // namespace braid
