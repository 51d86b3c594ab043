// Products and experts. Weights are read as they lie packed; with weights whose codes are integers,
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

// Tokens whose experts' rows are in scratch at once.
constexpr int64_t kTokensAtOnce = 128;

struct ExpertsScratch {
  ExpertsScratch(const ExpertsArgs& a, std::byte* memory) : next_(memory) {
    const int64_t tokens = std::min(a.x.rows, kTokensAtOnce), pairs = tokens * a.top_k;
    const int64_t shared = a.shared_down ? a.shared_down->k : 0;
    gate_up = Take(pairs, 2 * a.down->k);
    hidden = Take(pairs, a.down->k);
    rows = Take(pairs, a.out.cols);
    shared_gate_up = Take(tokens, 2 * shared);
    shared_hidden = Take(tokens, shared);
    shared_rows = Take(tokens, shared > 0 ? a.out.cols : 0);
    codes = next_;
    int64_t most = std::max(GemmScratch(tokens, *a.gate_up), GemmScratch(pairs, *a.down));
    if (a.shared_down) {
      most = std::max(
          {most, GemmScratch(tokens, *a.shared_gate_up), GemmScratch(tokens, *a.shared_down)});
    }
    next_ += most;
    bytes = next_ - memory;
  }
  Matrix gate_up, hidden, rows, shared_gate_up, shared_hidden, shared_rows;
  std::byte* codes = nullptr;
  int64_t bytes = 0;

 private:
  Matrix Take(int64_t count, int64_t cols) {
    const Matrix matrix{reinterpret_cast<float*>(next_), count, cols, RoundUp(cols, 16)};
    next_ += 4 * count * matrix.stride;
    return matrix;
  }
  std::byte* next_;
};

const char* ExpertsWhyNot(const Device&, const ExpertsArgs& a) {
  if (a.x_at) return "tokens share rows";
  for (const PackedMatrix* w : {a.gate_up, a.down, a.shared_gate_up, a.shared_down}) {
    if (w == nullptr) continue;
    if (const char* why = CannotRead(w->format)) return why;
  }
  return nullptr;
}
int64_t ExpertsBytes(const OpContext&, const ExpertsArgs& a) {
  return ExpertsScratch(a, nullptr).bytes;
}

void RunSome(const OpContext& context, const ExpertsArgs& a, const ExpertsScratch& s) {
  const int64_t tokens = a.x.rows, pairs = tokens * a.top_k, width = a.down->k;
  const Matrix gate_up = s.gate_up.first_rows(pairs), hidden = s.hidden.first_rows(pairs);
  const Matrix rows = s.rows.first_rows(pairs);
  RunGemm(context,
          {.x = a.x,
           .w = a.gate_up,
           .y = gate_up,
           .ids = a.ids,
           .x_divisor = a.top_k,
           .id_step = 2,
           .z = 2,
           .z_step = width},
          s.codes);
  RunGatedUnit(context, gate_up, hidden, a.limit);
  RunGemm(context, {.x = hidden, .w = a.down, .y = rows, .ids = a.ids, .id_step = 1}, s.codes);
  RunAdd(context, {.rows = rows, .weights = a.weights, .k = a.top_k, .out = a.out});
  if (a.shared_down == nullptr) return;
  const Matrix shared_gate_up = s.shared_gate_up.first_rows(tokens);
  const Matrix shared_hidden = s.shared_hidden.first_rows(tokens);
  const Matrix shared_rows = s.shared_rows.first_rows(tokens);
  RunGemm(
      context,
      {.x = a.x, .w = a.shared_gate_up, .y = shared_gate_up, .z = 2, .z_step = a.shared_down->k},
      s.codes);
  RunGatedUnit(context, shared_gate_up, shared_hidden, a.shared_limit);
  RunGemm(context, {.x = shared_hidden, .w = a.shared_down, .y = shared_rows}, s.codes);
  RunAdd(context, {.rows = shared_rows, .weights = a.shared_weight, .add = true, .out = a.out});
}

void RunExperts(const OpContext& context, const ExpertsArgs& all, std::byte* scratch) {
  const ExpertsScratch s(all, scratch);
  for (int64_t begin = 0; begin < all.x.rows; begin += kTokensAtOnce) {
    const int64_t count = std::min(kTokensAtOnce, all.x.rows - begin);
    ExpertsArgs a = all;
    a.x = all.x.some_rows(begin, count);
    a.out = all.out.some_rows(begin, count);
    a.ids += begin * all.top_k;
    a.weights += begin * all.top_k;
    if (a.shared_weight != nullptr) a.shared_weight += begin;
    RunSome(context, a, s);
  }
}

}  // namespace

constinit const Impl<LinearArgs> kLinear = {"vulkan", LinearWhyNot, LinearScratch, RunLinear, true};
constinit const Impl<HeadLinearArgs> kHeadLinear = {"vulkan", HeadLinearWhyNot, HeadLinearScratch,
                                                    RunHeadLinear, true};
constinit const Impl<ExpertsArgs> kExperts = {"vulkan", ExpertsWhyNot, ExpertsBytes, RunExperts,
                                              true};

}  // namespace braid::ops::gpu
