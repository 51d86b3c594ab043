// A row that has travelled is packed to the same bytes as the row itself, for every kernel of this
// machine: nothing that the product reads can tell them apart.
#include "ops/ranks/sent_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "ops/testing/test_context.h"

namespace braid::ops {
namespace {

constexpr int64_t kCols = 201;  // no multiple of a step, nor of four

Device DeviceFor(Isa isa, Compute compute) {
  static const CpuFeatures kCpu = DetectCpu();
  return DeviceOf(kCpu, isa, compute);
}

struct Kind {
  WeightFormat format;
  Isa isa;
  Compute compute;
};

std::vector<Kind> Kinds() {
  std::vector<Kind> kinds;
  for (const auto& [isa, compute] : TestArithmetics()) {
    for (const WeightFormatRow& row : WeightFormats()) kinds.push_back({row.format, isa, compute});
  }
  return kinds;
}

// Packs `row` as it is and as it arrives; the operands must have the same bytes.
void ExpectSameOperand(const Kind& kind, const std::vector<float>& row) {
  const Device device = DeviceFor(kind.isa, kind.compute);
  const SentRows rows(device, kind.format, kCols);
  std::vector<std::byte> scratch(static_cast<size_t>(rows.scratch_bytes()));
  std::vector<float> sent(static_cast<size_t>(rows.floats()), 7.0f), arrived(row.size(), 7.0f);
  rows.Pack(row.data(), scratch.data(), sent.data());
  rows.Unpack(sent.data(), arrived.data());
  const cpu::GemmKernel* kernel = cpu::FindGemmKernel(device, kind.format, false);
  if (kernel == nullptr) {
    ASSERT_TRUE(SameBits(arrived.data(), row.data(), kCols));
    return;
  }
  const cpu::PackedActivations packed{kernel, nullptr, 1, kCols};
  std::vector<std::byte> want(static_cast<size_t>(packed.row_bytes())), got(want.size());
  packed.PackAlone(row.data(), want.data());
  packed.PackAlone(arrived.data(), got.data());
  ASSERT_EQ(got, want) << NameOf(kind.format) << " on " << NameOf(kind.isa);
}

TEST(SentRows, ArriveAsTheOperandThatTheyWere) {
  Rng rng(1);
  std::vector<std::vector<float>> all;
  for (const double scale : {1.0, 1e-20, 1e-29, 1e-31, 1e-37, 1e-42, 1e30}) {
    for (int i = 0; i < 20; ++i) {
      std::vector<float> row(kCols);
      for (float& x : row) x = static_cast<float>(rng.Normal() * scale);
      all.push_back(std::move(row));
    }
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float special : {0.0f, -0.0f, 1.0f, std::numeric_limits<float>::max(), kInfinity,
                              -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    all.emplace_back(kCols, special);
    all.push_back(all.front());
    all.back()[kCols - 1] = special;
  }
  // Halves between two codes, which a further rounding could move.
  all.emplace_back(kCols);
  for (int64_t c = 0; c < kCols; ++c) {
    all.back()[static_cast<size_t>(c)] = static_cast<float>(c % 127) + 0.5f;
  }
  all.back()[0] = 127.0f;
  for (const Kind& kind : Kinds()) {
    for (const std::vector<float>& row : all) ExpectSameOperand(kind, row);
  }
}

// Of one in 128 largest magnitudes the scale times 127 has another scale.
TEST(SentRows, KeepEveryScale) {
  Rng rng(2);
  std::vector<float> row(kCols);
  for (float& x : row) x = static_cast<float>(rng.Normal());
  for (int i = 0; i < 5000; ++i) {
    row[static_cast<size_t>(i % 2)] = static_cast<float>(-6 - 60 * rng.Uniform());
    ExpectSameOperand({WeightFormat::kI8, BestIsa(DetectCpu()), Compute::kF32}, row);
  }
}

TEST(SentRows, TakeAQuarterOfTheBytesWhereTheProductReadsIntegers) {
  for (const Kind& kind : Kinds()) {
    if (kind.isa < Isa::kAvx2) continue;
    const SentRows rows(DeviceFor(kind.isa, kind.compute), kind.format, 256);
    const bool integers = RowOf(kind.format).integers;
    EXPECT_EQ(rows.floats(), integers                         ? 256 / 4 + 1
                             : kind.compute == Compute::kBF16 ? 128
                                                              : 256)
        << NameOf(kind.format);
  }
}

}  // namespace
}  // namespace braid::ops
