// The kernels of all files in one list; packing of activations where no kernel has vector code for
// it.
#include "ops/cpu/gemm/gemm.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "ops/cpu/dispatch.h"

namespace braid::ops::cpu {
namespace {

template <bool kRound>
void PackFloats(const PackTask& task) {
  float* out = reinterpret_cast<float*>(task.block) + task.begin * task.count;
  for (int64_t begin = task.begin; begin < task.depth_end; begin += kFloatStep) {
    const int64_t columns = std::clamp<int64_t>(task.end - begin, 0, kFloatStep);
    for (int64_t r = 0; r < task.count; ++r, out += kFloatStep) {
      const float* x = task.rows[r] + (begin - task.begin);
      for (int64_t c = 0; c < columns; ++c) out[c] = kRound ? RoundToBf16(x[c]) : x[c];
      std::fill(out + columns, out + kFloatStep, 0.0f);
    }
  }
}

struct Need {
  CpuNeed need;  // its own place
  const char *name, *why_not;
  bool (*met)(const Device&);
};
constexpr Need kNeeds[] = {
    {CpuNeed::kAvx2, "avx2", "needs AVX2", [](const Device& d) { return d.isa >= Isa::kAvx2; }},
    {CpuNeed::kAvxVnni, "avxvnni", "needs AVX-VNNI", [](const Device& d) { return d.avx_vnni; }},
    {CpuNeed::kAvx512, "avx512", "needs AVX-512",
     [](const Device& d) { return d.isa >= Isa::kAvx512; }},
    {CpuNeed::kAvx512Bf16, "avx512_bf16", "needs AVX512-BF16",
     [](const Device& d) { return d.avx512_bf16; }},
    {CpuNeed::kAvx512Vnni, "avx512_vnni", "needs AVX512-VNNI",
     [](const Device& d) { return d.avx512_vnni; }},
    {CpuNeed::kAvx512Vbmi, "avx512_vbmi", "needs AVX512-BF16 and AVX512-VBMI",
     [](const Device& d) { return d.avx512_bf16 && d.avx512_vbmi; }},
    {CpuNeed::kAmx, "amx", "needs AMX", [](const Device& d) { return d.isa >= Isa::kAmx; }},
};
const Need& NeedOf(const GemmKernel& kernel) { return kNeeds[static_cast<size_t>(kernel.needs)]; }

std::vector<GemmKernel> AllKernels() {
  std::vector<GemmKernel> all;
  for (const GemmKernelList& list :
       {AmxGemm(), Avx512DotGemm(), Avx512GroupedGemm(), Avx512Fp8Gemm(), AvxVnniGemm(),
        AvxVnniGroupedGemm(), Avx512FloatGemm(), Avx2Gemm(), Avx2GroupedGemm(), Avx2FloatGemm()}) {
    all.insert(all.end(), list.kernels, list.kernels + list.count);
  }
  return all;
}

}  // namespace

void PackF32(const PackTask& task) { PackFloats<false>(task); }
void PackF32Rounded(const PackTask& task) { PackFloats<true>(task); }

std::span<const GemmKernel> GemmKernels() {
  static const std::vector<GemmKernel> kAll = AllKernels();
  return kAll;
}

std::string NameOf(const GemmKernel& kernel) {
  std::string name = NeedOf(kernel).name;
  if (kernel.rounds && kernel.layout->element_bytes == 4) name += "_rounded";
  return name;
}

const char* WhyNot(const GemmKernel& kernel, const Device& device, bool exact) {
  if (kernel.rounds && (exact || device.compute != Compute::kBF16)) {
    return "activations are not to be rounded";
  }
  return NeedOf(kernel).met(device) ? nullptr : NeedOf(kernel).why_not;
}

const GemmKernel* FindGemmKernel(const Device& device, WeightFormat format, bool exact) {
  for (const GemmKernel& kernel : GemmKernels()) {
    if (kernel.format == format && !WhyNot(kernel, device, exact)) return &kernel;
  }
  return nullptr;
}

const GemmKernel& GemmKernelFor(const Device& device, WeightFormat format, bool exact) {
  const GemmKernel* kernel = FindGemmKernel(device, format, exact);
  CHECK(kernel, "no GEMM kernel for {} on {}", ops::NameOf(format), NameOf(device.isa));
  return *kernel;
}

void NoteGemmKernel(const OpContext& context, WeightFormat format, bool exact) {
  if (!context.choices) return;
  std::vector<std::string> refused;
  for (const GemmKernel& kernel : GemmKernels()) {
    if (kernel.format != format) continue;
    const char* why_not = WhyNot(kernel, context.device, exact);
    if (!why_not) {
      return context.choices->Note("gemm " + std::string(ops::NameOf(format)), NameOf(kernel),
                                   std::move(refused));
    }
    refused.push_back(NameOf(kernel) + ": " + why_not);
  }
}

void PackedActivations::Pack(int64_t row, int64_t count, int64_t col, const Matrix& x,
                             const int32_t* ids) const {
  const int64_t first = row / kernel->layout->block_rows * kernel->layout->block_rows;
  CHECK(row == first && count == std::min(rows - first, kernel->layout->block_rows));
  PackTask task;
  for (int64_t r = 0; r < count; ++r) task.rows[r] = x.row(ids ? ids[r] : r);
  task.count = count;
  task.begin = col;
  task.end = col + x.cols;
  task.depth_end = task.end == k ? depth() : task.end;
  task.block = data + row * row_bytes();
  task.order = order;
  CHECK(!order || (kernel->layout->integers && x.cols == k), "columns in order of a part of {}", k);
  kernel->pack(task);
}

void PackedActivations::PackBlock(int64_t b, const Matrix& x, const int32_t* ids) const {
  const int64_t row = b * kernel->layout->block_rows;
  const int64_t count = std::min(rows - row, kernel->layout->block_rows);
  const Matrix from = ids ? x : Matrix{x.row(row), count, x.cols, x.stride};
  Pack(row, count, 0, from, ids ? ids + row : nullptr);
}

void PackedActivations::PackAlone(const float* row, std::byte* to) const {
  PackTask task;
  task.rows[0] = row;
  task.count = 1;
  task.begin = 0;
  task.end = k;
  task.depth_end = depth();
  task.block = to;
  kernel->pack(task);
}

// One step of each row in turn; of integers the words that follow them, of which a row alone has as
// many.
void PackedActivations::GatherBlock(int64_t b, const std::byte* alone, const int32_t* ids) const {
  const ActivationLayout& layout = *kernel->layout;
  const int64_t row = b * layout.block_rows, count = std::min(rows - row, layout.block_rows);
  const std::byte* from[kFloatRows];
  for (int64_t r = 0; r < count; ++r) from[r] = alone + ids[row + r] * row_bytes();
  std::byte* out = data + row * row_bytes();
  const int64_t bytes = depth() * layout.element_bytes;
  for (int64_t at = 0; at < bytes; at += 64) {
    for (int64_t r = 0; r < count; ++r, out += 64) std::memcpy(out, from[r] + at, 64);
  }
  const int64_t end = layout.integers ? bytes + 4 * (2 + depth() / 32 + depth() / 16) : bytes;
  for (int64_t at = bytes; at < end; at += 4) {
    for (int64_t r = 0; r < count; ++r, out += 4) std::memcpy(out, from[r] + at, 4);
  }
}

GemmTask TaskOf(const PackedActivations& x, const PackedMatrix& w, int64_t matrix, int64_t row,
                int64_t count) {
  CHECK(w.k == x.k, "operands of {} and {} terms", x.k, w.k);
  CHECK(w.ordered == (x.order != nullptr), "operands in different orders");
  return {.x = x.data + row * x.row_bytes(),
          .rows = count,
          .k = x.depth(),
          .w = w.panel(matrix, 0),
          .panel_bytes = w.panel_bytes(),
          .panel_begin = 0,
          .panel_end = w.panels(),
          .n = w.n,
          .y = nullptr,
          .y_stride = 0};
}

}  // namespace braid::ops::cpu
