// Where a value ends, in any cuts, and what passes through.
#include "text/answer/json_scanner.h"

#include <gtest/gtest.h>

#include <utility>

namespace braid {
namespace {

struct Scanned {
  std::string value;
  size_t taken = 0;
  bool ended = false;
};

// Fed `step` bytes at a time until the value ends.
Scanned Scan(std::string_view text, size_t step) {
  JsonScanner scanner;
  Scanned scanned;
  for (size_t at = 0; at < text.size() && !scanner.ended(); at += step) {
    scanned.taken += scanner.Push(text.substr(at, step), &scanned.value);
  }
  scanned.ended = scanner.ended();
  return scanned;
}

TEST(JsonScanner, AValueEndsTheSameInEveryCut) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"(  {"a": [1, {"b": "}]"}]} rest)", R"({"a": [1, {"b": "}]"}]})"},
      {R"("a \" b" rest)", R"("a \" b")"},
      {R"("a \\" rest)", R"("a \\")"},
      {"[1]]", "[1]"},
      {"{}{}", "{}"},
      {"12 rest", "12"},
      {"true,", "true"},
      {"null}", "null"},
      {"[1, 2</call>", "[1, 2"},
      {"3]", "3"},
  };
  for (const auto& [text, value] : kCases) {
    const std::string_view all = text;
    const size_t end = all.find(value) + std::string_view(value).size();
    for (size_t step = 1; step <= all.size(); ++step) {
      const Scanned scanned = Scan(text, step);
      EXPECT_EQ(scanned.value, value) << text << ", " << step;
      EXPECT_EQ(scanned.taken, end) << text << ", " << step;
      EXPECT_TRUE(scanned.ended) << text << ", " << step;
    }
  }
}

TEST(JsonScanner, TellsWhatIsStillOpen) {
  JsonScanner scanner;
  std::string value;
  scanner.Push(" \n", &value);
  EXPECT_FALSE(scanner.started());
  scanner.Push("{\"a\": [", &value);
  EXPECT_TRUE(scanner.started());
  EXPECT_FALSE(scanner.in_string());
  EXPECT_EQ(scanner.MissingClosers(), "]}");
  scanner.Push("\"x", &value);
  EXPECT_TRUE(scanner.in_string());
  EXPECT_EQ(scanner.MissingClosers(), "");
  scanner.Push("\"]", &value);
  EXPECT_EQ(scanner.MissingClosers(), "}");
  scanner.Push("}", &value);
  EXPECT_TRUE(scanner.ended());
  EXPECT_EQ(value, "{\"a\": [\"x\"]}");
  EXPECT_EQ(scanner.Push("more", &value), 0u);
}

TEST(JsonScanner, EscapesControlCharactersInsideStrings) {
  EXPECT_EQ(Scan("\"a\nb\tc\rd\x01\"", 3).value, R"("a\nb\tc\rd\u0001")");
  // A backslash before a real newline is dropped, one before a letter stays.
  EXPECT_EQ(Scan("\"a\\\nb\\n\"", 2).value, R"("a\nb\n")");
  EXPECT_EQ(Scan("[\n1]", 1).value, "[\n1]") << "between values they are blanks";
}

TEST(JsonScanner, AByteIsEscapedAsStringsNeedIt) {
  const auto escaped = [](char c) {
    std::string out;
    AppendJsonEscaped(c, &out);
    return out;
  };
  EXPECT_EQ(escaped('"'), "\\\"");
  EXPECT_EQ(escaped('\\'), "\\\\");
  EXPECT_EQ(escaped('\n'), "\\n");
  EXPECT_EQ(escaped('\x1f'), "\\u001f");
  EXPECT_EQ(escaped(' '), " ");
  EXPECT_EQ(escaped('\xc3'), "\xc3");
}

}  // namespace
}  // namespace braid
