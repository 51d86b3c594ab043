// One queue, one mutex held for the length of a push or a pop. The thread of its own has what the
// step leaves over of the processor; who waits for a mask computes those that nobody has begun.
#include "runtime/constraint_worker.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

namespace braid {
namespace {

constexpr int kWorkerNice = 19;

void SetBit(std::span<uint32_t> words, TokenId token, bool value) {
  const auto bit = static_cast<uint32_t>(token);
  const uint32_t mask = uint32_t{1} << (bit % 32);
  words[bit / 32] = value ? words[bit / 32] | mask : words[bit / 32] & ~mask;
}

// The constraint of one slot. Its worker's alone between Prepare and Await.
struct Stream {
  std::unique_ptr<TokenConstraint> constraint;
  size_t accepted = 0;  // of the output
  bool holds = false;   // false: still in the part that the grammar does not know
  std::vector<uint32_t> mask;
  Status status;
  const Slot* slot = nullptr;
  bool ready = false;

  Status CatchUp(ConstraintSource* source) {
    if (source == nullptr) {
      return Error{ErrorCode::kInvalid, "constrained output needs a tokenizer"};
    }
    if (constraint == nullptr) {
      ASSIGN_OR_RETURN(constraint, source->Start(slot->grammar, slot->grammar_after >= 0));
      holds = slot->grammar_after < 0;
    }
    for (const auto output = slot->output(); accepted < output.size(); ++accepted) {
      const TokenId token = output[accepted];
      if (holds) RETURN_IF_ERROR(constraint->Accept(token));
      holds = holds || token == slot->grammar_after;
    }
    return {};
  }

  Status Compute(ConstraintSource* source) {
    RETURN_IF_ERROR(CatchUp(source));
    const std::vector<TokenId>& stops = slot->stop.stop_tokens;
    if (!holds) {
      // Anything but the end: the answer is still to come.
      std::fill(mask.begin(), mask.end(), ~uint32_t{0});
      for (TokenId token : stops) SetBit(mask, token, false);
      return {};
    }
    RETURN_IF_ERROR(constraint->Mask(mask));
    const auto end = static_cast<uint32_t>(source->end_token());
    if (mask[end / 32] >> (end % 32) & 1) {
      for (TokenId token : stops) SetBit(mask, token, true);
    }
    return {};
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
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kWorkerNice);
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
    stream.mask.resize((static_cast<size_t>(vocabulary) + 31) / 32);
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
  stream.constraint.reset();
  stream.accepted = 0;
  stream.holds = false;
  stream.ready = false;
}

void ConstraintWorker::Prepare(SlotId id, const Slot& slot) {
  Stream& stream = state_->streams[id];
  stream.slot = &slot;
  std::lock_guard lock(state_->mutex);
  stream.ready = false;
  state_->queue.push_back(&stream);
  state_->work.notify_one();
  if (!state_->thread.joinable()) state_->thread = std::thread([this] { state_->Run(); });
}

Result<const uint32_t*> ConstraintWorker::Await(SlotId id) {
  Stream& stream = state_->streams[id];
  std::unique_lock lock(state_->mutex);
  while (!stream.ready) {
    if (state_->queue.empty()) {
      state_->finished.wait(lock, [&] { return stream.ready || !state_->queue.empty(); });
    } else {
      state_->ComputeNext(lock);
    }
  }
  if (!stream.status) return stream.status.error();
  return static_cast<const uint32_t*>(stream.mask.data());
}

}  // namespace braid
