// See the header.
#include "scheduler/planning/plan_text.h"

#include <fmt/format.h>

#include <iterator>

namespace braid {

std::string PlanText(const Plan& plan) {
  std::string text = fmt::format("{} tokens in {} rows", plan.tokens.size(), plan.rows.size());
  auto out = std::back_inserter(text);
  for (const Row& row : plan.rows) {
    fmt::format_to(out, "; request {} in slot {}: {} from {}, {} drafts", row.request.value,
                   row.slot.value, row.token_count, row.start, row.drafts);
  }
  for (const Admission& a : plan.admissions) {
    fmt::format_to(out, "; slot {} gets request {}", a.slot.value, a.request->id.value);
  }
  for (const TableUpdate& t : plan.tables) {
    fmt::format_to(out, "; slot {} group {} entry {} is block {}", t.slot.value, t.group.value,
                   t.index, t.block.value);
  }
  for (const PagesAhead& a : plan.ahead) {
    fmt::format_to(out, "; {} parts ahead of request {} on rank {}", a.parts.size(),
                   a.request.value, a.dp_rank.value);
  }
  for (const SlotId slot : plan.released) fmt::format_to(out, "; slot {} is free", slot.value);
  return text;
}

}  // namespace braid
