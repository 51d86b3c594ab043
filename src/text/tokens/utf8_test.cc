// Repair of broken UTF-8 against the standard's table.
#include "text/tokens/utf8.h"

#include <gtest/gtest.h>

#include "text/test_model.h"

namespace braid {
namespace {

std::string Repaired(std::string_view bytes) {
  std::string text;
  if (AppendRepairedUtf8(bytes, &text) < bytes.size()) text += kReplacementCharacter;
  return text;
}

TEST(Utf8Test, ReplacesMaximalInvalidPieces) {
  // The example of Unicode 15 chapter 3.9, table 3-8, and its neighbours.
  EXPECT_EQ(Repaired("a\xF1\x80\x80\xE1\x80\xC2"
                     "b\x80"
                     "c\x80\xBF"
                     "d"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(Repaired("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(Repaired("\xED\xA0\x80\xF4\x91\x92\x93\xFF"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(Utf8Test, LeavesAnUnfinishedCharacterAtTheEnd) {
  for (std::string_view whole : {"\xC3\xA9", "\xE4\xBD\xA0", "\xF0\x9F\x8C\x8D"}) {
    for (size_t size = 1; size < whole.size(); ++size) {
      std::string text;
      EXPECT_EQ(AppendRepairedUtf8("ab" + std::string(whole.substr(0, size)), &text), 2u);
      EXPECT_EQ(text, "ab");
    }
  }
}

TEST(Utf8Test, KeepsEveryValidCharacter) {
  std::string all;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c < 0xD800 || c >= 0xE000) AppendUtf8(c, &all);
  }
  EXPECT_EQ(Repaired(all), all);
  EXPECT_TRUE(IsValidUtf8(all));
}

TEST(Utf8Test, RepairGivesValidTextForAnyBytes) {
  Rng rng(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes;
    for (int64_t n = rng.Below(12); n > 0; --n) {
      bytes.push_back(static_cast<char>(rng.Below(4) ? 0x80 + rng.Below(0x80) : rng.Below(0x80)));
    }
    EXPECT_TRUE(IsValidUtf8(Repaired(bytes)));
    EXPECT_EQ(IsValidUtf8(bytes), Repaired(bytes) == bytes);
  }
}

}  // namespace
}  // namespace braid
