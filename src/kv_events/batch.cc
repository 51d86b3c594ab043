// See the header.
#include "kv_events/batch.h"

#include <span>

#include "kv_events/msgpack.h"

namespace braid::kv {
namespace {

// What readers call the memory that an engine computes from. They ignore or discount others.
constexpr const char* kMedium = "GPU";

// Blocks of one event: each but the first comes right after the one before.
std::vector<std::span<const StoredBlock>> RunsOf(std::span<const StoredBlock> blocks) {
  std::vector<std::span<const StoredBlock>> runs;
  size_t begin = 0;
  for (size_t i = 1; i <= blocks.size(); ++i) {
    if (i < blocks.size() && blocks[i].parent == blocks[i - 1].hash) continue;
    runs.push_back(blocks.subspan(begin, i - begin));
    begin = i;
  }
  return runs;
}

void WriteStored(std::span<const StoredBlock> run, MsgpackWriter& out) {
  const bool shared = run.front().shared;
  out.Array(shared ? 8 : 9);
  out.Text("BlockStored");
  out.Array(run.size());
  for (const StoredBlock& block : run) out.Unsigned(block.hash);
  if (run.front().parent) {
    out.Unsigned(*run.front().parent);
  } else {
    out.Nil();
  }
  out.Array(run.size() * kBlockTokens);
  for (const StoredBlock& block : run) {
    for (const TokenId token : block.tokens) out.Unsigned(static_cast<uint32_t>(token));
  }
  out.Unsigned(kBlockTokens);
  out.Nil();  // lora_id
  out.Text(kMedium);
  out.Nil();  // lora_name
  if (shared) return;
  // Something besides the tokens: the names themselves are nobody else's business.
  out.Array(run.size());
  for (size_t i = 0; i < run.size(); ++i) {
    out.Array(1);
    out.Text("private");
  }
}

}  // namespace

std::string EncodeBatch(const PrefixChanges& changes, double seconds, int32_t dp_rank) {
  const auto runs = RunsOf(changes.stored);
  MsgpackWriter out;
  out.Array(3);
  out.Double(seconds);
  out.Array(runs.size() + (changes.cleared ? 1 : 0) + (changes.removed.empty() ? 0 : 1));
  if (changes.cleared) {
    out.Array(1);
    out.Text("AllBlocksCleared");
  }
  if (!changes.removed.empty()) {
    out.Array(3);
    out.Text("BlockRemoved");
    out.Array(changes.removed.size());
    for (const uint64_t hash : changes.removed) out.Unsigned(hash);
    out.Text(kMedium);
  }
  for (const auto& run : runs) WriteStored(run, out);
  out.Unsigned(static_cast<uint32_t>(dp_rank));
  return out.Take();
}

}  // namespace braid::kv
