// Load files: round trip, sums, and errors that name the line.
#include "experts/load_file.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

ExpertLoads Example() {
  ExpertLoads loads{.model = "m \"1\"", .experts = 3, .top_k = 2, .layers = {1, 4}};
  loads.windows.push_back({.passes = 10, .tokens = 4, .counts = {{4, 3, 1}, {0, 4, 4}}});
  loads.windows.push_back({.passes = 1, .tokens = 1, .counts = {{1, 1, 0}, {0, 1, 1}}});
  return loads;
}

std::string TextOf(const ExpertLoads& loads) {
  std::string text = HeaderLine(loads);
  for (const LoadWindow& window : loads.windows) text += WindowLine(window);
  return text;
}

TEST(LoadFile, ReadsWhatItWrites) {
  const std::string path = testing::TempDir() + "/loads.jsonl";
  ASSERT_TRUE(WriteExpertLoads(path, Example()));
  const Result<ExpertLoads> read = ReadExpertLoads(path);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, Example());
}

TEST(LoadFile, TheFirstLayerAndTheLastExpertMayCount) {
  ExpertLoads loads{.model = "", .experts = 1, .top_k = 1, .layers = {0}};
  loads.windows.push_back({.passes = 1, .tokens = 0, .counts = {{0}}});
  const Result<ExpertLoads> read = ParseExpertLoads(TextOf(loads), "f");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, loads);
}

TEST(LoadFile, TheMostThatEachNumberMayBeIsRead) {
  const std::string most =
      R"({"braid_expert_loads":1,"experts":65536,"top_k":65536,"layers":[1048576]})";
  const auto error = ParseExpertLoads(most + "\n{}", "f").error().message;
  EXPECT_EQ(error, "f, line 2: \"passes\" must be a whole number from 1 to 1099511627776");
  const std::string model =
      R"({"braid_expert_loads":1,"experts":1,"top_k":1,"layers":[0],"model":3})";
  const std::string window =
      R"({"passes":1099511627776,"tokens":1099511627776,"counts":[[1099511627776]]})";
  const Result<ExpertLoads> read = ParseExpertLoads(model + "\n\n" + window, "f");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->model, "") << "no text";
  EXPECT_EQ(read->windows.at(0).counts[0][0], int64_t{1} << 40);
  EXPECT_FALSE(ReadExpertLoads(testing::TempDir() + "/no_such_loads.jsonl"));
}

TEST(LoadFile, WindowsAddUp) {
  LoadWindow sum;
  for (const LoadWindow& window : Example().windows) sum += window;
  EXPECT_EQ(sum, (LoadWindow{.passes = 11, .tokens = 5, .counts = {{5, 4, 1}, {0, 5, 5}}}));
}

TEST(LoadFile, ErrorsNameTheLineAndWhatIsWrong) {
  const std::string good = TextOf(Example());
  const auto error = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    const Result<ExpertLoads> read = ParseExpertLoads(text, "f");
    return read ? std::string("none") : read.error().message;
  };
  const auto says = [](const std::string& message, std::string_view part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(error("loads\":1", "loads\":2"), "f, line 1: the first line must have");
  says(error("\"experts\":3", "\"experts\":0"),
       "line 1: \"experts\" must be a whole number from 2");
  says(error("[1,4]", "[4,1]"), "ascending");
  says(error("[1,4]", "[]"), "must list the layers");
  says(error("[1,4]", "[-1,4]"), "ascending whole numbers from 0");
  says(error("[1,4]", "[4,4]"), "ascending");
  says(error("[4,3,1]", "[4,3]"), "line 2: the counts of layer 1 must be 3 numbers");
  says(error("[0,4,4]", "[0,4,-4]"), "layer 4 must be whole numbers from 0");
  says(error("[0,4,4]", "[0,4,3]"), "layer 4 add up to 7; 4 tokens that choose 2 each give 8");
  says(error("\"passes\":1,", "\"passes\":0,"), "line 3: \"passes\"");
  says(error(",[0,1,1]", ""), "each of the 2 layers");
  says(error("\"experts\":3", "\"experts\":65537"), "a whole number from 2 to 65536");
  says(error("\"top_k\":2", "\"top_k\":0"), "\"top_k\" must be a whole number from 1 to 65536");
  says(error("\"top_k\":2", "\"top_k\":2.5"), "\"top_k\" must be a whole number");
  says(error("\"top_k\":2,", ""), "\"top_k\" must be a whole number");
  says(error("[1,4]", "[1,1048577]"), "ascending whole numbers from 0");
  says(error("[1,4]", "[1,\"4\"]"), "ascending whole numbers from 0");
  says(error("[1,4]", "7"), "must list the layers");
  says(error("\"layers\"", "\"l\""), "must list the layers");
  says(error("\"tokens\":1,", "\"tokens\":-1,"), "line 3: \"tokens\"");
  says(error("\"passes\":1,", "\"passes\":1099511627777,"), "from 1 to 1099511627776");
  says(error("[0,4,4]", "7"), "the counts of layer 4 must be 3 numbers");
  says(error("[0,4,4]", "[0,4,4.5]"), "layer 4 must be whole numbers from 0");
  says(error("[0,4,4]", "[0,4,1099511627777]"), "layer 4 must be whole numbers from 0");
  says(error("\"counts\":[[4", "\"c\":[[4"), "\"counts\" must have an array");
  says(error("\"counts\":[[4,3,1],[0,4,4]]", "\"counts\":3"), "\"counts\" must have an array");
  says(error("{\"passes\":10", "3\n{\"passes\":10"), "f, line 2: must be an object");
  says(error("{\"passes\":10", "{\n{\"passes\":10"), "f, line 2");
  says(error("\n{\"passes\":10", "\n\n\n{\"passes\":0"), "f, line 4: \"passes\"");
  const Result<ExpertLoads> header_only = ParseExpertLoads(HeaderLine(Example()), "f");
  ASSERT_FALSE(header_only);
  says(header_only.error().message, "has no window");
}

TEST(LoadFile, ChoicesMustGiveTheCounts) {
  ExpertLoads loads{.model = "m", .experts = 3, .top_k = 2, .layers = {4}};
  loads.windows.push_back({.passes = 1, .tokens = 2, .counts = {{2, 1, 1}}});
  loads.windows[0].choices = {{0, 2, 1, 0}};
  const std::string text = HeaderLine(loads) + WindowLine(loads.windows[0]);
  const Result<ExpertLoads> read = ParseExpertLoads(text, "f");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, loads);
  const auto says = [&](std::string_view choices) {
    std::string wrong = text;
    wrong.replace(wrong.find("[[0,2,1,0]]"), 11, choices);
    return ParseExpertLoads(wrong, "f").error().message;
  };
  EXPECT_EQ(says("[[0,2,1,1]]"), "f, line 2: the choices of layer 4 do not give its counts");
  EXPECT_EQ(says("[7]"), "f, line 2: the choices of layer 4 do not give its counts");
  EXPECT_EQ(says("[[0,2,-1,0]]"), "f, line 2: the choices of layer 4 must be experts from 0 to 2");
  EXPECT_EQ(says("[[0,2,\"1\",0]]"),
            "f, line 2: the choices of layer 4 must be experts from 0 to 2");
  EXPECT_EQ(says("3"), "f, line 2: \"choices\" must have an array for each of the 1 layers");
  EXPECT_EQ(says("[[0,2,3,0]]"), "f, line 2: the choices of layer 4 must be experts from 0 to 2");
  EXPECT_EQ(says("[]"), "f, line 2: \"choices\" must have an array for each of the 1 layers");
}

}  // namespace
}  // namespace braid
