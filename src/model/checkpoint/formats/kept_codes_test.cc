// Kept codes are, bit for bit, the numbers that the decoder reads; codes that no memory format can
// hold are not kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <span>

#include "base/rng.h"
#include "model/checkpoint/formats/gguf_blocks.h"
#include "model/checkpoint/formats/groups.h"
#include "model/checkpoint/formats/quantization.h"
#include "ops/grouped/grouped_format.h"
#include "ops/packed.h"
#include "tensor/tensor.h"

namespace braid {
namespace {

// The rows of a stored weight as they lie in memory when their codes are kept.
class Kept {
 public:
  explicit Kept(const StoredWeight& stored)
      : matrix{.format = KeptBy(stored)->format,
               .n = stored.matrices * stored.rows,
               .k = stored.k,
               .ordered = !stored.order.empty()},
        memory_(matrix.bytes()) {
    matrix.data = memory_.data();
    if (matrix.ordered) {
      std::memcpy(matrix.data + matrix.panels() * matrix.panel_bytes(), stored.order.data(),
                  2 * stored.order.size());
    }
    for (int64_t p = 0; p < matrix.panels(); ++p) {
      ops::CodedPanel panel(matrix.format, matrix.depth());
      for (int64_t r = 0; r < std::min(ops::kPanelRows, matrix.n - p * ops::kPanelRows); ++r) {
        KeptBy(stored)->row(stored, p * ops::kPanelRows + r, panel.codes(r), panel.scales(r));
      }
      ops::PackCodes(matrix, 0, p, panel);
    }
  }
  ops::PackedMatrix matrix;

 private:
  Buffer memory_;
};

void ExpectKept(const StoredWeight& stored) {
  ASSERT_NE(KeptBy(stored), nullptr) << stored.format->name;
  const Kept kept(stored);
  std::vector<float> decoded(static_cast<size_t>(stored.k));
  for (int64_t row = 0; row < kept.matrix.n; ++row) {
    stored.format->decode(stored, row, 1, decoded.data());
    for (int64_t c = 0; c < stored.k; ++c) {
      ASSERT_EQ(kept.matrix.At(0, row, c), decoded[static_cast<size_t>(c)])
          << stored.format->name << " row " << row << " column " << c;
    }
    for (int64_t c = stored.k; c < kept.matrix.depth(); ++c) {
      ASSERT_EQ(kept.matrix.CodedAt(0, row, c).code, 0.0f) << "behind row " << row;
    }
  }
}

// A stored weight [matrices, rows, k] whose parts the test fills.
class Made {
 public:
  Made(const StorageFormat& format, int64_t rows, int64_t k, int64_t matrices = 1) {
    stored_.format = &format;
    stored_.quantization = &quantization;
    stored_.rows = rows;
    stored_.k = k;
    stored_.matrices = matrices;
  }
  // Part i with random bytes.
  std::vector<std::byte>& Part(size_t i, DType dtype, std::vector<int64_t> shape) {
    int64_t bytes = SizeOf(dtype);
    for (int64_t size : shape) bytes *= size;
    std::vector<std::byte>& data = data_.emplace_back(static_cast<size_t>(bytes));
    for (std::byte& byte : data) {
      byte = static_cast<std::byte>(rng_.Below(256));
      // A code that is not a number would take its group with it (ops/gemm_test.cc).
      if (dtype == DType::kF8E4M3 && std::isnan(FloatOfE4M3(uint8_t(byte)))) byte = std::byte{1};
    }
    entries_.push_back({.name = "part",
                        .dtype = dtype,
                        .shape = std::move(shape),
                        .data = data.data(),
                        .bytes = bytes});
    stored_.parts[i] = &entries_.back();
    return data;
  }
  void Scales(size_t i, DType dtype, std::vector<int64_t> shape) {
    std::vector<std::byte>& data = Part(i, dtype, std::move(shape));
    const auto size = static_cast<size_t>(SizeOf(dtype));
    for (size_t at = 0; at < data.size(); at += size) {
      const auto value = static_cast<float>(0.01 + 0.01 * rng_.Uniform());
      const uint16_t half = dtype == DType::kF16 ? F16OfFloat(value) : Bf16OfFloat(value);
      std::memcpy(&data[at], size == 4 ? static_cast<const void*>(&value) : &half, size);
    }
  }
  const StoredWeight& stored() const { return stored_; }
  bool Fits() const { return KeptBy(stored_) != nullptr; }
  ops::WeightFormat format() const { return KeptBy(stored_)->format; }

  void ExpectKept() const { braid::ExpectKept(stored_); }

  // Part i says the group of every column, in an order of their own.
  std::vector<std::byte>& Shuffle(size_t i) {
    std::vector<int32_t> groups;
    for (int64_t c = 0; c < stored_.k; ++c) {
      groups.push_back(static_cast<int32_t>(c / quantization.group));
      std::swap(groups.back(), groups[static_cast<size_t>(rng_.Below(c + 1))]);
    }
    std::vector<std::byte>& part = Part(i, DType::kI32, {stored_.k});
    std::memcpy(part.data(), groups.data(), part.size());
    Sort();
    return part;
  }
  void Sort() { stored_.order = OrderOfGroups(stored_); }

  QuantizationSpec quantization;

 private:
  Rng rng_{5};
  std::deque<std::vector<std::byte>> data_;
  std::deque<TensorEntry> entries_;
  StoredWeight stored_;
};

// Rows behind the first matrix would be read behind the tensor.
TEST(KeptCodes, OneMatrixIsNotSeveralThatAreStacked) {
  for (const int64_t there : {1, 2}) {
    const auto shape = [&](int64_t rows, int64_t columns) {
      return there == 1 ? std::vector{rows, columns} : std::vector{there, rows, columns};
    };
    Made fp8(kFp8Blocks, 128, 256, 2);
    fp8.quantization.block_rows = fp8.quantization.block_columns = 128;
    fp8.Part(0, DType::kF8E4M3, shape(128, 256));
    fp8.Scales(1, DType::kF32, shape(1, 2));
    EXPECT_EQ(kFp8Blocks.problem(fp8.stored()) == "", there == 2);

    Made nvfp4(kNvfp4Packed, 16, 64, 2);
    nvfp4.Part(0, DType::kU8, shape(16, 32));
    nvfp4.Part(1, DType::kF8E4M3, shape(16, 4));
    const float global = 4;
    std::memcpy(nvfp4.Part(2, DType::kF32, {1}).data(), &global, sizeof(global));
    EXPECT_EQ(kNvfp4Packed.problem(nvfp4.stored()) == "", there == 2)
        << kNvfp4Packed.problem(nvfp4.stored());
    if (there == 2) {
      fp8.ExpectKept();
      nvfp4.ExpectKept();
    }
  }
}

TEST(KeptCodes, Fp8OfBlocksThatAre128WideOrMultiples) {
  for (auto [rows, columns, kept] :
       {std::tuple(128, 128, true), {1, 128, true}, {7, 256, true}, {128, 64, false}}) {
    Made w(kFp8Blocks, 150, 300);
    w.quantization.block_rows = rows;
    w.quantization.block_columns = columns;
    w.Part(0, DType::kF8E4M3, {150, 300});
    w.Scales(1, DType::kF32, {CeilDiv(150, rows), CeilDiv(300, columns)});
    if (kept) {
      w.ExpectKept();
    } else {
      EXPECT_FALSE(w.Fits());
    }
  }
}

TEST(KeptCodes, Fp8AndInt8WithAScalePerRowOrOneForAll) {
  for (const StorageFormat* format : {&kFp8Scaled, &kInt8Scaled}) {
    for (int64_t scales : {1, 20}) {
      Made w(*format, 20, 200);
      w.Part(0, format->types[0], {20, 200});
      w.Scales(1, DType::kBF16, {scales, 1});
      w.ExpectKept();
    }
  }
}

TEST(KeptCodes, EveryMatrixOfAWeightHasItsOwnScales) {
  Made blocks(kFp8Blocks, 150, 300, 3);
  blocks.quantization.block_rows = blocks.quantization.block_columns = 128;
  blocks.Part(0, DType::kF8E4M3, {3, 150, 300});
  blocks.Scales(1, DType::kF32, {3, 2, 3});
  blocks.ExpectKept();
  for (const StorageFormat* format : {&kFp8Scaled, &kInt8Scaled}) {
    for (int64_t scales : {1, 20}) {
      Made scaled(*format, 20, 200, 3);
      scaled.Part(0, format->types[0], {3, 20, 200});
      scaled.Scales(1, DType::kBF16, {3, scales, 1});
      scaled.ExpectKept();
    }
  }
  Made packed(kInt4Packed, 24, 200, 3);
  packed.quantization.group = 64;
  packed.Part(0, DType::kI32, {3, 24, 25});
  packed.Scales(1, DType::kF16, {3, 24, 4});
  packed.ExpectKept();
}

TEST(KeptCodes, Int8InBlocksIsNotKept) {
  Made w(kInt8Scaled, 256, 256);
  w.quantization.block_rows = w.quantization.block_columns = 128;
  w.Part(0, DType::kI8, {256, 256});
  w.Scales(1, DType::kF32, {2, 2});
  EXPECT_FALSE(w.Fits());
}

// 24 rows of 193 to 200 columns in groups.
void FillInt4(Made& w, int64_t group, DType scale_type) {
  w.quantization.group = group;
  w.Part(0, DType::kI32, {24, 25});
  w.Scales(1, scale_type, {24, CeilDiv(200, group)});
}

TEST(KeptCodes, Int4InGroupsOf32OrMultiples) {
  for (auto [group, kept] : {std::pair(32, true), {64, true}, {200, true}, {40, false}}) {
    for (auto [columns, type] : {std::pair(200, DType::kF16), {197, DType::kBF16}}) {
      Made w(kInt4Packed, 24, columns);  // 197: the last word is not whole
      FillInt4(w, group, type);
      if (kept) {
        w.ExpectKept();
      } else {
        EXPECT_FALSE(w.Fits()) << group;
      }
    }
  }
}

TEST(KeptCodes, Int4WithScalesThatFp16LacksIsNot) {
  Made zeros(kInt4Packed, 24, 200);
  FillInt4(zeros, 64, DType::kF16);
  std::ranges::fill(zeros.Part(3, DType::kI32, {3, 4}), std::byte{0x88});
  zeros.ExpectKept();
  EXPECT_EQ(zeros.format(), ops::WeightFormat::kI4);

  Made fine(kInt4Packed, 24, 200);
  fine.quantization.group = 64;
  fine.Part(0, DType::kI32, {24, 25});
  fine.Scales(1, DType::kF32, {24, 4});  // of 24 bits
  EXPECT_FALSE(fine.Fits());
}

TEST(KeptCodes, ColumnsWhoseGroupsAreInDisorderAreKeptInTheOrderOfTheirGroups) {
  for (const bool bytes : {false, true}) {
    const int64_t per_word = bytes ? 4 : 8, middle = bytes ? 0x80 : 0x88;
    // 197: the last word is not whole, and the last group neither.
    Made packed(kInt4Packed, 24, 197), gptq(kGptq, 24, 192);
    packed.Part(0, DType::kI32, {24, CeilDiv(197, per_word)});
    packed.Scales(1, DType::kF16, {24, 4});
    gptq.Part(0, DType::kI32, {192 / per_word, 24});
    std::vector<std::byte>& zeros = gptq.Part(1, DType::kI32, {3, 24 / per_word});
    std::ranges::fill(zeros, static_cast<std::byte>(middle));
    gptq.Scales(2, DType::kF16, {3, 24});
    for (Made* w : {&packed, &gptq}) {
      w->quantization.group = 64;
      std::vector<std::byte>& groups = w->Shuffle(w == &packed ? 4 : 3);
      ASSERT_FALSE(w->stored().order.empty());
      w->ExpectKept();
      EXPECT_EQ(w->format(), bytes ? ops::WeightFormat::kQ8_0 : ops::WeightFormat::kI4);
      if (!bytes && w == &gptq) {
        zeros[5] = std::byte{0x78};
        w->ExpectKept();
        EXPECT_EQ(w->format(), ops::WeightFormat::kI4Z32);
      }
      // Groups of other sizes than the config's do not fit.
      std::ranges::fill(std::span(groups).first(4 * 80), std::byte{0});
      w->Sort();
      EXPECT_FALSE(w->Fits());
    }
  }
}

// Exporters write the groups also where they are in order.
TEST(KeptCodes, GroupsInOrderNeedNoOrderOfColumns) {
  Made w(kInt4Packed, 24, 200);
  FillInt4(w, 64, DType::kF16);
  auto* groups = reinterpret_cast<int32_t*>(w.Part(4, DType::kI32, {200}).data());
  for (int32_t c = 0; c < 200; ++c) groups[c] = c / 64;
  w.Sort();
  EXPECT_TRUE(w.stored().order.empty());
  w.ExpectKept();
}

TEST(KeptCodes, GptqWithZeroPointsInTheMiddle) {
  for (bool off_by_one : {true, false}) {
    Made w(kGptq, 24, 192);
    w.quantization.group = 64;
    w.quantization.zero_off_by_one = off_by_one;
    w.Part(0, DType::kI32, {24, 24});
    std::vector<std::byte>& zeros = w.Part(1, DType::kI32, {3, 3});
    std::ranges::fill(zeros, std::byte{uint8_t(off_by_one ? 0x77 : 0x88)});
    w.Scales(2, DType::kF16, {3, 24});
    w.ExpectKept();
    EXPECT_EQ(w.format(), ops::WeightFormat::kI4);
    zeros[35] = std::byte{0x78};
    w.ExpectKept();
    EXPECT_EQ(w.format(), ops::WeightFormat::kI4Z32);
  }
}

TEST(KeptCodes, IntegersOfEightBitsWithOneScaleOrInGroups) {
  for (auto [group, format] :
       {std::pair(0, ops::WeightFormat::kI8), {64, ops::WeightFormat::kQ8_0}}) {
    const int64_t groups = group == 0 ? 1 : 3;
    Made packed(kInt4Packed, 24, 190), gptq(kGptq, 24, 192);
    packed.Part(0, DType::kI32, {24, 48});  // the last word is not whole
    packed.Scales(1, DType::kBF16, {24, groups});
    gptq.Part(0, DType::kI32, {48, 24});
    std::vector<std::byte>& zeros = gptq.Part(1, DType::kI32, {groups, 6});
    std::ranges::fill(zeros, std::byte{127});
    gptq.Scales(2, DType::kF16, {groups, 24});
    gptq.quantization.zero_off_by_one = true;
    for (Made* w : {&packed, &gptq}) {
      w->quantization.group = group;
      w->ExpectKept();
      EXPECT_EQ(w->format(), format);
    }
    zeros[5] = std::byte{126};
    EXPECT_FALSE(gptq.Fits());
    packed.quantization.group = 40;
    EXPECT_EQ(packed.stored().format->problem(packed.stored()).empty(), false);
  }
}

TEST(KeptCodes, ZeroPointsOfAllFormatsInGroupsThatMemoryHas) {
  for (auto [group, format] : {std::pair(128, ops::WeightFormat::kI4Z),
                               {256, ops::WeightFormat::kI4Z},
                               {64, ops::WeightFormat::kI4Z32},
                               {32, ops::WeightFormat::kI4Z32},
                               {0, ops::WeightFormat::kI4Z}}) {
    const int64_t k = 512, n = 24, groups = group == 0 ? 1 : k / group;
    Made packed(kInt4Packed, n, k), gptq(kGptq, n, k), awq(kAwq, n, k);
    packed.Part(0, DType::kI32, {n, k / 8});
    packed.Scales(1, DType::kBF16, {n, groups});
    packed.Part(3, DType::kI32, {n / 8, groups});
    gptq.Part(0, DType::kI32, {k / 8, n});
    gptq.Part(1, DType::kI32, {groups, n / 8});
    gptq.Scales(2, DType::kF16, {groups, n});
    gptq.quantization.zero_off_by_one = true;  // a zero point may be 16
    awq.Part(0, DType::kI32, {k, n / 8});
    awq.Part(1, DType::kI32, {groups, n / 8});
    awq.Scales(2, DType::kF16, {groups, n});
    for (Made* w : {&packed, &gptq, &awq}) {
      w->quantization.group = group;
      w->ExpectKept();
      EXPECT_EQ(w->format(), format) << group;
    }
    const uint16_t infinite = 0x7c00;
    std::memcpy(awq.Part(2, DType::kF16, {groups, n}).data(), &infinite, 2);
    EXPECT_FALSE(awq.Fits());
    awq.quantization.group = 40;
    EXPECT_FALSE(awq.Fits());
  }
}

TEST(KeptCodes, FourBitFloatsWithAnyScale) {
  for (const StorageFormat* format : {&kMxfp4Packed, &kMxfp4Inverse, &kMxfp4Blocks}) {
    Made w(*format, 20, 192, 3);
    w.Part(0, DType::kU8, {3, 20, 96});
    std::vector<std::byte>& scales = w.Part(1, DType::kU8, {3, 20, 6});
    std::ranges::replace(scales, std::byte{255}, std::byte{127});  // no number
    scales[0] = std::byte{0};
    scales[1] = std::byte{1};
    scales[2] = std::byte{254};
    w.ExpectKept();
  }
  for (const StorageFormat* format : {&kNvfp4Packed, &kNvfp4ModelOpt}) {
    for (int64_t k : {512, 304}) {  // whole units, and not
      Made w(*format, 20, k);
      w.Part(0, DType::kU8, {20, k / 2});
      std::vector<std::byte>& scales = w.Part(1, DType::kF8E4M3, {20, k / 16});
      const float global = format == &kNvfp4Packed ? 1733.77f : 0.000731f;
      std::memcpy(w.Part(2, DType::kF32, {1}).data(), &global, 4);
      w.ExpectKept();
      scales[7] = std::byte{0x7f};
      EXPECT_FALSE(w.Fits());
    }
  }
}

TEST(KeptCodes, GgufTypesWithAFormatInMemoryWhoseBlocksStayWhole) {
  int types = 0;
  for (const GgufType& type : GgufTypes()) {
    if (!type.kept) continue;
    ++types;
    const int64_t block = type.block_elements, k = 4 * block, row_bytes = 4 * type.block_bytes;
    GgufView view{.type = &type, .row_bytes = row_bytes};
    std::vector<std::byte> blocks(static_cast<size_t>(10 * row_bytes));
    Rng rng(3);
    for (std::byte& byte : blocks) byte = static_cast<std::byte>(rng.Below(96));  // scales too
    view.rows = {{blocks.data() + 5 * row_bytes, 5}, {blocks.data(), 5}};
    const TensorEntry tensor{.name = "part", .shape = {10, k}, .view = &view};
    StoredWeight stored = {.format = &GgufFormat(tensor), .rows = 10, .k = k};
    stored.parts[0] = &tensor;
    ExpectKept(stored);
    view.columns = {{2 * block, 2 * block}, {0, block}, {block, block}};
    ExpectKept(stored);
    // A part of a block moves where it has scales of its own.
    const int64_t unit = std::min(block, ops::RowOf(*type.kept).unit());
    view.columns = {{2 * block, 2 * block}, {unit, 2 * block - unit}, {0, unit}};
    ExpectKept(stored);
    view.columns = {{2 * block, 2 * block}, {0, unit / 2}, {unit / 2, 2 * block - unit / 2}};
    EXPECT_EQ(KeptBy(stored), nullptr);
    view.columns = {};
    view.log_of_negative = true;
    EXPECT_EQ(KeptBy(stored), nullptr);
  }
  EXPECT_GT(types, 0);
}

// Files of a mixture have parts of one weight in several types.
TEST(KeptCodes, AMixtureOfKQuantsIsHeldByOneFormat) {
  Rng rng(9);
  for (auto [first, second, holder] : {std::tuple(12, 13, ops::WeightFormat::kQ5K),
                                       {12, 14, ops::WeightFormat::kQ6KM},
                                       {13, 14, ops::WeightFormat::kQ6KM},
                                       {23, 13, ops::WeightFormat::kQ8KM},
                                       {10, 11, ops::WeightFormat::kQ6KM},
                                       {10, 23, ops::WeightFormat::kQ8KM},
                                       {21, 12, ops::WeightFormat::kQ6KM}}) {
    ASSERT_EQ(ops::HolderOf(*FindGgufType(static_cast<uint32_t>(first))->kept,
                            *FindGgufType(static_cast<uint32_t>(second))->kept),
              holder);
    for (int id : {first, second}) {
      const GgufType& type = *FindGgufType(static_cast<uint32_t>(id));
      const ops::WeightFormatRow& own = ops::RowOf(*type.kept);
      ops::PackedMatrix matrix{.format = holder, .n = 16, .k = 256};
      const Buffer memory(matrix.bytes());
      matrix.data = memory.data();
      ops::CodedPanel panel(holder, 256);
      std::vector<std::byte> blocks(static_cast<size_t>(16 * type.block_bytes));
      for (std::byte& byte : blocks) byte = static_cast<std::byte>(rng.Below(96));  // scales too
      std::vector<std::byte> codes(static_cast<size_t>(own.CodeBytes(256))),
          scales(static_cast<size_t>(own.ScaleBytes(256)));
      for (int64_t r = 0; r < 16; ++r) {
        type.keep(blocks.data() + r * type.block_bytes, codes.data(), scales.data());
        ops::WidenRow({*type.kept, codes.data(), scales.data()},
                      {holder, panel.codes(r), panel.scales(r)}, 256);
      }
      ops::PackCodes(matrix, 0, 0, panel);
      float decoded[256];
      for (int64_t r = 0; r < 16; ++r) {
        type.decode(blocks.data() + r * type.block_bytes, decoded);
        for (int64_t c = 0; c < 256; ++c) {
          ASSERT_EQ(matrix.At(0, r, c), decoded[c]) << type.name << " column " << c;
        }
      }
    }
  }
  EXPECT_FALSE(ops::HolderOf(ops::WeightFormat::kQ4K, ops::WeightFormat::kQ8_0));
  EXPECT_FALSE(ops::HolderOf(ops::WeightFormat::kQ4_1, ops::WeightFormat::kQ6K));
  EXPECT_FALSE(ops::HolderOf(ops::WeightFormat::kI4Z32, ops::WeightFormat::kI4Z))
      << "numbers of 128 columns stand by kind, of 32 by group";
  EXPECT_EQ(ops::HolderOf(ops::WeightFormat::kI8, ops::WeightFormat::kI8), ops::WeightFormat::kI8);
}

}  // namespace
}  // namespace braid
