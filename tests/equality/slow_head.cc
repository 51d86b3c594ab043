// See the header.
#include "tests/equality/slow_head.h"

#include <algorithm>

#include "base/math.h"

namespace braid {

SlowHead::SlowHead(const ModelSpec& spec, ModelWeights weights, const Device& device,
                   DType kv_dtype)
    : spec_(spec),
      weights_(std::move(weights)),
      cache_(CachePlanOf(spec, kv_dtype)),
      decoder_(spec, weights_, cache_, kv_dtype),
      head_(spec, weights_, cache_, kv_dtype),
      sampler_(spec.vocabulary, 0, 1),
      pool_(1),
      workspace_(int64_t{64} << 20),
      context_{device, &pool_, &workspace_, nullptr} {}

void SlowHead::MakePages(int64_t tokens) {
  pages_.clear();
  tables_.clear();
  for (const GroupGeometry& group : cache_.groups) {
    std::vector<std::byte*>& table = tables_.emplace_back();
    for (int64_t block = 0; block < CeilDiv(tokens, kBlockTokens); ++block) {
      table.push_back(pages_.emplace_back(group.block_bytes).data());
    }
  }
}

ops::SequenceSpan SlowHead::SpanAt(int32_t position) const {
  ops::SequenceSpan span{0, 1, position, {}};
  for (size_t g = 0; g < tables_.size(); ++g) span.tables[g] = tables_[g].data();
  return span;
}

void SlowHead::ModelState(TokenId token, int32_t position, Matrix state) {
  const ops::SequenceSpan span = SpanAt(position);
  decoder_.Forward(context_, {.tokens = &token, .sequences = {&span, 1, 1}}, state);
}

void SlowHead::HeadState(TokenId token, int32_t position, Matrix before, Matrix state) {
  const ops::SequenceSpan span = SpanAt(position);
  head_.Forward(context_, {.tokens = &token, .before = before, .sequences = {&span, 1, 1}}, state);
}

std::vector<std::vector<TokenId>> SlowHead::DraftsOf(const Request& request,
                                                     const std::vector<TokenId>& output,
                                                     int32_t most) {
  Slot slot;
  slot.sampling = request.sampling;
  slot.stop = request.stop;
  slot.thinking = request.thinking;
  slot.prompt_count = static_cast<int32_t>(request.prompt.size());
  slot.tokens = request.prompt;
  slot.tokens.insert(slot.tokens.end(), output.begin(), output.end());
  const std::vector<TokenId> tokens = slot.tokens;
  const auto length = static_cast<int32_t>(tokens.size());
  MakePages(length + most);
  std::vector<float> logits(static_cast<size_t>(spec_.vocabulary));
  std::vector<float> of_model(static_cast<size_t>(spec_.hidden)), of_head(of_model);
  const Matrix model{of_model.data(), 1, spec_.hidden, spec_.hidden};
  const Matrix head{of_head.data(), 1, spec_.hidden, spec_.hidden};
  std::vector<std::vector<TokenId>> drafts(output.size() + 1);
  for (int32_t p = 0; p < length; ++p) {
    // The token at p follows the state of the one before, which is zero at first.
    HeadState(tokens[static_cast<size_t>(p)], p, model, head);
    slot.tokens.assign(tokens.begin(), tokens.begin() + p + 1);
    for (int32_t i = 0; i < most && p >= slot.prompt_count; ++i) {
      decoder_.Logits(context_, head, {logits.data(), 1, spec_.vocabulary, spec_.vocabulary});
      const int32_t known = slot.length();
      const TokenId draft =
          sampler_.Draw(context_, {slot, known, 0, slot.ForcedToken(known)}, logits);
      drafts[static_cast<size_t>(p + 1 - slot.prompt_count)].push_back(draft);
      slot.tokens.push_back(draft);
      HeadState(draft, known, head, head);
    }
    ModelState(tokens[static_cast<size_t>(p)], p, model);
  }
  return drafts;
}

}  // namespace braid
