// The kernels of the Vulkan candidates, compiled from shaders/ and embedded (ops/module.cmake), and
// what the candidates share.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/math.h"
#include "ops/op.h"
#include "ops/packed.h"
#include "ops/vulkan/batch.h"
#include "vulkan/gpu.h"

namespace braid {

extern const std::string_view kShaderAddRows, kShaderAttention, kShaderAttentionMerge,
    kShaderAttentionSplit1, kShaderAttentionSplit2, kShaderAttentionSplit4, kShaderAttentionWide,
    kShaderConv, kShaderConvWindow, kShaderDelta, kShaderDeltaRows, kShaderDeltaStep, kShaderEmbed,
    kShaderExpertRows, kShaderExpertTiles, kShaderGatedNorm, kShaderLinear1, kShaderLinear4,
    kShaderLinear8, kShaderLinearTile32, kShaderLinearTile64, kShaderQuantise, kShaderRmsNorm,
    kShaderRoute, kShaderSample, kShaderScalarGate, kShaderSwiglu, kShaderWriteKv,
    kShaderWriteLatent;

namespace ops::gpu {

using vulkan::Groups;
using vulkan::Kernel;
using vulkan::Turn;

inline uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
inline int32_t Int(int64_t value) { return static_cast<int32_t>(value); }

// Invocations of a workgroup, in every kernel.
inline constexpr int64_t kThreads = 64;

// A format as constants of shaders/weights.glsl; nothing: kernels cannot read it.
std::optional<vulkan::KernelConstants> FormatConstants(WeightFormat format);
// nullptr, or why kernels cannot read these weights.
const char* CannotRead(WeightFormat format);

// Invocations for a wide row, where 64 are the least: as many as keep all its loads in flight. On a
// software device they would run one after another.
uint32_t WideInvocations(const vulkan::DeviceFacts& facts, int64_t cols);

template <class Args>
const char* Accepts(const Device&, const Args&) {
  return nullptr;
}

inline uint64_t BatchOf(const OpContext& context) { return Address(context.batch->table); }
inline int64_t FirstSpan(const OpContext& context, const SequenceIndex& sequences) {
  return sequences.spans - context.batch->spans;
}

// Rows by their experts: `list` and `order` as in shaders/products/product.glsl, of at most `most`
// tiles of `height` rows.
struct Tiles {
  const int32_t* list = nullptr;
  const int32_t* order = nullptr;
  int64_t most = 0, height = 0;
};

// y = x W^T of `z` matrices from the first, whose outputs lie z_step columns apart. With `ids` row
// r has matrices ids[r] * id_step + z, and its input is row r / x_divisor of x. With x_step matrix
// z has the k columns from x_step * z on as its input. Outputs are scaled by sigmoid(gate[r][z]).
struct Gemm {
  Matrix x;
  const PackedMatrix* w = nullptr;
  Matrix y;  // [rows, z_step * z] or [rows, n]
  const int32_t* ids = nullptr;
  Tiles tiles = {};  // with a list: in the place of ids
  int64_t x_divisor = 1, id_step = 0, z = 1, z_step = 0, x_step = 0;
  Matrix gate = {};    // [rows, z] or empty
  int64_t height = 0;  // rows of a workgroup, one of kGemmHeights; 0: what suits
  int64_t pieces = 0;  // of a sum, 16, 32 or 64; 0: what suits
  Turn turn = Turn::kAfter;
};
inline constexpr int64_t kGemmHeights[] = {1, 4, 8, 32, 64};
// Of the codes of so many rows of x, where weights are integers; with x_step `z` of them each.
int64_t GemmScratch(int64_t x_rows, const PackedMatrix& w);
void RunGemm(const OpContext& context, const Gemm& gemm, std::byte* scratch);
// The two parts of it: x as integers, in scratch, and whether weights are such that it is needed;
// then the product.
bool RunQuantise(const OpContext& context, const Gemm& gemm, std::byte* scratch);
void RunProduct(const OpContext& context, const Gemm& gemm, const std::byte* scratch);

void RunGatedUnit(const OpContext& context, Matrix gate_up, Matrix out, float limit,
                  Turn turn = Turn::kAfter);
struct Added {
  Matrix rows;
  const int32_t* at = nullptr;
  const float* weights = nullptr;
  int64_t k = 1;
  bool add = false;
  Matrix out;
};
void RunAdd(const OpContext& context, const Added& added);

}  // namespace ops::gpu
}  // namespace braid
