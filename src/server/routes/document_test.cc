// docs/api.md has the tables that the server enforces. With BRAID_WRITE_DOCS set, as `make docs`
// does, they are written into it.
#include "server/routes/document.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/system/file.h"
#include "server/api/fields.h"
#include "server/limit_table.h"

namespace braid {
namespace {

constexpr const char* kDocument = BRAID_SOURCE_DIR "/docs/api.md";

// The text between "<!-- NAME: … -->" and "<!-- end of NAME -->"; where docs are written, `made`
// replaces it first.
std::string TableInDocument(const std::string& name, const std::string& made) {
  Result<std::string> text = ReadFile(kDocument, 1 << 20);
  if (!text) return text.error().message;
  const size_t mark = text->find(fmt::format("<!-- {}: ", name));
  const size_t begin = text->find("-->\n", mark);
  const size_t end = text->find(fmt::format("<!-- end of {} -->", name));
  if (mark == std::string::npos || begin == std::string::npos || end == std::string::npos) {
    return "the document has no place for this table";
  }
  if (std::getenv("BRAID_WRITE_DOCS") == nullptr) return text->substr(begin + 4, end - begin - 4);
  text->replace(begin + 4, end - begin - 4, made);
  std::ofstream(kDocument) << *text;
  return made;
}

TEST(ApiDocument, HasEveryRoute) {
  const std::string made = RoutesMarkdown();
  EXPECT_EQ(TableInDocument("routes", made), made) << "run `make docs`";
}

TEST(ApiDocument, HasTheLimitsThatAreEnforced) {
  const std::string made = LimitsMarkdown();
  EXPECT_EQ(TableInDocument("limits", made), made) << "run `make docs`";
}

TEST(ApiDocument, HasTheFieldsThatAreEnforcedHarmlessAndRefused) {
  const std::string made = FieldsMarkdown();
  EXPECT_EQ(TableInDocument("fields", made), made) << "run `make docs`";
}

TEST(ApiDocument, SaysWhyAFieldIsHarmlessAndWhatToSendForARefusedOne) {
  for (const Field& field : Fields()) {
    if (auto* rule = std::get_if<HarmlessRule>(&field.rule)) {
      EXPECT_FALSE(rule->why.empty()) << field.name;
    }
    auto* rule = std::get_if<RefusedRule>(&field.rule);
    if (rule == nullptr) continue;
    EXPECT_FALSE(rule->instead.empty()) << field.name;
    if (rule->neutral.empty()) continue;
    const auto neutral = ParseJson(rule->neutral, field.name);
    EXPECT_TRUE(neutral && neutral->is_array() && !neutral->get_array().empty()) << field.name;
  }
}

TEST(ApiDocument, NamesEachLimitOnceAndTheFileThatChecksIt) {
  std::set<std::string_view> names;
  for (const limits::Limit& row : LimitTable({}, {}, {})) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(row.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string_view::npos)
        << row.name;
    EXPECT_FALSE(LimitText(row).empty()) << row.name;
    EXPECT_TRUE(std::filesystem::exists(fmt::format("{}/src/{}", BRAID_SOURCE_DIR, row.enforced)))
        << row.name << " is not checked in " << row.enforced;
  }
}

}  // namespace
}  // namespace braid
