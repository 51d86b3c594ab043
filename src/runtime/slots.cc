// Applying a plan's deltas to the mirrors.
#include "runtime/slots.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"

namespace braid {

// A function of the output alone, so a preempted request goes on as before.
TokenId Slot::ForcedToken(int32_t length) const {
  if (thinking.tokens_max < 0) return -1;
  constexpr size_t kOpensWithin = 8;
  std::span<const TokenId> thought = output(length);
  if (thinking.open >= 0) {
    const auto begin = thought.first(std::min(thought.size(), kOpensWithin));
    const auto open = std::find(begin.begin(), begin.end(), thinking.open);
    if (open == begin.end()) return -1;
    thought = thought.subspan(static_cast<size_t>(open - begin.begin()) + 1);
  }
  const auto most = static_cast<size_t>(thinking.tokens_max);
  if (thought.size() != most) return -1;
  const bool ended = std::find(thought.begin(), thought.end(), thinking.close) != thought.end();
  return ended ? TokenId{-1} : thinking.close;
}

Slots::Slots(const CacheGeometry& geometry, std::byte* arena, int32_t slots,
             int32_t context_tokens_max)
    : geometry_(geometry), arena_(arena), slots_(static_cast<size_t>(slots)) {
  CHECK(geometry.groups.size() <= kCacheGroupsMax, "{} cache groups, at most {}",
        geometry.groups.size(), kCacheGroupsMax);
  const auto entries = static_cast<size_t>(CeilDiv(context_tokens_max, kBlockTokens) + 1);
  for (Slot& slot : slots_) {
    slot.tokens.reserve(static_cast<size_t>(context_tokens_max) + 1);
    slot.blocks.assign(geometry.groups.size(), std::vector<std::byte*>(entries, nullptr));
  }
}

Slot& Slots::operator[](SlotId id) {
  CHECK(slots_.contains(id), "slot {}", id.value);
  return slots_[id];
}

void Slots::Begin(const Plan& plan) {
  for (const Admission& admission : plan.admissions) {
    Slot& slot = (*this)[admission.slot];
    const Request& request = *admission.request;
    slot.request = request.id;
    slot.role = request.role;
    slot.sampling = request.sampling;
    slot.stop = request.stop;
    slot.logprobs = request.logprobs;
    slot.prompt_logprobs = request.prompt_logprobs;
    slot.grammar = request.grammar;
    slot.grammar_after = request.grammar_after;
    slot.thinking = request.thinking;
    slot.prompt_count = static_cast<int32_t>(request.prompt.size());
    slot.tokens.assign(request.prompt.begin(), request.prompt.end());
    slot.tokens.insert(slot.tokens.end(), admission.output.begin(), admission.output.end());
    for (auto& table : slot.blocks) std::fill(table.begin(), table.end(), nullptr);
  }
  for (const TableUpdate& update : plan.tables) {
    auto& tables = (*this)[update.slot].blocks;
    const auto group = static_cast<size_t>(update.group.value);
    const auto index = static_cast<size_t>(update.index);
    CHECK(group < tables.size() && index < tables[group].size(), "block {} of cache group {}",
          update.index, update.group.value);
    tables[group][index] = update.block.valid()
                               ? arena_ + BlockBytesOffset(geometry_, update.group, update.block)
                               : nullptr;
  }
}

void Slots::End(const Plan& plan) {
  for (SlotId id : plan.released) {
    Slot& slot = (*this)[id];
    slot.request = {};
    slot.tokens.clear();
    for (auto& table : slot.blocks) std::fill(table.begin(), table.end(), nullptr);
  }
}

ops::SequenceSpan Slots::SpanOf(const Row& row, int32_t token_begin) {
  Slot& slot = (*this)[row.slot];
  CHECK(slot.request == row.request, "slot {} belongs to request {}, the row to {}", row.slot.value,
        slot.request.value, row.request.value);
  ops::SequenceSpan span{token_begin, row.token_count, row.start, {}};
  for (size_t g = 0; g < slot.blocks.size(); ++g) span.tables[g] = slot.blocks[g].data();
  return span;
}

}  // namespace braid
