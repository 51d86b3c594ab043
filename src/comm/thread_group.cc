// A rank posts where its parts lie; the others copy theirs from there, and it returns when all
// have.
#include "comm/thread_group.h"

#include <fmt/format.h>
#include <immintrin.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/clock.h"

namespace braid {
namespace {

// Looks at a counter before sleeping: about 20 us.
constexpr int kSpins = 500;

// What one rank shows the others. Calls are counted from 1.
struct alignas(64) Post {
  std::atomic<uint64_t> posted{0};  // the call whose parts can be read
  std::atomic<uint64_t> taken{0};   // the call whose parts for this rank it has copied
  std::atomic<int32_t> readers{0};  // ranks that are copying this rank's parts
  std::span<const Bytes> parts;
};

struct Group {
  Group(int32_t size, std::chrono::milliseconds limit)
      : deadline(limit), posts(static_cast<size_t>(size)) {}

  const std::chrono::milliseconds deadline;
  std::vector<Post> posts;
  std::atomic<int32_t> sleepers{0};
  std::atomic<bool> ended{false};
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Error> error;  // under the mutex; why the group ended

  void Notify() {
    if (sleepers.load() == 0) return;
    {
      std::lock_guard lock(mutex);
    }
    changed.notify_all();
  }

  // The first error is everybody's.
  Error End(Error why) {
    std::lock_guard lock(mutex);
    if (!error) error = std::move(why);
    ended.store(true);
    changed.notify_all();
    return *error;
  }

  // False when the time is over or the group has ended.
  bool Await(const std::atomic<uint64_t>& counter, uint64_t call, int64_t end_us) {
    for (int i = 0; i < kSpins; ++i) {
      if (counter.load(std::memory_order_acquire) >= call) return true;
      _mm_pause();
    }
    std::unique_lock lock(mutex);
    sleepers.fetch_add(1);
    const auto done = [&] { return counter.load() >= call || ended.load(); };
    changed.wait_for(lock, std::chrono::microseconds(end_us - MonotonicUs()), done);
    sleepers.fetch_sub(1);
    return counter.load() >= call;
  }
};

class ThreadRank final : public Communicator {
 public:
  ThreadRank(Group& group, int32_t rank, int32_t size) : Communicator(rank, size), group_(group) {}

 private:
  Status Exchange(std::span<const Bytes> send, std::span<const MutableBytes> receive) override {
    Post& own = group_.posts[static_cast<size_t>(rank())];
    const uint64_t call = ++calls_;
    own.parts = send;
    own.posted.store(call);
    group_.Notify();
    const Status status = Take(call, receive);
    // After an error somebody may be in the middle of copying; nobody begins any more.
    while (own.readers.load() > 0) _mm_pause();
    return status;
  }

  Status Take(uint64_t call, std::span<const MutableBytes> receive) {
    const int64_t end_us = MonotonicUs() + std::chrono::microseconds(group_.deadline).count();
    for (int32_t i = 1; i < size(); ++i) {  // each rank begins with another
      const int32_t from = (rank() + i) % size();
      Post& post = group_.posts[static_cast<size_t>(from)];
      if (!group_.Await(post.posted, call, end_us)) return Missing(&Post::posted, call);
      RETURN_IF_ERROR(Copy(post, from, receive[static_cast<size_t>(from)]));
    }
    group_.posts[static_cast<size_t>(rank())].taken.store(call);
    group_.Notify();
    for (const Post& post : group_.posts) {
      if (&post != &group_.posts[static_cast<size_t>(rank())] &&
          !group_.Await(post.taken, call, end_us)) {
        return Missing(&Post::taken, call);
      }
    }
    return {};
  }

  Status Copy(Post& post, int32_t from, MutableBytes to) {
    post.readers.fetch_add(1);
    Status status;
    if (group_.ended.load()) {
      status = group_.End({});
    } else if (const Bytes part = post.parts[static_cast<size_t>(rank())];
               part.size() != to.size()) {
      status = group_.End(
          {ErrorCode::kInternal, fmt::format("rank {} sent {} bytes to rank {}, which expected {}",
                                             from, part.size(), rank(), to.size())});
    } else if (!part.empty()) {
      std::memcpy(to.data(), part.data(), part.size());
    }
    post.readers.fetch_sub(1);
    return status;
  }

  // Names all ranks that have not come to the call.
  Error Missing(std::atomic<uint64_t> Post::* counter, uint64_t call) {
    std::vector<int32_t> missing;
    for (int32_t r = 0; r < size(); ++r) {
      const Post& post = group_.posts[static_cast<size_t>(r)];
      if (r != rank() && (post.*counter).load() < call) missing.push_back(r);
    }
    return group_.End(
        {ErrorCode::kUnavailable, fmt::format("no word from rank {} within {} ms",
                                              fmt::join(missing, ", "), group_.deadline.count())});
  }

  Group& group_;
  uint64_t calls_ = 0;
};

}  // namespace

struct ThreadGroup::State {
  Group group;
  std::vector<std::unique_ptr<ThreadRank>> ranks;
};

ThreadGroup::ThreadGroup(int32_t size, std::chrono::milliseconds deadline)
    : state_(new State{Group(size, deadline), {}}) {
  CHECK(size >= 1, "{} ranks", size);
  for (int32_t rank = 0; rank < size; ++rank) {
    state_->ranks.push_back(std::make_unique<ThreadRank>(state_->group, rank, size));
  }
}

ThreadGroup::~ThreadGroup() = default;

Communicator& ThreadGroup::rank(int32_t rank) {
  return *state_->ranks.at(static_cast<size_t>(rank));
}

}  // namespace braid
