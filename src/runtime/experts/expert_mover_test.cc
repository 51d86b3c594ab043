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
  Status ends;  // each exchange

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
    return ends;
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
      const auto all = [&](const ops::PackedMatrix& matrix, int64_t number) {
        const std::span bytes(matrix.data + number * kMatrixBytes, kMatrixBytes);
        const bool same = std::ranges::count(bytes, bytes[0]) == kMatrixBytes;
        return same ? static_cast<int>(bytes[0]) : -1;
      };
      held.push_back({all(moe.gate_up.matrix, 2 * i), all(moe.gate_up.matrix, 2 * i + 1),
                      all(moe.down.matrix, i)});
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
  PieceHeader sent;
  rank.group.look = [&](std::span<const Bytes> send, std::span<const MutableBytes>) {
    std::memcpy(&sent, send[1].data(), sizeof(sent));
  };
  rank.mover->Begin({{1, 0}});
  rank.mover->Step();
  ASSERT_TRUE(rank.group.AwaitCalls(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it waits for the next step
  ThreadPool pool(1);
  rank.mover->Apply(std::array{MoveVote::kBusy, MoveVote::kFailed}, pool);
  EXPECT_FALSE(rank.mover->progress().moving);
  rank.mover->Step();
  ASSERT_TRUE(rank.group.AwaitCalls(2));
  EXPECT_EQ(sent, kDroppedPiece);
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
  for (const PieceHeader& header : {damaged, old, PieceHeader{}}) {
    Rank rank(2, 0, 2, {.step_bytes = 64 << 10});
    rank.group.look = [&](std::span<const Bytes>, std::span<const MutableBytes> receive) {
      Write(header, receive);
    };
    rank.mover->Begin({{1, 0}});
    rank.mover->Step();
    EXPECT_TRUE(rank.AwaitVote(MoveVote::kFailed)) << "attempt " << header.attempt;
  }
}

// Two ranks with an expert each exchange them.
TEST(ExpertMover, TheOtherRanksExpertComesAndTheOwnOneGoes) {
  Rank rank(2, 0, 2, {.step_bytes = 64 << 10});
  const std::vector<std::byte> bytes(static_cast<size_t>(kPiece.end), std::byte{9});
  std::vector<std::byte> sent;
  rank.group.look = [&](std::span<const Bytes> send, std::span<const MutableBytes> receive) {
    PieceHeader header = kPiece;
    header.checksum = ChecksumOf(kPiece, bytes);
    Write(header, receive);
    std::ranges::copy(bytes, receive[1].begin() + sizeof(header));
    sent.assign(send[1].begin(), send[1].end());
  };
  rank.mover->Begin({{1, 0}});
  EXPECT_TRUE(rank.mover->progress().moving);
  rank.mover->Begin({{0, 1}});  // not while they move
  EXPECT_EQ(rank.mover->progress().begun, 1);
  rank.mover->Step();
  ASSERT_TRUE(rank.AwaitVote(MoveVote::kReady));
  PieceHeader header;
  ASSERT_EQ(sent.size(), sizeof(header) + bytes.size());
  std::memcpy(&header, sent.data(), sizeof(header));
  const std::span<const std::byte> own = std::span(sent).subspan(sizeof(header));
  EXPECT_EQ(header.slot, 1);
  EXPECT_EQ(header.expert, 0);
  EXPECT_EQ(header.checksum, ChecksumOf(header, own));
  EXPECT_EQ(std::ranges::count(own, std::byte{1}), kPiece.end);
  EXPECT_EQ(BesideStepOf(rank.mover.get()).ended, 0);
  EXPECT_TRUE(BesideStepOf(rank.mover.get()).under_way);
  ThreadPool pool(1);
  rank.mover->Apply(std::array{MoveVote::kReady, MoveVote::kReady}, pool);
  EXPECT_EQ(rank.Held(), (std::vector<std::array<int, 3>>{{9, 9, 9}}));
  EXPECT_EQ(std::get<MoeFfnWeights>(rank.weights.layers[0].ffn).slot_of,
            (std::vector<int32_t>{1, 0}));
  const MoveProgress progress = rank.mover->progress();
  EXPECT_EQ(progress.bytes, kPiece.end);
  EXPECT_EQ(progress.swaps, 1);
  EXPECT_EQ(progress.done, 1);
  EXPECT_EQ(progress.dropped, 0);
  EXPECT_FALSE(progress.moving);
  const BesideStep beside = BesideStepOf(rank.mover.get());
  EXPECT_EQ(beside.ended, 1);
  EXPECT_FALSE(beside.under_way);
  EXPECT_EQ(BesideStepOf(nullptr).ended, 0);
}

// An expert that comes in pieces, a step each.
TEST(ExpertMover, PiecesFollowEachOtherIntoTheSlot) {
  Rank rank(2, 0, 2, {.step_bytes = 1500});
  int64_t begin = 0;
  rank.group.look = [&](std::span<const Bytes>, std::span<const MutableBytes> receive) {
    PieceHeader header = kPiece;
    const auto bytes = receive[1].subspan(sizeof(header));
    header.begin = begin;
    header.end = begin + std::ssize(bytes);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const int64_t matrix = (begin + static_cast<int64_t>(i)) / Rank::kMatrixBytes;
      bytes[i] = static_cast<std::byte>(5 + matrix);
    }
    header.checksum = ChecksumOf(header, bytes);
    std::memcpy(receive[1].data(), &header, sizeof(header));
    begin = header.end;
  };
  rank.mover->Begin({{1, 0}});
  for (int32_t step = 1; step <= 3; ++step) {
    EXPECT_EQ(rank.mover->vote(), MoveVote::kBusy);
    rank.mover->Step();
    ASSERT_TRUE(rank.group.AwaitCalls(step));
  }
  ASSERT_TRUE(rank.AwaitVote(MoveVote::kReady));
  EXPECT_EQ(begin, kPiece.end);
  ThreadPool pool(1);
  rank.mover->Apply(std::array{MoveVote::kReady, MoveVote::kReady}, pool);
  EXPECT_EQ(rank.Held(), (std::vector<std::array<int, 3>>{{5, 6, 7}}));
  EXPECT_EQ(rank.mover->progress().bytes, kPiece.end);
}

TEST(ExpertMover, WhatChangesPlacesWithinTheRankDoesNotTravel) {
  Rank rank(4, 0, 2, {.step_bytes = 64 << 10});
  bool called = false;
  rank.group.look = [&](std::span<const Bytes>, std::span<const MutableBytes>) { called = true; };
  rank.mover->Begin({{1, 0, 2, 3}});
  EXPECT_EQ(rank.mover->vote(), MoveVote::kBusy);
  rank.mover->Step();
  ASSERT_TRUE(rank.AwaitVote(MoveVote::kReady));
  EXPECT_FALSE(called);
  ThreadPool pool(1);
  rank.mover->Apply(std::array{MoveVote::kReady, MoveVote::kReady}, pool);
  EXPECT_EQ(rank.Held(), (std::vector<std::array<int, 3>>{{2, 2, 2}, {1, 1, 1}}));
}

TEST(ExpertMover, APlacementThatIsNoneIsDroppedAndOneThatIsThereIsDone) {
  Rank rank(2, 0, 2, {.step_bytes = 64 << 10});
  rank.mover->Begin({{1, 0}, {1, 0}});
  MoveProgress progress = rank.mover->progress();
  EXPECT_EQ(progress.begun, 1);
  EXPECT_EQ(progress.dropped, 1);
  EXPECT_FALSE(progress.moving);
  EXPECT_EQ(progress.failure, "a placement of 2 layers; the model has 1 with experts");
  rank.mover->Begin({{0, 1}});
  progress = rank.mover->progress();
  EXPECT_EQ(progress.begun, 2);
  EXPECT_EQ(progress.done, 1);
  EXPECT_EQ(progress.dropped, 1);
  EXPECT_FALSE(progress.moving);
}

// The group for moves has ended: this round and every later one fails, and experts stay.
TEST(ExpertMover, AGroupThatIsLostFailsEveryRound) {
  Rank rank(2, 0, 2, {.step_bytes = 64 << 10});
  rank.group.ends = Error{ErrorCode::kUnavailable, "rank 1 is lost"};
  ThreadPool pool(1);
  for (int64_t round = 1; round <= 2; ++round) {
    rank.mover->Begin({{1, 0}});
    rank.mover->Step();
    ASSERT_TRUE(rank.AwaitVote(MoveVote::kFailed)) << round;
    rank.mover->Apply(std::array{MoveVote::kFailed, MoveVote::kBusy}, pool);
    const MoveProgress progress = rank.mover->progress();
    EXPECT_EQ(progress.dropped, round);
    EXPECT_EQ(progress.failure, "rank 1 is lost");
    EXPECT_FALSE(progress.moving);
  }
  EXPECT_EQ(rank.mover->placement()[0], (LayerSlots{0, 1}));
  EXPECT_EQ(rank.Held(), (std::vector<std::array<int, 3>>{{1, 1, 1}}));
}

// The other rank has dropped the round; this one will do so by the votes.
TEST(ExpertMover, APieceOfADroppedRoundIsNoFailure) {
  Rank rank(2, 0, 2, {.step_bytes = 64 << 10});
  rank.group.look = [&](std::span<const Bytes>, std::span<const MutableBytes> receive) {
    Write(kDroppedPiece, receive);
  };
  rank.mover->Begin({{1, 0}});
  rank.mover->Step();
  ASSERT_TRUE(rank.group.AwaitCalls(1));
  rank.mover->Step();
  ASSERT_TRUE(rank.AwaitStep()) << "it has looked at it then";
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
