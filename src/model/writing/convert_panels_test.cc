// Checkpoints of panels against the ones that they were made from: the same bits in memory, from
// the file's own pages, and one error for each way in which a file can be wrong.
#include "model/writing/convert_panels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/json.h"
#include "base/system/file.h"
#include "model/checkpoint/test_directory.h"
#include "model/families/families.h"
#include "model/loading/keep_rows.h"
#include "model/loading/load_weights.h"
#include "model/writing/make_model.h"
#include "model/loading/stored_panels.h"
#include "ops/layout_digest.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

const std::string kTiny = BRAID_SOURCE_DIR "/models/braid-tiny";

Result<Converted> Convert(const std::string& from, const std::string& to,
                          const WeightChoice& choice = {}, int64_t shard_bytes = 1 << 30) {
  ThreadPool pool(2);
  return ConvertToPanels({.from = from,
                          .to = to,
                          .choice = choice,
                          .shard_bytes_max = shard_bytes,
                          .progress = {}},
                         pool);
}

// A loaded model with the weights in the order of its spec.
struct Loaded {
  OpenedModel opened;
  std::vector<WeightSpec> specs;
  std::vector<const Weight*> places;  // those of layers stay valid when the model moves
  ModelWeights model;

  const Weight& At(size_t i) const {
    if (specs[i].part == "embedding") return model.embedding;
    if (specs[i].part == "head") return model.head;
    return specs[i].name == "@norm" ? model.final_norm : *places[i];
  }
};

Result<Loaded> Load(const std::string& path, const WeightChoice& choice = {},
                    const HeldRows& held = {}) {
  ThreadPool pool(2);
  ASSIGN_OR_RETURN(OpenedModel opened, OpenModel(path));
  Loaded loaded{.opened = std::move(opened), .specs = {}, .places = {}, .model = {}};
  ASSIGN_OR_RETURN(Binding binding,
                   BindWeights(loaded.opened.spec, loaded.opened.checkpoint, choice));
  if (held) KeepRows(held, binding);
  for (const BoundWeight& bound : binding.weights) {
    loaded.specs.push_back(bound.spec);
    loaded.places.push_back(bound.weight);
  }
  ASSIGN_OR_RETURN(loaded.model, LoadWeights(std::move(binding), pool));
  return loaded;
}

std::span<const std::byte> BytesOf(const WeightSpec& spec, const Weight& weight) {
  if (spec.use == WeightUse::kMatrix) {
    return {weight.matrix.data, static_cast<size_t>(weight.matrix.bytes())};
  }
  return std::as_bytes(std::span(weight.vector, static_cast<size_t>(spec.n * spec.k)));
}

void ExpectSameWeights(const Loaded& a, const Loaded& b) {
  ASSERT_EQ(a.specs.size(), b.specs.size());
  EXPECT_EQ(a.opened.spec.norm.offset, b.opened.spec.norm.offset);
  EXPECT_EQ(a.opened.spec.tied_head, b.opened.spec.tied_head);
  for (size_t i = 0; i < a.specs.size(); ++i) {
    ASSERT_EQ(a.specs[i].name, b.specs[i].name);
    ASSERT_EQ(a.At(i).matrix.format, b.At(i).matrix.format) << a.specs[i].name;
    const auto x = BytesOf(a.specs[i], a.At(i)), y = BytesOf(b.specs[i], b.At(i));
    ASSERT_TRUE(std::ranges::equal(x, y)) << a.specs[i].name;
  }
}

bool InFile(const Loaded& loaded, size_t i) {
  const auto& tensors = loaded.opened.checkpoint.tensors();
  return std::ranges::any_of(tensors, [&](const auto& entry) {
    return loaded.At(i).matrix.data == entry.second.data;
  });
}

struct Source {
  const char* family;
  std::vector<std::string> shape;
};

// Sizes that are no multiples of 16 or 64, ties of the head, all kinds of layers, weights that the
// checkpoint holds transposed (deepseek_v3).
const Source kSources[] = {
    {"qwen3_5_moe", {"tiny", "hidden_size=72", "num_experts=5", "moe_intermediate_size=24"}},
    {"qwen3_next", {"tiny"}},
    {"deepseek_v3", {"tiny"}},
    {"kimi_linear", {"tiny"}},
};

TEST(ConvertToPanels, GivesEveryFamilyTheBitsThatLoadingGives) {
  ThreadPool pool(2);
  for (const Source& source : kSources) {
    const TestDirectory directory;
    const std::string from = directory.path() + "/made";
    ASSERT_TRUE(MakeModel({.directory = from,
                           .family = source.family,
                           .shape = source.shape,
                           .progress = {}},
                          pool)
                    .ok());
    std::vector<WeightChoice> choices = {{}};
    for (const ops::WeightFormatRow& row : ops::WeightFormats()) {
      choices.push_back({.format = row.format, .head = row.format == ops::WeightFormat::kI4});
    }
    for (const WeightChoice& choice : choices) {
      const std::string name(choice.format ? ops::NameOf(*choice.format) : "auto");
      const std::string to = directory.path() + "/" + name;
      ASSERT_TRUE(Convert(from, to, choice)) << name;
      Result<Loaded> original = Load(from, choice), mapped = Load(to);
      ASSERT_TRUE(original && mapped) << name;
      ExpectSameWeights(*original, *mapped);
      EXPECT_EQ(mapped->model.bytes, original->model.bytes);
      int64_t bytes = 0;
      for (size_t i = 0; i < mapped->specs.size(); ++i) {
        if (mapped->specs[i].use == WeightUse::kVector) continue;
        ASSERT_TRUE(InFile(*mapped, i)) << mapped->specs[i].name;
        bytes += mapped->At(i).matrix.bytes();
      }
      EXPECT_EQ(mapped->model.mapped_bytes, bytes);
      EXPECT_EQ(original->model.mapped_bytes, 0);
      // A file of panels is a checkpoint in its format, and may run in another.
      Result<Loaded> other = Load(to, {.format = ops::WeightFormat::kF32});
      ASSERT_TRUE(other) << other.error().message;
      Result<Loaded> plain = Load(from, {.format = ops::WeightFormat::kF32});
      if (!choice.format || *choice.format == ops::WeightFormat::kF32) {
        ExpectSameWeights(*plain, *other);
      }
    }
  }
}

TEST(ConvertToPanels, KeepsWhatAGgufFileSaysOfItsNormsAndText) {
  const TestDirectory directory;
  for (const char* name :
       {"qwen3_5_moe_a", "qwen3_next_made", "deepseek_v3_a", "kimi_linear_c", "text"}) {
    const std::string from =
        std::string(BRAID_SOURCE_DIR "/tests/formats/layouts/") + name + ".gguf";
    const std::string to = directory.path() + "/" + name;
    const Result<Converted> made = Convert(from, to);
    ASSERT_TRUE(made) << made.error().message;
    Result<Loaded> original = Load(from), mapped = Load(to);
    ASSERT_TRUE(original && mapped) << name;
    ExpectSameWeights(*original, *mapped);
    EXPECT_TRUE(FileExists(to + "/gguf_tokenizer.json"));
  }
}

TEST(ConvertToPanels, WritesSeveralFilesWhereOneWouldBeTooLarge) {
  const TestDirectory directory;
  const std::string to = directory.path() + "/mapped";
  const Result<Converted> made = Convert(kTiny, to, {}, 1 << 20);
  ASSERT_TRUE(made);
  EXPECT_GT(made->files, 3);
  Result<Loaded> original = Load(kTiny), mapped = Load(to);
  ASSERT_TRUE(original && mapped);
  ExpectSameWeights(*original, *mapped);
}

// Whole panels of some rows, as ranks hold them: mapped where they follow each other, else copied.
TEST(ConvertToPanels, GivesARankTheRowsThatItHolds) {
  const TestDirectory directory;
  const WeightChoice int8 = {.format = ops::WeightFormat::kI8};
  const std::string to = directory.path() + "/mapped";
  ASSERT_TRUE(Convert(kTiny, to, int8));
  const HeldRows second_half = [](const WeightSpec& spec) -> std::vector<RowRange> {
    if (spec.part == "experts") return {{spec.count * spec.n / 2, spec.count * spec.n / 2}};
    const bool halves = spec.use == WeightUse::kMatrix && spec.count == 1 && spec.n % 64 == 0;
    if (!halves) return {{0, spec.count * spec.n}};
    return {{0, 16}, {spec.n / 2, spec.n / 2}};
  };
  Result<Loaded> original = Load(kTiny, int8, second_half), mapped = Load(to, {}, second_half);
  ASSERT_TRUE(original) << original.error().message;
  ASSERT_TRUE(mapped) << mapped.error().message;
  ExpectSameWeights(*original, *mapped);
  int64_t experts = 0;
  for (size_t i = 0; i < mapped->specs.size(); ++i) {
    if (mapped->specs[i].part == "experts") experts += mapped->At(i).matrix.bytes();
  }
  EXPECT_GE(mapped->model.mapped_bytes, experts);
  EXPECT_LT(mapped->model.mapped_bytes, mapped->model.bytes);

  const HeldRows cut = [](const WeightSpec& spec) -> std::vector<RowRange> {
    const bool projection = spec.name.ends_with("out_proj");
    return {{projection ? 8 : 0, projection ? spec.n - 16 : spec.count * spec.n}};
  };
  const Result<Loaded> refused = Load(to, {}, cut);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("out_proj that this rank holds are no whole"));
}

TEST(ConvertToPanels, WritesNoCheckpointOfPanelsAnew) {
  const TestDirectory directory;
  const std::string to = directory.path() + "/mapped", again = directory.path() + "/again";
  ASSERT_TRUE(Convert(kTiny, to));
  ThreadPool pool(1);
  for (const Result<Converted>& made :
       {Convert(to, again),
        ConvertCheckpoint({.from = to, .to = again, .progress = {}}, pool)}) {
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message, HasSubstr("is a mapped checkpoint; convert the one that"));
  }
  EXPECT_FALSE(FileExists(again));
}

class WrongPanels : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(Convert(kTiny, to_)); }
  std::string Problem() const {
    const Result<Loaded> loaded = Load(to_);
    return loaded ? "" : loaded.error().message;
  }
  // config.json with `from` replaced by `to`, once.
  void Edit(const std::string& from, const std::string& to) const {
    std::string config = *ReadFile(to_ + "/config.json", 1 << 20);
    const size_t at = config.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    ASSERT_TRUE(WriteFile(to_ + "/config.json", config.replace(at, from.size(), to)).ok());
  }

  const TestDirectory directory_;
  const std::string to_ = directory_.path() + "/mapped";
};

TEST_F(WrongPanels, OfAnotherLayoutAreRefused) {
  const std::string digest = ops::LayoutDigest(ops::WeightFormat::kBF16);
  Edit(digest, "0123456789abcdef");
  EXPECT_THAT(Problem(),
              HasSubstr("layouts.bf16\" is \"0123456789abcdef\" and must be \"" + digest));
  EXPECT_THAT(Problem(), HasSubstr("another version of Braid"));
}

TEST_F(WrongPanels, OfAnUnknownFormatAreRefused) {
  Edit("\"bf16\":", "\"int3\":");
  EXPECT_THAT(Problem(),
              HasSubstr("layouts.int3\" is a format that is not known: another version"));
}

TEST_F(WrongPanels, WithoutLayoutsAreRefused) {
  Edit("\"layouts\"", "\"drawings\"");
  EXPECT_THAT(Problem(), HasSubstr("layouts\" is missing"));
}

TEST_F(WrongPanels, ThatEndEarlyAreRefused) {
  const std::string path = to_ + "/model.safetensors";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4096);
  EXPECT_THAT(Problem(), HasSubstr("truncated"));
}

TEST_F(WrongPanels, OfOtherSizesAreRefused) {
  Edit("\"moe_intermediate_size\":", "\"moe_intermediate_size\":1");
  EXPECT_THAT(Problem(), HasSubstr("has the shape"));
}

TEST_F(WrongPanels, AtOddAddressesAreRefused) {
  const std::string path = to_ + "/model.safetensors";
  std::string bytes = directory_.Read("mapped/model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  bytes.insert(8 + length, 8, ' ');
  length += 8;
  std::memcpy(bytes.data(), &length, sizeof length);
  directory_.Write("mapped/model.safetensors", bytes);
  EXPECT_THAT(Problem(), HasSubstr("does not begin at a multiple of 64 bytes"));
}

TEST(LayoutDigest, DiffersBetweenFormatsAndIsAFunction) {
  std::vector<std::string> digests;
  for (const ops::WeightFormatRow& row : ops::WeightFormats()) {
    digests.push_back(ops::LayoutDigest(row.format));
    EXPECT_EQ(digests.back(), ops::LayoutDigest(row.format));
  }
  std::ranges::sort(digests);
  EXPECT_EQ(std::ranges::adjacent_find(digests), digests.end());
}

}  // namespace
}  // namespace braid
