// GEMM kernels, bit for bit: all rows of their table against the reference, and the arithmetic of
// the tile instructions written out in scalar code. Formats and kernels come from their tables.
#include "ops/cpu/gemm/gemm.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/linear.h"
#include "ops/testing/test_context.h"

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

TEST(TileGemm, ComputesAsTheInstructionIsDocumented) {
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

// Numbers of a coded row: scales and, where there are bases, those are `value`.
void SetScales(WeightFormat format, float value, int64_t bytes, std::byte* scales) {
  const WeightFormatRow& row = RowOf(format);
  for (const std::byte* end = scales + bytes; scales < end;) {
    for (size_t i = 0; i < kNumbers; ++i) {
      const SharedNumber& number = row.numbers[i];
      if (number.type == NumberType::kNone) continue;
      const int64_t count = row.unit() == 0 ? 1 : row.unit() / number.columns;
      const uint16_t half = F16OfFloat(number.type == NumberType::kF16By8 ? 8 * value : value);
      for (int64_t j = 0; j < count; ++j, scales += number.bytes()) {
        const bool fp8 = number.type == NumberType::kF8;
        if (number.bytes() == 1) *scales = std::byte{fp8 ? uint8_t{0x38} : uint8_t{1}};
        if (number.type == NumberType::kE8M0) *scales = std::byte{127};  // a half
        if (number.bytes() == 2) std::memcpy(scales, &half, 2);
        if (number.bytes() == 4) std::memcpy(scales, &value, 4);
      }
    }
  }
}

std::vector<WeightFormatRow> IntegerFormats() {
  std::vector<WeightFormatRow> formats;
  for (const WeightFormatRow& row : WeightFormats()) {
    if (row.integers) formats.push_back(row);
  }
  return formats;
}

// y = x w^T by one kernel.
void RunKernel(const cpu::GemmKernel& kernel, const Matrix& x, const PackedMatrix& w,
               const Matrix& y) {
  cpu::PackedActivations packed{.kernel = &kernel, .rows = x.rows, .k = w.k};
  const Buffer memory(packed.bytes());
  packed.data = memory.data();
  for (int64_t b = 0; b < packed.blocks(); ++b) packed.PackBlock(b, x, nullptr);
  cpu::GemmTask task = cpu::TaskOf(packed, w, 0, 0, x.rows);
  task.y = y.data;
  task.y_stride = y.stride;
  kernel.run(task);
}

TEST(GemmKernels, EveryRowOfTheTableAgreesWithTheReferenceUnderEveryCutOfRows) {
  constexpr int64_t kRows = 53, kOutputs = 75, kDepth = 700;
  for (const cpu::GemmKernel& kernel : cpu::GemmKernels()) {
    const Compute compute = kernel.rounds ? Compute::kBF16 : Compute::kF32;
    const Device device = DeviceOf(DetectCpu(), BestIsa(DetectCpu()), compute);
    if (cpu::WhyNot(kernel, device, false)) continue;
    const std::string name = fmt::format("{} {}", NameOf(kernel.format), cpu::NameOf(kernel));
    Rng rng(6);
    const OwnedWeights w(rng, kernel.format, 1, kOutputs, kDepth);
    const OwnedMatrix x(rng, kRows, kDepth);
    OwnedMatrix expected(kRows, kOutputs), together(kRows, kOutputs), part(kRows, kOutputs);
    TestContext base(Isa::kBase, 1, compute);
    Linear(base.context, {.x = x.view, .w = &w.matrix, .y = expected.view});
    RunKernel(kernel, x.view, w.matrix, together.view);
    const bool exact = RowOf(kernel.format).integers;
    EXPECT_LE(RelativeError(together.view, expected.view), exact ? 0.0 : 1e-5) << name;
    for (int64_t first : {0, 5, 16, 24}) {
      for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 24, 25, 29}) {
        RunKernel(kernel, RowsOf(x.view, first, rows), w.matrix, part.view.first_rows(rows));
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_TRUE(SameBits(part.view.row(r), together.view.row(first + r), kOutputs))
              << name << " row " << first + r << " of " << rows << " from " << first;
        }
      }
    }
  }
}

TEST(GemmKernels, AllNumbersOf16BitsHaveTheBitsThatTheyHaveInFp32) {
  constexpr int64_t kRows = 26, kOutputs = 64, kDepth = 1024;
  Rng rng(8);
  const OwnedMatrix x(rng, kRows, kDepth);
  for (const auto& [format, type] : {std::pair(WeightFormat::kF16, DType::kF16),
                                     {WeightFormat::kBF16, DType::kBF16}}) {
    const bool halves = type == DType::kF16;
    std::vector<uint16_t> numbers(kOutputs * kDepth);
    std::vector<float> values(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto bits = static_cast<uint16_t>(i * 40503);  // each once
      const uint16_t exponent = halves ? 0x7c00 : 0x7f80;
      if ((bits & exponent) != exponent) numbers[i] = bits;
      values[i] = halves ? FloatOfF16(numbers[i]) : FloatOfBf16(numbers[i]);
    }
    PackedMatrix w{format, 1, kOutputs, kDepth, nullptr};
    PackedMatrix wide{WeightFormat::kF32, 1, kOutputs, kDepth, nullptr};
    Buffer w_memory(w.bytes()), wide_memory(wide.bytes());
    w.data = w_memory.data();
    wide.data = wide_memory.data();
    for (int64_t p = 0; p < w.panels(); ++p) {
      const std::byte *rows[kPanelRows], *wide_rows[kPanelRows];
      for (int64_t r = 0; r < kPanelRows; ++r) {
        const auto first = static_cast<size_t>((p * kPanelRows + r) * kDepth);
        rows[r] = reinterpret_cast<const std::byte*>(&numbers[first]);
        wide_rows[r] = reinterpret_cast<const std::byte*>(&values[first]);
      }
      PackPanel(w, 0, p, rows, type);
      PackPanel(wide, 0, p, wide_rows, DType::kF32);
    }
    for (const auto& [isa, compute] : TestArithmetics()) {
      if (!halves && compute == Compute::kBF16) continue;  // products of another kind
      TestContext test(isa, 1, compute);
      OwnedMatrix y(kRows, kOutputs), expected(kRows, kOutputs);
      Linear(test.context, {.x = x.view, .w = &w, .y = y.view});
      Linear(test.context, {.x = x.view, .w = &wide, .y = expected.view});
      for (int64_t r = 0; r < kRows; ++r) {
        ASSERT_TRUE(SameBits(y.view.row(r), expected.view.row(r), kOutputs))
            << NameOf(format) << " on " << NameOf(isa) << " row " << r;
      }
    }
  }
}

TEST(GemmKernels, EveryFormatHasOneOnAvx2AndNoneBelow) {
  for (const WeightFormatRow& row : WeightFormats()) {
    for (Compute compute : {Compute::kF32, Compute::kBF16}) {
      for (bool exact : {true, false}) {
        const auto* kernel = cpu::FindGemmKernel({Isa::kAvx2, compute}, row.format, exact);
        ASSERT_NE(kernel, nullptr) << row.name;
        EXPECT_EQ(kernel->format, row.format);
        EXPECT_EQ(kernel->rounds, !row.integers && compute == Compute::kBF16 && !exact) << row.name;
        EXPECT_EQ(kernel->layout->integers, row.integers) << row.name;
        EXPECT_EQ(cpu::FindGemmKernel({Isa::kBase, compute}, row.format, exact), nullptr);
      }
    }
  }
}

TEST(GemmKernels, TheBestThatTheDeviceHasIsTakenAndTheOthersSayWhatTheyNeed) {
  const auto name = [](const Device& device, WeightFormat format, bool exact = false) {
    return cpu::NameOf(cpu::GemmKernelFor(device, format, exact));
  };
  Device device{Isa::kAmx, Compute::kBF16, true, true, true, true};
  EXPECT_EQ(name(device, WeightFormat::kBF16), "amx");
  EXPECT_EQ(name(device, WeightFormat::kBF16, true), "avx512");
  EXPECT_EQ(name(device, WeightFormat::kF32), "avx512_rounded");
  EXPECT_EQ(name(device, WeightFormat::kF16), "avx512_rounded");
  EXPECT_EQ(name(device, WeightFormat::kI8), "amx");
  EXPECT_EQ(name(device, WeightFormat::kI4), "avx512_vnni");
  EXPECT_EQ(name(device, WeightFormat::kQ4K), "avx512_vnni");
  EXPECT_EQ(name(device, WeightFormat::kF8), "avx512_vbmi");
  device.isa = Isa::kAvx512;
  EXPECT_EQ(name(device, WeightFormat::kBF16), "avx512_bf16");
  EXPECT_EQ(name(device, WeightFormat::kI8), "avx512_vnni");
  device.avx512_bf16 = device.avx512_vnni = false;
  EXPECT_EQ(name(device, WeightFormat::kBF16), "avx512_rounded");
  EXPECT_EQ(name(device, WeightFormat::kF8), "avx512_rounded");
  EXPECT_EQ(name(device, WeightFormat::kI4), "avxvnni");
  device.avx_vnni = false;
  EXPECT_EQ(name(device, WeightFormat::kI8), "avx2");

  OpChoices choices;
  cpu::NoteGemmKernel({.device = device, .choices = &choices}, WeightFormat::kI8, false);
  cpu::NoteGemmKernel({.device = device, .choices = &choices}, WeightFormat::kI8, false);
  ASSERT_EQ(choices.choices.size(), 1u);
  EXPECT_EQ(choices.choices[0].op, "gemm int8");
  EXPECT_EQ(choices.choices[0].taken, "avx2");
  EXPECT_THAT(choices.choices[0].refused,
              testing::ElementsAre("amx: needs AMX", "avx512_vnni: needs AVX512-VNNI",
                                   "avxvnni: needs AVX-VNNI"));
}

// Checkpoints have the least code, though quantising here never makes it.
TEST(QuantisedGemm, HoldsTheLeastAndTheLargestIntegers) {
  for (const WeightFormatRow& format : IntegerFormats()) {
    const int bits = static_cast<int>(format.code_bits);
    const std::byte sign = bits == 4 ? std::byte{0x88} : std::byte{0x80};
    const bool grouped =
        std::ranges::count(kGroupedFormats, format.format, &GroupedFormat::format) > 0;
    const std::byte least = grouped ? std::byte{0} : format.zero ^ sign;
    const std::byte most = grouped ? static_cast<std::byte>((1 << bits) - 1) : ~least;
    for (std::byte codes : {least, most}) {
      PackedMatrix w{format.format, 1, 16, 256, nullptr};
      const Buffer memory(w.bytes());
      w.data = memory.data();
      CodedPanel panel(w.format, w.depth());
      for (int64_t r = 0; r < 16; ++r) {
        std::fill_n(panel.codes(r), format.CodeBytes(256), codes);
        SetScales(w.format, 0.5f, panel.scale_bytes(), panel.scales(r));
      }
      PackCodes(w, 0, 0, panel);
      const float step = codes == least ? 0.0f : std::exp2(static_cast<float>(bits)) - 1.0f;
      const float centre = grouped ? static_cast<float>(static_cast<int>(format.zero))
                                   : std::exp2(static_cast<float>(bits - 1));
      const float lowest = format.has_base() ? -centre - 1.0f : -centre;
      const GroupedFormat* table =
          std::ranges::find(kGroupedFormats, w.format, &GroupedFormat::format);
      const bool values = table != std::end(kGroupedFormats) && table->has_values();
      const auto code = static_cast<float>(
          values ? table->Value(static_cast<int>(codes == least ? least : most)) : 0);
      const float scale = format.divides ? 2.0f : 0.5f;
      ASSERT_EQ(w.At(0, 7, 99), scale * (values ? code : lowest + step)) << format.name;
      OwnedMatrix x(5, 256), y(5, 16);
      for (int64_t r = 0; r < 5; ++r) {
        std::fill_n(x.view.row(r), 256, r % 2 == 0 ? 127.0f : -127.0f);
      }
      for (const cpu::GemmKernel& kernel : cpu::GemmKernels()) {
        const Device device = DeviceOf(DetectCpu(), BestIsa(DetectCpu()), Compute::kF32);
        if (kernel.format != w.format || cpu::WhyNot(kernel, device, false)) continue;
        RunKernel(kernel, x.view, w, y.view);
        for (int64_t r = 0; r < 5; ++r) {
          const float expected = w.At(0, 7, 99) * x.view.row(r)[0] * 256;
          ASSERT_EQ(y.view.row(r)[15], expected) << format.name << " " << cpu::NameOf(kernel);
        }
      }
    }
  }
}

// Quantised products are defined to the bit, and sums of integers have no order.
TEST(QuantisedGemm, HasTheSameBitsOnEveryInstructionSetAndWithEitherArithmetic) {
  for (const WeightFormatRow& format : IntegerFormats()) {
    for (int64_t k : {64, 100, 1090}) {
      Rng rng(static_cast<uint64_t>(k));
      OwnedWeights w(rng, format.format, 1, 75, k);
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
                  << NameOf(isa) << " " << format.name << " depth " << k << " row " << r;
            }
          }
        }
      }
    }
  }
}

TEST(QuantisedGemm, IsCloseToTheWeightsItWasMadeFrom) {
  for (const WeightFormatRow& format : WeightFormats()) {
    if (!format.quantised()) continue;
    // Half a step of the codes, or of fp8's mantissa.
    const double bound = format.integers ? std::exp2(2.0 - double(format.code_bits)) : 0.05;
    Rng one(8), two(8);
    OwnedWeights exact(one, WeightFormat::kBF16, 1, 64, 512), w(two, format.format, 1, 64, 512);
    OwnedMatrix x(one, 9, 512), expected(9, 64), y(9, 64);
    TestContext base(Isa::kBase);
    Linear(base.context, {.x = x.view, .w = &exact.matrix, .y = expected.view});
    Linear(base.context, {.x = x.view, .w = &w.matrix, .y = y.view});
    EXPECT_LT(RelativeError(y.view, expected.view), bound) << format.name;
    EXPECT_GT(RelativeError(y.view, expected.view), 1e-4) << format.name;
  }
}

TEST(QuantisedGemm, RowsThatAreNotFiniteGiveNan) {
  for (Isa isa : TestIsas()) {
    for (const WeightFormatRow& format : IntegerFormats()) {
      Rng rng(2);
      OwnedWeights w(rng, format.format, 1, 20, 96);
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
    CodedPanel panel(matrix.format, matrix.depth());
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

TEST(Fp8Gemm, EveryCodeIsItsNumberOnEveryInstructionSet) {
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
  CodedPanel panel(w.format, w.depth());
  for (int64_t row : {0, 1}) {
    std::fill_n(panel.codes(row), 200, std::byte{0x38});
    SetScales(w.format, 1.0f, panel.scale_bytes(), panel.scales(row));
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
  constexpr int64_t kColumns = 200, kBad = 40;
  for (const WeightFormatRow& format : WeightFormats()) {
    if (!format.quantised()) continue;
    const int64_t columns = format.unit() == 0 ? kColumns : format.unit();
    const int64_t first = kBad / columns * columns, last = first + columns;
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      std::vector<float> ones(kColumns, 1.0f), zeros(kColumns, 0.0f), spoilt = ones;
      spoilt[kBad] = bad;
      PackedMatrix w{format.format, 1, 3, kColumns, nullptr};
      const Buffer memory(w.bytes());
      w.data = memory.data();
      const std::byte* rows[kPanelRows] = {};
      const std::vector<float>* sources[] = {&ones, &spoilt, &zeros};
      for (size_t r = 0; r < 3; ++r) {
        rows[r] = reinterpret_cast<const std::byte*>(sources[r]->data());
      }
      PackPanel(w, 0, 0, rows, DType::kF32);
      for (int64_t c = 0; c < kColumns; ++c) {
        EXPECT_NEAR(w.At(0, 0, c), 1.0f, 2e-3) << format.name << " column " << c;
        EXPECT_EQ(std::isnan(w.At(0, 1, c)), first <= c && c < last) << format.name << " " << c;
        EXPECT_EQ(w.At(0, 2, c), 0.0f) << format.name << " column " << c;
      }
    }
  }
}

TEST(Quantise, KeepsTheLargestWeightAndTheSign) {
  const float row[40] = {0.5f, -1.0f, 0.25f, 1e-3f};
  for (const WeightFormatRow& format : IntegerFormats()) {
    PackedMatrix w{format.format, 1, 1, 40, nullptr};
    const Buffer memory(w.bytes());
    w.data = memory.data();
    const std::byte* rows[kPanelRows] = {reinterpret_cast<const std::byte*>(row)};
    PackPanel(w, 0, 0, rows, DType::kF32);
    // Scales of 16 bits have 11 significant ones; integers times them, and steps from a base, reach
    // a group's extremes less closely.
    const float steps = std::exp2(static_cast<float>(format.code_bits)) - 1.0f;
    const float scale = format.numbers[0].type == NumberType::kF32 ? 1e-7f : 0x1p-11f;
    const bool one = format.numbers[1].type == NumberType::kNone && !format.has_base();
    EXPECT_NEAR(w.At(0, 0, 1), -1.0f, one ? scale : 1.6f / steps) << format.name;
    EXPECT_NEAR(w.At(0, 0, 0), 0.5f, std::max(0.005f, 2.0f / steps)) << format.name;
    EXPECT_EQ(w.At(0, 0, 39), 0.0f) << format.name;
    EXPECT_EQ(w.At(0, 5, 1), 0.0f) << format.name;
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
