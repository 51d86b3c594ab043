// What stays when there is too little room: conversations that take turns in an arena that does not
// hold them all.
#include <gtest/gtest.h>

#include <algorithm>

#include "scheduler/testing/scheduler_fixture.h"

namespace braid {
namespace {

constexpr int kConversations = 8, kTurns = 12;

class EvictionTest : public SchedulerFixture {
 protected:
  // A conversation's first `turns` turns as a prompt.
  Request Turn(int32_t conversation, int32_t turns) {
    return Make(1500 + 100 * turns, 1, static_cast<TokenId>(conversation * 3000));
  }
  static SchedulerConfig Config(int32_t pages) {
    SchedulerConfig config = BlockConfig(pages);
    config.vocabulary = 100000;
    return config;
  }
  // Percent of the tokens that earlier turns had, and that were reused.
  double ShareReused(int32_t pages, int32_t conversations = kConversations) {
    Use(Config(pages));
    int64_t reusable = 0, reused = 0;
    for (int32_t turn = 0; turn < kTurns; ++turn) {
      for (int32_t c = 0; c < conversations; ++c) {
        const Request r = Turn(c, turn);
        reused += Reused(r);
        if (turn > 0) reusable += 1500 + 100 * (turn - 1);
      }
    }
    return 100.0 * static_cast<double>(reused) / static_cast<double>(reusable);
  }
};

// At the end the eight have 336 blocks of keys and a state each.
TEST_F(EvictionTest, WithTooLittleRoomReuseShrinksWithTheRoom) {
  struct Case {
    int32_t pages;
    double least;  // percent; the least recently used alone gives 98, 70, 22, 2.5 and 0
  };
  for (const Case& c : {Case{350, 98}, {300, 88}, {240, 70}, {200, 50}, {120, 24}}) {
    EXPECT_GE(ShareReused(c.pages), c.least) << c.pages << " pages";
  }
}

TEST_F(EvictionTest, ConversationsThatAreOverDoNotKeepTheRoomOfThoseThatGoOn) {
  Use(Config(110));
  for (int32_t c = 2; c < 8; ++c) Ask(Turn(c, 0));
  int32_t late = 0, late_reused = 0;
  for (int32_t turn = 0; turn < kTurns; ++turn) {
    for (int32_t c = 0; c < 2; ++c) {
      const int32_t reused = Reused(Turn(c, turn));
      if (turn < 2) continue;
      late += 1500 + 100 * (turn - 1);
      late_reused += reused;
    }
  }
  EXPECT_GE(late_reused, late * 95 / 100);
}

// Each of the requests in between takes the room of what ranks lowest. The conversation was evicted
// while the six others, which are over, were new; it must not stay behind them for ever.
TEST_F(EvictionTest, AConversationThatWasEvictedOnceIsNotTheNextToGoForEver) {
  Use(Config(150));
  Ask(Turn(0, 0));
  for (int32_t c = 2; c < 8; ++c) Ask(Turn(c, 0));
  int32_t late = 0, late_reused = 0;
  for (int32_t turn = 1; turn < kTurns; ++turn) {
    const int32_t reused = Reused(Turn(0, turn));
    Ask(Make(200, 1, static_cast<TokenId>(40000 + 1000 * turn)));
    if (turn < 4) continue;
    late += 1500 + 100 * (turn - 1);
    late_reused += reused;
  }
  EXPECT_GE(late_reused, late * 95 / 100);
}

// Answers of several blocks: a state at every boundary that decoding crosses.
class PromptEndTest : public EvictionTest {
 protected:
  static constexpr int32_t kPrompt = 2000, kAnswer = 200;
  PromptEndTest() { Use(Config(360)); }
  // What goes on from the first prompt: an answer, or the end of one, and what the user says then.
  Request After(int32_t stripped) {
    Request r = Make(kPrompt, 1);
    r.prompt.resize(static_cast<size_t>(kPrompt + kAnswer - stripped), 7);  // all that is sampled
    for (TokenId i = 0; i < 40; ++i) r.prompt.push_back(90000 + i);
    return r;
  }
  // One conversation between others: older ones, and so many later ones that these are evicted.
  void FillAround() {
    for (TokenId c = 1; c < 6; ++c) Ask(Make(1000, kAnswer, 3000 * c));
    Ask(Make(kPrompt, kAnswer));
    for (TokenId c = 8; c < 30; ++c) Ask(Make(464, kAnswer, 3000 * c));
    ASSERT_GT(s_.stats().evictions_full, 0);
  }
};

TEST_F(PromptEndTest, AnAnswerIsRegeneratedFromItsPromptWhenTheCacheIsFull) {
  FillAround();
  EXPECT_GE(Reused(Make(kPrompt, kAnswer)), kPrompt * 95 / 100);
  EXPECT_GE(Reused(Make(kPrompt, kAnswer)), kPrompt * 95 / 100);
}

TEST_F(PromptEndTest, ATurnWithoutTheThinkingOfTheLastReusesItsPrompt) {
  FillAround();
  Request stripped = After(150);
  stripped.prompt[kPrompt] = 99999;  // the answer does not begin as the thinking did
  EXPECT_GE(Reused(stripped), kPrompt * 95 / 100);
}

// The prompt's last tokens begin the answer, and are gone with the thinking. Where a boundary lies
// among them, the state there is of no use.
TEST_F(PromptEndTest, ATurnThatDoesNotRepeatTheBeginningOfTheThinkingReusesTheRest) {
  for (int32_t prompt = 640; prompt < 704; ++prompt) {
    Use(Config(360));
    Ask(Make(prompt, kAnswer));
    Request next = Make(prompt - 4, 1);
    next.prompt.resize(static_cast<size_t>(prompt + 100), 99999);
    EXPECT_GE(Reused(next), (prompt - 8) / 64 * 64) << prompt;
  }
}

// Its end is the first to go of the two states that it has left.
TEST_F(PromptEndTest, ATurnThatGoesOnReusesThePromptAtLeast) {
  Ask(Make(kPrompt, kAnswer));
  EXPECT_EQ(Reused(After(0)), (kPrompt + kAnswer - 1) / 64 * 64);
  Use(Config(360));
  FillAround();
  EXPECT_GE(Reused(After(0)), kPrompt * 95 / 100);
}

// Room for one state each and some more: nobody loses both while others have two.
TEST_F(PromptEndTest, TheOldestKeepsItsPromptWhileOthersHaveTwoStates) {
  Use(Config(36 + 10 * 12 + 3));
  Ask(Make(kPrompt, kAnswer));
  for (TokenId c = 1; c < 11; ++c) Ask(Make(464, kAnswer, 3000 * c));
  EXPECT_EQ(Reused(Make(kPrompt, kAnswer)), 1984);
}

// A conversation that goes on needs its last prompt's end, and those of earlier turns no longer:
// however many turns it takes, it does not drive out one that rests.
TEST_F(PromptEndTest, EndsThatAConversationHasPassedGoBeforeConversationsThatRest) {
  Use(Config(87));
  Ask(Make(1000, kAnswer, 30000));
  Request turn = Make(600, kAnswer);
  for (int i = 0; i < 12; ++i) {
    const std::vector<TokenId> answer = Ask(turn).tokens;
    turn.id = RequestId(next_id_++);
    turn.prompt.insert(turn.prompt.end(), answer.begin(), answer.end());
    turn.prompt.resize(turn.prompt.size() + 40, static_cast<TokenId>(50000 + i));
  }
  EXPECT_EQ(Reused(Make(1000, kAnswer, 30000)), 960);
}

}  // namespace
}  // namespace braid
