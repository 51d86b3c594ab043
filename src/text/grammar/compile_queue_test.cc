// Turns, shares and places of the queue, with a trial that waits until the test lets it go on.
#include "text/grammar/compile_queue.h"

#include <gtest/gtest.h>

#include <string>

#include "text/tokens/tokenizer.h"

namespace braid {
namespace {

constexpr int64_t kCancelledUs = 5;  // of work of a trial that was cancelled

// Notes what it is asked, and answers when it is opened.
class Gate final : public GrammarTrial {
 public:
  GrammarVerdict Try(GrammarKind, std::string_view source,
                     const std::atomic<bool>& cancelled) override {
    std::unique_lock lock(mutex_);
    begun_.emplace_back(source);
    changed_.notify_all();
    while (!open_ && !cancelled) changed_.wait_for(lock, std::chrono::milliseconds(1));
    if (cancelled) {
      return {.status = Error{ErrorCode::kUnavailable, "cancelled"}, .cpu_us = kCancelledUs};
    }
    return {.cpu_us = 7};
  }
  std::vector<std::string> WaitForBegun(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_.size() >= count; });
    return begun_;
  }
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> begun_;
  bool open_ = false;
};

class CompileQueueTest : public testing::Test {
 protected:
  CompileQueueTest()
      : tokenizer_(*Tokenizer::Load(BRAID_SOURCE_DIR "/models/braid-tiny")),
        library_(*GrammarLibrary::Create(tokenizer_, 4066, {.trial = &gate_})) {}

  Result<CompileQueue::Ticket> Enter(CompileQueue& queue, const std::string& key,
                                     const std::string& source) {
    return queue.Enter(key, GrammarText(GrammarKind::kRegex, source), [this] { ++woken_; });
  }

  Gate gate_;
  Tokenizer tokenizer_;
  std::unique_ptr<GrammarLibrary> library_;
  std::atomic<int> woken_ = 0;
};

TEST_F(CompileQueueTest, AKeyThatIsSlowLeavesAThreadToOthers) {
  CompileQueue queue(*library_, {.threads = 2, .running_per_key = 1});
  auto first = *Enter(queue, "ann", "a1"), second = *Enter(queue, "ann", "a2");
  EXPECT_EQ(gate_.WaitForBegun(1).back(), "a1");
  auto other = *Enter(queue, "ben", "b1");
  EXPECT_EQ(gate_.WaitForBegun(2).back(), "b1");
  EXPECT_FALSE(first.Outcome());
  gate_.Open();
  EXPECT_EQ(gate_.WaitForBegun(3).back(), "a2");
}

TEST_F(CompileQueueTest, KeysTakeTurns) {
  CompileQueue queue(*library_, {.threads = 1, .running_per_key = 1});
  auto first = *Enter(queue, "ann", "a1");
  gate_.WaitForBegun(1);
  auto second = *Enter(queue, "ann", "a2"), third = *Enter(queue, "ann", "a3");
  auto other = *Enter(queue, "ben", "b1");
  gate_.Open();
  EXPECT_EQ(gate_.WaitForBegun(4), (std::vector<std::string>{"a1", "b1", "a2", "a3"}));
}

TEST_F(CompileQueueTest, PlacesAreBoundedByKeyAndInAll) {
  CompileQueue queue(*library_,
                     {.threads = 1, .running_per_key = 1, .waiting = 3, .waiting_per_key = 2});
  auto running = *Enter(queue, "ann", "a0");
  gate_.WaitForBegun(1);
  auto one = *Enter(queue, "ann", "a1"), two = *Enter(queue, "ann", "a2");
  EXPECT_EQ(Enter(queue, "ann", "a3").error().code, ErrorCode::kExhausted);
  auto other = *Enter(queue, "ben", "b1");
  EXPECT_EQ(Enter(queue, "eve", "e1").error().code, ErrorCode::kUnavailable);
  {
    auto given_back = std::move(other);
  }
  EXPECT_TRUE(Enter(queue, "eve", "e1").ok());
}

TEST_F(CompileQueueTest, WhoLeavesCancelsTheCompilationAndIsNotWoken) {
  CompileQueue queue(*library_, {.threads = 1, .running_per_key = 1});
  {
    auto left = *Enter(queue, "ann", "a1");
    gate_.WaitForBegun(1);
  }
  auto next = *Enter(queue, "ann", "a2");
  EXPECT_EQ(gate_.WaitForBegun(2).back(), "a2") << "the first goes on without anybody";
  EXPECT_EQ(woken_, 0);
  gate_.Open();
  while (!next.Outcome()) std::this_thread::yield();
  EXPECT_TRUE(next.Outcome()->status);
  EXPECT_GT(next.Outcome()->work_us, 7);
  queue.Stop();
  EXPECT_EQ(woken_, 1);
  // A cancelled trial says nothing of the grammar.
  EXPECT_FALSE(library_->Known(GrammarText(GrammarKind::kRegex, "a1")));
}

TEST_F(CompileQueueTest, TheWorkOfAJobIsReportedOnceAlsoWhenItsTicketIsDestroyed) {
  std::vector<int64_t> spent;
  CompileQueue queue(*library_, {.threads = 1, .running_per_key = 1});
  const auto enter = [&](const std::string& source) {
    return *queue.Enter("ann", GrammarText(GrammarKind::kRegex, source), [this] { ++woken_; },
                        [&](int64_t work_us) { spent.push_back(work_us); });
  };
  {
    auto left = enter("a1");
    gate_.WaitForBegun(1);
    auto never_began = enter("a2");
  }
  gate_.Open();
  auto stays = enter("a3");
  while (!stays.Outcome()) std::this_thread::yield();
  EXPECT_EQ(spent, (std::vector<int64_t>{kCancelledUs, stays.Outcome()->work_us}));
}

TEST_F(CompileQueueTest, StopEndsWhatRunsAndWhatWaits) {
  CompileQueue queue(*library_, {.threads = 1, .running_per_key = 1});
  auto running = *Enter(queue, "ann", "a1"), waiting = *Enter(queue, "ann", "a2");
  gate_.WaitForBegun(1);
  queue.Stop();
  EXPECT_FALSE(waiting.Outcome());
}

}  // namespace
}  // namespace braid
