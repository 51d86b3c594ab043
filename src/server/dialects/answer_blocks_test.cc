// Events as consecutive blocks, and what the sink hears of them.
#include "server/dialects/answer_blocks.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

using Kind = AnswerEvent::Kind;

// Adds events and notes what the sink hears: "+0" opened, "0:text" a piece, "-0" closed.
struct Recorder {
  AnswerBlocks blocks;
  std::string heard;

  AnswerBlocks::Sink sink() {
    return {
        .open = [this](const AnswerBlock&, size_t index) { heard += fmt::format("+{} ", index); },
        .piece = [this](const AnswerBlock&, size_t index,
                        const std::string& piece) { heard += fmt::format("{}:{} ", index, piece); },
        .close = [this](const AnswerBlock&, size_t index) { heard += fmt::format("-{} ", index); }};
  }
  std::string Add(const AnswerEvents& events) {
    heard.clear();
    blocks.Add(events, sink());
    return heard;
  }
};

TEST(AnswerBlocks, TextOfOneKindIsOneBlockAcrossCalls) {
  Recorder recorder;
  EXPECT_EQ(recorder.Add({{Kind::kReasoning, "a"}}), "+0 0:a ");
  EXPECT_EQ(recorder.Add({{Kind::kReasoning, "b"}, {Kind::kText, "c"}}), "0:b -0 +1 1:c ");
  EXPECT_EQ(recorder.Add({{Kind::kReasoning, "d"}}), "-1 +2 2:d ");
  ASSERT_EQ(recorder.blocks.blocks().size(), 3U);
  EXPECT_EQ(recorder.blocks.blocks()[0].text, "ab");
  EXPECT_EQ(recorder.blocks.blocks()[0].kind, AnswerBlock::Kind::kThought);
  EXPECT_EQ(recorder.blocks.blocks()[1].kind, AnswerBlock::Kind::kText);
}

TEST(AnswerBlocks, ACallIsABlockOfItsOwnAndWholeOnceItEnds) {
  Recorder recorder;
  AnswerEvent begin{Kind::kCallBegin, "f"};
  begin.id = "own";
  begin.call = 3;
  EXPECT_EQ(recorder.Add({{Kind::kText, "t"}, begin}), "+0 0:t -0 +1 ");
  EXPECT_EQ(recorder.Add({{Kind::kCallArguments, "{}"}}), "1:{} ");
  const AnswerBlock& call = recorder.blocks.blocks()[1];
  EXPECT_EQ(call.kind, AnswerBlock::Kind::kCall);
  EXPECT_EQ(call.name, "f");
  EXPECT_EQ(call.id, "own");
  EXPECT_EQ(call.call, 3);
  EXPECT_FALSE(call.whole);
  EXPECT_EQ(recorder.Add({{Kind::kCallEnd, ""}}), "-1 ");
  EXPECT_TRUE(recorder.blocks.blocks()[1].whole);
  EXPECT_EQ(recorder.Add({begin}), "+2 ") << "a second call, not the same block";
}

TEST(AnswerBlocks, TheEndClosesTheOpenBlockOnce) {
  Recorder recorder;
  recorder.Add({{Kind::kText, "t"}});
  recorder.heard.clear();
  recorder.blocks.End(recorder.sink());
  EXPECT_EQ(recorder.heard, "-0 ");
  recorder.blocks.End(recorder.sink());
  EXPECT_EQ(recorder.heard, "-0 ");
  EXPECT_EQ(recorder.Add({{Kind::kText, "u"}}), "+1 1:u ") << "a closed block is not continued";
}

TEST(AnswerBlocks, TheBlockThatIsOpenAtTheEndOfACutAnswerIsNotWhole) {
  Recorder recorder;
  recorder.Add({{Kind::kReasoning, "a"}, {Kind::kText, "b"}});
  recorder.blocks.End(recorder.sink(), false);
  EXPECT_TRUE(recorder.blocks.blocks()[0].whole);
  EXPECT_FALSE(recorder.blocks.blocks()[1].whole);
}

TEST(AnswerBlocks, ASinkMayHearNothing) {
  AnswerBlocks blocks;
  blocks.Add({{Kind::kText, "t"}}, {});
  blocks.End({});
  EXPECT_EQ(blocks.blocks().size(), 1U);
}

}  // namespace
}  // namespace braid
