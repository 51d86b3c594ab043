// Drawn loads by their means, rows of traces, and what a request is made of.
#include "cluster/workload.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace braid {
namespace {

using testing::HasSubstr;

double MedianOf(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

TEST(WorkloadRequest, AsksForWhatItsAnswerHas) {
  ClusterRequest request{.prompt = {{7, 3}, {8, 2}}, .answer = {{1, 3}}, .tenant = "ann"};
  const auto asked = [&] { return RequestOf(request, 1000); };
  EXPECT_EQ(asked().prompt, PromptTokens(request, 1000));
  EXPECT_EQ(asked().prompt.size(), 5u);
  EXPECT_EQ(asked().stop.stop_tokens, std::vector<TokenId>{kEndToken});
  EXPECT_EQ(asked().stop.new_tokens_max, 3);
  EXPECT_EQ(asked().prompt_logprobs, -1);
  EXPECT_EQ(asked().priority, 0);
  EXPECT_EQ(asked().tenant, "ann");
  request.answer_max = 2;
  EXPECT_EQ(asked().stop.new_tokens_max, 3) << "not fewer than it gets";
  request.answer_max = 5;
  EXPECT_EQ(asked().stop.new_tokens_max, 5) << "the end comes before";
  request.answer.clear();
  EXPECT_EQ(asked().stop.new_tokens_max, 0) << "nothing but the prompt";
  request.scores_prompt = true;
  request.priority = -3;
  EXPECT_EQ(asked().prompt_logprobs, 0);
  EXPECT_EQ(asked().priority, -3);
}

TEST(WorkloadRequest, SegmentsAreTokensOfTheirKeysInOrder) {
  const ClusterRequest request{.prompt = {{7, 3, 10}, {8, 2}}, .answer = {{7, 2, 5}, {9, 2}}};
  const auto of = [](uint64_t key, int32_t i) { return SegmentToken(key, i, 1000); };
  EXPECT_EQ(request.prompt_tokens(), 5);
  EXPECT_EQ(request.answer_tokens(), 4);
  EXPECT_EQ(PromptTokens(request, 1000),
            (std::vector<TokenId>{of(7, 10), of(7, 11), of(7, 12), of(8, 0), of(8, 1)}));
  EXPECT_EQ(AnswerToken(request, 0, 1000), of(7, 5));
  EXPECT_EQ(AnswerToken(request, 1, 1000), of(7, 6));
  EXPECT_EQ(AnswerToken(request, 2, 1000), of(9, 0));
  EXPECT_EQ(AnswerToken(request, 3, 1000), kEndToken);
  std::set<TokenId> seen;
  for (int32_t i = 0; i < 100; ++i) seen.insert(SegmentToken(5, i, 4));
  EXPECT_EQ(seen, (std::set<TokenId>{1, 2, 3})) << "all but the end";
}

TEST(WorkloadDraws, RandomRequestsComeAsOftenAndAreAsLongAsWasSaid) {
  const auto requests = MakeRequests({.requests_per_second = 100,
                                      .seconds = 50,
                                      .input_tokens = 100,
                                      .output_tokens = 7,
                                      .range_ratio = 0.5});
  EXPECT_NEAR(static_cast<double>(requests.size()), 5000, 250);
  std::set<uint64_t> keys;
  std::set<int32_t> inputs, outputs;
  int64_t last_us = 0;
  for (const ClusterRequest& r : requests) {
    EXPECT_GE(r.at_us, last_us);
    last_us = r.at_us;
    EXPECT_EQ(r.follows, -1);
    keys.insert(r.prompt.front().key);
    keys.insert(r.answer.front().key);
    inputs.insert(r.prompt_tokens());
    outputs.insert(r.answer_tokens());
  }
  EXPECT_LT(last_us, 50'000'000);
  EXPECT_EQ(keys.size(), 2 * requests.size()) << "they share nothing";
  EXPECT_EQ(*inputs.begin(), 50);
  EXPECT_EQ(*inputs.rbegin(), 100);
  EXPECT_EQ(inputs.size(), 51u);
  EXPECT_EQ(outputs, (std::set<int32_t>{3, 4, 5, 6, 7}));
  for (const ClusterRequest& r : MakeRequests({.seconds = 20, .input_tokens = 9})) {
    EXPECT_EQ(r.prompt_tokens(), 9) << "without a range";
  }
  for (const ClusterRequest& r : MakeRequests({.input_tokens = 3, .range_ratio = 0})) {
    EXPECT_GE(r.prompt_tokens(), 1);
  }
}

TEST(WorkloadDraws, ChatsAreLogNormal) {
  std::vector<double> inputs, outputs;
  for (const ClusterRequest& r : MakeRequests(
           {.load = ClusterLoad::kShareGpt, .requests_per_second = 200, .seconds = 100})) {
    inputs.push_back(r.prompt_tokens());
    outputs.push_back(r.answer_tokens());
  }
  // Means of 220 and 200 with sigmas of 1.2 and 1; a median is the mean over exp(sigma^2 / 2).
  EXPECT_NEAR(MedianOf(inputs), 220 / std::exp(0.72), 8);
  EXPECT_NEAR(MedianOf(outputs), 200 / std::exp(0.5), 8);
  EXPECT_GE(std::ranges::min(inputs), 4);
  EXPECT_LE(std::ranges::max(inputs), 8192);
  EXPECT_GT(std::ranges::max(outputs), 2000);
}

TEST(WorkloadDraws, ConversationsShareAnIntroductionAndGrowByTurns) {
  const auto requests = MakeRequests(
      {.load = ClusterLoad::kAgentic, .requests_per_second = 10, .seconds = 60});
  std::set<uint64_t> introductions;
  std::vector<double> added, answers, turns;
  double waited_us = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const ClusterRequest& r = requests[i];
    ASSERT_GE(r.prompt.size(), 2u);
    EXPECT_EQ(r.prompt.front().tokens, 2048);
    introductions.insert(r.prompt.front().key);
    added.push_back(r.prompt.back().tokens);
    answers.push_back(r.answer_tokens());
    if (r.follows < 0) {
      EXPECT_EQ(r.prompt.size(), 2u);
      turns.push_back(1);
      continue;
    }
    EXPECT_EQ(r.follows, static_cast<int32_t>(i) - 1);
    EXPECT_EQ(r.prompt.size(), requests[i - 1].prompt.size() + 2);
    waited_us += static_cast<double>(r.at_us);
    ++turns.back();
  }
  EXPECT_EQ(introductions.size(), 4u);
  EXPECT_NEAR(static_cast<double>(turns.size()), 600, 100);
  EXPECT_EQ(std::ranges::max(turns), 12);
  EXPECT_EQ(std::ranges::min(turns), 1);
  const auto followers = static_cast<double>(requests.size() - turns.size());
  EXPECT_NEAR(static_cast<double>(requests.size()) / static_cast<double>(turns.size()), 6.5, 0.5);
  EXPECT_NEAR(waited_us / followers, 2e6, 2e5) << "a tool runs for two seconds";
  EXPECT_NEAR(MedianOf(added), 300 / std::exp(0.5), 15);
  EXPECT_NEAR(MedianOf(answers), 150 / std::exp(0.32), 9);
}

TEST(WorkloadTrace, EachRowIsReadOrRefusedWithItsLine) {
  const auto read = [](const std::string& text, double seconds = 1e6) {
    return ParseTrace(text, "t", seconds);
  };
  struct Row {
    std::string line;
    int64_t at_us;  // behind the first
    int32_t prompt, answer;
  };
  const std::string first = "2023-11-16 18:15:00,1,1\n";
  for (const Row& row :
       {Row{"2023-11-16 18:15:01.25,374,44", 1'250'000, 374, 44},
        Row{"2023-11-16T18:16:00,1,0", 60'000'000, 1, 1},
        Row{"2023-11-16 18:15:60.5,5,6\r", 60'500'000, 5, 6},
        Row{"2023-11-16 23:59:00,5,6", 344 * 60'000'000LL, 5, 6},
        Row{"2023-11-17 00:00:00,5,6", 345 * 60'000'000LL, 5, 6}}) {
    const auto requests = read(first + row.line);
    ASSERT_TRUE(requests) << row.line << requests.error().message;
    ASSERT_EQ(requests->size(), 2u);
    EXPECT_EQ((*requests)[1].at_us, row.at_us) << row.line;
    EXPECT_EQ((*requests)[1].prompt_tokens(), row.prompt) << row.line;
    EXPECT_EQ((*requests)[1].answer_tokens(), row.answer) << row.line;
    EXPECT_NE((*requests)[0].prompt[0].key, (*requests)[1].prompt[0].key) << "they share nothing";
    EXPECT_NE((*requests)[0].answer[0].key, (*requests)[1].answer[0].key);
  }
  const auto json = [](std::string_view in, std::string_view out, std::string_view ids) {
    return fmt::format(
        R"({{"timestamp": 0, "input_length": {}, "output_length": {}, "hash_ids": {}}})", in, out,
        ids);
  };
  const auto sizes = [&](const std::string& line) {
    const auto requests = read(line);
    EXPECT_TRUE(requests) << line;
    std::vector<int32_t> tokens;
    for (const TokenSegment& block : (*requests)[0].prompt) tokens.push_back(block.tokens);
    return tokens;
  };
  EXPECT_EQ(sizes(json("512", "0", "[0]")), std::vector<int32_t>{512});
  EXPECT_EQ(sizes(json("513", "5", "[0, 9]")), (std::vector<int32_t>{512, 1}));
  EXPECT_EQ(sizes(json("512", "5", "[0, 9]")), std::vector<int32_t>{512});
  EXPECT_EQ(read(json("512", "0", "[0]"))->at(0).answer_tokens(), 1);
  for (const std::string& line :
       {json("0", "5", "[0]"), json("5", "-1", "[0]"), json("5", "5", "7"),
        json("10000001", "5", "[0]"), json("5", "10000001", "[0]"), json("\"5\"", "5", "[0]"),
        std::string(R"({"timestamp": -1, "input_length": 5, "output_length": 5, "hash_ids": [0]})"),
        std::string("TIMESTAMP,ContextTokens,GeneratedTokens"),
        std::string("2023-11-16 18:15:61,1,1"), std::string("2023-11-16 18:60:00,1,1"),
        std::string("2023-11-16 18:15:00,0,1"), std::string("2023-11-16 18:15:00,1,-1"),
        std::string("2023-11-16 18:15:00,2147483647,1"),
        std::string("2023-11-16 18:15:00,1,10000001"),
        std::string("2023-11-16 18:15:00,1"), std::string("2023-11-16 18:15,1,1"),
        std::string("2023-11-16-18:15:00,1,1")}) {
    const auto requests = read(first + "\n" + line);
    ASSERT_FALSE(requests) << line;
    EXPECT_THAT(requests.error().message, HasSubstr("t, line 3: needs ")) << line;
  }
  for (const char* ids : {"[-1]", "[1.5]", "[\"1\"]"}) {
    EXPECT_THAT(read(json("5", "5", ids)).error().message, HasSubstr("must be whole numbers"));
  }
  EXPECT_THAT(read(json("1025", "5", "[1, 2]")).error().message,
              HasSubstr("2 hash_ids of 512 tokens do not make 1025 tokens"));
  // The end of the time is not in it.
  const std::string late = first + "2023-11-16 18:15:10,1,1\n";
  EXPECT_EQ(read(late, 10)->size(), 1u);
  EXPECT_EQ(read(late, 10.1)->size(), 2u);
}

}  // namespace
}  // namespace braid
