// A step's rows first bring the head's cache up to date, those that draft up to the sampled token,
// whose entry gives the first draft. Then all chains go on together, a token at a time; their
// entries stand where the true ones will, which overwrite them.
#include "runtime/drafts/head_drafter.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/math.h"
#include "ops/ranks.h"
#include "runtime/logits_rows.h"

namespace braid {
namespace {

// Whether the rank has the logits, which only one of those with the same tokens gets.
bool DrawsHere(const ops::OpContext& context) {
  return context.ranks == nullptr ||
         (context.ranks->status.ok() && context.ranks->tensor->rank() == 0);
}

}  // namespace

int64_t HeadDrafter::Bytes(const ModelSpec& spec, const CachePlan& cache, int32_t slots) {
  const int64_t states = int64_t{kBlockTokens} * spec.hidden * int64_t{sizeof(float)};
  return slots * (states + cache.draft.bytes);
}

HeadDrafter::HeadDrafter(const Parts& parts)
    : parts_(parts),
      head_(parts.spec, parts.weights, parts.cache, parts.kv_dtype),
      hidden_(parts.spec.hidden),
      group_(static_cast<size_t>(parts.cache.draft.last_state.group)),
      memory_(parts.home ? 0 : Bytes(parts.spec, parts.cache, parts.slots)),
      slots_(static_cast<size_t>(parts.slots)) {
  std::byte* memory = parts.home ? parts.home->draft_memory() : memory_.data();
  for (Progress& progress : slots_) {
    progress.spare = memory;
    memory += parts.cache.draft.bytes;
    progress.states = reinterpret_cast<float*>(memory);
    memory += kBlockTokens * hidden_ * int64_t{sizeof(float)};
  }
}

void HeadDrafter::Reset(SlotId id) { slots_[id].entries = -1; }

std::byte*& HeadDrafter::BlockOf(Slot& slot, int32_t position) const {
  return slot.blocks[group_][static_cast<size_t>(position / kBlockTokens)];
}

// Where the sequence goes on behind a block that it took over, the block has the state there.
void HeadDrafter::Begin(const DraftStep& step, const DraftWish& row) {
  Progress& progress = slots_[row.id];
  progress.entries = row.begin;
  if (row.begin == 0) return;
  const bool arrived = row.slot->role == RequestRole::kDecode;
  CHECK(row.begin % kBlockTokens == 0 || arrived, "a sequence goes on at {}", row.begin);
  const std::byte* block = BlockOf(*row.slot, row.begin - 1);
  ops::CopyBytes(step.context, block + parts_.cache.draft.last_state.byte_offset,
                 progress.states + (row.begin - 1) % kBlockTokens * hidden_, RowBytes());
}

// Into the block of the last of the first `end` tokens, which the row has computed.
void HeadDrafter::KeepBlockState(const DraftStep& step, const DraftWish& row, int32_t end) const {
  ops::CopyBytes(step.context, step.states.row(row.state + std::max(end - 1 - row.begin, 0)),
                 BlockOf(*row.slot, end - 1) + parts_.cache.draft.last_state.byte_offset,
                 RowBytes());
}

void HeadDrafter::KeepBlockStates(const DraftStep& step, const DraftWish& row) const {
  int32_t end = row.begin / kBlockTokens * kBlockTokens + kBlockTokens;
  for (; end <= row.end; end += kBlockTokens) KeepBlockState(step, row, end);
}

// A chain may reach a block that the sequence gets with its next row only: until then a spare one
// takes its place.
void HeadDrafter::LendBlock(const DraftStep& step, size_t r, int32_t position) {
  const DraftWish& row = step.rows[r];
  if (BlockOf(*row.slot, position) != nullptr) return;
  PointTo(row, position, slots_[row.id].spare);
  lent_.push_back({r, position});
}

void HeadDrafter::PointTo(const DraftWish& row, int32_t position, std::byte* block) const {
  BlockOf(*row.slot, position) = block;
  if (parts_.home == nullptr) return;
  parts_.home->Point(row.id, static_cast<int32_t>(group_), position / kBlockTokens, block);
}

void HeadDrafter::PlanRow(const DraftStep& step, size_t r) {
  const DraftWish& row = step.rows[r];
  Progress& progress = slots_[row.id];
  if (progress.entries < 0) Begin(step, row);
  KeepBlockStates(step, row);
  const int32_t count = std::min(row.count, DraftsInBlock(row.end + 1));
  const bool leaves = row.slot->role == RequestRole::kPrefill && row.end == row.slot->prompt_count;
  if (leaves) KeepBlockState(step, row, row.end);
  if (count == 0) {
    const int32_t whole = row.end / kBlockTokens * kBlockTokens;
    const int32_t made = leaves ? row.end : whole;
    if (made > progress.entries) pieces_.push_back({r, progress.entries, made});
    progress.entries = std::max(progress.entries, made);
    return;
  }
  CHECK(row.slot->length() == row.end + 1 && progress.entries <= row.end);
  chains_.push_back({r, count});
  pieces_.push_back({r, progress.entries, row.end + 1});
  const bool stays = BlockOf(*row.slot, row.end) != nullptr;
  progress.entries = stays ? row.end + 1 : row.end;
  LendBlock(step, r, row.end + count - 1);
}

// Null: there is no token before.
const float* HeadDrafter::StateBefore(const DraftStep& step, const DraftWish& row,
                                      int32_t position) const {
  if (position == 0) return nullptr;
  if (position > row.begin) return step.states.row(row.state + position - 1 - row.begin);
  return slots_[row.id].states + (position - 1) % kBlockTokens * hidden_;
}

void HeadDrafter::AddSpan(const DraftWish& row, int32_t begin, int32_t end) {
  const Slot& slot = *row.slot;
  ops::SequenceSpan span{static_cast<int32_t>(tokens_.size()), end - begin, begin, {}};
  for (size_t g = 0; g < slot.blocks.size(); ++g) span.tables[g] = slot.blocks[g].data();
  spans_.push_back(span);
  span_slots_.push_back(row.id);
  tokens_.insert(tokens_.end(), slot.tokens.begin() + begin, slot.tokens.begin() + end);
}

// Whether a rank that shares experts has a pass to make, this one or another.
bool HeadDrafter::AnotherPass(const ops::OpContext& context, bool own) {
  if (parts_.dp_ranks == 1) return own;  // all have the same passes
  ops::Ranks& ranks = *context.ranks;
  if (!ranks.status.ok()) return false;
  go_on_.resize(static_cast<size_t>(ranks.experts->size()));
  const std::byte mine{own ? uint8_t{1} : uint8_t{0}};
  ranks.status = ranks.experts->AllGather(std::span(&mine, 1), go_on_);
  return ranks.status.ok() && std::ranges::count(go_on_, std::byte{1}) > 0;
}

ops::SequenceIndex HeadDrafter::sequences() const {
  return {spans_.data(), static_cast<int32_t>(spans_.size()), static_cast<int32_t>(tokens_.size())};
}

void HeadDrafter::BeginPass() {
  tokens_.clear();
  spans_.clear();
  span_slots_.clear();
}

void HeadDrafter::Forward(const DraftStep& step, Matrix before, Matrix states) {
  if (parts_.home != nullptr) {
    return ForwardThere(step, LayPass(step, tokens_), before, states);
  }
  if (!AnotherPass(step.context, true)) return;  // after an error
  head_.Forward(step.context,
                {.tokens = tokens_.data(), .before = before, .sequences = sequences()}, states);
}

// Of the tokens before those of a piece, as many at once as lie one after the other.
void HeadDrafter::TakeStates(const DraftStep& step, const Piece& piece, Matrix to) const {
  const DraftWish& row = step.rows[piece.row];
  for (int32_t p = piece.begin, count = 1; p < piece.end; p += count) {
    const float* before = StateBefore(step, row, p);
    count = 1;
    while (before != nullptr && p + count < piece.end &&
           StateBefore(step, row, p + count) == before + count * to.stride) {
      ++count;
    }
    float* at = to.row(p - piece.begin);
    const int64_t bytes = RowBytes() + int64_t{sizeof(float)} * (count - 1) * to.stride;
    before ? ops::CopyBytes(step.context, before, at, bytes)
           : ops::ZeroBytes(step.context, at, bytes);
  }
}

void HeadDrafter::RunPass(const DraftStep& step, std::span<const Piece> pieces, Matrix last) {
  Workspace& workspace = *step.context.workspace;
  WorkspaceScope scope(workspace);
  BeginPass();
  for (const Piece& piece : pieces) AddSpan(step.rows[piece.row], piece.begin, piece.end);
  const auto tokens = static_cast<int64_t>(tokens_.size());
  Matrix states = workspace.TakeMatrix(tokens, hidden_);
  int64_t at = 0;
  for (const Piece& piece : pieces) {
    TakeStates(step, piece, states.some_rows(at, piece.end - piece.begin));
    at += piece.end - piece.begin;
  }
  Forward(step, states, states);
  at = 0;
  for (const Piece& piece : pieces) {
    at += piece.end - piece.begin;
    const auto chain = std::ranges::find(chains_, piece.row, &Chain::row);
    if (chain == chains_.end() || piece.end != step.rows[piece.row].end + 1) continue;
    ops::CopyBytes(step.context, states.row(at - 1), last.row(chain - chains_.begin()), RowBytes());
  }
}

void HeadDrafter::MakeEntries(const DraftStep& step, Matrix last) {
  std::vector<Piece> pass;
  int32_t room = parts_.pass_tokens_max;
  for (Piece piece : pieces_) {
    while (piece.begin < piece.end) {
      const int32_t end = std::min(piece.end, piece.begin + room);
      pass.push_back({piece.row, piece.begin, end});
      room -= end - piece.begin;
      piece.begin = end;
      if (room > 0) continue;
      RunPass(step, pass, last);
      pass.clear();
      room = parts_.pass_tokens_max;
    }
  }
  if (!pass.empty()) RunPass(step, pass, last);
}

void HeadDrafter::KeepStates(const DraftStep& step, const DraftWish& row) {
  Progress& progress = slots_[row.id];
  for (int32_t p = std::max(row.begin, progress.entries - 1); p < row.end; ++p) {
    ops::CopyBytes(step.context, step.states.row(row.state + p - row.begin),
                   progress.states + p % kBlockTokens * hidden_, RowBytes());
  }
}

// The drafts after the chains that go on, into drafts_; -1: none.
void HeadDrafter::SampleDrafts(const DraftStep& step, Matrix last) {
  const auto count = static_cast<int64_t>(going_.size());
  drafts_.assign(going_.size(), -1);
  for (int64_t begin = 0; begin < count; begin += kLogitsRows) {
    const int64_t rows = std::min(int64_t{kLogitsRows}, count - begin);
    WorkspaceScope scope(*step.context.workspace);
    Matrix logits = step.context.workspace->TakeMatrix(rows, parts_.spec.vocabulary);
    parts_.decoder.Logits(step.context, last.some_rows(begin, rows), logits);
    if (!DrawsHere(step.context)) continue;
    step.context.pool->Run(rows, [&](int64_t i, int member) {
      const auto at = static_cast<size_t>(begin + i);
      const Slot& slot = *step.rows[chains_[going_[at]].row].slot;
      const int32_t length = slot.length();
      drafts_[at] =
          parts_.sampler.Draw(step.context, {slot, length, member, slot.ForcedToken(length)},
                              {logits.row(i), static_cast<size_t>(parts_.spec.vocabulary)});
    });
  }
}

// Those of the first rank to the others that have the same tokens.
void HeadDrafter::TellDrafts(const ops::OpContext& context) {
  if (context.ranks == nullptr) return;
  ops::Ranks& ranks = *context.ranks;
  if (ranks.status.ok()) {
    ranks.status = ranks.tensor->Broadcast(0, std::as_writable_bytes(std::span(drafts_)));
  }
  if (!ranks.status.ok()) std::ranges::fill(drafts_, -1);
}

// While a chain goes on, its drafts follow the slot's tokens.
void HeadDrafter::Guess(const DraftStep& step, Matrix last) {
  going_.clear();
  for (size_t i = 0; i < chains_.size(); ++i) going_.push_back(i);
  for (int32_t depth = 1; !going_.empty(); ++depth) {
    SampleDrafts(step, last);
    TellDrafts(step.context);
    size_t kept = 0;
    BeginPass();
    for (size_t i = 0; i < going_.size(); ++i) {
      const Chain& chain = chains_[going_[i]];
      const DraftWish& row = step.rows[chain.row];
      if (drafts_[i] < 0) continue;
      row.drafts->push_back(drafts_[i]);
      row.slot->tokens.push_back(drafts_[i]);
      if (depth == chain.count) continue;
      AddSpan(row, row.slot->length() - 1, row.slot->length());
      if (kept != i) {
        std::copy_n(last.row(static_cast<int64_t>(i)), hidden_,
                    last.row(static_cast<int64_t>(kept)));
      }
      going_[kept++] = going_[i];
    }
    going_.resize(kept);
    const Matrix states = last.first_rows(static_cast<int64_t>(kept));
    if (kept > 0) Forward(step, states, states);
  }
}

void HeadDrafter::Propose(const DraftStep& step) {
  pieces_.clear();
  chains_.clear();
  lent_.clear();
  if (parts_.home != nullptr) parts_.home->BeginPasses();
  for (size_t r = 0; r < step.rows.size(); ++r) PlanRow(step, r);
  if (parts_.home != nullptr) std::ranges::stable_sort(chains_, std::greater(), &Chain::count);
  WorkspaceScope scope(*step.context.workspace);
  Matrix last = step.context.workspace->TakeMatrix(static_cast<int64_t>(chains_.size()), hidden_);
  MakeEntries(step, last);
  for (const DraftWish& row : step.rows) KeepStates(step, row);
  parts_.home != nullptr ? GuessThere(step, last) : Guess(step, last);
  while (AnotherPass(step.context, false)) {
    BeginPass();
    const Matrix none = last.first_rows(0);
    head_.Forward(step.context, {.tokens = nullptr, .before = none, .sequences = {}}, none);
  }
  for (const Chain& chain : chains_) {
    const DraftWish& row = step.rows[chain.row];
    row.slot->tokens.resize(static_cast<size_t>(row.end) + 1);
  }
  for (const Lent& lent : lent_) PointTo(step.rows[lent.row], lent.position, nullptr);
}

void HeadDrafter::Measure(const ops::OpContext& context) const {
  Measure(context, {.head = head_,
                    .decoder = parts_.decoder,
                    .spec = parts_.spec,
                    .slots = parts_.slots,
                    .pass_tokens_max = parts_.pass_tokens_max});
}

void HeadDrafter::Measure(const ops::OpContext& context, const Sizes& sizes) {
  Workspace& workspace = *context.workspace;
  const int64_t hidden = sizes.spec.hidden;
  WorkspaceScope scope(workspace);
  workspace.TakeMatrix(sizes.slots, hidden);
  {
    WorkspaceScope pass(workspace);
    const int32_t tokens = sizes.pass_tokens_max;
    std::vector<ops::SequenceSpan> spans;
    for (int32_t i = 0; i < tokens; ++i) spans.push_back({i, 1, 0, {}});
    const ops::SequenceSpan longest{0, tokens, 0, {}};
    Matrix states = workspace.TakeMatrix(tokens, hidden);
    const DraftHead& head = sizes.head;
    head.Forward(context, {.before = states, .sequences = {spans.data(), tokens, tokens}}, states);
    head.Forward(context, {.before = states, .sequences = {&longest, 1, tokens}}, states);
  }
  Matrix logits = workspace.TakeMatrix(kLogitsRows, sizes.spec.vocabulary);
  sizes.decoder.Logits(context, workspace.TakeMatrix(kLogitsRows, hidden), logits);
}

}  // namespace braid
