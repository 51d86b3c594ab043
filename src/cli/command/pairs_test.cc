// Named numbers of a flag, and what an error says of a wrong one.
#include "cli/command/pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(Pairs, NamedNumbersAreSetAndOthersStay) {
  int64_t in = 1, out = 2, least = 3;
  const auto read = [&](std::string_view text) {
    return ReadPairs("--load", text, {{"in", &in}, {"out", &out}, {"least", &least, 0}});
  };
  EXPECT_TRUE(read(""));
  EXPECT_EQ(in + out + least, 6);
  EXPECT_TRUE(read("out=512,in=64"));
  EXPECT_EQ(in, 64);
  EXPECT_EQ(out, 512);
  EXPECT_EQ(least, 3);
  EXPECT_TRUE(read("least=0,in=1000000000"));
  EXPECT_EQ(least, 0);
  EXPECT_EQ(in, 1'000'000'000);
  for (const char* text : {"in", "in=", "=3", "in=0", "in=-1", "in=1x", "in=1000000001", "up=3",
                           "least=-1", "in =3"}) {
    const Status status = read(text);
    ASSERT_FALSE(status) << text;
    EXPECT_EQ(status.error().field, "--load");
  }
  EXPECT_EQ(read("in=3,up=4").error().message,
            "--load: \"up=4\" is wrong; write in=N,out=N,least=N with N from 1 to 1000000000");
  EXPECT_THAT(read("least=-1").error().message, ::testing::HasSubstr("with N from 0 to"));
}

}  // namespace
}  // namespace braid
