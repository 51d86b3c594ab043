// See the header. The rules for which entries a row reads and writes are taken from
// cache/geometry.h and written down here a second time on purpose: the scheduler's own code is what
// is being checked.
#include "sim/hash_executor.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"

namespace braid {
namespace {

constexpr int32_t kB = kBlockTokens;
constexpr int32_t kNobody = -1, kPoisoned = -2;  // positions of cells

uint64_t OwnerOf(const Request& request) {
  uint64_t space = 1;
  for (const std::string* name : {&request.tenant, &request.cache_salt}) {
    for (const char c : *name) space = MixBits(space + static_cast<unsigned char>(c));
    space = MixBits(space ^ name->size());
  }
  return space;
}

}  // namespace

HashExecutor::HashExecutor(const CacheGeometry& geometry, int32_t vocabulary,
                           HashExecutorOptions options)
    : lm_{vocabulary},
      options_(std::move(options)),
      geometry_(geometry),
      kinds_(geometry.groups.size()) {
  CHECK(vocabulary > 0 && CheckGeometry(geometry).ok());
  for (size_t i = 0; i < kinds_ * static_cast<size_t>(options_.dp_ranks); ++i) {
    const GroupGeometry& g = geometry.groups[i % kinds_];
    Group group{.kind = g.kind,
                .first_block = g.blocks_per_page,
                .end_block = geometry.pages * g.blocks_per_page,
                .full = {},
                .states = {},
                .pins = {},
                .seen = {}};
    const size_t blocks = static_cast<size_t>(group.end_block);
    if (g.kind == GroupKind::kFull) {
      group.full.resize(blocks);
    } else {
      group.states.resize(blocks);
    }
    group.pins.resize(blocks);
    group.seen.resize(blocks);
    groups_.push_back(std::move(group));
  }
}

HashExecutor::Slot& HashExecutor::At(SlotId slot) {
  CHECK(slot.valid());
  if (!slots_.contains(slot)) slots_.resize(static_cast<size_t>(slot.value) + 1);
  return slots_[slot];
}

size_t HashExecutor::RankOf(SlotId slot) const {
  return options_.running_max == 0 ? 0 : static_cast<size_t>(slot.value / options_.running_max);
}

// Every rank takes part, with the rows of its own slots and maybe none.
void HashExecutor::CheckRanks(const Plan& plan) const {
  if (options_.running_max == 0) return;
  CHECK(plan.dp_rank_rows.size() == static_cast<size_t>(options_.dp_ranks),
        "I-21: a plan for {} ranks, there are {}", plan.dp_rank_rows.size(), options_.dp_ranks);
  size_t at = 0;
  for (size_t rank = 0; rank < plan.dp_rank_rows.size(); ++rank) {
    for (int32_t i = 0; i < plan.dp_rank_rows[rank]; ++i, ++at) {
      CHECK(at < plan.rows.size() && RankOf(plan.rows[at].slot) == rank,
            "I-21: row {} is not of rank {}", at, rank);
    }
  }
  CHECK(at == plan.rows.size(), "I-21: {} rows are of no rank", plan.rows.size() - at);
}

// What is to be read ahead is named once, for requests that wait, and is void when they do no more.
void HashExecutor::TakeAhead(const Plan& plan) {
  for (const PagesAhead& ahead : plan.ahead) {
    const int64_t id = ahead.request.value;
    CHECK(ahead.dp_rank.value >= 0 && ahead.dp_rank.value < options_.dp_ranks,
          "pages ahead of request {} are of rank {}", id, ahead.dp_rank.value);
    if (ahead.parts.empty()) {
      CHECK(ahead_.erase(ahead.request) == 1, "nothing is read ahead of request {}", id);
      continue;
    }
    std::set<KnownPart> parts(ahead.parts.begin(), ahead.parts.end());
    for (const auto& [request, named] : ahead_) parts.insert(named.begin(), named.end());
    size_t count = ahead.parts.size();
    for (const auto& [request, named] : ahead_) count += named.size();
    CHECK(parts.size() == count, "a part ahead of request {} is named twice", id);
    CHECK(ahead_.emplace(ahead.request, ahead.parts).second, "request {} is looked at twice", id);
  }
  for (const Admission& admission : plan.admissions) {
    CHECK(!ahead_.contains(admission.request->id),
          "request {} is admitted, and is still read ahead of", admission.request->id.value);
  }
}

void HashExecutor::Launch(Plan plan, EventSink& events) {
  if (options_.on_launch) options_.on_launch(plan);
  CHECK(steps_.size() <= 1, "{} steps are in flight", steps_.size());
  CHECK(!plan.empty(), "step {} has no rows", plan.step.value);
  CheckRanks(plan);
  TakeAhead(plan);
  for (const Admission& admission : plan.admissions) Admit(plan, admission);
  for (const TableUpdate& update : plan.tables) Update(update);
  int32_t tokens = 0;
  for (const Row& row : plan.rows) {
    CHECK(row.token_begin == tokens && row.token_count > 0);
    tokens += row.token_count;
    LaunchRow(plan, row);
  }
  CHECK(tokens == static_cast<int32_t>(plan.tokens.size()));
  for (const PageMove& move : plan.moves) LaunchMove(move);
  for (SlotId slot : plan.released) {
    CHECK(At(slot).live && At(slot).rows_in_flight == 0, "I-3: slot {} is released while in use",
          slot.value);
    At(slot) = Slot();
  }
  steps_.push_back({.order = launched_++, .plan = std::move(plan), .ran = false, .done = {}});
  if (!options_.held || !options_.late) RunStep(steps_.back());
  if (!options_.held) events.Post(EndStep());
}

StepDone HashExecutor::EndStep() {
  CHECK(!steps_.empty(), "no step is in flight");
  StepInFlight& step = steps_.front();
  if (!step.ran) RunStep(step);
  for (const Row& row : step.plan.rows) {
    Slot& slot = At(row.slot);
    --slot.rows_in_flight;
    Pin(slot, row, -1);
  }
  for (const Row& row : step.plan.rows) ForgetStates(At(row.slot), row.start + row.token_count);
  StepDone done = std::move(step.done);
  steps_.pop_front();
  ++landed_;
  return done;
}

// The states before the last boundary are not looked at again; the scheduler may give them to
// others now.
void HashExecutor::ForgetStates(Slot& slot, int32_t end) {
  for (size_t g = 0; g < kinds_; ++g) {
    if (geometry_.groups[g].kind != GroupKind::kState) continue;
    for (int32_t i = 0; i < end / kB - 1; ++i) slot.tables[g][static_cast<size_t>(i)] = BlockId();
  }
}

void HashExecutor::Admit(const Plan& plan, const Admission& admission) {
  Slot& slot = At(admission.slot);
  CHECK(slot.rows_in_flight == 0,
        "I-3: slot {} is given away while a row of request {} is in flight", admission.slot.value,
        slot.request->id.value);
  slot = Slot();
  slot.live = true;
  slot.request = admission.request;
  slot.dp_rank = RankOf(admission.slot);
  const int32_t wanted = slot.request->dp_rank;
  CHECK(wanted < 0 || options_.running_max == 0 || static_cast<size_t>(wanted) == slot.dp_rank,
        "I-10: request {} of rank {} runs on rank {}", slot.request->id.value, wanted,
        slot.dp_rank);
  slot.owner = OwnerOf(*slot.request);
  slot.space = SpaceOf(slot.owner, slot.dp_rank);
  slot.history = admission.request->prompt;
  slot.history.insert(slot.history.end(), admission.output.begin(), admission.output.end());
  slot.tables.resize(kinds_);
  for (const Row& row : plan.rows) {
    if (row.slot != admission.slot) continue;
    CHECK(row.start % kB == 0 && row.start < static_cast<int32_t>(slot.history.size()),
          "request {} starts at {}", row.request.value, row.start);
    slot.reused = slot.reused_full = slot.launched = slot.in_place = row.start;
  }
  for (const PageMove& move : plan.moves) {
    if (move.slot != admission.slot) continue;
    CHECK(move.in() && move.begin % kB == 0);
    slot.reused = slot.reused_full = slot.launched = slot.in_place = move.begin;
    if (move.place == Place::kPeer) continue;
    // Of a part that comes every entry is new; before the first keys that come all are there.
    slot.reused = 0;
    slot.reused_full = move.end;
    for (const PagePart& part : move.parts) {
      if (part.kind != GroupKind::kFull) continue;
      slot.reused_full = std::min(slot.reused_full, part.index * kB);
    }
  }
}

void HashExecutor::Update(const TableUpdate& update) {
  Slot& slot = At(update.slot);
  CHECK(slot.live && update.group.valid());
  const size_t g = static_cast<size_t>(update.group.value);
  CHECK(g < kinds_, "group {} of {}", g, kinds_);
  Group& group = GroupOf(slot, g);
  CHECK(update.block.value >= group.first_block && update.block.value < group.end_block,
        "I-4: block {} of group {} is not one to own", update.block.value, g);
  const BlockId block = update.block;
  std::vector<BlockId>& table = slot.tables[g];
  const size_t index = static_cast<size_t>(update.index);
  CHECK(group.kind == GroupKind::kState || index == table.size(), "entry {} of a full table of {}",
        index, table.size());
  if (index >= table.size()) table.resize(index + 1);
  CHECK(!table[index].valid(), "entry {} of group {} is taken", index, g);
  table[index] = update.block;
  const bool full = group.kind == GroupKind::kFull;
  if ((update.index + 1) * kB <= (full ? slot.reused_full : slot.reused)) {
    CheckReused(group, slot, update);
    return;
  }
  CHECK(group.pins[block] == 0, "I-14: block {} of group {} is handed over while a step uses it",
        block.value, g);
  if (group.kind == GroupKind::kFull) {
    FullBlock& cells = group.full[block];
    cells = {.owner = slot.owner, .space = slot.space, .token = {}, .position = {}};
    cells.position.fill(kNobody);
  } else {
    group.states[block] = {.owner = slot.owner, .space = slot.space, .rows = {}};
  }
}

// What a request takes over is there, complete, of its own space, and written by a landed step.
// What it says is checked whenever it is read.
void HashExecutor::CheckReused(const Group& group, const Slot& slot,
                               const TableUpdate& update) const {
  const BlockId block = update.block;
  const bool full = group.kind == GroupKind::kFull;
  const uint64_t space = full ? group.full[block].space : group.states[block].space;
  const int64_t order = full ? group.full[block].written_by : group.states[block].written_by;
  CHECK(space == slot.space, "I-10: request {} is given a block of another space",
        slot.request->id.value);
  CHECK(order >= 0 && order < landed_,
        "I-7: request {} is given a block before its step has landed", slot.request->id.value);
  CHECK(!full || group.full[block].position[kB - 1] == update.index * kB + kB - 1,
        "I-7: request {} is given an incomplete block", slot.request->id.value);
}

// What a failed row wrote is not to be read by anybody.
void HashExecutor::Poison(Slot& slot, const Row& row) {
  const int32_t end = row.start + row.token_count;
  for (size_t g = 0; g < kinds_; ++g) {
    Group& group = GroupOf(slot, g);
    const std::vector<BlockId>& table = slot.tables[g];
    for (int32_t i = row.start / kB; i * kB < end; ++i) {
      if (i >= static_cast<int32_t>(table.size())) continue;
      const BlockId block = table[static_cast<size_t>(i)];
      if (!block.valid()) continue;
      if (group.kind == GroupKind::kFull) {
        group.full[block].position.fill(kPoisoned);
      } else {
        group.states[block].content = Content::kPoison;
      }
    }
  }
}

// Everything a row reads or writes is in use from its launch until it has been waited for.
void HashExecutor::Pin(const Slot& slot, const Row& row, int32_t change) {
  const int32_t begin = row.start, end = row.start + row.token_count;
  for (size_t g = 0; g < kinds_; ++g) {
    Group& group = GroupOf(slot, g);
    const auto pin = [&](int32_t index) {
      const auto& table = slot.tables[g];
      CHECK(index < static_cast<int32_t>(table.size()) && table[static_cast<size_t>(index)].valid(),
            "I-6: request {}: rows {} to {} need entry {} of group {}, a hole", row.request.value,
            begin, end, index, g);
      group.pins[table[static_cast<size_t>(index)]] += change;
    };
    if (group.kind == GroupKind::kFull) {
      for (int32_t i = 0; i < (end + kB - 1) / kB; ++i) pin(i);
      continue;
    }
    if (begin >= kB) pin(begin / kB - 1);
    if (begin % kB != 0) pin(begin / kB);
    if (end >= kB) pin(end / kB - 1);
    if (end % kB != 0) pin(end / kB);
  }
}

void HashExecutor::LaunchRow(const Plan& plan, const Row& row) {
  Slot& slot = At(row.slot);
  CHECK(slot.live && slot.request->id == row.request, "I-12: slot {} is not request {}'s",
        row.slot.value, row.request.value);
  CHECK(slot.launched == row.start,
        "I-8: request {} has {} tokens in place or in flight, the row starts at {}",
        row.request.value, slot.launched, row.start);
  CHECK(row.drafts >= 0 && row.drafts < row.token_count);
  CHECK(static_cast<size_t>(row.token_begin) + static_cast<size_t>(row.token_count) <=
        plan.tokens.size());
  slot.launched += row.token_count;
  ++slot.rows_in_flight;
  Pin(slot, row, 1);
}

void HashExecutor::RunStep(StepInFlight& step) {
  if (options_.before_step) options_.before_step();
  step.done.step = step.plan.step;
  step.done.rows.reserve(step.plan.rows.size());
  for (const Row& row : step.plan.rows) step.done.rows.push_back(RunRow(step, row));
  step.ran = true;
}

// The hash of everything up to the row's end, on which all groups and the history agree.
uint64_t HashExecutor::AdvanceGroups(int64_t order, Slot& slot, const Row& row) {
  uint64_t prefix = kEmptyPrefix;
  for (int32_t p = 0; p < row.start + row.token_count; ++p) {
    prefix = AppendToken(prefix, slot.history[static_cast<size_t>(p)]);
  }
  for (size_t g = 0; g < kinds_; ++g) {
    Group& group = GroupOf(slot, g);
    const uint64_t hash = group.kind == GroupKind::kFull ? AdvanceFull(order, group, slot, g, row)
                                                         : AdvanceState(order, group, slot, g, row);
    CHECK(hash == prefix, "I-6: request {} at {}: group {} holds another prefix", row.request.value,
          row.start, g);
  }
  return prefix;
}

RowResult HashExecutor::RunRow(const StepInFlight& step, const Row& row) {
  Slot& slot = At(row.slot);
  CHECK(slot.in_place == row.start);
  RowResult result;
  result.request = row.request;
  const Request& request = *slot.request;
  int32_t end = row.start + row.token_count;
  slot.failed |= options_.row_fails && options_.row_fails(row.request, end);
  slot.failed |= options_.step_lost && options_.step_lost(step.order);
  if (slot.failed) {
    Poison(slot, row);
    slot.in_place = end;
    result.error = "the hash LM was told to fail here";
    return result;
  }
  ReadTokens(step, row, slot, tokens_);
  slot.history.insert(slot.history.end(), tokens_.end() - row.drafts, tokens_.end());
  AdvanceGroups(step.order, slot, row);
  // Rows after a wrong draft are discarded.
  slot.refused = row.drafts - Verify(slot, row, result);
  slot.refused_end = std::max(slot.refused_end, end);
  end -= slot.refused;
  slot.history.resize(slot.history.size() - static_cast<size_t>(slot.refused));
  if (row.drafts > 0) slot.launched = end;
  slot.in_place = end;
  const uint64_t prefix = prefixes_[static_cast<size_t>(end - row.start - 1)];
  ++rows_run_;
  tokens_run_ += row.token_count;
  if (row.prompt_logprobs) {
    for (int32_t i = 0; i < row.token_count; ++i) {
      const size_t after = static_cast<size_t>(row.start + i) + 1;
      const TokenId actual = after < request.prompt.size() ? request.prompt[after] : -1;
      result.prompt_logprobs.push_back(
          lm_.Distribution(prefixes_[static_cast<size_t>(i)], actual, request.prompt_logprobs));
    }
  }
  if (row.sample) {
    const int32_t made = slot.in_place - static_cast<int32_t>(request.prompt.size());
    result.token = lm_.Next(request, prefix, slot.in_place, made);
    CHECK(slot.history.size() == static_cast<size_t>(slot.in_place), "token {} is sampled twice",
          slot.in_place);
    slot.history.push_back(result.token);
    slot.sampled_by = step.order;
    if (request.logprobs >= 0) {
      result.logprob = lm_.Distribution(prefix, result.token, request.logprobs);
    }
    Guess(slot, row, AppendToken(prefix, result.token), result);
  }
  return result;
}

// The row's tokens as the plan names them, checked against what the sequence is known to be.
void HashExecutor::ReadTokens(const StepInFlight& step, const Row& row, const Slot& slot,
                              std::vector<TokenId>& tokens) const {
  tokens.clear();
  for (int32_t i = 0; i < row.token_count - row.drafts; ++i) {
    const size_t p = static_cast<size_t>(row.start + i);
    CHECK(p < slot.history.size(), "request {}: token {} is not known", row.request.value, p);
    TokenId token = step.plan.tokens[static_cast<size_t>(row.token_begin + i)];
    if (token == kSampledInFlight) {
      CHECK(slot.sampled_by == step.order - 1 && p + 1 == slot.history.size(),
            "request {}: token {} was not sampled by the step before", row.request.value, p);
      token = slot.history[p];
    }
    CHECK(token == slot.history[p], "request {}: token {} is {}, the plan says {}",
          row.request.value, p, slot.history[p], token);
    tokens.push_back(token);
  }
  const auto end = step.plan.tokens.begin() + row.token_begin + row.token_count;
  tokens.insert(tokens.end(), end - row.drafts, end);
}

HashExecutor::StateBlock& HashExecutor::StateAt(Group& group, const Slot& slot, size_t g,
                                                int32_t index) {
  StateBlock& entry = group.states[slot.tables[g][static_cast<size_t>(index)]];
  CHECK(entry.space == slot.space, "I-10: request {} reads a state of another space",
        slot.request->id.value);
  return entry;
}

// The state before the block that token `at` is in, and the rows of that block so far.
uint64_t HashExecutor::ReadState(Group& group, const Slot& slot, size_t g, int32_t at,
                                 std::vector<TokenId>& rows) {
  const int32_t base = at / kB * kB;
  uint64_t state = kEmptyPrefix;
  if (at >= kB) {
    const StateBlock& entry = StateAt(group, slot, g, at / kB - 1);
    CHECK(entry.content == Content::kState && entry.depth == base,
          "I-6: request {} at {}: no state of depth {}", slot.request->id.value, at, base);
    state = entry.state;
  }
  if (at == base) return state;
  const StateBlock& entry = StateAt(group, slot, g, at / kB);
  CHECK(entry.content == Content::kRows && entry.depth == base &&
            static_cast<int32_t>(entry.rows.size()) == at - base + slot.refused,
        "I-6: request {} at {}: the rows in progress are not those", slot.request->id.value, at);
  rows = entry.rows;
  rows.resize(static_cast<size_t>(at - base));
  return state;
}

uint64_t HashExecutor::AdvanceState(int64_t order, Group& group, Slot& slot, size_t g,
                                    const Row& row) {
  const int32_t begin = row.start, end = row.start + row.token_count;
  std::vector<TokenId> rows;  // of the block in progress
  uint64_t state = ReadState(group, slot, g, begin, rows);
  uint64_t hash = state;
  for (TokenId token : rows) hash = AppendToken(hash, token);
  prefixes_.clear();
  for (int32_t i = 0; i < row.token_count; ++i) {
    rows.push_back(tokens_[static_cast<size_t>(i)]);
    hash = AppendToken(hash, rows.back());
    prefixes_.push_back(hash);
    if ((begin + i + 1) % kB == 0) {
      state = hash;
      rows.clear();
    }
  }
  const auto write = [&](int32_t index, Content content) -> StateBlock& {
    StateBlock& entry = StateAt(group, slot, g, index);
    CHECK(entry.content == Content::kUnwritten || entry.content == Content::kRows,
          "I-3: request {} at {}: a state is overwritten", row.request.value, begin);
    entry = {.owner = slot.owner,
             .space = slot.space,
             .written_by = order,
             .content = content,
             .depth = end / kB * kB,
             .state = state,
             .rows = {}};
    return entry;
  };
  // A boundary was crossed: its state stays behind.
  if (end >= kB && end / kB != begin / kB) write(end / kB - 1, Content::kState);
  if (end % kB != 0) write(end / kB, Content::kRows).rows = std::move(rows);
  return hash;
}

uint64_t HashExecutor::AdvanceFull(int64_t order, Group& group, const Slot& slot, size_t g,
                                   const Row& row) {
  const int32_t end = row.start + row.token_count;
  const std::vector<BlockId>& table = slot.tables[g];
  for (int32_t p = row.start; p < end; ++p) {
    FullBlock& block = group.full[table[static_cast<size_t>(p / kB)]];
    const int32_t was = block.position[static_cast<size_t>(p % kB)];
    CHECK(was == kNobody || (was == p && p < slot.refused_end),
          "I-3: request {} at {}: a cell is overwritten", row.request.value, p);
    block.written_by = order;
    block.token[static_cast<size_t>(p % kB)] = tokens_[static_cast<size_t>(p - row.start)];
    block.position[static_cast<size_t>(p % kB)] = p;
  }
  return ReadFull(group, slot, g, end, row.start);
}

// The hash of tokens [0, end) as the blocks hold them; of those after each token from `from` on, a
// list.
uint64_t HashExecutor::ReadFull(Group& group, const Slot& slot, size_t g, int32_t end,
                                int32_t from) {
  const std::vector<BlockId>& table = slot.tables[g];
  prefixes_.clear();
  uint64_t hash = kEmptyPrefix;
  for (int32_t first = 0; first < end; first += kB) {
    const FullBlock& block = group.full[table[static_cast<size_t>(first / kB)]];
    CHECK(block.space == slot.space, "I-10: request {} reads a block of another space",
          slot.request->id.value);
    for (int32_t p = first; p < std::min(first + kB, end); ++p) {
      const size_t i = static_cast<size_t>(p - first);
      CHECK(block.position[i] == p, "I-4: request {} reads position {} and finds {}",
            slot.request->id.value, p, block.position[i]);
      hash = AppendToken(hash, block.token[i]);
      if (p >= from) prefixes_.push_back(hash);
    }
  }
  return hash;
}

void HashExecutor::CheckTables() {
  for (size_t at = 0; at < groups_.size(); ++at) {
    const size_t g = at % kinds_;
    Group& group = groups_[at];
    std::fill(group.seen.begin(), group.seen.end(), 0);
    const auto writes = [&](SlotId s, size_t index) {
      const Slot& slot = slots_[s];
      const bool full = group.kind == GroupKind::kFull;
      const int32_t there = full ? std::max(slot.in_place, slot.reused_full) : slot.in_place;
      return there < (static_cast<int32_t>(index) + 1) * kB;
    };
    for (const SlotId s : slots_.ids()) {
      if (!slots_[s].live || slots_[s].dp_rank != at / kinds_) continue;
      for (size_t i = 0; i < slots_[s].tables[g].size(); ++i) {
        const BlockId block = slots_[s].tables[g][i];
        if (!block.valid()) continue;
        int32_t& seen = group.seen[block];
        CHECK(seen == 0 || (!writes(SlotId(seen - 1), i) && !writes(s, i)),
              "I-3: block {} of group {} is in the tables of slots {} and {}, and not complete",
              block.value, g, seen - 1, s.value);
        seen = s.value + 1;
      }
    }
  }
}

}  // namespace braid
