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
vulkan::KernelConstants GroupedConstants(const GroupedFormat& f) {
  const auto bits = [](int64_t value) { return static_cast<uint32_t>(value); };
  const auto log2 = [](int64_t n) {
    return static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(n)) - 1);
  };
  vulkan::KernelConstants constants = {5u | bits(f.bits) << 8 | bits(f.centre) << 12 |
                                       (log2(f.block) - 6) << 20 | (log2(f.group) - 4) << 22 |
                                       (f.divides ? 1u << 23 : 0u) |
                                       (f.has_values() ? 1u << 24 : 0u)};
  for (size_t i = 0; i < kNumbers; ++i) {
    const SharedNumber& number = f.numbers[i];
    if (number.type == NumberType::kNone) continue;
    constants[1] |= (static_cast<uint32_t>(number.type) | log2(number.columns) << 4) << (8 * i);
  }
  for (size_t code = 0; f.has_values() && code < 16; ++code) {
    constants[2 + code / 4] |= uint32_t{f.values.of[code]} << (8 * (code % 4));
  }
  return constants;
}

}  // namespace

std::optional<vulkan::KernelConstants> FormatConstants(WeightFormat format) {
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
    case WeightFormat::kF16:
      return {{7}};
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

// Codes of x, then a scale per row.
struct Codes {
  int64_t parts, depth;
  uint64_t codes, scales;
};
Codes CodesOf(const Gemm& p, const std::byte* scratch) {
  const int64_t parts = p.x_step > 0 ? p.z : 1, depth = p.w->depth();
  return {parts, depth, Address(scratch),
          Address(scratch) + static_cast<uint64_t>(RoundUp(parts * p.x.rows * depth, 64))};
}

}  // namespace

bool RunQuantise(const OpContext& context, const Gemm& p, std::byte* scratch) {
  if (!RowOf(p.w->format).integers) return false;
  const Codes codes = CodesOf(p, scratch);
  struct {
    uint64_t x, codes, scales;
    int32_t cols, depth, stride, x_step;
  } const a{Address(p.x.data), codes.codes,     codes.scales, Int(p.w->k),
            Int(codes.depth),  Int(p.x.stride), Int(p.x_step)};
  const uint32_t invocations = WideInvocations(context.recorder->facts(), p.w->k);
  context.recorder->Run(Kernel{"quantise", kShaderQuantise, {invocations}}, a,
                        {codes.parts, p.x.rows}, p.turn);
  return true;
}

namespace {

// The kernel whose workgroups have `height` rows; for those of a tile four panels too.
Kernel KernelOf(int64_t height, const vulkan::KernelConstants& format) {
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

// Pieces of a sum, which run side by side: as many as give the device work, of a unit or more. The
// device and the matrix alone say how many, so that all kernels add in one order.
int64_t PiecesFor(const vulkan::DeviceFacts& facts, const Gemm& p) {
  constexpr int64_t kLeast = 16, kMost = 64, kUnit = 32, kInvocations = 1 << 17;
  if (p.pieces > 0) return p.pieces;
  int64_t pieces = kLeast;
  // A software device runs them one after another.
  while (facts.kind != "software" && pieces < kMost && 8 * pieces <= facts.invocations_max &&
         2 * pieces * kUnit <= p.w->k && 8 * pieces * p.w->panels() <= kInvocations) {
    pieces *= 2;
  }
  return pieces;
}

// X_READS of product.glsl.
uint32_t ReadsOf(const Gemm& p) {
  const bool aligned = Address(p.x.data) % 16 == 0 && p.x.stride % 4 == 0 && p.x_step % 4 == 0;
  if (!aligned || p.w->k % 4 != 0) return 0;
  return p.w->k % 32 == 0 ? 2 : 1;
}

}  // namespace

void RunProduct(const OpContext& context, const Gemm& p, const std::byte* scratch) {
  const PackedMatrix& w = *p.w;
  CHECK(!w.ordered, "a device reads inputs in the order of columns only");
  const bool integers = RowOf(w.format).integers;
  const uint64_t scales = integers ? CodesOf(p, scratch).scales : 0;
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
  vulkan::KernelConstants format = *FormatConstants(w.format);
  if (!integers) format[1] = ReadsOf(p);
  if (context.recorder->facts().fast_dots) format[0] |= 1u << 25;  // DOTS of product.glsl
  format[6] = static_cast<uint32_t>(PiecesFor(context.recorder->facts(), p));
  const int64_t height = HeightFor(p);
  const int64_t across = IsTile(height) ? CeilDiv(w.panels(), 4) : w.panels();
  const int64_t down = p.tiles.list != nullptr ? p.tiles.most : CeilDiv(p.y.rows, height);
  context.recorder->Run(KernelOf(height, format), a, {across, down, p.z}, p.turn);
}

void RunGemm(const OpContext& context, const Gemm& p, std::byte* scratch) {
  Gemm product = p;
  if (RunQuantise(context, p, scratch)) product.turn = Turn::kAfter;
  RunProduct(context, product, scratch);
}

namespace {

const char* LinearWhyNot(const Device&, const LinearArgs& args) {
  return CannotRead(args.w->format);
}
int64_t LinearScratch(const OpContext&, const LinearArgs& args) {
  return GemmScratch(args.x.rows, *args.w);
}
void RunLinear(const OpContext& context, const LinearArgs& args, std::byte* scratch) {
  // Scratch may be that of the op before.
  const bool beside = args.beside && !RowOf(args.w->format).integers;
  RunGemm(context,
          {.x = args.x, .w = args.w, .y = args.y, .turn = beside ? Turn::kBeside : Turn::kAfter},
          scratch);
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
