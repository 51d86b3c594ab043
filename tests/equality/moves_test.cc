// Faults while experts move, with the driver that serves: messages with weights that are damaged,
// late or lost. Answers stay those of one rank and all ranks agree where experts lie. After damage
// and delay a later move succeeds; a message that does not come within the deadline ends the group,
// which names the rank that it waited for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/rng.h"
#include "scheduler/driver.h"
#include "tests/equality/table.h"

namespace braid {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

enum class Fault : uint8_t { kNone, kDamaged, kLate, kLost, kDelayed };

// The fault that comes next, on one rank of all; counted in messages from now on.
struct Faults {
  std::atomic<int32_t> rank{1};
  std::atomic<Fault> next{Fault::kNone};
  std::atomic<int32_t> after{0};
  std::atomic<int32_t> happened{0};
  std::atomic<bool> keeps{true};  // messages that are lost; else they go on
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
    while (fault == Fault::kLost && faults_.keeps) std::this_thread::sleep_for(milliseconds(1));
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

  // Serves the question while experts move; the error with which it ended.
  std::string Ask(Machine& machine) {
    Driver driver(*Scheduler::Create(machine.config()), machine.executor(), {});
    std::thread engine([&] { EXPECT_TRUE(driver.Run().ok()); });
    Sink sink;
    driver.Post(machine.DrawMove());
    CHECK(driver.Submit(Question(), &sink).ok());
    sink.Wait();
    driver.Stop(false);
    engine.join();
    if (sink.error.empty()) {
      EXPECT_EQ(sink.tokens, want_.tokens);
    } else {
      EXPECT_LE(sink.tokens.size(), want_.tokens.size());
      sink.tokens.resize(std::min(sink.tokens.size(), want_.tokens.size()));
      EXPECT_EQ(sink.tokens, Head(want_.tokens, static_cast<int32_t>(sink.tokens.size())));
    }
    return sink.error;
  }

  void Serve(Machine& machine) {
    EXPECT_EQ(Ask(machine), "");
    const std::vector<LayerSlots> first = machine.executor().rank(0).mover()->placement();
    for (int32_t rank = 1; rank < machine.mesh().ranks(); ++rank) {
      EXPECT_EQ(machine.executor().rank(rank).mover()->placement(), first) << "rank " << rank;
    }
  }

  // A message to the faulty rank is lost, and the others wait for the rank.
  void LoseAMessage(int32_t after) {
    const std::unique_ptr<Machine> machine = Ranks(milliseconds(3000));
    const int32_t happened = faults_.happened;
    faults_.after = after;
    faults_.keeps = true;
    faults_.next = Fault::kLost;
    std::string error;
    for (int i = 0; i < 1000 && error.empty(); ++i) error = Ask(*machine);
    EXPECT_EQ(faults_.happened, happened + 1);
    EXPECT_THAT(error, StartsWith("the group of ranks has ended: no word from rank 1"));
    EXPECT_THAT(error, HasSubstr("within 3000 ms"));
    EXPECT_EQ(Ask(*machine), error);
    faults_.next = Fault::kNone;
    faults_.keeps = false;  // its thread goes on, and so can end
  }

  Faults faults_;
  const Answer want_;
};

TEST_F(MovesTest, ADamagedOrLateMessageLeavesThePlacementOrTheMoveWhole) {
  const std::unique_ptr<Machine> machine = Ranks(milliseconds(20000));
  for (const Fault fault : {Fault::kDamaged, Fault::kLate}) {
    const int32_t of_kinds_before = faults_.happened;
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
    EXPECT_GT(faults_.happened, of_kinds_before);
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
    const int32_t of_kinds_before = faults_.happened;
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
    EXPECT_GT(faults_.happened, of_kinds_before);
  }
  const int64_t done = ProgressOf(*machine).done;
  for (int i = 0; i < 20 && ProgressOf(*machine).done == done; ++i) Serve(*machine);
  EXPECT_GT(ProgressOf(*machine).done, done);
}

TEST_F(MovesTest, ALostMessageEndsTheGroupByNameAndGivesNoWrongToken) {
  for (const int32_t after : {0, 3}) LoseAMessage(after);
}

// As many faults of each kind as BRAID_MOVE_FAULTS says, in turn, at messages that are drawn.
TEST_F(MovesTest, AsManyFaultsAsAreAskedForChangeNoAnswer) {
  const char* asked = std::getenv("BRAID_MOVE_FAULTS");
  if (asked == nullptr) GTEST_SKIP() << "BRAID_MOVE_FAULTS is not set";
  constexpr Fault kKinds[] = {Fault::kDamaged, Fault::kLate, Fault::kLost, Fault::kDelayed};
  Rng rng(1);
  const std::unique_ptr<Machine> machine = Ranks(milliseconds(20000));
  for (int32_t n = 0; n < std::atoi(asked) * std::ssize(kKinds); ++n) {
    const Fault fault = kKinds[static_cast<size_t>(n) % std::size(kKinds)];
    const auto after = static_cast<int32_t>(rng.Below(12));
    if (fault == Fault::kLost) {  // a group of its own, which ends
      LoseAMessage(after);
      ASSERT_FALSE(HasFailure()) << "fault " << n;
      continue;
    }
    const int32_t happened = faults_.happened;
    faults_.after = after;
    faults_.next = fault;
    // A link that is still late from the last fault brings nothing for some seconds.
    for (int i = 0; i < 200 && faults_.happened == happened; ++i) Serve(*machine);
    faults_.next = Fault::kNone;
    ASSERT_GT(faults_.happened, happened) << "fault " << n;
    Serve(*machine);
    ASSERT_FALSE(HasFailure()) << "fault " << n;
  }
}

}  // namespace
}  // namespace braid
