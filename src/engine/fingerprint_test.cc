// What a fingerprint tells apart. What decides about bits in the program:
// tests/cli/numerics_test.py.
#include "engine/fingerprint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/system/thread_pool.h"
#include "model/checkpoint/test_directory.h"
#include "model/families/families.h"
#include "model/loading/load_weights.h"
#include "model/loading/weight_binding.h"
#include "model/writing/make_model.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Ne;
using ::testing::StartsWith;

TEST(Fingerprint, TheProgramsPartIsADigest) {
  EXPECT_EQ(kNumerics.size(), 32u);
  EXPECT_EQ(kNumerics.find_first_not_of("0123456789abcdef"), std::string_view::npos);
}

// A model of one file, or of as many as its tensors need.
void Make(const std::string& path, const GgufMixture* gguf, int64_t shard_bytes_max = 1 << 30) {
  ThreadPool pool(1);
  ASSERT_TRUE(MakeModel({.directory = path,
                         .family = "qwen3",
                         .shape = {"tiny", "num_experts=8", "num_experts_per_tok=2",
                                   "moe_intermediate_size=64"},
                         .gguf = gguf,
                         .shard_bytes_max = shard_bytes_max,
                         .progress = {}},
                        pool)
                  .ok());
}

Checkpoint Open(const std::string& path) {
  Result<OpenedModel> opened = OpenModel(path);
  CHECK(opened.ok(), "{}", opened.error().message);
  return std::move(opened->checkpoint);
}

// What tells models apart in a directory of pages and between partners, and behind one address.
std::pair<std::string, std::string> LinesOf(const std::string& path) {
  const Result<OpenedModel> opened = OpenModel(path);
  CHECK(opened.ok(), "{}", opened.error().message);
  const Machine machine;
  const CacheGeometry cache;
  const std::map<std::string_view, int64_t> weights;
  const std::string mla;
  const FingerprintParts parts{opened->spec, opened->checkpoint, machine, cache, weights, mla};
  return {FingerprintOf(parts), ModelLinesOf(parts)};
}

// The lines of `a` that `b` has not.
std::vector<std::string> Differing(const std::string& a, const std::string& b) {
  std::vector<std::string> differing;
  std::istringstream lines(a);
  for (std::string line; std::getline(lines, line);) {
    if (b.find(line + '\n') == std::string::npos) differing.push_back(line);
  }
  return differing;
}

// The value of a key stands behind it and its type: 4 bytes.
TEST(Fingerprint, GgufFilesThatDifferInOneKeyOfTheModelDiffer) {
  const TestDirectory directory;
  Make(directory.path() + "/model.gguf", FindGgufMixture("q8_0"));
  const std::string file = directory.Read("model.gguf");
  const auto before = LinesOf(directory.path() + "/model.gguf");
  for (const char* key : {"qwen3moe.rope.freq_base", "qwen3moe.attention.layer_norm_rms_epsilon",
                          "qwen3moe.expert_used_count"}) {
    std::string changed = file;
    const size_t at = file.find(key);
    ASSERT_NE(at, std::string::npos) << key;
    changed[at + std::strlen(key) + 4] ^= 1;
    directory.Write("model.gguf", changed);
    const auto after = LinesOf(directory.path() + "/model.gguf");
    EXPECT_THAT(Differing(after.first, before.first), ElementsAre(StartsWith("config.json: ")));
    EXPECT_THAT(Differing(after.second, before.second), ElementsAre(StartsWith("config.json: ")));
  }
  directory.Write("model.gguf", file);
  EXPECT_EQ(LinesOf(directory.path() + "/model.gguf"), before);
}

TEST(Fingerprint, TellsTokenizersOfTheSameSizeApart) {
  const std::string tiny = BRAID_SOURCE_DIR "/models/braid-tiny";
  const std::string directory = ::testing::TempDir() + "tokens" + std::to_string(::getpid());
  std::filesystem::create_directory(directory);
  std::stringstream text;
  text << std::ifstream(tiny + "/tokenizer.json").rdbuf();
  std::string changed = text.str();
  const auto swap = [&](const std::string& a, const std::string& b) {
    const size_t at = changed.find(a);
    ASSERT_NE(at, std::string::npos);
    changed.replace(at, a.size(), b);
  };
  swap("<|im_start|>", "<|im_begin|>");
  std::ofstream(directory + "/tokenizer.json") << changed;
  const std::optional<Tokenizer> one = *Tokenizer::Load(tiny), other = *Tokenizer::Load(directory);
  ASSERT_EQ(one->vocabulary_size(), other->vocabulary_size());
  const std::string digest = TokensDigest(one, {5});
  EXPECT_EQ(TokensDigest(*Tokenizer::Load(tiny), {5}), digest);
  EXPECT_THAT(TokensDigest(other, {5}), Ne(digest));
  EXPECT_THAT(TokensDigest(one, {6}), Ne(digest));
  EXPECT_THAT(TokensDigest({}, {5}), Ne(digest));
  std::filesystem::remove_all(directory);
}

TEST(Fingerprint, AFileOfWeightsThatIsChangedInPlaceIsAnother) {
  const TestDirectory directory;
  Make(directory.path() + "/made", nullptr);
  const std::string path = directory.path() + "/made/model.safetensors";
  const auto set_time = [&](int64_t seconds) {
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  };
  const Checkpoint checkpoint = Open(directory.path() + "/made");
  set_time(1000);
  const std::string before = *FilesLine(checkpoint);
  EXPECT_EQ(*FilesLine(checkpoint), before);
  set_time(1001);
  EXPECT_THAT(*FilesLine(checkpoint), Ne(before));
  std::ofstream(path, std::ios::app) << "more";
  set_time(1000);
  EXPECT_THAT(*FilesLine(checkpoint), Ne(before));
  std::filesystem::remove(path);
  EXPECT_THAT(FilesLine(checkpoint).error().message, HasSubstr("model.safetensors"));
}

// Everything that decides about the bits of a page, and what the model is on whatever machine.
TEST(Fingerprint, EachPartHasALineOfItsOwn) {
  const Result<OpenedModel> opened = OpenModel(BRAID_SOURCE_DIR "/models/braid-tiny");
  ASSERT_TRUE(opened);
  struct Parts {
    ModelSpec spec;
    Machine machine;
    CacheGeometry cache{.groups = {{.name = "attention", .block_bytes = 64}}};
    std::map<std::string_view, int64_t> weights = {{"bf16", 100}, {"int8", 50}};
    std::string mla = "absorbed", device, tokens = "0123";
  };
  const auto lines = [&](const std::function<void(Parts&)>& change) {
    Parts p{.spec = opened->spec};
    change(p);
    const FingerprintParts parts{p.spec, opened->checkpoint, p.machine, p.cache, p.weights,
                                 p.mla,  p.device,           p.tokens};
    return std::pair(FingerprintOf(parts), ModelLinesOf(parts));
  };
  const auto before = lines([](Parts&) {});
  const struct {
    std::function<void(Parts&)> change;
    const char *of_pages, *of_model;  // the lines that differ then; empty: none
  } cases[] = {
      {[](Parts&) {}, "", ""},
      {[](Parts& p) { p.machine.cpu.avx2 = true; }, "the CPU's extensions: avx2", ""},
      {[](Parts& p) { p.machine.cpu.avx512 = p.machine.cpu.amx_int8 = true; },
       "the CPU's extensions: avx512 amx_int8", ""},
      {[](Parts& p) { p.spec.architecture = "Other"; }, "the architecture: Other",
       "the architecture: Other"},
      {[](Parts& p) { p.spec.vocabulary = 7; }, "the vocabulary: 7 tokens",
       "the vocabulary: 7 tokens"},
      {[](Parts& p) { p.weights["int8"] = 51; }, "--weights: 100 bytes of bf16, 51 bytes of int8",
       ""},
      {[](Parts& p) { p.weights.erase("int8"); }, "--weights: 100 bytes of bf16",
       "--weights: bf16"},
      {[](Parts& p) { p.machine.kv_dtype = DType::kI8; }, "--kv-dtype: i8", "--kv-dtype: i8"},
      {[](Parts& p) { p.machine.state_dtype = DType::kBF16; }, "--state-dtype: bf16",
       "--state-dtype: bf16"},
      {[](Parts& p) { p.machine.device.compute = Compute::kBF16; }, "--compute: bf16", ""},
      {[](Parts& p) { p.machine.device.isa = Isa::kAvx2; }, "--isa: avx2", ""},
      {[](Parts& p) { p.mla = "expanded"; }, "--mla: expanded", ""},
      {[](Parts& p) { p.device = "a card"; }, "--device: a card", ""},
      {[](Parts& p) { p.cache.groups.push_back({.name = "state", .block_bytes = 9}); },
       "the cache: attention of 64 bytes, state of 9 bytes", ""},
      {[](Parts& p) { p.tokens = "4567"; }, "", "the tokenizer: 4567"},
  };
  for (const auto& c : cases) {
    const auto after = lines(c.change);
    const auto only = [](const char* line) {
      return *line == '\0' ? std::vector<std::string>() : std::vector<std::string>{line};
    };
    EXPECT_EQ(Differing(after.first, before.first), only(c.of_pages));
    EXPECT_EQ(Differing(after.second, before.second), only(c.of_model));
  }
}

// Weights that differ in a byte of a sample, or in names and shapes, are others.
TEST(Fingerprint, ATensorOfOtherBytesOrAnotherShapeIsAnother) {
  const TestDirectory directory;
  Make(directory.path() + "/made", nullptr);
  const std::string made = directory.path() + "/made";
  const auto before = LinesOf(made);
  const std::string file = directory.Read("made/model.safetensors");
  for (const size_t from_end : {1, 256}) {
    std::string changed = file;
    changed[changed.size() - from_end] ^= 1;
    directory.Write("made/model.safetensors", changed);
    EXPECT_THAT(Differing(LinesOf(made).first, before.first),
                ElementsAre(StartsWith("the weights' digest: ")))
        << from_end << " bytes before the end";
  }
  directory.Write("made/model.safetensors", file);
  std::string config = directory.Read("made/config.json");
  directory.Write("made/config.json", config + " ");
  EXPECT_THAT(Differing(LinesOf(made).first, before.first),
              ElementsAre(StartsWith("config.json: ")));
}

// A node may have another fine-tune of the same shape.
TEST(Fingerprint, RanksThatAreProcessesCompareTheirFiles) {
  const TestDirectory directory;
  Make(directory.path() + "/made", nullptr);
  const auto text = [&](const std::string& tokens) {
    const Result<OpenedModel> opened = OpenModel(directory.path() + "/made");
    CHECK(opened.ok(), "{}", opened.error().message);
    return FilesTextOf({opened->spec, opened->checkpoint, {}, {}, {}, "", "", tokens});
  };
  const std::string before = text("0123");
  EXPECT_EQ(text("0123"), before);
  EXPECT_THAT(before, HasSubstr(std::string(kNumerics)));
  EXPECT_THAT(text("4567"), Ne(before));
  const std::string config = directory.Read("made/config.json");
  directory.Write("made/config.json", config + " ");
  EXPECT_THAT(text("0123"), Ne(before));
  directory.Write("made/config.json", config);
  std::string weights = directory.Read("made/model.safetensors");
  weights.back() ^= 1;
  directory.Write("made/model.safetensors", weights);
  EXPECT_THAT(text("0123"), Ne(before));
}

// A decode engine goes on with its partner's pages, and constrains the first token by the tokens.
TEST(Fingerprint, PartnersAreToldOfTheTokenizerAndOfRanks) {
  const Result<OpenedModel> opened = OpenModel(BRAID_SOURCE_DIR "/models/braid-tiny");
  ASSERT_TRUE(opened);
  const Machine machine;
  const CacheGeometry cache{.groups = CachePlanOf(opened->spec, machine.kv_dtype).groups};
  const Result<Binding> binding = BindWeights(opened->spec, opened->checkpoint);
  ASSERT_TRUE(binding);
  const std::map<std::string_view, int64_t> weights = WeightBytesOf(binding->report);
  const std::string mla = "absorbed";
  const auto describe = [&](EngineOptions& options, const CacheGeometry& own) {
    options.partners.emplace();
    const FingerprintParts parts{opened->spec, opened->checkpoint, machine, own, weights, mla, "",
                                 "0123"};
    return DescribeTo(options, parts);
  };
  EngineOptions one;
  ASSERT_TRUE(describe(one, cache).ok());
  EXPECT_THAT(one.partners->fingerprint, HasSubstr("the tokenizer: 0123\n"));
  EXPECT_FALSE(one.partners->layout);
  // Ranks have a part of each page, and say what one rank alone would have.
  CacheGeometry part = cache;
  for (GroupGeometry& group : part.groups) group.block_bytes /= 2;
  EngineOptions two{.mesh = {.tp = 2}};
  ASSERT_TRUE(describe(two, part).ok());
  EXPECT_EQ(two.partners->fingerprint, one.partners->fingerprint);
  EXPECT_TRUE(two.partners->layout);
  EngineOptions groups{.mesh = {.dp = 2}}, recorded{.event_log = "run.log"};
  EngineOptions rounded{.mesh = {.tp = 2, .ep = 2}, .reduce = "fast"};
  EXPECT_THAT(describe(groups, cache).error().message, HasSubstr("leave out --dp"));
  EXPECT_THAT(describe(recorded, cache).error().message, HasSubstr("--event-log holds no pages"));
  EXPECT_EQ(describe(recorded, cache).error().field, "role");
  EXPECT_THAT(describe(rounded, part).error().message, HasSubstr("leave out --reduce fast"));
}

TEST(Fingerprint, OtherFilesBesideTheWeightsDoNotCount) {
  const TestDirectory directory;
  Make(directory.path() + "/made", nullptr, 1 << 14);
  Make(directory.path() + "/model.gguf", FindGgufMixture("q8_0"));
  const Checkpoint shards = Open(directory.path() + "/made");
  const Checkpoint gguf = Open(directory.path() + "/model.gguf");
  ASSERT_GT(shards.file_paths().size(), 2u);
  const std::string of_shards = *FilesLine(shards), of_gguf = *FilesLine(gguf);
  for (const char* name : {"notes.txt", "pytorch_model.bin", "other.safetensors", "other.gguf"}) {
    directory.Write(std::string("made/") + name, "not of the model");
    directory.Write(name, "not of the model");
    EXPECT_EQ(*FilesLine(shards), of_shards) << name;
    EXPECT_EQ(*FilesLine(gguf), of_gguf) << name;
  }
  // Each shard counts.
  for (const std::string& path : shards.file_paths()) {
    const auto time = std::filesystem::last_write_time(path);
    std::filesystem::last_write_time(path, time + std::chrono::seconds(1));
    EXPECT_THAT(*FilesLine(shards), Ne(of_shards)) << path;
    std::filesystem::last_write_time(path, time);
  }
  EXPECT_EQ(*FilesLine(shards), of_shards);
}

}  // namespace
}  // namespace braid
