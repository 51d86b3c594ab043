// One rank's mover beside a group that the test plays: when it votes, what it exchanges and from
// where. That whole groups move experts and answer alike, tests/equality shows.
#include "runtime/experts/expert_mover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

namespace braid {
namespace {

constexpr auto kLong = std::chrono::seconds(20);

// The first rank's view of a group that brings zeros, unless the test writes something else.
// Exchanges wait while the gate is closed.
class PlayedGroup final : public Communicator {
 public:
  explicit PlayedGroup(int32_t ranks) : Communicator(0, ranks) {}

  void CloseGate() { SetGate(true); }
  void OpenGate() { SetGate(false); }
  // False: they did not come for a long time.
  bool AwaitCalls(int32_t calls) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] { return calls_ >= calls; });
  }
  std::function<void(std::span<const Bytes>, std::span<const MutableBytes>)> look;

 private:
  void SetGate(bool closed) {
    std::lock_guard lock(mutex_);
    closed_ = closed;
    changed_.notify_all();
  }
  Status Exchange(std::span<const Bytes> send, std::span<const MutableBytes> receive) override {
    std::unique_lock lock(mutex_);
    for (const MutableBytes part : receive) std::ranges::fill(part, std::byte{0});
    if (look) look(send, receive);
    ++calls_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !closed_; });
    return {};
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int32_t calls_ = 0;
  bool closed_ = false;
};

// A layer's experts on the first rank, 3 KiB each: the bytes of a slot are the number that it had.
struct Rank {
  static constexpr int64_t kMatrixBytes = 1024;

  Rank(int32_t experts, int32_t redundant, int32_t ranks, MoverLimits limits)
      : group(ranks), slots{.redundant = redundant} {
    const int64_t count = (experts + redundant) / ranks;
    spec.layers.emplace_back();
    spec.layers[0].ffn = MoeFfn{.experts = experts};
    weights.layers.emplace_back();
    MoeFfnWeights moe;
    const auto matrices = [&](int64_t each) {
      const Buffer& memory = weights.memory.emplace_back(count * each * kMatrixBytes);
      for (int64_t i = 0; i < count; ++i) {
        std::memset(memory.data() + i * each * kMatrixBytes, static_cast<int>(i + 1),
                    static_cast<size_t>(each * kMatrixBytes));
      }
      ops::PackedMatrix matrix{.format = ops::WeightFormat::kF32, .count = count * each};
      matrix.n = matrix.k = 16;
      matrix.data = memory.data();
      return matrix;
    };
    moe.gate_up.matrix = matrices(2);
    moe.down.matrix = matrices(1);
    EXPECT_EQ(moe.down.matrix.matrix_bytes(), kMatrixBytes);
    weights.layers[0].ffn = std::move(moe);
    mover = std::make_unique<ExpertMover>(ExpertMover::Parts{
        .spec = spec, .weights = weights, .slots = slots, .group = group, .limits = limits});
  }
  ~Rank() { group.OpenGate(); }

  // The numbers of what the slots hold, by their gates, up and down matrices.
  std::vector<std::array<int, 3>> Held() const {
    const auto& moe = std::get<MoeFfnWeights>(weights.layers[0].ffn);
    std::vector<std::array<int, 3>> held;
    for (int64_t i = 0; i < moe.down.matrix.count; ++i) {
      const auto last = [&](const ops::PackedMatrix& matrix, int64_t number) {
        return static_cast<int>(matrix.data[(number + 1) * kMatrixBytes - 1]);
      };
      held.push_back({last(moe.gate_up.matrix, 2 * i), last(moe.gate_up.matrix, 2 * i + 1),
                      last(moe.down.matrix, i)});
    }
    return held;
  }
  bool AwaitVote(MoveVote vote) const {
    for (int i = 0; i < 20'000 && mover->vote() != vote; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return mover->vote() == vote;
  }
  // The mover's thread has ended a step.
  bool AwaitStep() const {
    for (int i = 0; i < 20'000 && mover->progress().cpu_ns == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return mover->progress().cpu_ns > 0;
  }

  PlayedGroup group;
  ExpertSlots slots;
  ModelSpec spec;
  ModelWeights weights;
  std::unique_ptr<ExpertMover> mover;
};

// The rank copies within itself and sends, and nothing is on its way to it.
TEST(ExpertMover, IsNotReadyBeforeItsStepIsDone) {
  Rank rank(3, 1, 2, {.step_bytes = 64 << 10});
  ASSERT_EQ(rank.mover->placement()[0], (LayerSlots{0, 1, 2, 0}));
  rank.group.CloseGate();
  rank.mover->Begin({{1, 0, 2, 1}});
  EXPECT_EQ(rank.mover->vote(), MoveVote::kBusy);
  rank.mover->Step();
  ASSERT_TRUE(rank.group.AwaitCalls(1));
  EXPECT_EQ(rank.mover->vote(), MoveVote::kBusy) << "it is at work";
  rank.group.OpenGate();
  ASSERT_TRUE(rank.AwaitVote(MoveVote::kReady));
  using Held = std::vector<std::array<int, 3>>;
  EXPECT_EQ(rank.Held(), (Held{{1, 1, 1}, {2, 2, 2}}));
  ThreadPool pool(1);
  rank.mover->Apply(std::array{MoveVote::kReady, MoveVote::kReady}, pool);
  EXPECT_EQ(rank.Held(), (Held{{2, 2, 2}, {1, 1, 1}}));
  EXPECT_EQ(rank.mover->placement()[0], (LayerSlots{1, 0, 2, 1}));
}

// The other ranks' threads do so too, and would wait for it.
TEST(ExpertMover, ExchangesTheStepsOfARoundThatWasDropped) {
  Rank rank(2, 0, 2, {.step_bytes = 1500});
  rank.mover->Begin({{1, 0}});
  rank.mover->Step();
  ASSERT_TRUE(rank.group.AwaitCalls(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it waits for the next step
  ThreadPool pool(1);
  rank.mover->Apply(std::array{MoveVote::kBusy, MoveVote::kFailed}, pool);
  EXPECT_FALSE(rank.mover->progress().moving);
  rank.mover->Step();
  EXPECT_TRUE(rank.group.AwaitCalls(2));
  rank.mover->Step();
  EXPECT_TRUE(rank.group.AwaitCalls(3));
}

// The one piece that two ranks with an expert each exchange, as the other one sends it.
constexpr PieceHeader kPiece{.attempt = 1, .expert = 1, .end = 3 * Rank::kMatrixBytes};

void Write(const PieceHeader& header, std::span<const MutableBytes> receive) {
  ASSERT_EQ(receive[1].size(), sizeof(header) + static_cast<size_t>(kPiece.end));
  std::memcpy(receive[1].data(), &header, sizeof(header));
}

TEST(ExpertMover, APieceWithAnotherAttemptDropsTheRound) {
  const std::vector<std::byte> bytes(static_cast<size_t>(kPiece.end));
  PieceHeader damaged = kPiece;
  damaged.checksum = ChecksumOf(kPiece, bytes);
  damaged.attempt = 0;
  PieceHeader old = kPiece;
  old.attempt = 7;
  old.checksum = ChecksumOf(old, bytes);
  for (const PieceHeader& header : {damaged, old}) {
    Rank rank(2, 0, 2, {.step_bytes = 64 << 10});
    rank.group.look = [&](std::span<const Bytes>, std::span<const MutableBytes> receive) {
      Write(header, receive);
    };
    rank.mover->Begin({{1, 0}});
    rank.mover->Step();
    EXPECT_TRUE(rank.AwaitVote(MoveVote::kFailed)) << "attempt " << header.attempt;
  }
}

// Zeros are what a rank sends that has dropped the round; this one will do so by the votes.
TEST(ExpertMover, ZerosAreNoFailure) {
  Rank rank(2, 0, 2, {.step_bytes = 64 << 10});
  rank.mover->Begin({{1, 0}});
  rank.mover->Step();
  ASSERT_TRUE(rank.group.AwaitCalls(1));
  rank.mover->Step();
  ASSERT_TRUE(rank.AwaitStep()) << "it has looked at them then";
  EXPECT_EQ(rank.mover->vote(), MoveVote::kBusy);
}

// Whoever the partners are, and with the headers of all pieces.
TEST(ExpertMover, TheMessagesOfAStepFillNoMoreThanItsBytes) {
  constexpr int64_t kStepBytes = 1500;
  Rank rank(6, 0, 3, {.step_bytes = kStepBytes});
  std::array<std::vector<std::pair<uintptr_t, uintptr_t>>, 2> places;  // sent, received
  bool both = false;                                                   // partners, in one step
  rank.group.look = [&](std::span<const Bytes> send, std::span<const MutableBytes> receive) {
    both = both || (!send[1].empty() && !send[2].empty());
    const auto add = [&](size_t to, const void* data, size_t bytes) {
      const auto begin = reinterpret_cast<uintptr_t>(data);
      if (bytes > 0) places[to].emplace_back(begin, begin + bytes);
    };
    for (const Bytes part : send) add(0, part.data(), part.size());
    for (const MutableBytes part : receive) add(1, part.data(), part.size());
  };
  rank.mover->Begin({{2, 4, 5, 0, 3, 1}});
  for (int32_t step = 1; step <= 5; ++step) {
    rank.mover->Step();
    ASSERT_TRUE(rank.group.AwaitCalls(step));
  }
  EXPECT_TRUE(both);
  for (const auto& all : places) {
    ASSERT_FALSE(all.empty());
    const auto end = std::ranges::max(all, {}, [](const auto& place) { return place.second; });
    EXPECT_LE(end.second - std::ranges::min(all).first, kStepBytes);
  }
}

}  // namespace
}  // namespace braid
