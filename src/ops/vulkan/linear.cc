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

void RunGemm(const OpContext& context, const Gemm& p, std::byte* scratch) {
  const PackedMatrix& w = *p.w;
  const bool integers = RowOf(w.format).integers;
  const uint64_t scales = integers ? RunQuantise(context, p, scratch) : 0;
  struct {
    uint64_t x, scales, w, y, ids, gate, panel_bytes, matrix_bytes;
    int32_t rows, n, k, depth, x_stride, y_stride, x_divisor, id_step, z_step, x_step, gate_stride;
    int32_t unused = 0;
  } const a{integers ? Address(scratch) : Address(p.x.data),
            scales,
            Address(w.data),
            Address(p.y.data),
            Address(p.ids),
            Address(p.gate.data),
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
  const bool one = p.ids != nullptr || p.y.rows <= 2;
  const std::array<uint32_t, 6> format = *FormatConstants(w.format);
  const Kernel kernel = one ? Kernel{"linear", kShaderLinear1, format}
                            : Kernel{"linear of 8 rows", kShaderLinear8, format};
  context.recorder->Run(kernel, a, {w.panels(), one ? p.y.rows : CeilDiv(p.y.rows, 8), p.z});
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
