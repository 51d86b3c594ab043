// Chains on a device. How long each is, and so what every pass consists of, is known before the
// first draft is; tokens are not, and go from the sampler to the inputs of the next pass. Chains
// are sorted, the longest first, so those that go on are always the first.
#include <algorithm>

#include "base/check.h"
#include "runtime/device_draws.h"
#include "runtime/drafts/head_drafter.h"
#include "runtime/logits_rows.h"

namespace braid {
namespace {

constexpr TokenId kUnknown = -1;  // to the host

}  // namespace

// The pass at hand; what was laid before it is submitted where there is no room for it.
DevicePass HeadDrafter::LayPass(const DraftStep& step, std::span<const TokenId> tokens) {
  ModelDevice& home = *parts_.home;
  if (!home.HasRoom(std::ssize(tokens_))) {
    if (step.status->ok()) *step.status = home.Finish();
    home.BeginPasses();
  }
  return home.LayPass(span_slots_, sequences(), tokens);
}

void HeadDrafter::ForwardThere(const DraftStep& step, const DevicePass& pass, Matrix before,
                               Matrix states) const {
  ops::OpContext context = step.context;
  context.batch = &pass.batch;
  head_.Forward(context, {.tokens = pass.tokens, .before = before, .sequences = sequences()},
                states);
}

// What is asked of the sampler, the first drafts of all chains first; the slots' tokens go on with
// drafts that are not known.
void HeadDrafter::LayChains(const DraftStep& step) {
  draws_.clear();
  const int32_t most = chains_.empty() ? 0 : chains_.front().count;
  for (int32_t depth = 1; depth <= most; ++depth) {
    for (const Chain& chain : chains_) {
      if (chain.count < depth) break;
      Slot& slot = *step.rows[chain.row].slot;
      draws_.push_back(DraftDrawOf(slot, slot.length()));
      slot.tokens.push_back(kUnknown);
    }
  }
  parts_.home->LayDraws(draws_);
}

void HeadDrafter::RecordChains(const DraftStep& step, Matrix last) {
  ModelDevice& home = *parts_.home;
  Workspace& workspace = *step.context.workspace;
  int64_t going = std::ssize(chains_), drawn = 0;
  for (int32_t depth = 1; going > 0; ++depth) {
    int64_t kept = 0;
    BeginPass();
    for (; kept < going && chains_[static_cast<size_t>(kept)].count > depth; ++kept) {
      const DraftWish& row = step.rows[chains_[static_cast<size_t>(kept)].row];
      AddSpan(row, row.end + depth, row.end + depth + 1);
    }
    const DevicePass next = kept > 0 ? LayPass(step, {}) : DevicePass();
    for (int64_t begin = 0; begin < going; begin += kLogitsRows) {
      const int64_t rows = std::min(int64_t{kLogitsRows}, going - begin);
      WorkspaceScope scope(workspace);
      Matrix logits = workspace.TakeMatrix(rows, parts_.spec.vocabulary);
      parts_.decoder.Logits(step.context, last.some_rows(begin, rows), logits);
      ops::gpu::RunSample(step.context, {.logits = logits,
                                         .sampled = parts_.sampler.sampled_vocabulary(),
                                         .draws = home.draws() + drawn + begin,
                                         .drawn = home.drawn() + drawn + begin,
                                         .ids = next.tokens + begin,
                                         .told = std::clamp(kept - begin, int64_t{0}, rows)});
    }
    const Matrix states = last.first_rows(kept);
    if (kept > 0) ForwardThere(step, next, states, states);
    drawn += going;
    going = kept;
  }
}

// A chain ends where nothing could be drawn.
void HeadDrafter::TakeChains(const DraftStep& step) {
  const ops::gpu::DeviceDrawn* drawn = parts_.home->drawn_seen().data();
  size_t at = 0;
  for (int32_t depth = 1; at < draws_.size(); ++depth) {
    for (const Chain& chain : chains_) {
      if (chain.count < depth) break;
      const ops::gpu::DeviceDraw& draw = draws_[at];
      const TokenId token = (draw.flags & draw.kChoose) != 0 ? drawn[at].token : draw.next;
      std::vector<TokenId>& drafts = *step.rows[chain.row].drafts;
      if (token >= 0 && std::ssize(drafts) == depth - 1) drafts.push_back(token);
      ++at;
    }
  }
}

void HeadDrafter::GuessThere(const DraftStep& step, Matrix last) {
  LayChains(step);
  RecordChains(step, last);
  // Copies alone can wait for the next step's submission.
  if (!pieces_.empty() && step.status->ok()) *step.status = parts_.home->Finish();
  if (step.status->ok()) TakeChains(step);
}

}  // namespace braid
