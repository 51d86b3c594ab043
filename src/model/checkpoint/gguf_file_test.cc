// GGUF files byte by byte: what is read, and what each bound refuses.
#include "model/checkpoint/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "model/checkpoint/test_directory.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

// Bytes in the order in which a file has them.
class Bytes {
 public:
  template <class T>
  Bytes& Put(T value) {
    const size_t at = text_.size();
    text_.resize(at + sizeof(T));
    std::memcpy(text_.data() + at, &value, sizeof(T));
    return *this;
  }
  Bytes& Text(std::string_view text) {
    Put<uint64_t>(text.size());
    text_ += text;
    return *this;
  }
  Bytes& Head(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    text_ += "GGUF";
    return Put(version).Put(tensors).Put(keys);
  }
  // A tensor of the table; dimensions in the file's order, the fastest first.
  Bytes& Tensor(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type,
                uint64_t offset) {
    Text(name).Put(static_cast<uint32_t>(shape.size()));
    for (uint64_t size : shape) Put(size);
    return Put(type).Put(offset);
  }
  // Padding to the alignment, then so many bytes of data.
  Bytes& Data(size_t bytes, size_t alignment = 32) {
    text_.resize((text_.size() + alignment - 1) / alignment * alignment);
    for (size_t i = 0; i < bytes; ++i) text_ += static_cast<char>(i);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

enum : uint32_t {
  kU8 = 0,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kList = 9,
  kU64 = 10
};
constexpr uint32_t kFloats = 0, kQ8 = 8;  // element types: F32, Q8_0 of 32 elements in 34 bytes

class Gguf : public ::testing::Test {
 protected:
  Result<GgufFile> Read(const Bytes& bytes) {
    dir_.Write("f.gguf", bytes.text());
    return ReadGguf(dir_.path() + "/f.gguf");
  }
  std::string ErrorOf(const Bytes& bytes) {
    const Result<GgufFile> file = Read(bytes);
    return file ? "" : file.error().message;
  }
  TestDirectory dir_;
};

TEST_F(Gguf, MetadataHasItsTypes) {
  Bytes bytes;
  bytes.Head(0, 6);
  bytes.Text("a").Put(kU32).Put<uint32_t>(7);
  bytes.Text("b").Put(kI32).Put<int32_t>(-7);
  bytes.Text("c").Put(kF32).Put(0.5f);
  bytes.Text("d").Put(kBool).Put<uint8_t>(1);
  bytes.Text("e").Put(kString).Text("text");
  bytes.Text("f").Put(kList).Put(kU8).Put<uint64_t>(2).Put<uint8_t>(3).Put<uint8_t>(4);
  Result<GgufFile> file = Read(bytes);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata.at("a"), 7);
  EXPECT_EQ(file->metadata.at("b"), -7);
  EXPECT_EQ(file->metadata.at("c"), 0.5);
  EXPECT_EQ(file->metadata.at("d"), true);
  EXPECT_EQ(file->metadata.at("e"), "text");
  EXPECT_EQ(file->metadata.at("f"), json::value({3, 4}));
}

TEST_F(Gguf, TensorsAreSortedAndTheirDimensionsTurnedRound) {
  Bytes bytes;
  bytes.Head(2, 0);
  bytes.Tensor("z", {8, 3}, kFloats, 0);
  bytes.Tensor("a", {32, 2}, kQ8, 96);
  bytes.Data(96 + 68);
  Result<GgufFile> file = Read(bytes);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors[0].name, "a");
  const GgufTensor* z = file->Find("z");
  ASSERT_NE(z, nullptr);
  EXPECT_EQ(z->shape, (std::vector<int64_t>{3, 8}));
  EXPECT_EQ(z->bytes, 96);
  EXPECT_EQ(z->row_bytes(), 32);
  EXPECT_EQ(z->data[1], std::byte{1});
  const GgufTensor* a = file->Find("a");
  EXPECT_EQ(a->bytes, 68);
  EXPECT_EQ(a->row_bytes(), 34);
  EXPECT_EQ(a->data[0], std::byte{96});
  EXPECT_EQ(file->Find("b"), nullptr);
  EXPECT_EQ(file->Find("zz"), nullptr);
}

TEST_F(Gguf, AFileCutAnywhereIsRefused) {
  Bytes whole;
  whole.Head(1, 1);
  whole.Text("k").Put(kString).Text("v");
  whole.Tensor("t", {8}, kFloats, 0).Data(32);
  ASSERT_EQ(ErrorOf(whole), "");
  for (size_t size = 1; size < whole.text().size(); ++size) {
    dir_.Write("cut.gguf", std::string_view(whole.text()).substr(0, size));
    EXPECT_FALSE(ReadGguf(dir_.path() + "/cut.gguf")) << size;
  }
}

TEST_F(Gguf, OffsetsMustFollowEachOtherAlignedAndWithinTheFile) {
  const auto two = [](uint64_t second, size_t data) {
    Bytes bytes;
    bytes.Head(2, 0);
    bytes.Tensor("a", {9}, kFloats, 0).Tensor("b", {8}, kFloats, second).Data(data);
    return bytes;
  };
  EXPECT_EQ(ErrorOf(two(64, 96)), "");
  EXPECT_THAT(ErrorOf(two(32, 96)), HasSubstr("must begin at 64: tensors overlap"));
  EXPECT_THAT(ErrorOf(two(96, 200)), HasSubstr("must begin at 64: there is a hole"));
  EXPECT_THAT(ErrorOf(two(64, 95)), HasSubstr("\"b\" ends past the end of the file"));
}

TEST_F(Gguf, TheAlignmentIsAPowerOfTwoThatTheFileNames) {
  const auto aligned = [](uint32_t alignment, uint64_t second) {
    Bytes bytes;
    bytes.Head(2, 1);
    bytes.Text("general.alignment").Put(kU32).Put(alignment);
    bytes.Tensor("a", {1}, kFloats, 0).Tensor("b", {1}, kFloats, second);
    return bytes.Data(second + 4, alignment == 0 ? 32 : alignment);
  };
  EXPECT_EQ(ErrorOf(aligned(64, 64)), "");
  EXPECT_EQ(ErrorOf(aligned(8, 8)), "");
  EXPECT_EQ(ErrorOf(aligned(65536, 65536)), "");
  for (uint32_t wrong : {0u, 24u, 131072u}) {
    EXPECT_THAT(ErrorOf(aligned(wrong, 64)), HasSubstr("a power of two up to 65536")) << wrong;
  }
}

TEST_F(Gguf, WhatCannotBeATensorIsRefused) {
  const auto one = [](const std::vector<uint64_t>& shape, uint32_t type) {
    Bytes bytes;
    bytes.Head(1, 0).Tensor("t", shape, type, 0);
    return bytes.Data(4096);
  };
  EXPECT_EQ(ErrorOf(one({1, 1, 1, 1}, kFloats)), "");
  EXPECT_THAT(ErrorOf(one({}, kFloats)), HasSubstr("has 0 dimensions; 1 to 4"));
  EXPECT_THAT(ErrorOf(one({1, 1, 1, 1, 1}, kFloats)), HasSubstr("has 5 dimensions; 1 to 4"));
  EXPECT_THAT(ErrorOf(one({4, 0}, kFloats)), HasSubstr("has a dimension of 0"));
  EXPECT_THAT(ErrorOf(one({33}, kQ8)), HasSubstr("rows of 33 are no multiple of the 32"));
  EXPECT_THAT(ErrorOf(one({4}, 999)), HasSubstr("\"t\" has the type 999; known are"));
  EXPECT_THAT(ErrorOf(one({uint64_t{1} << 61, 4}, kFloats)), HasSubstr("more than 2^63 bytes"));
  EXPECT_THAT(ErrorOf(one({(uint64_t{1} << 62) + 1}, kFloats)), HasSubstr("has a dimension of"));
}

TEST_F(Gguf, NothingStandsTwice) {
  Bytes tensors;
  tensors.Head(2, 0).Tensor("t", {8}, kFloats, 0).Tensor("t", {8}, kFloats, 32).Data(64);
  EXPECT_THAT(ErrorOf(tensors), HasSubstr("the tensor \"t\" appears twice"));
  Bytes keys;
  keys.Head(0, 2).Text("k").Put(kU8).Put<uint8_t>(1).Text("k").Put(kU8).Put<uint8_t>(1);
  EXPECT_THAT(ErrorOf(keys), HasSubstr("the key \"k\" appears twice"));
}

TEST_F(Gguf, HeadsOfOtherKindsAreRefused) {
  Bytes other;
  other.Put<uint32_t>(1).Put<uint64_t>(0).Put<uint64_t>(0).Put<uint64_t>(0);
  EXPECT_THAT(ErrorOf(other), HasSubstr("not a GGUF file"));
  EXPECT_EQ(ErrorOf(Bytes().Head(0, 0, 2)), "");
  EXPECT_THAT(ErrorOf(Bytes().Head(0, 0, 1)), HasSubstr("version 1"));
  EXPECT_THAT(ErrorOf(Bytes().Head(0, 0, 4)), HasSubstr("version 4"));
  EXPECT_THAT(ErrorOf(Bytes().Head(262'145, 0)), HasSubstr("claims 262145 tensors"));
  EXPECT_THAT(ErrorOf(Bytes().Head(0, 65'537)), HasSubstr("65537 keys"));
  Bytes name;
  name.Head(0, 1).Text(std::string(1025, 'k')).Put(kU8).Put<uint8_t>(0);
  EXPECT_THAT(ErrorOf(name), HasSubstr("a key of 1025 bytes; at most 1024"));
  Bytes type;
  type.Head(0, 1).Text("k").Put<uint32_t>(13).Put<uint64_t>(0);
  EXPECT_THAT(ErrorOf(type), HasSubstr("unknown type 13"));
  Bytes nested;
  nested.Head(0, 1).Text("k").Put(kList).Put(kList).Put<uint64_t>(0);
  EXPECT_THAT(ErrorOf(nested), HasSubstr("items of the type 9"));
  Bytes claim;
  claim.Head(0, 1).Text("k").Put(kList).Put(kU64).Put<uint64_t>(uint64_t{1} << 61);
  EXPECT_THAT(ErrorOf(claim), HasSubstr("more than the file holds"));
}

TEST_F(Gguf, LongListsAreLeftOutButNotTheTokenizers) {
  const auto list = [](Bytes& bytes, const char* key, uint64_t count) {
    bytes.Text(key).Put(kList).Put(kString).Put(count);
    for (uint64_t i = 0; i < count; ++i) bytes.Text("x");
  };
  Bytes bytes;
  bytes.Head(0, 3);
  list(bytes, "kept", 4096);
  list(bytes, "tokenizer.ggml.tokens", 4097);
  bytes.Text("after").Put(kU8).Put<uint8_t>(9);
  Result<GgufFile> file = Read(bytes);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata.at("kept").as_array().size(), 4096u);
  EXPECT_TRUE(file->metadata.at("tokenizer.ggml.tokens").is_null());
  EXPECT_EQ(file->metadata.at("after"), 9);
  Result<json::object> tokenizer = ReadGgufTokenizer(dir_.path() + "/f.gguf");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->size(), 1u);
  EXPECT_EQ(tokenizer->at("tokenizer.ggml.tokens").as_array().size(), 4097u);
}

}  // namespace
}  // namespace braid
