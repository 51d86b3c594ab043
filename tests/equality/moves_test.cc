// Faults while experts move, with the driver that serves: messages with weights that are damaged,
// late or lost. Answers stay those of one rank, the ranks that share experts agree where these lie,
// and as long as the link lives a later move succeeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/rng.h"
#include "scheduler/driver.h"
#include "tests/equality/table.h"

namespace braid {
namespace {

using std::chrono::milliseconds;

enum class Fault : uint8_t { kNone, kDamaged, kLate, kLost, kDelayed };

// The fault that comes next, on one rank of all; counted in messages from now on.
struct Faults {
  std::atomic<int32_t> rank{1};
  std::atomic<Fault> next{Fault::kNone};
  std::atomic<int32_t> after{0};
  std::atomic<int32_t> happened{0};
};

class FaultyLink final : public Communicator {
 public:
  // Of a rank with this number among all.
  FaultyLink(Communicator& link, int32_t number, Faults& faults)
      : Communicator(link.rank(), link.size()), link_(link), number_(number), faults_(faults) {}

 private:
  Status Exchange(std::span<const Bytes> send, std::span<const MutableBytes> receive) override {
    Fault fault = Fault::kNone;
    const bool receives =
        std::ranges::any_of(receive, [](const MutableBytes& part) { return !part.empty(); });
    if (number_ == faults_.rank && receives && faults_.next != Fault::kNone &&
        faults_.after-- <= 0) {
      fault = faults_.next.exchange(Fault::kNone);
      ++faults_.happened;
    }
    if (fault == Fault::kLost) return Error{ErrorCode::kUnavailable, "the cable was cut"};
    if (fault == Fault::kLate) std::this_thread::sleep_for(milliseconds(120));
    if (fault == Fault::kDelayed) std::this_thread::sleep_for(milliseconds(5000));
    const Status status = link_.AllToAllV(send, receive);
    for (const MutableBytes& part : receive) {
      if (fault != Fault::kDamaged || part.empty()) continue;
      part[part.size() / 2] ^= std::byte{4};
      break;
    }
    return status;
  }

  Communicator& link_;
  const int32_t number_;
  Faults& faults_;
};

struct Sink final : OutputSink {
  void OnOutput(Output output) override {
    std::lock_guard lock(mutex);
    tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
    error = output.error;
    done = output.finish.has_value();
    changed.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return done; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<TokenId> tokens;
  std::string error;
  bool done = false;
};

class MovesTest : public ::testing::Test {
 protected:
  MovesTest() : want_(Cold(MachineOf({Model::kQwen35Moe, BestHere(Compute::kF32)}), Question())) {}

  static constexpr Mesh kOneGroup{.tp = 4, .ep = 4, .redundant = 4};
  static constexpr Mesh kTwoGroups{.dp = 2, .tp = 2, .ep = 2, .redundant = 2};

  static Request Question() { return MakeRequest(kTarget, Tokens(5, 70), 60); }
  std::unique_ptr<Machine> Ranks(milliseconds deadline, const Mesh& mesh = kOneGroup) {
    int32_t links = 0;  // made so far, in order of ranks
    return std::make_unique<Machine>(
        Subject{.model = Model::kQwen35Moe,
                .arithmetic = BestHere(Compute::kF32),
                .mesh = mesh,
                .placed = true,
                .moving = true},
        [&](Communicator& link) { return std::make_unique<FaultyLink>(link, links++, faults_); },
        MoverLimits{.step_bytes = 24 << 10, .round_steps_max = 40}, deadline);
  }
  static MoveProgress ProgressOf(Machine& machine) {
    return machine.executor().rank(0).mover()->progress();
  }

  // Serves the question while experts move.
  void Serve(Machine& machine) {
    Driver driver(*Scheduler::Create(machine.config()), machine.executor(), {});
    std::thread engine([&] { EXPECT_TRUE(driver.Run().ok()); });
    Sink sink;
    driver.Post(machine.DrawMove());
    ASSERT_TRUE(driver.Submit(Question(), &sink).ok());
    sink.Wait();
    driver.Stop(false);
    engine.join();
    EXPECT_EQ(sink.error, "");
    EXPECT_EQ(sink.tokens, want_.tokens);
    const std::vector<LayerSlots> first = machine.executor().rank(0).mover()->placement();
    for (int32_t rank = 1; rank < 4; ++rank) {
      EXPECT_EQ(machine.executor().rank(rank).mover()->placement(), first) << "rank " << rank;
    }
  }

  Faults faults_;
  const Answer want_;
};

TEST_F(MovesTest, ADamagedOrLateMessageLeavesThePlacementOrTheMoveWhole) {
  const std::unique_ptr<Machine> machine = Ranks(milliseconds(20000));
  for (const Fault fault : {Fault::kDamaged, Fault::kLate}) {
    for (int32_t after = 0; after < 8; ++after) {
      const MoveProgress before = ProgressOf(*machine);
      const int32_t happened = faults_.happened;
      faults_.after = after;
      faults_.next = fault;
      Serve(*machine);
      faults_.next = Fault::kNone;
      const MoveProgress now = ProgressOf(*machine);
      if (fault == Fault::kDamaged && faults_.happened > happened && !now.moving) {
        EXPECT_GT(now.dropped, before.dropped) << "after " << after;
      }
    }
    EXPECT_GT(faults_.happened, 0);
  }
  // Nothing is left of the faults.
  const int64_t done = ProgressOf(*machine).done;
  for (int i = 0; i < 20 && ProgressOf(*machine).done == done; ++i) Serve(*machine);
  EXPECT_GT(ProgressOf(*machine).done, done);
}

// Serve compares the placements of all ranks.
TEST_F(MovesTest, AFaultInOneGroupLeavesTheSamePlacementInAllGroups) {
  const std::unique_ptr<Machine> machine = Ranks(milliseconds(20000), kTwoGroups);
  faults_.rank = 3;  // of the second group; the first one tells how moves end
  for (const Fault fault : {Fault::kDamaged, Fault::kLate}) {
    for (int32_t after = 0; after < 4; ++after) {
      const MoveProgress before = ProgressOf(*machine);
      const int32_t happened = faults_.happened;
      faults_.after = after;
      faults_.next = fault;
      Serve(*machine);
      faults_.next = Fault::kNone;
      const MoveProgress now = ProgressOf(*machine);
      if (fault == Fault::kDamaged && faults_.happened > happened && !now.moving) {
        EXPECT_GT(now.dropped, before.dropped) << "after " << after;
      }
    }
    EXPECT_GT(faults_.happened, 0);
  }
  const int64_t done = ProgressOf(*machine).done;
  for (int i = 0; i < 20 && ProgressOf(*machine).done == done; ++i) Serve(*machine);
  EXPECT_GT(ProgressOf(*machine).done, done);
}

TEST_F(MovesTest, AfterALostLinkExpertsStayWhereTheyAre) {
  for (const int32_t after : {0, 1, 3, 7}) {
    const std::unique_ptr<Machine> machine = Ranks(milliseconds(100));
    faults_.happened = 0;
    faults_.after = after;
    faults_.next = Fault::kLost;
    for (int i = 0; i < 3; ++i) Serve(*machine);
    faults_.next = Fault::kNone;
    const std::vector<LayerSlots> stays = machine->executor().rank(0).mover()->placement();
    const MoveProgress lost = ProgressOf(*machine);
    for (int i = 0; i < 2; ++i) Serve(*machine);
    const MoveProgress later = ProgressOf(*machine);
    ASSERT_EQ(faults_.happened, 1);
    if (!lost.moving) {
      EXPECT_EQ(machine->executor().rank(0).mover()->placement(), stays);
      EXPECT_EQ(later.done, lost.done);
    }
    EXPECT_GT(later.dropped, 0);
  }
}

// As many faults as BRAID_MOVE_FAULTS says, of each kind in turn, at messages that are drawn.
TEST_F(MovesTest, AsManyFaultsAsAreAskedForChangeNoAnswer) {
  const char* asked = std::getenv("BRAID_MOVE_FAULTS");
  if (asked == nullptr) GTEST_SKIP() << "BRAID_MOVE_FAULTS is not set";
  constexpr Fault kKinds[] = {Fault::kDamaged, Fault::kLate, Fault::kLost, Fault::kDelayed};
  Rng rng(1);
  std::unique_ptr<Machine> machine;
  for (int32_t n = 0; n < std::atoi(asked); ++n) {
    if (machine == nullptr) machine = Ranks(milliseconds(20000));
    const Fault fault = kKinds[static_cast<size_t>(n) % std::size(kKinds)];
    const int32_t happened = faults_.happened;
    faults_.after = static_cast<int32_t>(rng.Below(12));
    faults_.next = fault;
    // A link that is still late from the last fault brings nothing for some seconds.
    for (int i = 0; i < 200 && faults_.happened == happened; ++i) Serve(*machine);
    faults_.next = Fault::kNone;
    ASSERT_GT(faults_.happened, happened) << "fault " << n;
    Serve(*machine);
    if (fault == Fault::kLost) machine = nullptr;  // experts stay where they are for good
    ASSERT_FALSE(HasFailure()) << "fault " << n;
  }
}

}  // namespace
}  // namespace braid
