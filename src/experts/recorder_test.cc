// Windows of passes, their balances, and the file they go to.
#include "experts/recorder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

namespace braid {
namespace {

ExpertLoads Header() { return {.model = "m", .experts = 4, .top_k = 2, .layers = {1, 3}}; }

// Three tokens: layer 1 is even but for expert 3, layer 3 uses two experts.
void CountPass(ExpertRecorder& recorder) {
  const std::vector<int32_t> even{0, 1, 1, 2, 0, 2}, two{0, 3, 0, 3, 0, 3};
  recorder.Count(1, even);
  recorder.Count(3, two);
  recorder.EndPass(3);
}

TEST(ExpertRecorder, BalancesAreOfCompleteWindows) {
  ExpertRecorder recorder(Header());
  for (int pass = 0; pass < 9; ++pass) CountPass(recorder);
  EXPECT_EQ(recorder.balances(), (ExpertRecorder::Balances{0, 0, 0}));
  CountPass(recorder);
  const double balance = 12.0 / ((2 + 3) * 4);
  EXPECT_EQ(recorder.balances(), (ExpertRecorder::Balances{balance, 0, 0}));
  for (int pass = 10; pass < 1000; ++pass) CountPass(recorder);
  EXPECT_EQ(recorder.balances(), (ExpertRecorder::Balances{balance, balance, balance}));
  // A window knows nothing of the one before it.
  for (int pass = 0; pass < 10; ++pass) recorder.EndPass(0);
  EXPECT_EQ(recorder.balances(), (ExpertRecorder::Balances{1, balance, balance}));
}

TEST(ExpertRecorder, TheLastWindowIsThatOfAHundredPassesOnceThereIsOne) {
  ExpertRecorder recorder(Header());
  for (int pass = 0; pass < 9; ++pass) CountPass(recorder);
  EXPECT_EQ(recorder.last(), LoadWindow{});
  const auto of = [](int64_t n) {
    return LoadWindow{
        .passes = n, .tokens = 3 * n, .counts = {{2 * n, 2 * n, 2 * n, 0}, {3 * n, 0, 0, 3 * n}}};
  };
  CountPass(recorder);
  EXPECT_EQ(recorder.last(), of(10));
  for (int pass = 10; pass < 99; ++pass) CountPass(recorder);
  EXPECT_EQ(recorder.last(), of(10));
  for (int pass = 99; pass < 150; ++pass) CountPass(recorder);
  EXPECT_EQ(recorder.last(), of(100));
  for (int pass = 150; pass < 200; ++pass) recorder.EndPass(0);
  EXPECT_EQ(recorder.last().tokens, 150);
}

TEST(ExpertRecorder, WritesEveryPassOnce) {
  const std::string path = testing::TempDir() + "/recorded.jsonl";
  ExpertRecorder recorder(Header());
  ASSERT_TRUE(recorder.Open(path));
  for (int pass = 0; pass < 217; ++pass) CountPass(recorder);
  ASSERT_TRUE(recorder.Close());
  const Result<ExpertLoads> read = ReadExpertLoads(path);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->layers, Header().layers);
  ASSERT_EQ(read->windows.size(), 3U);
  const int64_t passes[] = {100, 100, 17};
  for (size_t i = 0; i < 3; ++i) {
    const int64_t n = passes[i];
    EXPECT_EQ(read->windows[i],
              (LoadWindow{.passes = n,
                          .tokens = 3 * n,
                          .counts = {{2 * n, 2 * n, 2 * n, 0}, {3 * n, 0, 0, 3 * n}}}));
  }
}

TEST(ExpertRecorder, APassCanBeALine) {
  const std::string path = testing::TempDir() + "/passes.jsonl";
  for (const LoadDetail detail : {LoadDetail::kPasses, LoadDetail::kTokens}) {
    ExpertRecorder recorder(Header());
    ASSERT_TRUE(recorder.Open(path, detail));
    CountPass(recorder);
    recorder.EndPass(0);
    recorder.Count(1, std::vector<int32_t>{3, 1});
    recorder.Count(3, std::vector<int32_t>{1, 0});
    recorder.EndPass(1);
    for (int pass = 3; pass < 120; ++pass) CountPass(recorder);
    ASSERT_TRUE(recorder.Close());
    const Result<ExpertLoads> read = ReadExpertLoads(path);
    ASSERT_TRUE(read) << read.error().message;
    ASSERT_EQ(read->windows.size(), 120U);
    std::vector<LoadWindow> first{
        {.passes = 1, .tokens = 3, .counts = {{2, 2, 2, 0}, {3, 0, 0, 3}}},
        {.passes = 1, .tokens = 0, .counts = {{0, 0, 0, 0}, {0, 0, 0, 0}}},
        {.passes = 1, .tokens = 1, .counts = {{0, 1, 0, 1}, {1, 1, 0, 0}}}};
    if (detail == LoadDetail::kTokens) {
      first[0].choices = {{0, 1, 1, 2, 0, 2}, {0, 3, 0, 3, 0, 3}};
      first[1].choices = {{}, {}};
      first[2].choices = {{3, 1}, {1, 0}};
    }
    EXPECT_EQ(std::vector(read->windows.begin(), read->windows.begin() + 3), first);
    EXPECT_EQ(read->windows.back(), first[0]);
  }
}

// Two ranks that count their own tokens: one of them gets the other's before a window ends.
TEST(ExpertRecorder, OneOfSeveralRanksCountsForAllOfThem) {
  const std::string path = testing::TempDir() + "/ranks.jsonl";
  ExpertRecorder first(Header()), second(Header());
  ASSERT_TRUE(first.Open(path));
  const std::vector<int32_t> of_first{0, 1}, of_second{2, 3};
  for (int pass = 0; pass < 25; ++pass) {
    for (const int32_t layer : {1, 3}) {
      first.Count(layer, of_first);
      second.Count(layer, of_second);
    }
    ASSERT_EQ(first.completes_window(), pass % 10 == 9);
    if (first.completes_window()) {
      std::vector<int64_t> open;
      second.AppendOpen(open);
      first.AddOpen(open);
      second.ForgetOpen();
    }
    first.EndPass(2);
    second.EndPass(2);
  }
  EXPECT_EQ(
      first.last(),
      (LoadWindow{.passes = 10, .tokens = 20, .counts = {{10, 10, 10, 10}, {10, 10, 10, 10}}}));
  ASSERT_TRUE(first.Close(true));
  const Result<ExpertLoads> read = ReadExpertLoads(path);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->windows.size(), 1u) << "what the other rank has not told is left out";
  EXPECT_EQ(read->windows[0].passes, 20);
  EXPECT_EQ(read->windows[0].counts[0], (std::vector<int64_t>{20, 20, 20, 20}));
}

int64_t OpenFiles() {
  int64_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    files += file.path().empty() ? 0 : 1;
  }
  return files;
}

TEST(ExpertRecorder, AFileIsClosedOnce) {
  const int64_t before = OpenFiles();
  {
    ExpertRecorder closed(Header()), left(Header());
    ASSERT_TRUE(closed.Open(testing::TempDir() + "/closed.jsonl"));
    ASSERT_TRUE(left.Open(testing::TempDir() + "/left.jsonl"));
    EXPECT_EQ(OpenFiles(), before + 2);
    ASSERT_TRUE(closed.Close());
    EXPECT_TRUE(closed.Close());
    EXPECT_EQ(OpenFiles(), before + 1);
  }
  EXPECT_EQ(OpenFiles(), before);
}

TEST(ExpertRecorder, AFileThatCannotBeWrittenIsAnError) {
  ExpertRecorder recorder(Header());
  const Status opened = recorder.Open(testing::TempDir() + "/none/loads.jsonl");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kInternal);
  EXPECT_NE(opened.error().message.find("none/loads.jsonl cannot be written"), std::string::npos);
  CountPass(recorder);  // recording goes on without the file
  EXPECT_FALSE(recorder.Close());
}

TEST(ExpertRecorder, AFullDiskEndsTheFileNotTheRun) {
  ExpertRecorder recorder(Header());
  ASSERT_TRUE(recorder.Open(testing::TempDir() + "/full.jsonl"));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit full = before;
  full.rlim_cur = 90;
  std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  const int64_t files = OpenFiles();
  for (int pass = 0; pass < 300; ++pass) CountPass(recorder);
  const Status closed = recorder.Close();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(OpenFiles(), files - 1);
  ASSERT_FALSE(closed);
  EXPECT_NE(closed.error().message.find("full.jsonl cannot be written"), std::string::npos);
  EXPECT_GT(recorder.balances()[1], 0);
}

}  // namespace
}  // namespace braid
