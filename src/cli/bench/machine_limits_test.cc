// To which arithmetic unit's peak products are held, and how limits are named.
#include "cli/bench/machine_limits.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

using enum ops::WeightFormat;

TEST(MachineLimits, ProductsAreHeldToTheUnitThatComputesThem) {
  const auto device = [](Isa isa, Compute compute, bool vnni, bool bf16 = false) {
    Device d{.isa = isa, .compute = compute};
    (isa == Isa::kAvx2 ? d.avx_vnni : d.avx512_vnni) = vnni;
    d.avx512_bf16 = bf16;
    return d;
  };
  constexpr Compute kF = Compute::kF32, kB = Compute::kBF16;
  const struct {
    Device device;
    ops::WeightFormat weights;
    Unit unit;
  } cases[] = {
      {device(Isa::kBase, kF, false), kBF16, Unit::kFmaBase},
      {device(Isa::kBase, kF, false), kI8, Unit::kFmaBase},
      {device(Isa::kAvx2, kF, false), kF32, Unit::kFmaAvx2},
      {device(Isa::kAvx2, kF, false), kI8, Unit::kFmaAvx2},
      {device(Isa::kAvx2, kF, true), kI8, Unit::kDotInt8Avx2},
      {device(Isa::kAvx2, kF, true), kI4, Unit::kDotInt8Avx2},
      {device(Isa::kAvx2, kF, true), kBF16, Unit::kFmaAvx2},
      {device(Isa::kAvx512, kF, false), kBF16, Unit::kFmaAvx512},
      {device(Isa::kAvx512, kF, true, true), kBF16, Unit::kFmaAvx512},
      {device(Isa::kAvx512, kB, true, true), kBF16, Unit::kDotBf16},
      {device(Isa::kAvx512, kB, true, true), kF32, Unit::kFmaAvx512},
      {device(Isa::kAmx, kB, true, true), kF16, Unit::kFmaAvx512},
      {device(Isa::kAvx512, kB, true, false), kBF16, Unit::kFmaAvx512},
      {device(Isa::kAvx512, kB, true), kI8, Unit::kDotInt8Avx512},
      {device(Isa::kAvx512, kB, true), kI4, Unit::kGroupsInt4Avx512},
      {device(Isa::kAvx512, kB, false), kI8, Unit::kFmaAvx512},
      {device(Isa::kAmx, kB, true, true), kBF16, Unit::kTileBf16},
      {device(Isa::kAmx, kF, true, true), kBF16, Unit::kFmaAvx512},
      {device(Isa::kAmx, kB, true, true), kI8, Unit::kTileInt8},
      {device(Isa::kAmx, kB, true, true), kI4, Unit::kTileInt8},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(UnitFor(c.device, c.weights), c.unit)
        << NameOf(c.device.isa) << " " << ops::NameOf(c.weights) << ": "
        << NameOf(UnitFor(c.device, c.weights));
  }
}

TEST(MachineLimits, UnitsHaveTheirNamesAndPeaks) {
  EXPECT_EQ(KeyOf(Unit::kFmaBase), "fma_base");
  EXPECT_EQ(KeyOf(Unit::kDotBf16), "dot_bf16_avx512");
  EXPECT_EQ(KeyOf(Unit::kTileInt8), "tile_int8");
  EXPECT_EQ(NameOf(Unit::kFmaAvx512), "fp32, AVX-512");
  const MachineLimits limits{
      .units = {{Unit::kFmaBase, 3}, {Unit::kFmaAvx2, 7}},
      .bandwidth = {.memory_read = 1, .memory_copy = 2, .l2_read = 4, .l3_read = 5}};
  EXPECT_EQ(limits.PeakOf(Unit::kFmaAvx2), 7);
  EXPECT_EQ(limits.PeakOf(Unit::kFmaBase), 3);
  const json::object object = LimitsObject(limits);
  EXPECT_EQ(json::serialize(object),
            R"({"fma_base":3E0,"fma_avx2":7E0,"memory_read":1E0,"memory_copy":2E0,"l2_read":4E0,)"
            R"("l3_read":5E0})");
}

}  // namespace
}  // namespace braid
