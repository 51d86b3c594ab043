// A subscriber asks for all that is kept when it begins, and for a gap when it sees one.
#include "kv_events/stream.h"

#include <utility>

namespace braid::kv {
namespace {

constexpr int64_t kAnswerUs = 5'000'000;  // an answer that brings nothing for so long has no end
constexpr int64_t kAgainUs = 1'000'000;
constexpr size_t kHeldMax = 4096;
constexpr int64_t kHeldBytesMax = int64_t{64} << 20;

}  // namespace

std::optional<uint64_t> EventStream::Question(int64_t now_us) {
  // Until something has come by itself, the subscription may not have reached the publisher: what
  // it says meanwhile does not come.
  if (answered_ && !live_ && now_us - asked_us_ >= kAgainUs) {
    asks_ = true;
    asked_us_ = 0;
    answered_ = false;
  }
  if (!asks_ || !can_ask_) return {};
  if (asked_us_ == 0) {
    asked_us_ = heard_us_ = now_us;
    hears_ = false;
    asked_from_ = next_;
    return next_;
  }
  if (std::exchange(hears_, false)) heard_us_ = now_us;
  if (now_us - heard_us_ >= kAnswerUs) {
    asks_ = false;
    DeliverHeld(false);
  }
  return {};
}

void EventStream::Deliver(uint64_t number, std::string_view payload) {
  next_ = number + 1;
  Result<EventBatch> batch = DecodeBatch(payload);
  if (batch) return take_(*std::move(batch));
  // What it said is unknown.
  ++malformed_;
  take_({.dp_rank = -1, .events = {BlocksCleared{}}});
}

void EventStream::GoOnAt(uint64_t number) {
  take_({.dp_rank = -1, .events = {BlocksCleared{}}});
  next_ = number;
}

// Until a gap that an answer may still fill.
void EventStream::DeliverHeld(bool may_ask) {
  while (!held_.empty()) {
    if (may_ask && held_.front().number > next_) {
      asks_ = true;
      asked_us_ = 0;
      return;
    }
    const Held held = std::move(held_.front());
    held_.pop_front();
    held_bytes_ -= static_cast<int64_t>(held.payload.size());
    if (held.number < next_) continue;
    if (held.number > next_) GoOnAt(held.number);
    Deliver(held.number, held.payload);
  }
}

void EventStream::OnLive(uint64_t number, std::string_view payload) {
  // What comes by itself grows with one process. After a smaller number it is another one, whose
  // cache began empty; what is smaller than an answer's only comes late.
  const bool begins = number == 0 ? next_ > 0 || !held_.empty() : live_ && number <= *live_;
  live_ = number;
  if (begins) {
    held_.clear();
    held_bytes_ = 0;
    GoOnAt(0);
    asks_ = number > 0;
    asked_us_ = 0;
  }
  if (number < next_ && !asks_) return;
  if (number > next_ && !asks_ && can_ask_) {
    asks_ = true;
    asked_us_ = 0;
  }
  const bool waits = asks_ && can_ask_;
  if (waits && held_.size() < kHeldMax && held_bytes_ < kHeldBytesMax) {
    held_bytes_ += static_cast<int64_t>(payload.size());
    held_.push_back({number, std::string(payload)});
    return;
  }
  asks_ = false;
  DeliverHeld(false);
  if (number < next_) return;
  if (number > next_) GoOnAt(number);
  Deliver(number, payload);
}

void EventStream::OnAnswer(uint64_t number, std::string_view payload) {
  if (!asks_ || asked_us_ == 0) return;  // of a question that is over
  if (payload.empty()) {
    // Some batches may be younger than the answer. One that brought nothing would not do so again.
    asks_ = false;
    answered_ = true;
    return DeliverHeld(next_ > asked_from_);
  }
  hears_ = true;
  if (number < next_) return;
  if (number > next_) GoOnAt(number);
  Deliver(number, payload);
}

}  // namespace braid::kv
