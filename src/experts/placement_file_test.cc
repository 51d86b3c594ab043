// What is written is read again; what no rank could hold is refused by name.
#include "experts/placement_file.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

constexpr const char* kText =
    R"({"braid_expert_placement": 1, "model": "m", "experts": 3, "ranks": 2, "ranks_per_node": 1,)"
    R"( "redundant": 1, "layers": [1, 4], "slots": [[0, 1, 2, 0], [2, 1, 0, 1]]})";

std::string With(std::string_view from, std::string_view to) {
  std::string text = kText;
  return text.replace(text.find(from), from.size(), to);
}

TEST(PlacementFile, ReadsSlotsByLayer) {
  const auto placement = ParseExpertPlacement(kText, "file");
  ASSERT_TRUE(placement.ok()) << placement.error().message;
  const auto by_layer = placement->ByLayer();
  ASSERT_EQ(by_layer.size(), 5u);
  EXPECT_TRUE(by_layer[0].empty());
  EXPECT_EQ(by_layer[4], (LayerSlots{2, 1, 0, 1}));
}

TEST(PlacementFile, OneExpertOnOneRankIsAPlacement) {
  const auto placement = ParseExpertPlacement(
      R"({"braid_expert_placement": 1, "experts": 1, "ranks": 1, "ranks_per_node": 1,)"
      R"( "redundant": 0, "layers": [0], "slots": [[0]]})",
      "file");
  ASSERT_TRUE(placement.ok()) << placement.error().message;
  EXPECT_EQ(placement->ByLayer(), (std::vector<LayerSlots>{{0}}));
  for (const char* field : {"\"experts\": 3", "\"ranks\": 2", "\"ranks_per_node\": 1"}) {
    const std::string name(field, std::string_view(field).rfind(' '));
    const auto none = ParseExpertPlacement(With(field, name + " 0"), "file");
    ASSERT_FALSE(none.ok()) << field;
    EXPECT_NE(none.error().message.find("must be a whole number from 1"), std::string::npos)
        << none.error().message;
  }
}

TEST(PlacementFile, NamesWhatIsWrong) {
  const auto error = [](const std::string& text) {
    const auto placement = ParseExpertPlacement(text, "file");
    return placement.ok() ? "" : placement.error().message;
  };
  EXPECT_NE(error(With("\"braid_expert_placement\": 1", "\"a\": 1")).find("must be 1"),
            std::string::npos);
  EXPECT_NE(error(With("\"redundant\": 1", "\"redundant\": 2")).find("do not divide among 2 ranks"),
            std::string::npos);
  EXPECT_NE(error(With("[2, 1, 0, 1]", "[2, 1, 1, 1]")).find("file: layer 4: "), std::string::npos);
  EXPECT_NE(error(With("[2, 1, 0, 1]", "[2, 1, 0, 3]")).find("layer 4"), std::string::npos);
  EXPECT_NE(error(With("[1, 4]", "[4, 1]")).find("ascending"), std::string::npos);
  EXPECT_NE(error(With("[1, 4]", "[4]")).find("an array for each"), std::string::npos);
}

}  // namespace
}  // namespace braid
