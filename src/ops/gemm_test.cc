// The products' arithmetic, bit for bit: what the tile instructions do is written out in scalar
// code.
#include <gtest/gtest.h>

#include "ops/linear.h"
#include "ops/test_context.h"
#include "ops/weight_codes.h"

namespace braid::ops {
namespace {

bool HasIsa(Isa isa) { return isa <= BestIsa(DetectCpu()); }

float Flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? 0.0f : x; }
float Operand(float x) { return Flush(RoundToBf16(Flush(x))); }

// TDPBF16PS: per 32 terms the even and the odd ones apart, each from zero with fused
// multiply-adds; their sum is added to the output. Every result that is denormal becomes zero, of
// whichever sign.
float TileGemm(const float* x, const PackedMatrix& w, int64_t row) {
  float sum = 0;
  for (int64_t step = 0; step < w.k; step += 32) {
    float parts[2] = {0, 0};
    for (int64_t k = step; k < std::min(w.k, step + 32); ++k) {
      float& part = parts[k % 2];
      part = Flush(std::fma(Operand(x[k]), Flush(w.At(0, row, k)), part));
    }
    sum = Flush(sum + Flush(parts[0] + parts[1]));
  }
  return sum;
}

TEST(TileGemm, IsWhatTheInstructionIsDocumentedToDo) {
  if (!HasIsa(Isa::kAmx)) GTEST_SKIP() << "no AMX here";
  TestContext test(Isa::kAmx, 1, Compute::kBF16);
  // The second scale brings products below the normal numbers, the third operands.
  for (double scale : {1.0, 1e-37, 3e-39}) {
    for (int64_t k : {64, 700}) {
      Rng rng(11);
      OwnedWeights w(rng, WeightFormat::kBF16, 1, 40, k);
      OwnedMatrix x(rng, 37, k, scale), y(37, 40);
      Linear(test.context, {.x = x.view, .w = &w.matrix, .y = y.view});
      for (int64_t r = 0; r < 37; ++r) {
        for (int64_t n = 0; n < 40; ++n) {
          const float expected = TileGemm(x.view.row(r), w.matrix, n);
          ASSERT_EQ(y.view.row(r)[n], expected)
              << "scale " << scale << " row " << r << " output " << n;
        }
      }
    }
  }
}

void SetScales(WeightFormat format, float value, int64_t count, std::byte* scales) {
  const uint16_t half = F16OfFloat(value);
  const bool halves = ScaleTypeOf(format) == DType::kF16;
  for (int64_t i = 0; i < count; ++i) {
    halves ? std::memcpy(scales + 2 * i, &half, 2) : std::memcpy(scales + 4 * i, &value, 4);
  }
}

// The least code is one of checkpoints, though quantising here never makes it.
TEST(QuantisedGemm, HoldsTheLeastIntegers) {
  struct Least {
    WeightFormat format;
    int value;
    std::byte codes;
  };
  for (auto [format, least, codes] :
       {Least{WeightFormat::kI8, -128, std::byte{0x80}}, {WeightFormat::kI4, -8, std::byte{0}}}) {
    PackedMatrix w{format, 1, 16, 128, nullptr};
    Buffer memory(w.bytes());
    w.data = memory.data();
    CodedPanel panel(w);
    for (int64_t r = 0; r < 16; ++r) {
      std::fill_n(panel.codes(r), CodeBytes(format, 128), codes);
      SetScales(format, 0.5f, panel.scale_count(), panel.scales(r));
    }
    PackCodes(w, 0, 0, panel);
    OwnedMatrix x(5, 128), y(5, 16);
    for (int64_t r = 0; r < 5; ++r) std::fill_n(x.view.row(r), 128, r % 2 == 0 ? 127.0f : -127.0f);
    for (Isa isa : TestIsas()) {
      TestContext test(isa);
      for (bool dots : {true, false}) {
        if (!dots) test.context.device.avx_vnni = test.context.device.avx512_vnni = false;
        Linear(test.context, {.x = x.view, .w = &w, .y = y.view});
        for (int64_t r = 0; r < 5; ++r) {
          const float expected = 0.5f * static_cast<float>(least) * x.view.row(r)[0] * 128;
          ASSERT_EQ(y.view.row(r)[15], expected) << NameOf(isa) << " " << NameOf(format);
        }
      }
    }
  }
}

// Quantised products are defined to the bit, and sums of integers have no order.
TEST(QuantisedGemm, HasTheSameBitsOnEveryInstructionSetAndWithEitherArithmetic) {
  for (WeightFormat format : {WeightFormat::kI8, WeightFormat::kI4}) {
    for (int64_t k : {64, 100, 1090}) {
      Rng rng(static_cast<uint64_t>(k));
      OwnedWeights w(rng, format, 1, 75, k);
      OwnedMatrix x(rng, 50, k), expected(50, 75), y(50, 75);
      std::fill_n(x.view.row(3), k, 0.0f);
      std::fill_n(x.view.row(4), k, 1e-37f);
      TestContext base(Isa::kBase);
      Linear(base.context, {.x = x.view, .w = &w.matrix, .y = expected.view});
      for (auto [isa, compute] : TestArithmetics()) {
        TestContext test(isa, 2, compute);
        // With and without the dot instructions that not every CPU has.
        for (bool dots : {true, false}) {
          if (!dots) test.context.device.avx_vnni = test.context.device.avx512_vnni = false;
          for (int64_t rows : {1, 2, 7, 50}) {
            std::fill(y.values.begin(), y.values.end(), -1.0f);
            Linear(test.context, {.x = x.view.first_rows(rows), .w = &w.matrix, .y = y.view});
            for (int64_t r = 0; r < rows; ++r) {
              ASSERT_TRUE(SameBits(y.view.row(r), expected.view.row(r), 75))
                  << NameOf(isa) << " " << NameOf(format) << " depth " << k << " row " << r;
            }
          }
        }
      }
    }
  }
}

TEST(QuantisedGemm, IsCloseToTheWeightsItWasMadeFrom) {
  for (auto [format, bound] :
       {std::pair(WeightFormat::kI8, 0.02), {WeightFormat::kI4, 0.2}, {WeightFormat::kF8, 0.05}}) {
    Rng one(8), two(8);
    OwnedWeights exact(one, WeightFormat::kBF16, 1, 64, 512), w(two, format, 1, 64, 512);
    OwnedMatrix x(one, 9, 512), expected(9, 64), y(9, 64);
    TestContext base(Isa::kBase);
    Linear(base.context, {.x = x.view, .w = &exact.matrix, .y = expected.view});
    Linear(base.context, {.x = x.view, .w = &w.matrix, .y = y.view});
    EXPECT_LT(RelativeError(y.view, expected.view), bound) << NameOf(format);
    EXPECT_GT(RelativeError(y.view, expected.view), 1e-4) << NameOf(format);
  }
}

TEST(QuantisedGemm, WhatIsNotFiniteStaysSo) {
  for (Isa isa : TestIsas()) {
    for (WeightFormat format : {WeightFormat::kI8, WeightFormat::kI4}) {
      Rng rng(2);
      OwnedWeights w(rng, format, 1, 20, 96);
      OwnedMatrix x(rng, 3, 96), y(3, 20);
      x.view.row(0)[40] = NAN;
      x.view.row(2)[95] = INFINITY;
      TestContext test(isa);
      Linear(test.context, {.x = x.view, .w = &w.matrix, .y = y.view});
      for (int64_t n = 0; n < 20; ++n) {
        EXPECT_TRUE(std::isnan(y.view.row(0)[n]) && std::isnan(y.view.row(2)[n])) << NameOf(isa);
        EXPECT_TRUE(std::isfinite(y.view.row(1)[n])) << NameOf(isa);
      }
    }
  }
}

// One matrix [16, 256] whose rows have every code that is a number, and scale 1 or 0.5.
struct AllCodes {
  AllCodes() : codes(16 * 256) {
    matrix = {WeightFormat::kF8, 1, 16, 256, nullptr};
    memory = Buffer(matrix.bytes());
    matrix.data = memory.data();
    CodedPanel panel(matrix);
    for (int64_t r = 0; r < 16; ++r) {
      for (int64_t c = 0; c < 256; ++c) {
        const auto code = static_cast<uint8_t>(c + 16 * r);
        codes[static_cast<size_t>(r * 256 + c)] =
            std::byte{(code & 0x7f) == 0x7f ? uint8_t{1} : code};
      }
      std::copy_n(codes.data() + r * 256, 256, panel.codes(r));
      std::memcpy(panel.scales(r), scales, sizeof scales);
    }
    PackCodes(matrix, 0, 0, panel);
  }
  float Value(int64_t row, int64_t col) const {
    const std::byte code = codes[static_cast<size_t>(row * 256 + col)];
    return FloatOfE4M3(static_cast<uint8_t>(code)) * scales[col / 128];
  }
  std::vector<std::byte> codes;
  const float scales[2] = {1.0f, 0.5f};
  Buffer memory;
  PackedMatrix matrix;
};

TEST(Fp8Gemm, EveryCodeIsWhatItStandsForOnEveryInstructionSet) {
  const AllCodes w;
  OwnedMatrix identity(256, 256), y(256, 16);
  for (int64_t i = 0; i < 256; ++i) identity.view.row(i)[i] = 1.0f;
  for (auto [isa, compute] : TestArithmetics()) {
    TestContext test(isa, 2, compute);
    for (bool bytes : {true, false}) {
      if (!bytes) test.context.device.avx512_vbmi = false;
      for (int64_t rows : {1, 3, 8, 9, 256}) {
        for (int64_t begin = 0; begin < 256; begin += rows) {
          const int64_t count = std::min(rows, 256 - begin);
          Linear(test.context, {.x = RowsOf(identity.view, begin, count),
                                .w = &w.matrix,
                                .y = RowsOf(y.view, begin, count)});
        }
        for (int64_t c = 0; c < 256; ++c) {
          for (int64_t n = 0; n < 16; ++n) {
            ASSERT_EQ(w.matrix.At(0, n, c), w.Value(n, c));
            ASSERT_EQ(y.view.row(c)[n], w.Value(n, c))
                << NameOf(isa) << " rows " << rows << " column " << c << " output " << n;
          }
        }
      }
    }
  }
}

TEST(Fp8Gemm, ARowsBitsDoNotDependOnTheRowsBesideIt) {
  Rng rng(4);
  const OwnedWeights w(rng, WeightFormat::kF8, 1, 75, 700);
  const OwnedMatrix x(rng, 50, 700);
  OwnedMatrix together(50, 75), some(50, 75);
  for (auto [isa, compute] : TestArithmetics()) {
    TestContext test(isa, 2, compute);
    for (bool bytes : {true, false}) {
      if (!bytes) test.context.device.avx512_vbmi = false;
      Linear(test.context, {.x = x.view, .w = &w.matrix, .y = together.view});
      for (int64_t rows : {1, 2, 4, 8, 13, 16}) {
        Linear(test.context, {.x = x.view.first_rows(rows), .w = &w.matrix, .y = some.view});
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_TRUE(SameBits(some.view.row(r), together.view.row(r), 75))
              << NameOf(isa) << " row " << r << " of " << rows;
        }
      }
    }
  }
}

TEST(Fp8Gemm, ACodeThatIsNotANumberMakesItsOutputNotOne) {
  PackedMatrix w{WeightFormat::kF8, 1, 2, 200, nullptr};
  Buffer memory(w.bytes());
  w.data = memory.data();
  CodedPanel panel(w);
  for (int64_t row : {0, 1}) {
    std::fill_n(panel.codes(row), 200, std::byte{0x38});
    SetScales(w.format, 1.0f, 2, panel.scales(row));
  }
  panel.codes(1)[150] = std::byte{0xff};
  PackCodes(w, 0, 0, panel);
  OwnedMatrix x(1, 200), y(1, 2);
  std::fill_n(x.view.row(0), 200, 1.0f);
  for (Isa isa : TestIsas()) {
    TestContext test(isa);
    Linear(test.context, {.x = x.view, .w = &w, .y = y.view});
    EXPECT_EQ(y.view.row(0)[0], 200.0f);
    EXPECT_TRUE(std::isnan(y.view.row(0)[1])) << NameOf(isa);
  }
}

TEST(Quantise, ANumberThatIsNotFiniteTakesAllThatShareItsScale) {
  constexpr int64_t kColumns = 200;
  for (auto [format, first, last] : {std::tuple(WeightFormat::kF8, 0, 128),
                                     {WeightFormat::kI8, 0, 200},
                                     {WeightFormat::kI4, 32, 64}}) {
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      std::vector<float> ones(kColumns, 1.0f), zeros(kColumns, 0.0f), spoilt = ones;
      spoilt[40] = bad;
      PackedMatrix w{format, 1, 3, kColumns, nullptr};
      Buffer memory(w.bytes());
      w.data = memory.data();
      const std::byte* rows[kPanelRows] = {};
      const std::vector<float>* sources[] = {&ones, &spoilt, &zeros};
      for (size_t r = 0; r < 3; ++r) {
        rows[r] = reinterpret_cast<const std::byte*>(sources[r]->data());
      }
      PackPanel(w, 0, 0, rows, DType::kF32);
      for (int64_t c = 0; c < kColumns; ++c) {
        EXPECT_EQ(w.At(0, 0, c), 1.0f) << NameOf(format) << " column " << c;
        EXPECT_EQ(std::isnan(w.At(0, 1, c)), first <= c && c < last) << NameOf(format) << " " << c;
        EXPECT_EQ(w.At(0, 2, c), 0.0f) << NameOf(format) << " column " << c;
      }
    }
  }
}

TEST(Quantise, E4M3IsTheNearestCodeTiesToEven) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    const float value = FloatOfE4M3(static_cast<uint8_t>(code));
    EXPECT_EQ(E4M3OfFloat(value), code);
    if ((code & 0x7f) == 0x7e) continue;
    const float next = FloatOfE4M3(static_cast<uint8_t>(code + 1)), half = (value + next) / 2;
    EXPECT_EQ(E4M3OfFloat(half), code % 2 == 0 ? code : code + 1) << half;
    EXPECT_EQ(E4M3OfFloat(std::nextafter(half, value)), code) << half;
    EXPECT_EQ(E4M3OfFloat(std::nextafter(half, next)), code + 1) << half;
  }
  EXPECT_EQ(E4M3OfFloat(1e9f), 0x7e);
  EXPECT_EQ(E4M3OfFloat(-INFINITY), 0xfe);
  EXPECT_EQ(E4M3OfFloat(NAN) & 0x7f, 0x7f);
}

TEST(Quantise, KeepsTheLargestWeightAndTheSign) {
  const float row[40] = {0.5f, -1.0f, 0.25f, 1e-3f};
  for (WeightFormat format : {WeightFormat::kI8, WeightFormat::kI4}) {
    PackedMatrix w{format, 1, 1, 40, nullptr};
    Buffer memory(w.bytes());
    w.data = memory.data();
    const std::byte* rows[kPanelRows] = {reinterpret_cast<const std::byte*>(row)};
    PackPanel(w, 0, 0, rows, DType::kF32);
    EXPECT_FLOAT_EQ(w.At(0, 0, 1), -1.0f) << NameOf(format);
    EXPECT_NEAR(w.At(0, 0, 0), 0.5f, 0.005) << NameOf(format);
    EXPECT_EQ(w.At(0, 0, 39), 0.0f) << NameOf(format);
    EXPECT_EQ(w.At(0, 5, 1), 0.0f) << NameOf(format);
  }
}

TEST(Quantise, RowsOfOtherTypesAreRoundedToBf16) {
  const float row[3] = {0.1f, -3.14159f, 1e30f};
  PackedMatrix w{WeightFormat::kBF16, 1, 1, 3, nullptr};
  Buffer memory(w.bytes());
  w.data = memory.data();
  const std::byte* rows[kPanelRows] = {reinterpret_cast<const std::byte*>(row)};
  PackPanel(w, 0, 0, rows, DType::kF32);
  for (int64_t c = 0; c < 3; ++c) EXPECT_EQ(w.At(0, 0, c), RoundToBf16(row[c]));
  EXPECT_EQ(w.At(0, 3, 1), 0.0f);
}

TEST(Quantise, HalfPrecisionRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float value = FloatOfF16(static_cast<uint16_t>(bits));
    ASSERT_EQ(F16OfFloat(value), bits);
    ASSERT_EQ(F16OfFloat(-value), bits | 0x8000u);
    // Halfway to the next: to the even one.
    const float next = bits == 0x7bff ? 65536.0f : FloatOfF16(static_cast<uint16_t>(bits + 1));
    ASSERT_EQ(F16OfFloat((value + next) / 2), bits + (bits & 1));
  }
  EXPECT_EQ(F16OfFloat(1e6f), 0x7c00);
}

// More rows than one pass takes, and more depth.
TEST(Linear, ManyRowsCutAnywhereGiveTheSameBits) {
  constexpr int64_t kRows = 557, kOutputs = 200, kDepth = 1090;
  Rng rng(3);
  OwnedMatrix x(rng, kRows, kDepth);
  for (auto [isa, format] : {std::pair(Isa::kAvx2, WeightFormat::kBF16),
                             {Isa::kAvx512, WeightFormat::kBF16},
                             {Isa::kAmx, WeightFormat::kBF16},
                             {Isa::kAmx, WeightFormat::kI8}}) {
    if (!HasIsa(isa)) continue;
    OwnedWeights w(rng, format, 1, kOutputs, kDepth);
    TestContext test(isa, 2, Compute::kBF16);
    OwnedMatrix together(kRows, kOutputs), part(kRows, kOutputs);
    Linear(test.context, {.x = x.view, .w = &w.matrix, .y = together.view});
    for (int64_t rows : {1, 2, 15, 16, 17, 31, 32, 33, 48, 49, 96, 100, 512, 540}) {
      const int64_t first = kRows - rows;
      Linear(test.context, {.x = RowsOf(x.view, first, rows), .w = &w.matrix, .y = part.view});
      for (int64_t r = 0; r < rows; ++r) {
        ASSERT_TRUE(SameBits(part.view.row(r), together.view.row(first + r), kOutputs))
            << NameOf(isa) << " row " << r << " of " << rows;
      }
    }
  }
}

// Outputs too many for the caches go past them, where they lie as a model's do.
TEST(Linear, ManyOutputsHaveTheBitsOfFew) {
  constexpr int64_t kRows = 560, kOutputs = 1999, kStride = 2048, kDepth = 80;
  Rng rng(4);
  OwnedMatrix x(rng, kRows, kDepth);
  for (auto [isa, format] : {std::pair(Isa::kAvx512, WeightFormat::kBF16),
                             {Isa::kAmx, WeightFormat::kBF16},
                             {Isa::kAmx, WeightFormat::kI8}}) {
    if (!HasIsa(isa)) continue;
    OwnedWeights w(rng, format, 1, kOutputs, kDepth);
    TestContext test(isa, 2, Compute::kBF16);
    Buffer memory(kRows * kStride * 4);
    const Matrix y{reinterpret_cast<float*>(memory.data()), kRows, kOutputs, kStride};
    Linear(test.context, {.x = x.view, .w = &w.matrix, .y = y});
    OwnedMatrix part(7, kOutputs);
    for (int64_t first = 0; first < kRows; first += 7) {
      Linear(test.context, {.x = RowsOf(x.view, first, 7), .w = &w.matrix, .y = part.view});
      for (int64_t r = 0; r < 7; ++r) {
        ASSERT_TRUE(SameBits(part.view.row(r), y.row(first + r), kOutputs))
            << NameOf(isa) << " row " << first + r;
      }
    }
  }
}

}  // namespace
}  // namespace braid::ops
