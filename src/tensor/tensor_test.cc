// Memory that is aligned, zeroed and moved, and a workspace that is measured before it is taken.
#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

namespace braid {
namespace {

int64_t AddressOf(const void* pointer) { return reinterpret_cast<int64_t>(pointer); }

TEST(Buffer, IsAlignedAndZeroAtFirst) {
  for (int64_t bytes : {int64_t{1}, int64_t{100}, int64_t{5} << 20}) {
    const Buffer buffer(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(AddressOf(buffer.data()) % 64, 0);
    for (int64_t i = 0; i < bytes; i += 97) ASSERT_EQ(buffer.data()[i], std::byte{0});
  }
  EXPECT_EQ(Buffer(0).data(), nullptr);
  EXPECT_EQ(Buffer().bytes(), 0);
}

TEST(Buffer, KeepsItsMemoryWhenItIsMoved) {
  Buffer first(100), second(200);
  std::byte* memory = first.data();
  memory[7] = std::byte{9};
  second = std::move(first);
  EXPECT_EQ(second.data(), memory);
  EXPECT_EQ(second.bytes(), 100);
  const Buffer third(std::move(second));
  EXPECT_EQ(third.data(), memory);
  EXPECT_EQ(third.bytes(), 100);
  EXPECT_EQ(third.data()[7], std::byte{9});
  EXPECT_EQ(second.data(), nullptr);
}

TEST(Matrix, PartsShareTheMemoryAndTheStride) {
  float values[24];
  const Matrix m{values, 4, 5, 6};
  EXPECT_EQ(m.row(3), values + 18);
  const Matrix columns = m.columns(2, 3);
  EXPECT_EQ(columns.row(1), values + 8);
  EXPECT_EQ(columns.cols, 3);
  EXPECT_EQ(columns.rows, 4);
  const Matrix rows = m.some_rows(1, 2);
  EXPECT_EQ(rows.row(1), values + 12);
  EXPECT_EQ(rows.rows, 2);
  EXPECT_EQ(rows.cols, 5);
  EXPECT_EQ(m.first_rows(3).rows, 3);
  EXPECT_EQ(m.first_rows(3).data, values);
  EXPECT_EQ(m.columns(5, 0).cols, 0);
  EXPECT_DEATH(m.columns(3, 3), "begin \\+ count <= cols");
  EXPECT_DEATH(m.some_rows(2, 3), "begin \\+ count <= rows");
}

TEST(Workspace, MemoryIsAlignedDisjointAndReleased) {
  Workspace workspace(1000);
  std::byte* a = workspace.Take<std::byte>(65);
  float* b = workspace.Take<float>(16);
  EXPECT_EQ(AddressOf(b) - AddressOf(a), 128);
  EXPECT_EQ(AddressOf(a) % 64, 0);
  EXPECT_EQ(workspace.mark(), 192);
  {
    const WorkspaceScope scope(workspace);
    EXPECT_EQ(AddressOf(workspace.Take<std::byte>(100)) - AddressOf(a), 192);
  }
  EXPECT_EQ(workspace.mark(), 192);
  EXPECT_EQ(workspace.peak(), 320);
  EXPECT_EQ(AddressOf(workspace.Take<std::byte>(0)) - AddressOf(a), 192);
  EXPECT_EQ(workspace.capacity(), 1000);
  EXPECT_FALSE(workspace.measuring());
}

TEST(Workspace, ItsLastByteCanBeTakenAndNoMore) {
  Workspace workspace(128);
  std::memset(workspace.Take<std::byte>(128), 1, 128);
  EXPECT_DEATH(workspace.Take<std::byte>(1), "workspace of 128 bytes, 192 needed");
}

TEST(Workspace, MeasuringTakesNoMemoryAndFindsThePeak) {
  Workspace measuring = Workspace::Measuring();
  EXPECT_TRUE(measuring.measuring());
  const std::byte* first = measuring.Take<std::byte>(int64_t{1} << 40);
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(measuring.Take<std::byte>(1) - first, int64_t{1} << 40);
  measuring.Rewind(0);
  measuring.Take<std::byte>(10);
  EXPECT_EQ(measuring.peak(), (int64_t{1} << 40) + 64);
  EXPECT_EQ(measuring.capacity(), 0);
}

TEST(Workspace, RowsOfAMatrixDoNotFallIntoOneCacheSet) {
  EXPECT_EQ(Workspace::StrideOf(1), 16);
  EXPECT_EQ(Workspace::StrideOf(16), 16);
  EXPECT_EQ(Workspace::StrideOf(17), 32);
  EXPECT_EQ(Workspace::StrideOf(1008), 1008);
  EXPECT_EQ(Workspace::StrideOf(1009), 1040);
  EXPECT_EQ(Workspace::StrideOf(2048), 2064);
  Workspace workspace(1 << 20);
  const Matrix m = workspace.TakeMatrix(3, 1024);
  EXPECT_EQ(m.stride, 1040);
  EXPECT_EQ(m.rows, 3);
  EXPECT_EQ(m.cols, 1024);
  EXPECT_EQ(workspace.mark(), 3 * 1040 * 4);
}

}  // namespace
}  // namespace braid
