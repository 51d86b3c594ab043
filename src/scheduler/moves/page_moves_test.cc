// What is written to a tier, how often, and what is counted of what comes back.
#include "scheduler/moves/page_moves.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/testing/scheduler_fixture.h"

namespace braid {
namespace {

class PageMovesTest : public SchedulerFixture {
 protected:
  PageMovesTest() : SchedulerFixture(Config()) {}
  static SchedulerConfig Config() {
    SchedulerConfig config = BlockConfig();
    config.tier = true;
    return config;
  }
  static PagesMoved EndOf(const PageMove& move) {
    PagesMoved end;
    end.move = move.id;
    end.duration_us = 1000;
    return end;
  }
  // Runs until nothing is left to do; `end` says what becomes of a move. All parts of moves out.
  template <class F>
  std::vector<KnownPart> Run(F end) {
    std::vector<KnownPart> out;
    std::vector<PageMove> moves;
    for (int turn = 0; turn < 1000 && !s_.idle(); ++turn) {
      const Plan plan = Step();
      moves.insert(moves.end(), plan.moves.begin(), plan.moves.end());
      if (!plan.empty() || moves.empty()) continue;
      for (const PageMove& move : std::exchange(moves, {})) {
        for (const PagePart& part : move.parts) {
          if (!move.in()) out.push_back({part.key, part.kind});
        }
        s_.Apply(end(move));
        Take();
      }
    }
    EXPECT_TRUE(s_.idle());
    return out;
  }
  // The first moves that begin, and how many parts they have.
  std::pair<std::vector<PageMove>, size_t> FirstMoves() {
    std::vector<PageMove> moves;
    for (int turn = 0; turn < 1000 && moves.empty(); ++turn) moves = Step().moves;
    size_t parts = 0;
    for (const PageMove& move : moves) parts += move.parts.size();
    return {moves, parts};
  }
  // The keys and values of a prompt, and one or two states.
  static void ExpectEachOnce(const std::vector<KnownPart>& parts) {
    EXPECT_GT(parts.size(), size_t{kBlocks});
    EXPECT_LE(parts.size(), size_t{kBlocks + 2});
    EXPECT_EQ(std::set<KnownPart>(parts.begin(), parts.end()).size(), parts.size());
  }
  static constexpr int32_t kBlocks = 60;  // of a prompt: more than two moves have parts
};

// A disk that is full: each part is tried once, and then there is rest.
TEST_F(PageMovesTest, WhatCannotBeWrittenIsTriedAgainWithTheNextTurnOnly) {
  const auto fails = [](const PageMove& move) {
    PagesMoved end = EndOf(move);
    end.error = "no space left";
    return end;
  };
  for (int turn = 0; turn < 3; ++turn) {
    Send(Make(64 * kBlocks + 1, 1));  // from the second turn on from what is in memory
    ExpectEachOnce(turn < 2 ? Run(fails) : Run(EndOf));
  }
  Send(Make(64 * kBlocks + 1, 1));
  EXPECT_TRUE(Run(EndOf).empty());
}

// A tier that is smaller than a conversation: what is written last drops what was written first.
TEST_F(PageMovesTest, WhatMakesWayMeanwhileIsNotWrittenOverAndOver) {
  std::vector<KnownPart> held;
  const auto drops = [&](const PageMove& move) {
    PagesKnown known;
    for (const PagePart& part : move.parts) held.push_back({part.key, part.kind});
    while (held.size() > 20) {
      known.dropped.push_back(held.front());
      held.erase(held.begin());
    }
    s_.Apply(known);
    return EndOf(move);
  };
  Send(Make(64 * kBlocks + 1, 1));
  ExpectEachOnce(Run(drops));
}

// What still was to be written goes with the arena; what the tier has is asked for again.
TEST_F(PageMovesTest, OfAnArenaThatIsLostNothingMoreIsWritten) {
  Send(Make(64 * kBlocks + 1, 1));
  const auto [moves, parts] = FirstMoves();
  ASSERT_EQ(moves.size(), 2u);
  for (const PageMove& move : moves) s_.Apply(EndOf(move));
  ASSERT_LT(parts, size_t{kBlocks});
  EXPECT_FALSE(s_.in_flight());
  EXPECT_FALSE(s_.idle()) << "there is more to write";
  s_.Apply(ArenasLost{"the device is lost"});
  Take();
  EXPECT_TRUE(s_.idle());
  EXPECT_EQ(s_.stats().pages_cached, 0);
  EXPECT_TRUE(s_.Audit().ok());
  Send(Make(64 * kBlocks + 1, 1));
  EXPECT_GE(Run(EndOf).size() + parts, size_t{kBlocks});
  EXPECT_TRUE(s_.Audit().ok());
}

// Moves begin with steps, and the next ones not before these have ended: with less under way the
// model would be ahead of the tier.
TEST_F(PageMovesTest, AStepTakesAsMuchAsAStepMakes) {
  for (const int32_t tokens : {64, 2048}) {
    for (const int64_t block_bytes : {int64_t{64}, int64_t{9} << 20}) {
      SchedulerConfig config = Config();
      config.step_tokens_max = tokens;
      config.cache.page_bytes = config.cache.groups[0].block_bytes = block_bytes;
      Use(config);
      Send(Make(64 * kBlocks + 1, 1));
      const auto [moves, parts] = FirstMoves();
      EXPECT_GE(parts, static_cast<size_t>(tokens / 64));
      EXPECT_LE(parts, size_t{34}) << "what is written is pinned";
      for (const PageMove& move : moves) s_.Apply(EndOf(move));
      Run(EndOf);
      EXPECT_EQ(s_.stats().tier.unwritten, 0);
    }
  }
}

// What is written is pinned. A request that needs the room waits for what is under way, not for
// all that rests.
TEST_F(PageMovesTest, ARequestThatWaitsForBlocksHoldsWritesBack) {
  constexpr int kPaths = 100;
  SchedulerConfig config = Config();
  config.step_tokens_max = 2048;
  config.context_tokens_max = 64 * 300;
  config.vocabulary = 20000;
  config.cache.page_bytes = config.cache.groups[0].block_bytes = int64_t{9} << 20;
  config.cache.pages = 251;
  Use(config);
  std::vector<PageMove> moves;
  const auto step = [&] {
    const Plan plan = Step();
    moves.insert(moves.end(), plan.moves.begin(), plan.moves.end());
  };
  for (int i = 0; i < kPaths; ++i) {
    Send(Make(65, 1, 10 + i));
    for (int turn = 0; turn < 4; ++turn) step();
  }
  ASSERT_EQ(moves.size(), 32u);
  Send(Make(64 * 200, 1, 3000));
  step();
  EXPECT_EQ(s_.stats().waiting, 1);
  size_t ended = 0;
  for (; ended < 32 && s_.stats().waiting > 0; ++ended) {  // one after the other
    s_.Apply(EndOf(moves[ended]));
    Take();
    step();
  }
  EXPECT_EQ(s_.stats().waiting, 0) << ended << " of " << moves.size() << " moves have ended";
  // Then writes go on.
  for (int turn = 0; turn < 20; ++turn) step();
  EXPECT_GT(moves.size(), 32u);
}

// The tier does not get on, and others need the room.
TEST_F(PageMovesTest, WhatIsEvictedBeforeItIsWrittenIsCounted) {
  SchedulerConfig config = Config();
  config.cache.pages = 70;
  Use(config);
  Send(Make(64 * kBlocks + 1, 1));
  const auto [moves, parts] = FirstMoves();
  ASSERT_LT(parts, size_t{kBlocks});
  Send(Make(64 * 20 + 1, 1, 3000));
  for (int turn = 0; turn < 100; ++turn) Step();
  EXPECT_EQ(s_.stats().tier.unwritten, 0) << "what is left may still be written";
  for (const PageMove& move : moves) s_.Apply(EndOf(move));
  Run(EndOf);
  EXPECT_EQ(s_.stats().tier.unwritten, 1);
  // What the tier has already is not missed.
  Send(Make(64 * 20 + 1, 1, 3000));
  Run(EndOf);
  EXPECT_EQ(s_.stats().tier.unwritten, 1);
}

// More paths than may wait: the oldest goes.
TEST_F(PageMovesTest, PathsThatWaitTooLongAreCounted) {
  constexpr int kPaths = 1100;
  SchedulerConfig config = Config();
  config.cache.pages = 4 * kPaths;
  Use(config);
  for (int i = 0; i < kPaths; ++i) {
    Send(Make(65, 1, 10 + i));
    for (int turn = 0; turn < 4; ++turn) Step();
  }
  const int64_t given_up = s_.stats().tier.unwritten;
  EXPECT_GT(given_up, 50);
  EXPECT_LT(given_up, 100);
}

class ReadsTest : public PageMovesTest {
 protected:
  // Lets a tier take a prompt, and asks for it again when memory has forgotten it; the move that
  // brings it ends as `end` says.
  template <class F>
  TierCounts CountsOf(F end) {
    Use(Config());
    Send(Make(64 * 4 + 1, 1));
    Run(EndOf);
    s_.Apply(FlushCache{});
    Send(Make(64 * 4 + 1, 1));
    const TierCounts before = s_.stats().tier;
    int reads = 0;
    Run([&](const PageMove& move) {
      PagesMoved ended = EndOf(move);
      if (!move.in()) return ended;
      if (++reads == 1) {
        EXPECT_EQ(move.parts.size(), 5u);
        end(ended);
      } else {
        ended.error = "nothing is there any more";
      }
      return ended;
    });
    EXPECT_GE(reads, 1);
    TierCounts counts = s_.stats().tier;
    counts.parts_in -= before.parts_in;
    return counts;
  }
};

TEST_F(ReadsTest, WhatCameFromMemoryIsCountedApart) {
  TierCounts counts = CountsOf([](PagesMoved&) {});
  EXPECT_EQ(counts.parts_in, 5);
  EXPECT_EQ(counts.waits, 1);
  EXPECT_EQ(counts.wait_us, 1000);
  EXPECT_EQ(counts.waits_in_memory, 0);

  counts = CountsOf([](PagesMoved& end) { end.in_memory = {1, 2}; });
  EXPECT_EQ(counts.waits, 1);  // for the disk

  counts = CountsOf([](PagesMoved& end) { end.in_memory = {0, 1, 2, 3, 4}; });
  EXPECT_EQ(counts.waits, 0);
  EXPECT_EQ(counts.waits_in_memory, 1);
  EXPECT_EQ(counts.wait_in_memory_us, 1000);
}

// Not what the parts of one rank have, of whose own the scheduler knows: what movers say.
TEST_F(ReadsTest, BytesAreThoseThatMoversTell) {
  const TierCounts counts = CountsOf([](PagesMoved& end) {
    end.in_memory = {1, 2};
    end.disk_bytes = 3000;
    end.memory_bytes = 2000;
  });
  EXPECT_EQ(counts.bytes_read, 3000);
  EXPECT_EQ(counts.bytes_in_memory, 2000);
  EXPECT_EQ(counts.bytes_written, 0) << "all was there, or is in memory only";

  Use(Config());
  Send(Make(64 * 4 + 1, 1));
  int64_t told = 0;
  Run([&](const PageMove& move) {
    PagesMoved end = EndOf(move);
    told += end.disk_bytes = 777;
    return end;
  });
  EXPECT_GT(told, 0);
  EXPECT_EQ(s_.stats().tier.bytes_written, told);
  EXPECT_EQ(s_.stats().tier.bytes_read, 0);
}

// What a client and the metrics are told of a prompt of which four blocks came from the tier.
TEST_F(ReadsTest, ARequestKnowsWhatItTookFromDiskAndFromMemory) {
  const auto expect = [&](int32_t host, auto end) {
    CountsOf(end);
    const Reuse& reuse = outputs_[RequestId(next_id_ - 1)].reuse;
    EXPECT_EQ(reuse.tokens, 256);
    EXPECT_EQ(reuse.known, 256);
    EXPECT_EQ(reuse.stored, 256);
    EXPECT_EQ(reuse.host, host);
    EXPECT_EQ(reuse.stop, ReuseStop::kComplete);
    const SchedulerStats stats = s_.stats();
    EXPECT_EQ(stats.stored_tokens, 256);
    EXPECT_EQ(stats.host_tokens, host);
    EXPECT_EQ(stats.prompt_tokens, 2 * 257);
    EXPECT_EQ(stats.reused_tokens, 256);
  };
  expect(0, [](PagesMoved&) {});
  expect(128, [](PagesMoved& end) { end.in_memory = {1, 2}; });
  expect(256, [](PagesMoved& end) { end.in_memory = {0, 1, 2, 3, 4}; });
}

// One rank had it in memory, another one has lost it.
TEST_F(ReadsTest, ALostPartIsNotCountedAsRead) {
  const TierCounts counts = CountsOf([](PagesMoved& end) {
    end.error = "a part is lost";
    end.lost = {3};
    end.in_memory = {0, 3, 4};
  });
  EXPECT_EQ(counts.parts_in, 4);
  EXPECT_GE(counts.failed_in, 1);
}

// A state that a tier brought counts as one that was resumed from: what lies behind it goes first.
TEST_F(ReadsTest, AStateThatArrivedIsNotTheFirstToGo) {
  constexpr int32_t kArrives = 64 * 4 + 1, kGoesOn = 64 * 8 + 1;
  // What a prompt takes from the tier when so many others have come since.
  const auto stored = [&](int32_t tokens, int others) {
    SchedulerConfig config = Config();
    config.cache.pages = 61;
    Use(config);
    const auto ask = [&](int32_t prompt_tokens, TokenId first = 10) {
      Send(Make(prompt_tokens, 1, first));
      Run(EndOf);
    };
    ask(kArrives);
    s_.Apply(FlushCache{});
    ask(kGoesOn);
    for (int i = 1; i <= others; ++i) ask(64 * 2 + 1, 130 * i + 1000);
    ask(tokens);
    return outputs_[RequestId(next_id_ - 1)].reuse.stored;
  };
  int others = 0;
  while (stored(kArrives, others) == 0) ASSERT_LT(++others, 100);
  EXPECT_GT(others, 10);
  EXPECT_GT(stored(kGoesOn, others), 0);
}

}  // namespace
}  // namespace braid
