// The row-wise ops: embedding, norms, gates, sums of rows. Norms and dots are a workgroup per row,
// whose partial sums are added in the order of its invocations.
#include "ops/vulkan/candidates.h"
#include "ops/vulkan/kernels.h"

namespace braid::ops::gpu {

uint32_t WideInvocations(const vulkan::DeviceFacts& facts, int64_t cols) {
  constexpr int64_t kColumns = 4;  // of an invocation
  uint32_t invocations = kThreads;
  while (facts.kind != "software" && invocations < 512 && invocations * kColumns < cols &&
         invocations * 2 <= static_cast<uint32_t>(facts.invocations_max)) {
    invocations *= 2;
  }
  return invocations;
}

void RunGatedUnit(const OpContext& context, Matrix gate_up, Matrix out, float limit, Turn turn) {
  struct {
    uint64_t gate_up, out;
    int32_t cols, in_stride, out_stride;
    float limit;
  } const a{Address(gate_up.data), Address(out.data), Int(out.cols),
            Int(gate_up.stride),   Int(out.stride),   limit};
  context.recorder->Run(Kernel{"swiglu", kShaderSwiglu}, a, {CeilDiv(out.cols, kThreads), out.rows},
                        turn);
}

void RunAdd(const OpContext& context, const Added& added) {
  struct {
    uint64_t rows, at, weights, out;
    int32_t cols, k, add, rows_stride, out_stride, unused = 0;
  } const a{Address(added.rows.data), Address(added.at),      Address(added.weights),
            Address(added.out.data),  Int(added.out.cols),    Int(added.k),
            added.add ? 1 : 0,        Int(added.rows.stride), Int(added.out.stride)};
  context.recorder->Run(Kernel{"add_rows", kShaderAddRows}, a,
                        {CeilDiv(added.out.cols, kThreads), added.out.rows});
}

namespace {

const char* EmbedWhyNot(const Device&, const EmbedArgs& args) {
  return CannotRead(args.table->format);
}
void RunEmbed(const OpContext& context, const EmbedArgs& args, std::byte*) {
  const PackedMatrix& table = *args.table;
  struct {
    uint64_t table, ids, out, panel_bytes;
    int32_t depth, cols, stride, unused = 0;
  } const a{Address(table.data),    Address(args.ids),
            Address(args.out.data), static_cast<uint64_t>(table.panel_bytes()),
            Int(table.depth()),     Int(args.out.cols),
            Int(args.out.stride)};
  context.recorder->Run(Kernel{"embed", kShaderEmbed, *FormatConstants(table.format)}, a,
                        {CeilDiv(args.out.cols, kThreads), args.out.rows});
}

void RunRmsNorm(const OpContext& context, const RmsNormArgs& args, std::byte*) {
  struct {
    uint64_t x, delta, weight, out;
    int32_t cols, x_stride, delta_stride, out_stride;
    float offset, eps;
  } const a{Address(args.x.data),   Address(args.delta.data),
            Address(args.weight),   Address(args.out.data),
            Int(args.x.cols),       Int(args.x.stride),
            Int(args.delta.stride), Int(args.out.stride),
            args.weight_offset,     args.eps};
  const uint32_t invocations = WideInvocations(context.recorder->facts(), args.x.cols);
  context.recorder->Run(Kernel{"rms_norm", kShaderRmsNorm, {invocations}}, a, {args.x.rows});
}

void RunGatedNorm(const OpContext& context, const GatedNormArgs& args, std::byte*) {
  struct {
    uint64_t x, gate, weight, out;
    int32_t dim, x_stride, gate_stride, out_stride, weight_per_channel, sigmoid;
    float eps;
    int32_t unused = 0;
  } const a{Address(args.x.data),
            Address(args.gate.data),
            Address(args.weight),
            Address(args.out.data),
            Int(args.head_dim),
            Int(args.x.stride),
            Int(args.gate.stride),
            Int(args.out.stride),
            args.weight_per_channel ? 1 : 0,
            args.activation == GateActivation::kSigmoid ? 1 : 0,
            args.eps};
  context.recorder->Run(Kernel{"gated_norm", kShaderGatedNorm}, a,
                        {args.x.cols / args.head_dim, args.x.rows});
}

void RunSwiglu(const OpContext& context, const SwigluArgs& args, std::byte*) {
  RunGatedUnit(context, args.gate_up, args.out, args.limit);
}

void RunScalarGate(const OpContext& context, const ScalarGateArgs& args, std::byte*) {
  struct {
    uint64_t x, weight, out;
    int32_t cols, stride;
  } const a{Address(args.x.data), Address(args.weight), Address(args.out), Int(args.x.cols),
            Int(args.x.stride)};
  context.recorder->Run(Kernel{"scalar_gate", kShaderScalarGate}, a, {args.x.rows},
                        args.beside ? Turn::kBeside : Turn::kAfter);
}

void RunAddRows(const OpContext& context, const AddRowsArgs& args, std::byte*) {
  RunAdd(context, {args.rows, args.at, args.weights, args.k, args.add, args.out});
}

constexpr int64_t kExpertsMax = 1024, kTopMax = 64;  // route.comp
const char* RouteWhyNot(const Device&, const RouteArgs& args) {
  if (args.logits.cols > kExpertsMax) return "more than 1024 experts";
  return args.top_k > kTopMax ? "more than 64 experts of a token" : nullptr;
}
void RunRoute(const OpContext& context, const RouteArgs& args, std::byte*) {
  struct {
    uint64_t logits, bias, ids, weights;
    int32_t experts, top_k, stride, groups, groups_kept, sigmoid, renormalise;
    float scale;
  } const a{Address(args.logits.data),
            Address(args.bias),
            Address(args.ids),
            Address(args.weights),
            Int(args.logits.cols),
            args.top_k,
            Int(args.logits.stride),
            args.rule.groups,
            args.rule.groups_kept,
            args.rule.score == RouterScore::kSigmoid ? 1 : 0,
            args.rule.renormalise ? 1 : 0,
            args.rule.scale};
  context.recorder->Run(Kernel{"route", kShaderRoute}, a, {args.logits.rows});
}

}  // namespace

constinit const Impl<EmbedArgs> kEmbed = {"vulkan", EmbedWhyNot, nullptr, RunEmbed, true};
constinit const Impl<RmsNormArgs> kRmsNorm = {"vulkan", Accepts, nullptr, RunRmsNorm, true};
constinit const Impl<GatedNormArgs> kGatedNorm = {"vulkan", Accepts, nullptr, RunGatedNorm, true};
constinit const Impl<SwigluArgs> kSwiglu = {"vulkan", Accepts, nullptr, RunSwiglu, true};
constinit const Impl<ScalarGateArgs> kScalarGate = {"vulkan", Accepts, nullptr, RunScalarGate,
                                                    true};
constinit const Impl<AddRowsArgs> kAddRows = {"vulkan", Accepts, nullptr, RunAddRows, true};
constinit const Impl<RouteArgs> kRoute = {"vulkan", RouteWhyNot, nullptr, RunRoute, true};

}  // namespace braid::ops::gpu
