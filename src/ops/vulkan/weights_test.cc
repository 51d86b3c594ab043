// Weights as a device reads them, number by number.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "ops/testing/test_context.h"
#include "ops/vulkan/test_device.h"

namespace braid::ops {
namespace {

// Drivers may take subnormal numbers for zero where they convert.
TEST(VulkanWeights, AllNumbersOfFp16AreRead) {
  std::string why;
  const auto device = TestDevice::Open(&why);
  if (device == nullptr) GTEST_SKIP() << why;
  constexpr int64_t kOutputs = 64, kDepth = 1024;
  PackedMatrix w{WeightFormat::kF16, 1, kOutputs, kDepth, nullptr};
  Buffer memory(w.bytes());
  w.data = memory.data();
  std::vector<uint16_t> numbers(kOutputs * kDepth);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto bits = static_cast<uint16_t>(i);
    numbers[i] = (bits & 0x7c00) == 0x7c00 ? uint16_t{0} : bits;
  }
  for (int64_t p = 0; p < w.panels(); ++p) {
    const std::byte* rows[kPanelRows];
    for (int64_t r = 0; r < kPanelRows; ++r) {
      const auto first = static_cast<size_t>((p * kPanelRows + r) * kDepth);
      rows[r] = reinterpret_cast<const std::byte*>(&numbers[first]);
    }
    PackPanel(w, 0, p, rows, DType::kF16);
  }
  std::vector<int32_t> ids(kOutputs);
  std::iota(ids.begin(), ids.end(), 0);
  OwnedMatrix read(kOutputs, kDepth), x(4, kDepth), y(4, kOutputs);
  Embed(*device, {.table = &w, .ids = ids.data(), .out = read.view});
  std::ranges::fill(x.values, 1.0f);
  Linear(*device, {.x = x.view, .w = &w, .y = y.view});
  for (int64_t n = 0; n < kOutputs; ++n) {
    double sum = 0, magnitudes = 0;
    for (int64_t c = 0; c < kDepth; ++c) {
      const float value = FloatOfF16(numbers[static_cast<size_t>(n * kDepth + c)]);
      ASSERT_EQ(read.view.row(n)[c], value) << n << " " << c;
      sum += value;
      magnitudes += std::abs(value);
    }
    for (int64_t r = 0; r < 4; ++r) {
      ASSERT_NEAR(y.view.row(r)[n], sum, 1e-6 * magnitudes) << n;
    }
  }
}

}  // namespace
}  // namespace braid::ops
