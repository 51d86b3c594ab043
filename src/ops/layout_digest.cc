// Packs one panel of pseudo-random codes and hashes its bytes.
#include "ops/layout_digest.h"

#include <fmt/core.h>

#include <cstring>

#include "base/rng.h"
#include "ops/packed.h"
#include "tensor/tensor.h"

namespace braid::ops {
namespace {

void FillRandom(uint64_t stream, std::byte* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<std::byte>(RandomBits(stream, static_cast<uint64_t>(i)) & 0xff);
  }
}

}  // namespace

std::string LayoutDigest(WeightFormat format) {
  PackedMatrix matrix{
      .format = format, .n = kPanelRows, .k = 2 * RowOf(format).depth_multiple - 1};
  CodedPanel panel(format, matrix.depth());
  const int64_t code_bytes = panel.codes(1) - panel.codes(0);
  const int64_t scale_bytes = panel.scales(1) - panel.scales(0);
  for (int64_t r = 0; r < kPanelRows; ++r) {
    FillRandom(static_cast<uint64_t>(2 * r), panel.codes(r), code_bytes);
    FillRandom(static_cast<uint64_t>(2 * r + 1), panel.scales(r), scale_bytes);
  }
  const Buffer packed(matrix.bytes());
  matrix.data = packed.data();
  PackCodes(matrix, 0, 0, panel);
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a, the same on every machine
  const auto add = [&](auto byte) {
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3ull;
  };
  for (const char letter : NameOf(format)) add(letter);
  for (int64_t i = 0; i < matrix.bytes(); ++i) add(matrix.data[i]);
  return fmt::format("{:016x}", hash);
}

}  // namespace braid::ops
