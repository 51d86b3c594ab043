// Every type of the table, bit for bit, against blocks that the package gguf decoded
// (tests/formats/make_gguf.py).
#include "model/checkpoint/formats/gguf_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "model/checkpoint/formats/gguf_grids.h"
#include "model/checkpoint/test_tensors.h"

namespace braid {
namespace {

TEST(GgufTypes, EveryBlockIsReadAsThePackageReadsIt) {
  const auto tensors =
      TensorsOf(std::string(BRAID_SOURCE_DIR) + "/tests/formats/layouts/gguf_blocks.safetensors");
  for (const GgufType& type : GgufTypes()) {
    if (type.block_elements == 1) continue;
    const std::string name(type.name);
    ASSERT_TRUE(tensors.contains(name) && tensors.contains(name + ".expected"))
        << name << ": run tests/formats/make_gguf.py";
    const std::vector<std::byte>& blocks = tensors.at(name);
    const std::vector<std::byte>& expected = tensors.at(name + ".expected");
    const auto count = static_cast<int64_t>(blocks.size()) / type.block_bytes;
    const auto floats = static_cast<size_t>(type.block_elements);
    ASSERT_EQ(expected.size(), static_cast<size_t>(count) * floats * sizeof(float)) << name;
    std::vector<float> out(floats);
    for (int64_t b = 0; b < count; ++b) {
      type.decode(blocks.data() + b * type.block_bytes, out.data());
      ASSERT_EQ(std::memcmp(out.data(), expected.data() + static_cast<size_t>(b) * floats * 4,
                            floats * 4),
                0)
          << name << " block " << b;
    }
  }
}

TEST(GgufTypes, TablesOfValuesAreThoseOfThePackage) {
  const auto tensors =
      TensorsOf(std::string(BRAID_SOURCE_DIR) + "/tests/formats/layouts/gguf_blocks.safetensors");
  const auto expect = [&](const char* name, std::span<const uint16_t> grid) {
    const std::vector<std::byte>& expected = tensors.at(std::string(name) + ".grid");
    ASSERT_EQ(expected.size(), grid.size_bytes()) << name;
    EXPECT_EQ(std::memcmp(expected.data(), grid.data(), grid.size_bytes()), 0) << name;
  };
  expect("IQ1_S", kIq1SGrid);
  expect("IQ2_XXS", kIq2XxsGrid);
  expect("IQ2_XS", kIq2XsGrid);
  expect("IQ2_S", kIq2SGrid);
  expect("IQ3_XXS", kIq3XxsGrid);
  expect("IQ3_S", kIq3SGrid);
}

TEST(GgufTypes, PlainNumbersAreTheirValues) {
  const auto decoded = [](uint32_t id, std::vector<uint8_t> bytes) {
    const GgufType& type = *FindGgufType(id);
    EXPECT_EQ(type.block_bytes, std::ssize(bytes));
    float out = 0;
    type.decode(reinterpret_cast<const std::byte*>(bytes.data()), &out);
    return out;
  };
  EXPECT_EQ(decoded(0, {0, 0, 0xc0, 0x3f}), 1.5f);
  EXPECT_EQ(decoded(1, {0, 0xbe}), -1.5f);
  EXPECT_EQ(decoded(30, {0xc0, 0x3f}), 1.5f);
}

TEST(GgufTypes, AreFoundByNumberAndAllNamed) {
  EXPECT_EQ(FindGgufType(9999), nullptr);
  const std::string names = GgufTypeNames();
  for (const GgufType& type : GgufTypes()) {
    EXPECT_EQ(FindGgufType(type.id), &type);
    EXPECT_THAT(names, testing::HasSubstr(std::string(type.name)));
  }
  EXPECT_THAT(names, testing::StartsWith("F32, F16, BF16, "));
}

}  // namespace
}  // namespace braid
