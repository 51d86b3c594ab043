// Names, environment variables and sizes of flags.
#include "cli/command/flags.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(Flags, AddsTheNamesThatOtherServersUse) {
  EXPECT_EQ(FlagNames("--max-model-len"), "--max-model-len,-c,--context-length,--ctx-size");
  EXPECT_EQ(FlagNames("--host"), "--host");
}

TEST(Flags, NamesTheEnvironmentVariableAfterTheFlag) {
  EXPECT_EQ(EnvironmentName("--max-model-len"), "BRAID_MAX_MODEL_LEN");
  EXPECT_EQ(EnvironmentName("--port"), "BRAID_PORT");
}

TEST(Flags, ReadsSizesWithUnits) {
  EXPECT_EQ(ParseBytes("4096"), 4096);
  EXPECT_EQ(ParseBytes("8G"), int64_t{8} << 30);
  EXPECT_EQ(ParseBytes("512MiB"), int64_t{512} << 20);
  EXPECT_EQ(ParseBytes("1.5 gb"), int64_t{3} << 29);
  EXPECT_EQ(ParseBytes("2kb"), 2048);
}

TEST(Flags, RefusesWhatIsNoSize) {
  for (const char* text : {"", "G", "-1", "8X", "8 G x", "1e40", "nan", "12MiBB"}) {
    EXPECT_EQ(ParseBytes(text), -1) << text;
  }
}

}  // namespace
}  // namespace braid
