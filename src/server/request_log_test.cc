// Lines of the request log in both forms, and their way to the file.
#include "server/request_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/system/file.h"

namespace braid {
namespace {

const RequestRecord kRefused{
    .unix_seconds = 7, .method = "GET", .path = "/x", .status = 404, .id = "r", .total_us = 1500};
const RequestRecord kAnswered{.unix_seconds = 7,
                              .method = "POST",
                              .path = "/v1/completions",
                              .status = 200,
                              .id = "cmpl-1",
                              .client_id = "mine",
                              .tenant = "ann",
                              .finish = "stop,length",
                              .prompt_tokens = 1,
                              .cached_tokens = 2,
                              .output_tokens = 3,
                              .queue_us = 4000,
                              .first_token_us = -1,
                              .total_us = 5000};

TEST(RequestLog, ALineHasWhatIsKnown) {
  EXPECT_EQ(RequestLine(kRefused, false),
            "time=7 method=GET path=/x status=404 id=r total_ms=1.500\n");
  EXPECT_EQ(RequestLine(kAnswered, false),
            "time=7 method=POST path=/v1/completions status=200 id=cmpl-1 request_id=mine "
            "tenant=ann finish=stop,length prompt_tokens=1 cached_tokens=2 output_tokens=3 "
            "queue_ms=4.000 first_token_ms=null total_ms=5.000\n");
}

TEST(RequestLog, AJsonLineHasTheSameFields) {
  EXPECT_EQ(RequestLine(kRefused, true),
            "{\"time\":7,\"method\":\"GET\",\"path\":\"/x\",\"status\":404,\"id\":\"r\","
            "\"total_ms\":1.5E0}\n");
}

TEST(RequestLog, LinesAreAppendedAndReopenedFilesGetTheLaterOnes) {
  const std::string path = testing::TempDir() + "request_log_test";
  const std::string moved = path + ".1";
  std::filesystem::remove(path);
  {
    auto log = RequestLog::Open(path, false);
    ASSERT_TRUE(log);
    (*log)->Add(kRefused);
    while (std::filesystem::file_size(path) == 0) ::usleep(1000);
    std::filesystem::rename(path, moved);
    (*log)->Reopen();
    while (!std::filesystem::exists(path)) ::usleep(1000);
    (*log)->Add(kAnswered);
    EXPECT_EQ((*log)->dropped(), 0);
  }
  EXPECT_EQ(*ReadFile(moved, 1 << 20), RequestLine(kRefused, false));
  EXPECT_EQ(*ReadFile(path, 1 << 20), RequestLine(kAnswered, false));
  {
    auto again = RequestLog::Open(path, false);
    (*again)->Add(kRefused);
  }
  EXPECT_EQ(*ReadFile(path, 1 << 20), RequestLine(kAnswered, false) + RequestLine(kRefused, false));
}

TEST(RequestLog, AFileThatCannotBeOpenedIsAnErrorAndOneThatIsFullLosesLines) {
  const auto absent = RequestLog::Open("/no/such/folder/log", false);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().field, "request_log");
  auto full = RequestLog::Open("/dev/full", false);
  ASSERT_TRUE(full);
  (*full)->Add(kRefused);
  while ((*full)->dropped() == 0) ::usleep(1000);
  EXPECT_EQ((*full)->dropped(), 1);
}

}  // namespace
}  // namespace braid
