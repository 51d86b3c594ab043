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
  struct Case {
    const char *from, *to, *says;
  };
  for (const Case& c :
       {Case{"\"braid_expert_placement\": 1", "\"braid_expert_placement\": 2", "must be 1, the"},
        Case{"\"experts\": 3", "\"experts\": 65537", "a whole number from 1 to 65536"},
        Case{"\"experts\": 3", "\"experts\": 3.5", "\"experts\" must be a whole number"},
        Case{"\"experts\": 3,", "", "\"experts\" must be a whole number"},
        Case{"\"ranks\": 2", "\"ranks\": 65537", "\"ranks\" must be a whole number"},
        Case{"\"ranks_per_node\": 1", "\"ranks_per_node\": 3", "from 1 to 2"},
        Case{"\"redundant\": 1", "\"redundant\": -1", "from 0 to 128"},
        Case{"\"redundant\": 1", "\"redundant\": 129", "from 0 to 128"},
        Case{"[1, 4]", "[-1, 4]", "ascending whole numbers from 0"},
        Case{"[1, 4]", "[4, 4]", "ascending"},
        Case{"[1, 4]", "[1, 1048577]", "ascending"},
        Case{"[1, 4]", "[1, \"4\"]", "ascending"},
        Case{"[1, 4]", "[]", "must list the layers"},
        Case{"\"layers\"", "\"l\"", "must list the layers"},
        Case{"\"slots\"", "\"s\"", "an array for each"},
        Case{"[2, 1, 0, 1]", "[2, 1, 0, -1]", "layer 4: slot 3 holds expert -1"},
        Case{"[2, 1, 0, 1]", "[2, 1, 0, 4294967296]", "layer 4: slot 3 holds expert -1"},
        Case{"[2, 1, 0, 1]", "[2, 1, 0, \"1\"]", "layer 4: slot 3 holds expert -1"},
        Case{"[2, 1, 0, 1]", "[2, 1, 0]", "layer 4: a placement of 3 slots"},
        Case{"[2, 1, 0, 1]", "7", "layer 4: a placement of 0 slots"}}) {
    const std::string message = error(With(c.from, c.to));
    EXPECT_NE(message.find(c.says), std::string::npos) << c.to << ": " << message;
    EXPECT_EQ(message.find("file: "), 0u);
  }
  EXPECT_EQ(error("[]"), "file: must be a JSON object");
  EXPECT_NE(error("{"), "");
  EXPECT_FALSE(ReadExpertPlacement(testing::TempDir() + "/no_such_placement.json"));
}

TEST(PlacementFile, ReadsWhatItWrites) {
  const std::string path = testing::TempDir() + "/placement_file_test.json";
  const ExpertPlacement placement{
      .model = "m \"1\"",
      .shape = {.experts = 3, .redundant = 3, .ranks = 6, .ranks_per_node = 2},
      .layers = {0, 7},
      .slots = {{0, 1, 2, 0, 1, 2}, {2, 2, 2, 1, 0, 0}}};
  ASSERT_TRUE(WriteExpertPlacement(path, placement));
  const Result<ExpertPlacement> read = ReadExpertPlacement(path);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, placement);
  EXPECT_FALSE(WriteExpertPlacement(testing::TempDir() + "/none/placement.json", placement));
  ExpertPlacement nameless = *ParseExpertPlacement(With("\"m\"", "1"), "file");
  EXPECT_EQ(nameless.model, "") << "no text";
  nameless = *ParseExpertPlacement(With("[1, 4]", "[1, 1048576]"), "file");
  EXPECT_EQ(nameless.layers.back(), 1 << 20);
}

}  // namespace
}  // namespace braid
