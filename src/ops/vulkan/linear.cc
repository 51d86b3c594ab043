// Products. Weights are read as they lie packed; with weights whose codes are integers,
// rows of activations become integers first.
#include "ops/linear.h"

#include <algorithm>
#include <bit>

#include "ops/vulkan/candidates.h"
#include "ops/vulkan/kernels.h"

namespace braid::ops::gpu {

namespace {

// The numbers, sizes and values of a grouped format (weights.glsl).
std::array<uint32_t, 6> GroupedConstants(const GroupedFormat& f) {
  const auto bits = [](int64_t value) { return static_cast<uint32_t>(value); };
  const auto log2 = [](int64_t n) {
    return static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(n)) - 1);
  };
  std::array<uint32_t, 6> constants = {5u | bits(f.bits) << 8 | bits(f.centre) << 12 |
                                       (log2(f.block) - 6) << 20 | (log2(f.group) - 4) << 22 |
                                       (f.divides ? 1u << 23 : 0u) | (f.values ? 1u << 24 : 0u)};
  for (size_t i = 0; i < kNumbers; ++i) {
    const SharedNumber& number = f.numbers[i];
    if (number.type == NumberType::kNone) continue;
    constants[1] |= (static_cast<uint32_t>(number.type) | log2(number.columns) << 4) << (8 * i);
  }
  for (size_t code = 0; f.values != nullptr && code < 16; ++code) {
    constants[2 + code / 4] |= uint32_t{f.values[code]} << (8 * (code % 4));
  }
  return constants;
}

}  // namespace

std::optional<std::array<uint32_t, 6>> FormatConstants(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return {{0}};
    case WeightFormat::kBF16:
      return {{1}};
    case WeightFormat::kI8:
      return {{2}};
    case WeightFormat::kQ8_0:
      return {{3}};
    case WeightFormat::kI4:
      return {{4}};
    case WeightFormat::kF8:
      return {{6}};
    default:
      break;
  }
  for (const GroupedFormat& grouped : kGroupedFormats) {
    if (grouped.format == format) return GroupedConstants(grouped);
  }
  return std::nullopt;
}

const char* CannotRead(WeightFormat format) {
  return FormatConstants(format) ? nullptr : "weights of this format; --weights converts";
}

int64_t GemmScratch(int64_t x_rows, const PackedMatrix& w) {
  if (!RowOf(w.format).integers) return 0;
  return RoundUp(x_rows * w.depth(), 64) + RoundUp(4 * x_rows, 64);
}

namespace {

// x as integers, in scratch: codes, then a scale per row. Returns where the scales are.
uint64_t RunQuantise(const OpContext& context, const Gemm& p, std::byte* scratch) {
  const int64_t parts = p.x_step > 0 ? p.z : 1, depth = p.w->depth();
  struct {
    uint64_t x, codes, scales;
    int32_t cols, depth, stride, x_step;
  } const a{
      Address(p.x.data), Address(scratch), Address(scratch + RoundUp(parts * p.x.rows * depth, 64)),
      Int(p.w->k),       Int(depth),       Int(p.x.stride),
      Int(p.x_step)};
  context.recorder->Run(Kernel{"quantise", kShaderQuantise}, a, {parts, p.x.rows});
  return a.scales;
}

}  // namespace

namespace {

// The kernel whose workgroups have `height` rows; for those of a tile four panels too.
Kernel KernelOf(int64_t height, const std::array<uint32_t, 6>& format) {
  switch (height) {
    case 1:
      return {"linear", kShaderLinear1, format};
    case 4:
      return {"linear of 4 rows", kShaderLinear4, format};
    case 8:
      return {"linear of 8 rows", kShaderLinear8, format};
    case 32:
      return {"linear in tiles of 32 rows", kShaderLinearTile32, format};
    default:
      CHECK(height == 64, "no kernel has {} rows", height);
      return {"linear in tiles of 64 rows", kShaderLinearTile64, format};
  }
}
constexpr bool IsTile(int64_t height) { return height >= 32; }

// All kernels give a row the same bits. Tiles multiply faster, if there are enough of them.
int64_t HeightFor(const Gemm& p) {
  constexpr int64_t kTilesLeast = 96;
  const int64_t rows = p.y.rows, across = CeilDiv(p.w->panels(), 4) * p.z;
  if (p.height > 0) return p.height;
  if (p.tiles.list != nullptr) return p.tiles.height;
  if (p.ids != nullptr || rows == 1) return 1;
  if (rows > 32 && across * CeilDiv(rows, 64) >= 2 * kTilesLeast) return 64;
  if (rows > 16 && across * CeilDiv(rows, 32) >= kTilesLeast) return 32;
  return rows <= 4 ? 4 : 8;
}

// X_READS of product.glsl.
uint32_t ReadsOf(const Gemm& p) {
  const bool aligned = Address(p.x.data) % 16 == 0 && p.x.stride % 4 == 0 && p.x_step % 4 == 0;
  if (!aligned || p.w->k % 4 != 0) return 0;
  return p.w->k % 32 == 0 ? 2 : 1;
}

}  // namespace

void RunGemm(const OpContext& context, const Gemm& p, std::byte* scratch) {
  const PackedMatrix& w = *p.w;
  const bool integers = RowOf(w.format).integers;
  const uint64_t scales = integers ? RunQuantise(context, p, scratch) : 0;
  struct {
    uint64_t x, scales, w, y, ids, gate, tiles, order, panel_bytes, matrix_bytes;
    int32_t rows, n, k, depth, x_stride, y_stride, x_divisor, id_step, z_step, x_step, gate_stride;
    int32_t unused = 0;
  } const a{integers ? Address(scratch) : Address(p.x.data),
            scales,
            Address(w.data),
            Address(p.y.data),
            Address(p.ids),
            Address(p.gate.data),
            Address(p.tiles.list),
            Address(p.tiles.order),
            static_cast<uint64_t>(w.panel_bytes()),
            static_cast<uint64_t>(w.matrix_bytes()),
            Int(p.y.rows),
            Int(w.n),
            Int(w.k),
            Int(w.depth()),
            Int(p.x.stride),
            Int(p.y.stride),
            Int(p.x_divisor),
            Int(p.id_step),
            Int(p.z_step),
            Int(p.x_step),
            Int(p.gate.stride)};
  std::array<uint32_t, 6> format = *FormatConstants(w.format);
  if (!integers) format[1] = ReadsOf(p);
  if (context.recorder->facts().fast_dots) format[0] |= 1u << 25;  // DOTS of product.glsl
  const int64_t height = HeightFor(p);
  const int64_t across = IsTile(height) ? CeilDiv(w.panels(), 4) : w.panels();
  const int64_t down = p.tiles.list != nullptr ? p.tiles.most : CeilDiv(p.y.rows, height);
  context.recorder->Run(KernelOf(height, format), a, {across, down, p.z});
}

namespace {

const char* LinearWhyNot(const Device&, const LinearArgs& args) {
  return CannotRead(args.w->format);
}
int64_t LinearScratch(const OpContext&, const LinearArgs& args) {
  return GemmScratch(args.x.rows, *args.w);
}
void RunLinear(const OpContext& context, const LinearArgs& args, std::byte* scratch) {
  RunGemm(context, {.x = args.x, .w = args.w, .y = args.y}, scratch);
}

const char* HeadLinearWhyNot(const Device&, const HeadLinearArgs& args) {
  return CannotRead(args.w->format);
}
int64_t HeadLinearScratch(const OpContext&, const HeadLinearArgs& args) {
  return GemmScratch(args.x.rows * args.w->count, *args.w);
}
void RunHeadLinear(const OpContext& context, const HeadLinearArgs& args, std::byte* scratch) {
  RunGemm(context,
          {.x = args.x,
           .w = args.w,
           .y = args.y,
           .z = args.w->count,
           .z_step = args.y_step,
           .x_step = args.x_step,
           .gate = args.gate},
          scratch);
}

}  // namespace

constinit const Impl<LinearArgs> kLinear = {"vulkan", LinearWhyNot, LinearScratch, RunLinear, true};
constinit const Impl<HeadLinearArgs> kHeadLinear = {"vulkan", HeadLinearWhyNot, HeadLinearScratch,
                                                    RunHeadLinear, true};

}  // namespace braid::ops::gpu
