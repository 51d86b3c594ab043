// A plan as one number: equal plans have equal hashes on every machine. For traces, for comparing
// ranks and for comparing a replayed run with the one that was recorded. Any thread.
#pragma once

#include <cstdint>

#include "base/rng.h"
#include "scheduler/plan.h"

namespace braid {

inline uint64_t HashPlan(const Plan& plan, uint64_t hash = 0) {
  const auto add = [&hash](int64_t value) {
    hash = MixBits(hash + 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(value));
  };
  add(plan.step.value);
  for (const Admission& a : plan.admissions) {
    add(a.slot.value);
    add(a.request->id.value);
    for (TokenId token : a.output) add(token);
  }
  for (const TableUpdate& t : plan.tables) {
    add(t.slot.value);
    add(t.group.value);
    add(t.index);
    add(t.block.value);
  }
  for (const Row& r : plan.rows) {
    add(r.slot.value);
    add(r.request.value);
    add(r.token_count);
    add(r.start);
    add(r.drafts);
    add(r.sample + 2 * r.prompt_logprobs);
    for (int64_t source = 0; source < kDraftSources; ++source) {
      const int64_t wanted = r.propose[static_cast<size_t>(source)];
      if (wanted > 0) add(kDraftSources * wanted + source);
    }
  }
  for (int32_t rows : plan.dp_rank_rows) add(rows);
  for (TokenId token : plan.tokens) add(token);
  for (const PagesAhead& a : plan.ahead) {
    add(a.request.value);
    add(a.dp_rank.value);
    for (const KnownPart& part : a.parts) {
      add(static_cast<int64_t>(part.key.low));
      add(static_cast<int64_t>(part.key.high));
      add(static_cast<int64_t>(part.kind));
    }
  }
  for (const PageMove& m : plan.moves) {
    add(m.id.value);
    add(static_cast<int64_t>(m.place) * 2 + m.in());
    add(m.dp_rank.value);
    add(m.slot.value);
    add(m.request.value);
    add(m.begin);
    add(m.end);
    for (const PagePart& part : m.parts) {
      add(part.index);
      add(static_cast<int64_t>(part.kind));
      for (const BlockId block : part.blocks.by_group) add(block.value);
    }
  }
  for (SlotId slot : plan.released) add(slot.value);
  for (const auto& layer : plan.experts) {
    for (const int32_t expert : layer) add(expert);
  }
  return hash;
}

}  // namespace braid
