// State that pages keep as bf16 or as integers: how rows are rounded, that rounding depends on
// positions alone, and how far it leads from fp32.
#include <gtest/gtest.h>

#include "ops/cpu/dispatch.h"
#include "ops/linear_attention.h"
#include "ops/testing/test_linear_attention.h"
#include "ops/testing/test_rewind.h"

namespace braid::ops {
namespace {

using Layer = LinearAttentionLayer;
using Pass = LinearAttentionPass;
constexpr DType kKept[] = {DType::kBF16, DType::kI8};
constexpr LinearAttentionCase kCases[] = {{{2, 6, 24, 40, 4}, {}},
                                          {{2, 4, 32, 64, 3}, {}},
                                          {{1, 2, 32, 144, 2}, {}},  // more columns than one pass
                                          {{1, 2, 12, 20, 3, true}, kBounded},
                                          {{2, 2, 32, 32, 4, true}, kBounded},
                                          {{2, 2, 32, 48, 1}, kLightning}};
constexpr int64_t kTokens = 203;

template <class Function>
void ForEachKept(const Function& f) {
  for (const LinearAttentionCase& c : kCases) {
    for (DType kept : kKept) {
      LinearAttentionCase own = c;
      own.shape.state_dtype = kept;
      f(own, std::string(NameOf(kept)) + " dk " + std::to_string(c.shape.key_dim) + " dv " +
                 std::to_string(c.shape.value_dim));
    }
  }
}

void ExpectSame(const Pass& a, const Pass& b, std::string_view what) {
  EXPECT_TRUE(SameBits(a.out.values.data(), b.out.values.data(), std::ssize(a.out.values))) << what;
}

TEST(KeptState, ARowIsRoundedOnceAndStoredExactly) {
  constexpr int64_t kDim = 32;
  std::vector<std::vector<float>> rows;
  Rng rng(7);
  for (double scale : {1e-32, 1e-9, 1.0, 63.5, 64.0, 127.0, 127.00001, 254.0, 3e30}) {
    std::vector<float> row(kDim);
    for (float& x : row) x = static_cast<float>(std::clamp(rng.Normal() / 4, -1.0, 1.0) * scale);
    row[5] = static_cast<float>(-scale);
    row[6] = -0.0f;
    rows.push_back(row);
  }
  rows.emplace_back(kDim, 0.0f);
  for (Isa isa : TestIsas()) {
    const cpu::KernelTable* kernels = cpu::KernelsFor(DeviceOf(DetectCpu(), isa, {}));
    if (!kernels) continue;
    for (cpu::CacheFormat format : {cpu::CacheFormat::kBF16, cpu::CacheFormat::kI8}) {
      for (const std::vector<float>& row : rows) {
        const bool integers = format == cpu::CacheFormat::kI8;
        std::vector<float> rounded = row, loaded(kDim);
        kernels->round_rows(format, rounded.data(), 1, kDim);
        std::vector<std::byte> page(2 * kDim);
        float scale = 0;
        const cpu::KeptBlock kept{format, 1, kDim, page.data(), &scale};
        kernels->store_rows(rounded.data(), kept);
        kernels->load_rows(kept, loaded.data());
        const float most = std::abs(row[5]);
        for (size_t i = 0; i < kDim; ++i) {
          EXPECT_EQ(loaded[i], rounded[i]);
          EXPECT_EQ(rounded[i], RoundToBf16(rounded[i])) << "not exact in bf16";
          // Half a step: of 127 steps or more than half as many; of 8 bits of mantissa.
          const float half = integers ? most / 126.9f : std::abs(row[i]) / 256;
          EXPECT_LE(std::abs(rounded[i] - row[i]), most < 0x1p-100f ? most : half)
              << NameOf(isa) << " " << row[i];
        }
        EXPECT_FALSE(integers && std::signbit(rounded[6])) << "integers know no negative zero";
        if (!integers || most < 0x1p-100f) continue;
        EXPECT_EQ(std::exp2(std::floor(std::log2(scale))), scale);
        EXPECT_LE(most, 127 * scale);
        EXPECT_GT(most, 127 * scale / 2);
      }
      for (float bad : {NAN, INFINITY, -INFINITY}) {
        std::vector<float> row(kDim, 1.0f), loaded(kDim);
        row[3] = bad;
        std::vector<std::byte> page(2 * kDim);
        float scale = 0;
        kernels->round_rows(format, row.data(), 1, kDim);
        const cpu::KeptBlock kept{format, 1, kDim, page.data(), &scale};
        kernels->store_rows(row.data(), kept);
        kernels->load_rows(kept, loaded.data());
        EXPECT_FALSE(std::isfinite(loaded[3])) << NameOf(isa);
      }
    }
  }
}

TEST(KeptState, AnyCutOfASequenceGivesTheSameBits) {
  std::vector<int64_t> every(kTokens - 1);
  for (size_t i = 0; i < every.size(); ++i) every[i] = static_cast<int64_t>(i) + 1;
  ForEachKept([&](const LinearAttentionCase& c, const std::string& name) {
    const Layer layer(c, kTokens, 0.5);
    for (const auto& [isa, compute] : TestArithmetics()) {
      // The plain loops are slow, and run what no other takes in any case.
      if (isa == Isa::kBase && BestIsa(DetectCpu()) != Isa::kBase) continue;
      TestContext one(isa, 1, compute), two(isa, 2, compute);
      const Pass whole(two.context, layer, {});
      for (const std::vector<int64_t>& cuts :
           {std::vector<int64_t>{1, 2, 63, 64, 65}, {63, 130}, {100, 127, 128, 190}, {192}}) {
        ExpectSame(whole, Pass(one.context, layer, cuts), name);
      }
      if (isa != Isa::kBase) ExpectSame(whole, Pass(one.context, layer, every), name);
      // The same roundings where no page stands for a boundary.
      Pass holes(one.context, layer, {kTokens});
      holes.pages.MakeHole(0);
      holes.pages.MakeHole(1);
      holes.Step(one.context, layer, 0, kTokens);
      ExpectSame(whole, holes, name + " with holes");
    }
  });
}

TEST(KeptState, WrongDraftsLeaveNoTrace) {
  ForEachKept([&](LinearAttentionCase c, const std::string& name) {
    const Layer plain(c, kTokens, 0.5);
    c.shape.drafts_max = 3;
    const Layer layer(c, kTokens, 0.5);
    for (const auto& [isa, compute] : TestArithmetics()) {
      if (isa == Isa::kBase) continue;
      TestContext test(isa, 2, compute);
      const Pass whole(test.context, plain, {});
      Pass run(test.context, layer, {kTokens});
      run.pages.Spoil();
      Layer guessed(layer);
      Rng rng(3);
      for (const DraftRow& row : DraftRows(rng, kTokens, 21, 3)) {
        for (const OwnedMatrix* m : {&guessed.x, &guessed.a, &guessed.b}) {
          Mislead(rng, row, m->view);
        }
        run.Step(test.context, guessed, row.begin, row.end);
        Restore(row, layer.x.view, guessed.x.view);
        Restore(row, layer.a.view, guessed.a.view);
        Restore(row, layer.b.view, guessed.b.view);
      }
      ExpectSame(whole, run, name);
    }
  });
}

TEST(KeptState, EveryCandidateRoundsAsTheReferenceAndStaysNearFp32) {
  ForEachKept([&](const LinearAttentionCase& c, const std::string& name) {
    const Layer layer(c, kTokens, 0.5);
    LinearAttentionCase exact_case = c;
    exact_case.shape.state_dtype = DType::kF32;
    const Layer exact_layer(exact_case, kTokens, 0.5);
    TestContext base(Isa::kBase, 2);
    const Pass reference(base.context, layer, {}), exact(base.context, exact_layer, {});
    const bool integers = c.shape.state_dtype == DType::kI8;
    const double error = RelativeError(reference.out.view, exact.out.view);
    EXPECT_LT(error, integers ? 3e-2 : 1e-2) << name;
    EXPECT_GT(error, integers ? 1e-3 : 1e-4) << name << " is not rounded";
    for (const auto& [isa, compute] : TestArithmetics()) {
      if (isa == Isa::kBase) continue;
      TestContext test(isa, 2, compute);
      const Pass run(test.context, layer, {});
      const bool rounds = test.context.device.avx512_bf16 && compute == Compute::kBF16;
      // A sum near the middle of two numbers may be rounded to the other one.
      EXPECT_LT(RelativeError(run.out.view, reference.out.view), rounds ? 2e-2 : error / 2)
          << name << " " << NameOf(isa);
    }
  });
}

TEST(KeptState, APageHasTheSizeOfItsType) {
  LinearAttentionShape shape{16, 32, 128, 128, 4};
  const int64_t others = 4 * 32 * 64 + 4 * 3 * shape.conv_channels();  // decays, inputs
  EXPECT_EQ(StateBlockBytes(shape), 32 * 128 * 128 * 4 + others);
  shape.state_dtype = DType::kBF16;
  EXPECT_EQ(StateBlockBytes(shape), 32 * 128 * 128 * 2 + others);
  shape.state_dtype = DType::kI8;
  EXPECT_EQ(StateBlockBytes(shape), 32 * (128 * 128 + 128 * 4) + others);
}

}  // namespace
}  // namespace braid::ops
