// A rank posts where its parts lie; the others copy theirs from there. Short parts lie in a buffer
// of the group, and it returns when it has what the others have for it; otherwise it waits until
// all have copied. A buffer is used again two calls later: then all ranks have come to the call
// between, so they have left the first one.
#include "comm/thread_group.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"

namespace braid {
namespace {

// Ticks of the time-stamp counter (2 to 4 per nanosecond) to look at a counter for before sleeping.
// kLong is that of the pool's members (base/system/thread_pool.h).
constexpr uint64_t kBriefTicks = 50'000, kLongTicks = 150'000;
// A rank that sleeps looks so often whether another group has ended its own.
constexpr int64_t kLookUs = 100'000;

// Of all parts of a rank together that lie in a buffer: copying them twice takes less than waiting.
constexpr size_t kBufferedBytesMost = 64 << 10;

// What a rank shows the others in a call.
struct Shown {
  std::vector<Bytes> parts;
  std::vector<std::byte> buffer;
};

// What one rank shows the others. Calls are counted from 1.
struct alignas(64) Post {
  std::atomic<uint64_t> posted{0};  // the call whose parts can be read
  std::atomic<uint64_t> taken{0};   // the call whose parts for this rank it has copied
  std::atomic<int32_t> readers{0};  // ranks that are copying this rank's parts
  Shown shown[2];                   // of even and odd calls
};

struct Group {
  Group(int32_t size, std::chrono::milliseconds limit, Spin spin, const AmongGroups& among)
      : deadline(limit),
        spin(spin),
        first(among.first),
        end(among.end != nullptr ? *among.end : own_end),
        posts(static_cast<size_t>(size)) {}

  const std::chrono::milliseconds deadline;
  const Spin spin;
  const int32_t first;
  GroupEnd own_end;
  GroupEnd& end;
  std::vector<Post> posts;
  std::atomic<int32_t> sleepers{0};
  std::mutex mutex;
  std::condition_variable changed;

  void Notify() {
    if (sleepers.load() == 0) return;
    {
      std::lock_guard lock(mutex);
    }
    changed.notify_all();
  }

  // The first error is everybody's.
  Error End(Error why) {
    Error everybodys = end.End(std::move(why));
    std::lock_guard lock(mutex);
    changed.notify_all();
    return everybodys;
  }

  // False when the time is over or the group has ended.
  bool Await(const std::atomic<uint64_t>& counter, uint64_t call, int64_t end_us) {
    const uint64_t start = __rdtsc(), ticks = spin == Spin::kLong ? kLongTicks : kBriefTicks;
    do {
      if (counter.load(std::memory_order_acquire) >= call) return true;
      // With as many ranks as there are cores, the call would take longer than most waits.
      spin == Spin::kLong ? _mm_pause() : static_cast<void>(::sched_yield());
    } while (__rdtsc() - start < ticks);
    std::unique_lock lock(mutex);
    sleepers.fetch_add(1);
    while (counter.load() < call && !end.ended()) {
      const int64_t left_us = end_us - MonotonicUs();
      if (left_us <= 0) break;
      changed.wait_for(lock, std::chrono::microseconds(std::min(left_us, kLookUs)));
    }
    sleepers.fetch_sub(1);
    return counter.load() >= call;
  }
};

class ThreadRank final : public Communicator {
 public:
  ThreadRank(Group& group, int32_t rank, int32_t size) : Communicator(rank, size), group_(group) {}

 private:
  Status Exchange(std::span<const Bytes> send, std::span<const MutableBytes> receive) override {
    // Others may still copy from a buffer only where the last call failed.
    if (group_.end.ended()) return group_.End({});
    Post& own = group_.posts[static_cast<size_t>(rank())];
    const uint64_t call = ++calls_;
    const bool buffered = Show(send, own.shown[call % 2]);
    own.posted.store(call);
    group_.Notify();
    const int64_t end_us = MonotonicUs() + std::chrono::microseconds(group_.deadline).count();
    Status status = Take(call, receive, end_us);
    if (buffered) return status;
    if (status.ok()) status = AwaitReaders(call, end_us);
    // After an error somebody may be in the middle of copying; nobody begins any more.
    while (own.readers.load() > 0) _mm_pause();
    return status;
  }

  // Whether the parts lie in the buffer.
  bool Show(std::span<const Bytes> send, Shown& shown) {
    shown.parts.assign(send.begin(), send.end());
    shown.parts[static_cast<size_t>(rank())] = {};
    // The same part for all ranks lies there once.
    const auto for_parts = [&](auto f) {
      Bytes before;
      for (Bytes& part : shown.parts) {
        if (part.empty()) continue;
        const bool again = part.data() == before.data() && part.size() == before.size();
        before = part;
        f(part, again);
      }
    };
    size_t bytes = 0;
    for_parts([&](Bytes& part, bool again) { bytes += again ? 0 : part.size(); });
    if (bytes > kBufferedBytesMost) return false;
    if (shown.buffer.size() < bytes) shown.buffer.resize(bytes);
    size_t end = 0;
    for_parts([&](Bytes& part, bool again) {
      if (!again) {
        std::memcpy(shown.buffer.data() + end, part.data(), part.size());
        end += part.size();
      }
      part = Bytes(shown.buffer).subspan(end - part.size(), part.size());
    });
    return true;
  }

  Status Take(uint64_t call, std::span<const MutableBytes> receive, int64_t end_us) {
    for (int32_t i = 1; i < size(); ++i) {  // each rank begins with another
      const int32_t from = (rank() + i) % size();
      Post& post = group_.posts[static_cast<size_t>(from)];
      if (!group_.Await(post.posted, call, end_us)) return Missing(&Post::posted, call);
      RETURN_IF_ERROR(Copy(post, call, from, receive[static_cast<size_t>(from)]));
    }
    group_.posts[static_cast<size_t>(rank())].taken.store(call);
    group_.Notify();
    return {};
  }

  Status AwaitReaders(uint64_t call, int64_t end_us) {
    for (const Post& post : group_.posts) {
      if (&post != &group_.posts[static_cast<size_t>(rank())] &&
          !group_.Await(post.taken, call, end_us)) {
        return Missing(&Post::taken, call);
      }
    }
    return {};
  }

  Status Copy(Post& post, uint64_t call, int32_t from, MutableBytes to) {
    post.readers.fetch_add(1);
    Status status;
    if (group_.end.ended()) {
      status = group_.End({});
    } else if (const Bytes part = post.shown[call % 2].parts[static_cast<size_t>(rank())];
               part.size() != to.size()) {
      status = group_.End({ErrorCode::kInternal,
                           fmt::format("rank {} sent {} bytes to rank {}, which expected {}",
                                       Member(from), part.size(), Member(rank()), to.size())});
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
      if (r != rank() && (post.*counter).load() < call) missing.push_back(Member(r));
    }
    return group_.End(
        {ErrorCode::kUnavailable, fmt::format("no word from rank {} within {} ms",
                                              fmt::join(missing, ", "), group_.deadline.count())});
  }

  // Errors name ranks by their numbers among all.
  int32_t Member(int32_t rank) const { return group_.first + rank; }

  Group& group_;
  uint64_t calls_ = 0;
};

}  // namespace

Error GroupEnd::End(Error why) {
  std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(why);
  ended_.store(true);
  return *error_;
}

struct ThreadGroup::State {
  Group group;
  std::vector<std::unique_ptr<ThreadRank>> ranks;
};

ThreadGroup::ThreadGroup(int32_t size, std::chrono::milliseconds deadline, Spin spin,
                         const AmongGroups& among)
    : state_(new State{Group(size, deadline, spin, among), {}}) {
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
