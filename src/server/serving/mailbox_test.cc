// Both orders in which the engine and the reader can be done with a mailbox.
#include "server/serving/mailbox.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

Output Tokens(std::vector<TokenId> tokens, bool last) {
  Output output;
  output.tokens = std::move(tokens);
  if (last) output.finish = FinishReason::kLength;
  return output;
}

TEST(Mailboxes, OutputsComeInOrderAndWakeTheReader) {
  Mailboxes boxes;
  int woken = 0;
  OutputSink* sink = boxes.Open(RequestId(1), [&] { ++woken; });
  sink->OnOutput(Tokens({1}, false));
  EXPECT_GT(boxes.PendingBytes(RequestId(1)), 0u);
  sink->OnOutput(Tokens({2, 3}, true));
  EXPECT_EQ(woken, 2);
  std::vector<Arrival> arrivals = boxes.Collect(RequestId(1));
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_EQ(arrivals[1].output.tokens, (std::vector<TokenId>{2, 3}));
  EXPECT_LE(arrivals[0].at_us, arrivals[1].at_us);
  EXPECT_EQ(boxes.PendingBytes(RequestId(1)), 0u);
  EXPECT_TRUE(boxes.Collect(RequestId(1)).empty());
  boxes.Close(RequestId(1), true);
  boxes.Open(RequestId(1), [] {});  // the id is free again
}

TEST(Mailboxes, OutputsAfterTheReaderHasGoneAreDropped) {
  Mailboxes boxes;
  int woken = 0;
  OutputSink* sink = boxes.Open(RequestId(1), [&] { ++woken; });
  boxes.Close(RequestId(1), true);
  sink->OnOutput(Tokens({1}, false));
  sink->OnOutput(Tokens({2}, true));  // the mailbox goes with its last output
  EXPECT_EQ(woken, 0);
  boxes.Open(RequestId(1), [] {});
}

TEST(Mailboxes, AMailboxThatWasNeverSubmittedGoesAtOnce) {
  Mailboxes boxes;
  boxes.Open(RequestId(1), [] {});
  boxes.Close(RequestId(1), false);
  boxes.Open(RequestId(1), [] {});
}

}  // namespace
}  // namespace braid
