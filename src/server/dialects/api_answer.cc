// Errors before the end: a status when nothing was sent, else the last event of the stream.
#include "server/dialects/api_answer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "server/dialects/stream_error.h"
#include "server/http/framing.h"

namespace braid {
namespace {

// Log-probabilities that become text while others wait: 2 to 3 us each.
constexpr int64_t kEntriesAtOnce = 2048;
// What the JSON of a log-probability takes, an estimate: 330 bytes of values and keys, and text.
constexpr int64_t kJsonBytesPerEntry = 400;

int64_t EntriesOf(std::span<const TokenLogprob> tokens) {
  int64_t entries = std::ssize(tokens);
  for (const TokenLogprob& token : tokens) entries += std::ssize(token.top);
  return entries;
}
int64_t EntriesOf(const std::vector<ChoiceDelta>& deltas) {
  int64_t entries = 0;
  for (const ChoiceDelta& delta : deltas) {
    entries += EntriesOf(delta.logprobs) + EntriesOf(delta.prompt_logprobs);
  }
  return entries;
}

// Of what is written while others wait, nothing is held.
int64_t JsonBytesOf(int64_t entries) {
  return entries > kEntriesAtOnce ? entries * kJsonBytesPerEntry : 0;
}

// As the generation holds it.
int64_t PromptMemoryOf(const std::vector<ChoiceDelta>& deltas) {
  int64_t bytes = 0;
  for (const ChoiceDelta& delta : deltas) bytes += MemoryOf(delta.prompt_logprobs);
  return bytes;
}

}  // namespace

ApiAnswer::ApiAnswer(std::unique_ptr<Generation> generation, AnswerShape shape)
    : generation_(std::move(generation)),
      endpoint_(shape.endpoint),
      streams_(shape.stream),
      format_(MakeAnswerFormat(*generation_, std::move(shape))) {}

AnswerStep ApiAnswer::Take() {
  generation_->FreeMemory(std::exchange(unsent_bytes_, 0));  // they are sent
  std::vector<ChoiceDelta> deltas = generation_->Poll();
  return streams_ ? TakeEvents(std::move(deltas)) : TakeWhole(std::move(deltas));
}

AnswerStep ApiAnswer::TakeEvents(std::vector<ChoiceDelta> deltas) {
  AnswerStep step{.last = generation_->finished()};
  const int64_t json_bytes = JsonBytesOf(EntriesOf(deltas));
  step.work = [this, json_bytes, deltas = std::move(deltas)](AnswerStep& out) {
    if (!generation_->HoldMemory(json_bytes)) {
      generation_->NoteError(EndReason::kNoMemory);
      out.events = StreamError(endpoint_, *generation_->error());
      out.last = true;
      return;
    }
    for (const ChoiceDelta& delta : deltas) out.events += format_->Events(delta);
    if (out.last) out.events += format_->End();
    const int64_t held = json_bytes + PromptMemoryOf(deltas);
    unsent_bytes_ = std::min<int64_t>(held, std::ssize(out.events));
    generation_->FreeMemory(held - unsent_bytes_);
  };
  if (json_bytes == 0) std::exchange(step.work, nullptr)(step);
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
  const int64_t json_bytes = JsonBytesOf(EntriesOf(merged_));
  step.work = [this, json_bytes](AnswerStep& out) {
    if (generation_->HoldMemory(json_bytes)) {
      out.response = HttpResponse{.body = json::serialize(format_->Whole(merged_))};
    } else {
      generation_->NoteError(EndReason::kNoMemory);
      format_.reset();
      out.response = ErrorResponse(*generation_->error(), endpoint_ == kMessages);
    }
    generation_->FreeMemory(json_bytes + PromptMemoryOf(merged_));
    merged_.clear();  // its client may read the answer slowly
  };
  if (json_bytes == 0) std::exchange(step.work, nullptr)(step);
  return step;
}

}  // namespace braid
