// One block is open at a time.
#include "server/dialects/answer_blocks.h"

#include <utility>

namespace braid {

void AnswerBlocks::Open(AnswerBlock block, const Sink& sink) {
  End(sink);
  blocks_.push_back(std::move(block));
  open_ = true;
  if (sink.open) sink.open(blocks_.back(), blocks_.size() - 1);
}

void AnswerBlocks::End(const Sink& sink, bool whole) {
  if (open_ && !whole) blocks_.back().whole = false;
  if (open_ && sink.close) sink.close(blocks_.back(), blocks_.size() - 1);
  open_ = false;
}

void AnswerBlocks::Add(const AnswerEvents& events, const Sink& sink) {
  using Kind = AnswerEvent::Kind;
  for (const AnswerEvent& event : events) {
    if (event.kind == Kind::kCallBegin) {
      Open({.kind = AnswerBlock::Kind::kCall,
            .name = event.text,
            .id = event.id,
            .call = event.call,
            .whole = false},
           sink);
      continue;
    }
    if (event.kind == Kind::kCallEnd) {
      blocks_.back().whole = true;
      End(sink);
      continue;
    }
    const AnswerBlock::Kind kind = event.kind == Kind::kText        ? AnswerBlock::Kind::kText
                                   : event.kind == Kind::kReasoning ? AnswerBlock::Kind::kThought
                                                                    : AnswerBlock::Kind::kCall;
    if (!open_ || blocks_.back().kind != kind) Open({.kind = kind}, sink);
    blocks_.back().text += event.text;
    if (sink.piece) sink.piece(blocks_.back(), blocks_.size() - 1, event.text);
  }
}

}  // namespace braid
