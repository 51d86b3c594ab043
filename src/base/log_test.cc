// Log lines as they arrive at standard error.
#include "base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/json.h"

namespace braid {
namespace {

// What `f` writes to standard error, a pipe meanwhile.
template <class F>
std::string ErrorOutputOf(F f) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const int kept = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  ::close(ends[1]);
  f();
  ::dup2(kept, STDERR_FILENO);
  ::close(kept);
  std::string text(1 << 16, '\0');
  const ssize_t got = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

class Log : public ::testing::Test {
 protected:
  ~Log() override { InitLog(LogLevel::kInfo, false); }
};

TEST_F(Log, ALineHasTimeLevelAndMessage) {
  InitLog(LogLevel::kInfo, false);
  const std::string line = ErrorOutputOf([] { LogWarning("disk {}", 7); });
  EXPECT_EQ(line.substr(8), " W disk 7\n") << "no colours: a pipe is no terminal";
  EXPECT_EQ(line[2], ':');
}

TEST_F(Log, LevelsBelowTheChosenOneAreLeftOut) {
  InitLog(LogLevel::kError, false);
  const std::string lines = ErrorOutputOf([] {
    LogInfo("one");
    LogWarning("two");
    LogError("three");
  });
  EXPECT_EQ(lines.find("one"), std::string::npos);
  EXPECT_EQ(lines.find("two"), std::string::npos);
  EXPECT_NE(lines.find("three"), std::string::npos);
}

TEST_F(Log, AJsonLineIsAnObjectWhateverTheMessageHolds) {
  InitLog(LogLevel::kInfo, true);
  const std::string line = ErrorOutputOf([] { LogInfo("a \"b\"\n{}", "c"); });
  ASSERT_TRUE(line.ends_with("}\n"));
  const json::value value = json::parse(line);
  EXPECT_EQ(value.at("message"), "a \"b\"\nc");
  EXPECT_EQ(value.at("level"), "info");
  EXPECT_TRUE(value.at("time").is_string());
}

TEST_F(Log, ALongLineIsCutToWhatAPipeTakesAtOnce) {
  InitLog(LogLevel::kInfo, false);
  const std::string line = ErrorOutputOf([] { LogInfo("{}", std::string(10'000, 'x')); });
  EXPECT_EQ(line.size(), 4096u);
  EXPECT_TRUE(line.ends_with("x\n"));
}

TEST_F(Log, ALongJsonLineIsCutInItsMessage) {
  InitLog(LogLevel::kInfo, true);
  for (const std::string& unit : {std::string("x"), std::string("\x01"), std::string("\u00e9"),
                                  std::string("\U0001f600\"")}) {
    std::string text;
    while (text.size() < 10'000) text += unit;
    const std::string line = ErrorOutputOf([&] { LogInfo("{}", text); });
    EXPECT_LE(line.size(), 4096u);
    EXPECT_GT(line.size(), 4000u) << unit;
    ASSERT_TRUE(line.ends_with("\"}\n")) << unit;
    json::error_code ec;
    const json::value value = json::parse(line, ec);
    ASSERT_FALSE(ec) << unit << ": " << ec.message();
    EXPECT_TRUE(text.starts_with(std::string_view(value.at("message").as_string()))) << unit;
  }
}

}  // namespace
}  // namespace braid
