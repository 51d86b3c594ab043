// One queue, one mutex held for the length of a push or a pop. The thread of its own has what the
// step leaves over of the processor; who waits for a mask computes those that nobody has begun.
#include "runtime/constraint_worker.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/system/priority.h"

namespace braid {
namespace {

constexpr int kStepsBelow = 19;

bool BitOf(std::span<const uint32_t> words, TokenId token) {
  const auto bit = static_cast<uint32_t>(token);
  return (words[bit / 32] >> (bit % 32) & 1) != 0;
}

void SetBit(std::span<uint32_t> words, TokenId token, bool value) {
  const auto bit = static_cast<uint32_t>(token);
  const uint32_t mask = uint32_t{1} << (bit % 32);
  words[bit / 32] = value ? words[bit / 32] | mask : words[bit / 32] & ~mask;
}

// The constraint of one slot. Its worker's alone between Prepare and Await.
struct Stream {
  std::unique_ptr<TokenConstraint> constraint;
  std::vector<TokenId> followed;  // the output, with drafts, that the constraint has been told
  size_t holds_from = 0;          // output tokens before this are in the part it does not know
  std::vector<uint32_t> masks;    // [masks_made][words]
  size_t words = 0;
  int32_t masks_made = 0;
  Status status;  // of the mask after those
  const Slot* slot = nullptr;
  int32_t known = 0;
  bool ready = false;

  void Forget() {
    constraint.reset();
    followed.clear();
    holds_from = 0;
  }

  bool holds() const { return followed.size() >= holds_from; }

  Status Begin(ConstraintSource* source) {
    if (source == nullptr) {
      return Error{ErrorCode::kInvalid, "constrained output needs a tokenizer"};
    }
    const bool after = slot->grammar_after >= 0;
    ASSIGN_OR_RETURN(constraint, source->Start(slot->grammar, after));
    holds_from = after ? SIZE_MAX : 0;
    return {};
  }

  Status Follow(TokenId token) {
    if (holds()) {
      RETURN_IF_ERROR(constraint->Accept(token));
    } else if (token == slot->grammar_after) {
      holds_from = followed.size() + 1;
    }
    followed.push_back(token);
    return {};
  }

  // Takes back what did not become output. A constraint that cannot begins anew.
  void TakeBack(std::span<const TokenId> output) {
    const size_t kept = static_cast<size_t>(
        std::mismatch(followed.begin(), followed.end(), output.begin(), output.end()).first -
        followed.begin());
    const size_t told = std::max(kept, std::min(holds_from, followed.size()));
    if (told < followed.size() && !constraint->Rewind(followed.size() - told)) {
      Forget();
      return;
    }
    if (kept < holds_from && slot->grammar_after >= 0) holds_from = SIZE_MAX;
    followed.resize(kept);
  }

  Status CatchUp(ConstraintSource* source, int32_t length) {
    const std::span<const TokenId> output = slot->output(length);
    if (constraint != nullptr) TakeBack(output);
    if (constraint == nullptr) RETURN_IF_ERROR(Begin(source));
    while (followed.size() < output.size()) RETURN_IF_ERROR(Follow(output[followed.size()]));
    return {};
  }

  Status ComputeMask(ConstraintSource* source, std::span<uint32_t> mask) {
    const std::vector<TokenId>& stops = slot->stop.stop_tokens;
    if (!holds()) {
      // Anything but the end: the answer is still to come.
      std::fill(mask.begin(), mask.end(), ~uint32_t{0});
      for (TokenId token : stops) SetBit(mask, token, false);
      return {};
    }
    RETURN_IF_ERROR(constraint->Mask(mask));
    if (BitOf(mask, source->end_token())) {
      for (TokenId token : stops) SetBit(mask, token, true);
    }
    return {};
  }

  // A draft can be followed if its mask has it and it does not end the answer.
  bool MayFollow(std::span<const uint32_t> mask, TokenId draft) const {
    const std::vector<TokenId>& stops = slot->stop.stop_tokens;
    return BitOf(mask, draft) && !std::binary_search(stops.begin(), stops.end(), draft);
  }

  Status Compute(ConstraintSource* source) {
    masks_made = 0;
    RETURN_IF_ERROR(CatchUp(source, known));
    const auto drafts = std::span(slot->tokens).subspan(static_cast<size_t>(known));
    masks.resize(std::max(masks.size(), (drafts.size() + 1) * words));
    while (true) {
      const auto made = static_cast<size_t>(masks_made);
      const auto mask = std::span(masks).subspan(made * words, words);
      RETURN_IF_ERROR(ComputeMask(source, mask));
      ++masks_made;
      if (made == drafts.size() || !MayFollow(mask, drafts[made])) return {};
      RETURN_IF_ERROR(Follow(drafts[made]));
    }
  }
};

}  // namespace

struct ConstraintWorker::State {
  ConstraintSource* source;
  IdVector<SlotId, Stream> streams;
  std::mutex mutex;
  std::condition_variable work, finished;
  std::deque<Stream*> queue;
  bool stopping = false;
  std::thread thread;

  void Run() {
    // Where the pool has every core, a mask in the middle of a step would hold up all members.
    GiveWay(kStepsBelow);
    std::unique_lock lock(mutex);
    while (true) {
      work.wait(lock, [&] { return stopping || !queue.empty(); });
      if (stopping) return;
      ComputeNext(lock);
    }
  }

  void ComputeNext(std::unique_lock<std::mutex>& lock) {
    Stream& stream = *queue.front();
    queue.pop_front();
    lock.unlock();
    Status status = stream.Compute(source);
    lock.lock();
    stream.status = std::move(status);
    stream.ready = true;
    finished.notify_all();
  }
};

ConstraintWorker::ConstraintWorker(ConstraintSource* source, int32_t slots, int32_t vocabulary)
    : state_(std::make_unique<State>()) {
  state_->source = source;
  state_->streams.resize(static_cast<size_t>(slots));
  for (Stream& stream : state_->streams) {
    stream.words = (static_cast<size_t>(vocabulary) + 31) / 32;
  }
}

ConstraintWorker::~ConstraintWorker() {
  if (!state_->thread.joinable()) return;
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->work.notify_all();
  state_->thread.join();
}

void ConstraintWorker::Reset(SlotId id) {
  Stream& stream = state_->streams[id];
  stream.Forget();
  stream.ready = false;
}

void ConstraintWorker::Prepare(SlotId id, const Slot& slot, int32_t known) {
  Stream& stream = state_->streams[id];
  stream.slot = &slot;
  stream.known = known;
  std::lock_guard lock(state_->mutex);
  stream.ready = false;
  state_->queue.push_back(&stream);
  state_->work.notify_one();
  if (!state_->thread.joinable()) state_->thread = std::thread([this] { state_->Run(); });
}

Result<const uint32_t*> ConstraintWorker::Await(SlotId id, int32_t drafts) {
  Stream& stream = state_->streams[id];
  std::unique_lock lock(state_->mutex);
  while (!stream.ready) {
    if (state_->queue.empty()) {
      state_->finished.wait(lock, [&] { return stream.ready || !state_->queue.empty(); });
    } else {
      state_->ComputeNext(lock);
    }
  }
  if (drafts < stream.masks_made) {
    return static_cast<const uint32_t*>(stream.masks.data() +
                                        static_cast<size_t>(drafts) * stream.words);
  }
  if (!stream.status) return stream.status.error();
  return static_cast<const uint32_t*>(nullptr);
}

void ConstraintWorker::Forced(SlotId id, const Slot& slot, int32_t most,
                              std::vector<TokenId>& drafts) {
  Stream& stream = state_->streams[id];
  stream.slot = &slot;
  // An error is found again, and reported, when the next mask is made.
  if (!stream.CatchUp(state_->source, slot.length()) || !stream.holds()) return;
  drafts.resize(static_cast<size_t>(most));
  const Result<size_t> count = stream.constraint->Forced(drafts);
  drafts.resize(count ? *count : 0);
}

}  // namespace braid
