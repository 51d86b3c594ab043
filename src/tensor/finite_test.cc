// Every place of a run, with and without a rest behind whole words.
#include "tensor/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace braid {
namespace {

void Put(float value, DType dtype, std::byte* at) {
  const uint16_t half = dtype == DType::kF16 ? F16OfFloat(value) : Bf16OfFloat(value);
  if (dtype == DType::kF32) return void(std::memcpy(at, &value, 4));
  std::memcpy(at, &half, 2);
}

TEST(Finite, OneNumberAnywhereIsSeenAndTheLargestAreNone) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const float largest = dtype == DType::kF16 ? 65504.0f : 0x1.fep127f;
    for (int64_t count : {1, 2, 3, 5, 8, 11}) {
      std::vector<std::byte> numbers(static_cast<size_t>(count * SizeOf(dtype)));
      for (int64_t i = 0; i < count; ++i) {
        Put(i % 2 == 0 ? largest : -largest, dtype, numbers.data() + i * SizeOf(dtype));
      }
      EXPECT_TRUE(AllFinite(numbers.data(), count, dtype)) << NameOf(dtype);
      for (int64_t i = 0; i < count; ++i) {
        for (const float value : {HUGE_VALF, -HUGE_VALF, NAN}) {
          std::vector<std::byte> spoilt = numbers;
          Put(value, dtype, spoilt.data() + i * SizeOf(dtype));
          EXPECT_FALSE(AllFinite(spoilt.data(), count, dtype)) << NameOf(dtype) << " " << i;
        }
      }
    }
  }
  const std::vector<std::byte> ones(4, std::byte{0xff});
  EXPECT_TRUE(AllFinite(ones.data(), 4, DType::kI8));
}

}  // namespace
}  // namespace braid
