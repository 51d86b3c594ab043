// Errors before the end: a status when nothing was sent, else the last event of the stream.
#include "server/dialects/api_answer.h"

#include <algorithm>

#include "server/http/framing.h"

namespace braid {

ApiAnswer::ApiAnswer(std::unique_ptr<Generation> generation, AnswerShape shape)
    : generation_(std::move(generation)),
      endpoint_(shape.endpoint),
      streams_(shape.stream),
      format_(MakeAnswerFormat(*generation_, std::move(shape))) {}

AnswerStep ApiAnswer::Take() {
  std::vector<ChoiceDelta> deltas = generation_->Poll();
  return streams_ ? TakeEvents(deltas) : TakeWhole(std::move(deltas));
}

AnswerStep ApiAnswer::TakeEvents(const std::vector<ChoiceDelta>& deltas) {
  AnswerStep step;
  for (const ChoiceDelta& delta : deltas) step.events += format_->Events(delta);
  step.last = generation_->finished();
  if (step.last) step.events += format_->End();
  return step;
}

AnswerStep ApiAnswer::TakeWhole(std::vector<ChoiceDelta> deltas) {
  for (ChoiceDelta& delta : deltas) {
    format_->Note(delta);
    auto same = std::find_if(merged_.begin(), merged_.end(),
                             [&](const ChoiceDelta& d) { return d.index == delta.index; });
    if (same == merged_.end()) {
      merged_.push_back(std::move(delta));
    } else {
      same->Merge(std::move(delta));
    }
  }
  AnswerStep step{.last = generation_->finished()};
  if (!step.last) return step;
  if (generation_->error()) {
    format_.reset();  // it stores a response as far as it came, before its client reads the end
    step.response = ErrorResponse(*generation_->error(), endpoint_ == kMessages);
    return step;
  }
  std::sort(merged_.begin(), merged_.end(),
            [](const ChoiceDelta& a, const ChoiceDelta& b) { return a.index < b.index; });
  step.response = HttpResponse{.body = json::serialize(format_->Whole(merged_))};
  merged_.clear();  // its client may read the answer slowly
  return step;
}

}  // namespace braid
