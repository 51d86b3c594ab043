// The reader finds what was written.
#include "model/checkpoint/gguf_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "model/checkpoint/gguf_file.h"
#include "model/checkpoint/test_directory.h"

namespace braid {
namespace {

std::vector<std::byte> Bytes(int64_t count, int first) {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(first + 3 * i);
  return bytes;
}

TEST(GgufWriter, TheReaderFindsKeysAndTensors) {
  const TestDirectory dir;
  const std::string path = dir.path() + "/m.gguf";
  const json::object metadata = {{"general.architecture", "x"},
                                 {"x.count", 7},
                                 {"x.eps", 0.5},
                                 {"x.on", true},
                                 {"x.list", {3, -1}},
                                 {"x.flags", {true, false}},
                                 {"x.words", {"a", "bc"}}};
  // Sizes that are no multiples of the alignment.
  const std::vector<GgufTensorPlan> plans = {
      {.name = "vector", .type = FindGgufType(0), .shape = {5}},
      {.name = "experts", .type = FindGgufType(2), .shape = {3, 2, 64}},
      {.name = "last", .type = FindGgufType(30), .shape = {3, 3}}};
  EXPECT_EQ(plans[1].rows(), 6);
  EXPECT_EQ(plans[1].row_bytes(), 36);
  {
    Result<GgufWriter> writer = GgufWriter::Create(path, metadata, plans);
    ASSERT_TRUE(writer) << writer.error().message;
    for (size_t i = plans.size(); i-- > 0;) {  // in pieces, the last tensor first
      const std::vector<std::byte> bytes = Bytes(plans[i].bytes(), static_cast<int>(i));
      ASSERT_TRUE(writer->Write(i, 4, std::span(bytes).subspan(4)));
      ASSERT_TRUE(writer->Write(i, 0, std::span(bytes).first(4)));
    }
    ASSERT_TRUE(writer->Finish());
    EXPECT_EQ(writer->bytes(), static_cast<int64_t>(dir.Read("m.gguf").size()));
  }
  const Result<GgufFile> file = ReadGguf(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata.size(), metadata.size());
  for (const auto& [key, value] : metadata) {
    ASSERT_TRUE(file->metadata.contains(key)) << std::string_view(key);
    EXPECT_EQ(json::serialize(file->metadata.find(key)->second), json::serialize(value));
  }
  ASSERT_EQ(file->tensors.size(), plans.size());
  for (size_t i = 0; i < plans.size(); ++i) {
    const GgufTensor* tensor = file->Find(plans[i].name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->type, plans[i].type);
    EXPECT_EQ(tensor->shape, plans[i].shape);
    ASSERT_EQ(tensor->bytes, plans[i].bytes());
    const std::vector<std::byte> bytes = Bytes(tensor->bytes, static_cast<int>(i));
    EXPECT_EQ(std::memcmp(tensor->data, bytes.data(), bytes.size()), 0) << tensor->name;
  }
}

}  // namespace
}  // namespace braid
