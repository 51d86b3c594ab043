// Hostile and damaged safetensors files: each gives one message that says what is wrong, in bounded
// time and memory.
#include "model/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <set>

#include "model/checkpoint/test_directory.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

// "VmHWM" is the most that the process ever held; resetting it makes growth measurable.
int64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

void ResetPeakResident() { std::ofstream("/proc/self/clear_refs") << "5"; }

// What this build keeps in memory for each byte that is looked at: 1, and more under a sanitizer.
int64_t ResidentPerByte() {
  constexpr int64_t kBytes = 16 << 20;
  ResetPeakResident();
  const int64_t before = PeakResidentBytes();
  const std::string bytes(static_cast<size_t>(kBytes), 'x');
  EXPECT_EQ(bytes.find('y'), std::string::npos);
  return std::max<int64_t>(1, (PeakResidentBytes() - before + kBytes / 2) / kBytes);
}

constexpr int64_t kGrownMax = 64 << 20;

struct Opened {
  std::string error;  // empty when the checkpoint opened
  int64_t grown_bytes = 0;
  int64_t us = 0;  // of processor time
};

// Of this process: what else the machine does is not counted.
int64_t CpuUs() { return std::clock() * (1'000'000 / CLOCKS_PER_SEC); }

// The measure of time: what a sorted set of as many names as a header may have takes this build.
// Work that grows with the square of the tensors takes hundreds of it.
int64_t SetOfNamesUs() {
  const int64_t before = CpuUs();
  std::set<std::string> names;
  for (int i = 0; i < 262'144; ++i) names.insert(fmt::format("model.layers.{}.weight", i));
  EXPECT_TRUE(names.contains("model.layers.4711.weight"));
  return CpuUs() - before;
}

constexpr int64_t kSetsOfNamesMax = 10;

Opened Open(const TestDirectory& dir) {
  ResetPeakResident();
  const int64_t bytes = PeakResidentBytes(), us = CpuUs();
  Result<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  return {checkpoint ? "" : checkpoint.error().message, PeakResidentBytes() - bytes, CpuUs() - us};
}

Opened OpenFile(std::string_view bytes) {
  TestDirectory dir;
  dir.Write("model.safetensors", bytes);
  return Open(dir);
}

// Two tensors of 8 bytes each, the second with the given members.
std::string Pair(const std::string& second) {
  return fmt::format(R"({{"a":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}},"b":{{{}}}}})",
                     second);
}

TEST(Checkpoint, ReadsTensorsInAnyOrderWithMetadataAndTrailingBlanks) {
  const std::string header =
      R"({"b":{"shape":[1,4],"data_offsets":[8,16],"dtype":"BF16"},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("none":{"dtype":"F32","shape":[0,9],"data_offsets":[16,16]}}   )";
  TestDirectory dir;
  dir.Write("model.safetensors", SafetensorsBytes(header, 16));
  Result<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ASSERT_EQ(checkpoint->tensors().size(), 3u);
  const TensorEntry* b = checkpoint->Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, DType::kBF16);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(b->data - checkpoint->Find("a")->data, 8);
  EXPECT_EQ(checkpoint->total_bytes(), 16);
}

struct BadFile {
  const char* what;
  std::string bytes;
  const char* message;
};

std::vector<BadFile> BadFiles() {
  const std::string good = Pair(R"("dtype":"F32","shape":[2],"data_offsets":[8,16])");
  std::string huge_length = SafetensorsBytes(good, 16);
  huge_length.replace(0, 8, std::string("\0\0\0\0\0\0\0\x10", 8));  // 2^60
  std::string long_name(1100, 'n');
  auto with = [](const char* members) { return SafetensorsBytes(Pair(members), 16); };
  return {
      {"an empty file", "", "0 bytes"},
      {"no header", std::string(12, 'x'), "claims"},
      {"a header of 2^60 bytes", huge_length, "at most 100000000"},
      {"a header longer than the file", SafetensorsBytes(good, 16).substr(0, 60), "truncated"},
      {"half of the data", SafetensorsBytes(good, 12), "\"b\" ends past the end of the file"},
      {"bytes after the last tensor", SafetensorsBytes(good, 20), "4 bytes after the last tensor"},
      {"not JSON", SafetensorsBytes("{\"a\":{]", 16), "not valid JSON"},
      {"a list", SafetensorsBytes("[1]", 16), "does not begin with '{'"},
      {"two documents", SafetensorsBytes(good + "{}", 16), "extra data"},
      {"no tensor", SafetensorsBytes("{}", 0), "holds no tensor"},
      {"deep nesting", SafetensorsBytes(std::string("{\"a\":").append(50000, '['), 16),
       "a list where"},
      {"invalid UTF-8", SafetensorsBytes("{\"\xff\xfe\":{}}", 0), "not valid JSON"},
      {"overlap", with(R"("dtype":"F32","shape":[3],"data_offsets":[4,16])"), "tensors overlap"},
      {"the same bytes twice", with(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"),
       "overlap"},
      {"a hole", with(R"("dtype":"F32","shape":[1],"data_offsets":[12,16])"), "there is a hole"},
      {"offsets past the end", with(R"("dtype":"F32","shape":[100],"data_offsets":[8,408])"),
       "\"b\" ends past the end"},
      {"backward offsets", with(R"("dtype":"F32","shape":[2],"data_offsets":[16,8])"), "backwards"},
      {"negative offsets", with(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])"), "negative"},
      {"offsets of 2^64",
       with(R"("dtype":"F32","shape":[2],"data_offsets":[8,18446744073709551615])"), "2^63"},
      {"a third offset", with(R"("dtype":"F32","shape":[2],"data_offsets":[8,16,24])"), "third"},
      {"one offset", with(R"("dtype":"F32","shape":[2],"data_offsets":[8])"), "not two numbers"},
      {"a shape of 2^60",
       with(R"("dtype":"F32","shape":[1152921504606846976],"data_offsets":[8,16])"), "hold 8"},
      {"a shape that overflows",
       with(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[8,16])"), "2^63"},
      {"a negative dimension", with(R"("dtype":"F32","shape":[-2],"data_offsets":[8,16])"),
       "negative"},
      {"a fractional dimension", with(R"("dtype":"F32","shape":[2.5],"data_offsets":[8,16])"),
       "a fraction"},
      {"nine dimensions",
       with(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[8,16])"),
       "more than 8 dimensions"},
      {"a size that does not fit", with(R"("dtype":"F32","shape":[3],"data_offsets":[8,16])"),
       "need 12 bytes and data_offsets hold 8"},
      {"an unknown dtype", with(R"("dtype":"Q4","shape":[2],"data_offsets":[8,16])"), "\"Q4\""},
      {"no dtype", with(R"("shape":[2],"data_offsets":[8,16])"), "needs dtype"},
      {"a member twice", with(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[8,16])"),
       "\"dtype\" appears twice"},
      {"an unknown member", with(R"("dtype":"F32","shape":[2],"data_offsets":[8,16],"x":1)"),
       "\"x\""},
      {"a string for a shape", with(R"("dtype":"F32","shape":"2","data_offsets":[8,16])"),
       "a string"},
      {"a duplicate name",
       SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                        R"("a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                        16),
       "\"a\" appears twice"},
      {"a long name",
       SafetensorsBytes(
           fmt::format(R"({{"{}":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}}})", long_name),
           8),
       "more than 1024 bytes"},
      {"control characters in a name",
       SafetensorsBytes(R"({"a\u0007":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
       "control characters"},
  };
}

TEST(Checkpoint, EveryDamagedFileGivesOneMessageThatSaysWhatIsWrong) {
  const int64_t grown_max = ResidentPerByte() * kGrownMax;
  for (const BadFile& bad : BadFiles()) {
    const Opened opened = OpenFile(bad.bytes);
    EXPECT_THAT(opened.error, HasSubstr(bad.message)) << bad.what;
    EXPECT_THAT(opened.error, HasSubstr("model.safetensors")) << bad.what;
    EXPECT_LT(opened.grown_bytes, grown_max) << bad.what;
    EXPECT_LT(opened.us, 1'000'000) << bad.what;
  }
}

TEST(Checkpoint, ATruncationAnywhereIsFound) {
  const std::string whole =
      SafetensorsBytes(Pair(R"("dtype":"F32","shape":[2],"data_offsets":[8,16])"), 16);
  ASSERT_EQ(OpenFile(whole).error, "");
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_NE(OpenFile(whole.substr(0, bytes)).error, "") << bytes;
  }
}

// Tensors of one byte each, in order, until the header has about that many bytes; `last` ends the
// object.
std::string LongHeader(size_t header_bytes, size_t name_bytes, const std::string& last,
                       int64_t* count) {
  std::string header = "{";
  for (*count = 0; header.size() < header_bytes; ++*count) {
    header += fmt::format(R"("{:0{}}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}},)",
                          *count, name_bytes, *count, *count + 1);
  }
  return header + last + "}";
}

TEST(Checkpoint, TheLargestHostileHeadersCostLittle) {
  int64_t count = 0;
  const std::string end_hole =
      R"("z":{"dtype":"U8","shape":[1],"data_offsets":[999999999,1000000000]})";
  struct Case {
    const char* what;
    std::string bytes;
    const char* message;
  };
  std::vector<Case> cases;
  cases.push_back({"a hole after 250,000 tensors",
                   SafetensorsBytes(LongHeader(17'000'000, 8, end_hole, &count), 1000), "hole"});
  ASSERT_LT(count, 262'144);
  cases.push_back({"too many tensors",
                   SafetensorsBytes(LongHeader(25'000'000, 8, end_hole, &count), 1000), "262144"});
  cases.push_back({"too many bytes of names",
                   SafetensorsBytes(LongHeader(20'000'000, 1000, end_hole, &count), 1000),
                   "names"});
  cases.push_back(
      {"metadata",
       SafetensorsBytes(
           std::string(R"({"__metadata__":{"x":")").append(99'000'000, 'y').append("\"}}"), 0),
       "holds no tensor"});
  const int64_t per_byte = ResidentPerByte(), set_us = SetOfNamesUs();
  for (const Case& c : cases) {
    TestDirectory dir;
    dir.Write("model.safetensors", c.bytes);
    const Opened opened = Open(dir);
    EXPECT_THAT(opened.error, HasSubstr(c.message)) << c.what;
    const int64_t file = per_byte * static_cast<int64_t>(c.bytes.size());
    EXPECT_LT(opened.grown_bytes - file, per_byte * kGrownMax) << c.what;
    EXPECT_LT(opened.us, kSetsOfNamesMax * set_us) << c.what;
    RecordProperty(c.what, fmt::format("{} us, {} sets of names, {} bytes", opened.us,
                                       opened.us / set_us, opened.grown_bytes));
  }
}

// ------------------------------------------------------------------ shards

constexpr const char* kIndex = "model.safetensors.index.json";

std::string One(const char* name) {
  return SafetensorsBytes(
      fmt::format(R"({{"{}":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}}})", name), 8);
}

TEST(Checkpoint, ReadsTheShardsOfAnIndex) {
  TestDirectory dir;
  dir.Write("x.safetensors", One("a"));
  dir.Write("y.safetensors", One("b"));
  dir.Write(kIndex, R"({"metadata":{"total_size":16,"more":[1,{"x":null}]},
                        "weight_map":{"a":"x.safetensors","b":"y.safetensors"}})");
  Result<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 2u);
  EXPECT_EQ(checkpoint->file_path(*checkpoint->Find("b")), dir.path() + "/y.safetensors");
}

TEST(Checkpoint, EveryBadIndexGivesOneMessageThatSaysWhatIsWrong) {
  struct BadIndex {
    const char* index;
    const char* message;
  };
  const BadIndex kBad[] = {
      {R"({"weight_map":{"a":"../x.safetensors"}})", "plain file name"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", "plain file name"},
      {R"({"weight_map":{"a":".."}})", "plain file name"},
      {R"({"weight_map":{"a":"sub/x.safetensors"}})", "plain file name"},
      {R"({"weight_map":{"a":"gone.safetensors"}})",
       "gone.safetensors, which is not in the directory"},
      {R"({"weight_map":{"a":"x.safetensors","b":"x.safetensors"}})", "places \"b\" in"},
      {R"({"weight_map":{"a":"y.safetensors","b":"x.safetensors"}})", "does not contain it"},
      {R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})", "appears twice"},
      {R"({"weight_map":{"b":"y.safetensors"},"weight_map":{}})", "appears twice"},
      {R"({"weight_map":{"a":"x.safetensors","c":"z.safetensors"}})", "does not name \"d\""},
      {R"({"weight_map":{"a":"x.safetensors","e":"same.safetensors"}})", "is both in"},
      {R"({"weight_map":{"a":5}})", "where a file name must be"},
      {R"({"weight_map":{"a":{}}})", "where a file name must be"},
      {R"({"weight_map":[]})", "where a file name must be"},
      {R"({"metadata":{}})", "no \"weight_map\""},
      {R"([1])", "where an object must be"},
      {R"({"weight_map":{"a":"x.safe)", "not valid JSON"},
      {"", "not valid JSON"},
  };
  for (const BadIndex& bad : kBad) {
    TestDirectory dir;
    dir.Write("x.safetensors", One("a"));
    dir.Write("y.safetensors", One("b"));
    dir.Write("same.safetensors", One("a"));
    dir.Write("z.safetensors",
              SafetensorsBytes(R"({"c":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                               R"("d":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
                               16));
    dir.Write(kIndex, bad.index);
    EXPECT_THAT(Open(dir).error, HasSubstr(bad.message)) << bad.index;
  }
}

TEST(Checkpoint, L61_AnIndexHasBounds) {
  TestDirectory dir;
  const auto index_of = [](int files) {
    std::string map;
    for (int i = 0; i < files; ++i) {
      map += fmt::format(R"({}"t{}":"f{}.safetensors")", i == 0 ? "" : ",", i, i);
    }
    return fmt::format(R"({{"weight_map":{{{}}}}})", map);
  };
  dir.Write(kIndex, index_of(4096));
  EXPECT_THAT(Open(dir).error, HasSubstr("not in the directory"));
  dir.Write(kIndex, index_of(4097));
  EXPECT_THAT(Open(dir).error, HasSubstr("more than 4096 files"));
  dir.Write(kIndex, std::string((size_t{64} << 20) + 1, ' '));
  EXPECT_THAT(Open(dir).error, HasSubstr("67108864"));
}

TEST(Checkpoint, ADirectoryHoldsEitherOneFileOrAnIndex) {
  TestDirectory dir;
  EXPECT_THAT(Open(dir).error, HasSubstr("holds neither model.safetensors nor"));
  dir.Write("model.safetensors", One("a"));
  dir.Write(kIndex, R"({"weight_map":{}})");
  EXPECT_THAT(Open(dir).error, HasSubstr("holds both"));
}

TEST(Checkpoint, AShardThatIsADirectoryIsRefused) {
  TestDirectory dir;
  std::filesystem::create_directory(dir.path() + "/model.safetensors");
  EXPECT_THAT(Open(dir).error, HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace braid
