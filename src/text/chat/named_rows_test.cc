// Rows found by name and alias, and the real tables.
#include "text/chat/named_rows.h"

#include <gtest/gtest.h>

#include <set>

#include "text/answer/tool_format.h"
#include "text/tokens/word_split.h"

namespace braid {
namespace {

struct Row {
  std::string_view name, aliases;
};
constexpr Row kRows[] = {{"one", "uno un"}, {"two", ""}, {"three", "one-more"}};

TEST(NamedRows, AreFoundByTheirWholeNameOrAWholeAlias) {
  const std::span<const Row> rows = kRows;
  EXPECT_EQ(FindByName(rows, "one"), &kRows[0]);
  EXPECT_EQ(FindByName(rows, "uno"), &kRows[0]);
  EXPECT_EQ(FindByName(rows, "un"), &kRows[0]);
  EXPECT_EQ(FindByName(rows, "two"), &kRows[1]);
  EXPECT_EQ(FindByName(rows, "one-more"), &kRows[2]);
  for (const char* none : {"", " ", "on", "uno un", "more", "One"}) {
    EXPECT_EQ(FindByName(rows, none), nullptr) << none;
  }
  EXPECT_EQ(JoinNames(rows), "one, two, three");
  EXPECT_EQ(JoinNames(rows.first(1)), "one");
}

TEST(ToolFormats, EachNameAndAliasIsOfOneRow) {
  std::set<std::string> seen;
  for (const ToolFormat& format : ToolFormats()) {
    EXPECT_EQ(FindToolFormat(format.name), &format) << format.name;
    EXPECT_TRUE(seen.insert(std::string(format.name)).second) << format.name;
    std::string_view aliases = format.aliases;
    while (!aliases.empty()) {
      const std::string_view alias = aliases.substr(0, aliases.find(' '));
      EXPECT_EQ(FindToolFormat(alias), &format) << alias;
      EXPECT_TRUE(seen.insert(std::string(alias)).second) << alias;
      aliases.remove_prefix(std::min(alias.size() + 1, aliases.size()));
    }
    EXPECT_NE(ToolFormatNames().find(format.name), std::string::npos);
  }
  EXPECT_EQ(FindToolFormat("no-such-format"), nullptr);
}

TEST(ToolFormats, AreDetectedWhereATemplateShowsAllTheirEvidence) {
  for (const ToolFormat& format : ToolFormats()) {
    std::string all;
    for (const std::string_view word : format.evidence) all += std::string(word) + " ";
    const ToolFormat* found = DetectToolFormat(all);
    ASSERT_NE(found, nullptr) << format.name;
    EXPECT_LE(found, &format) << "an earlier row may claim it, a later one may not";
    if (format.evidence[1].empty()) continue;
    EXPECT_NE(DetectToolFormat(format.evidence[0]), &format) << format.name;
  }
  EXPECT_EQ(DetectToolFormat("{{ messages }}"), nullptr);
}

TEST(WordSplits, HaveNamesOfTheirOwnAndAPattern) {
  std::set<std::string_view> names;
  for (const WordSplit& split : WordSplits()) {
    EXPECT_TRUE(names.insert(split.name).second) << split.name;
    EXPECT_FALSE(split.patterns[0].empty()) << split.name;
  }
}

}  // namespace
}  // namespace braid
