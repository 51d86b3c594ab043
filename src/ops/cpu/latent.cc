// Norms and rotations per head, cache rows of latent attention, products per head. A task is a few
// tokens, or one head's product; an output's bits depend on its own row only.
#include "ops/cpu/latent.h"

#include <algorithm>
#include <cmath>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/gemm/gemm.h"
#include "ops/cpu/kv_row.h"

namespace braid::ops::cpu {
namespace {

// f(span, i, cos_sin) for every token of every span, with the token's angles.
template <class F>
void ForAngles(const OpContext& context, const SequenceIndex& sequences, const Rotation& rotation,
               double flops_per_token, float* scratch, const F& f) {
  ForTokens(
      context, sequences, flops_per_token, [&](const SequenceSpan& span, int64_t i, int member) {
        float* cos_sin = scratch + 2 * member * rotation.pairs;
        for (int32_t j = 0; j < rotation.pairs; ++j) {
          const float angle = static_cast<float>(span.start + i) * rotation.inverse_frequency[j];
          cos_sin[j] = std::cos(angle) * rotation.scale;
          cos_sin[rotation.pairs + j] = std::sin(angle) * rotation.scale;
        }
        f(span, i, cos_sin);
      });
}

int64_t AngleBytes(const OpContext& context, const Rotation& rotation) {
  return 8 * int64_t{rotation.pairs} * context.pool->threads();
}

void NormInPlace(const KernelTable& kernels, float* x, const float* weight, float eps,
                 int64_t cols) {
  kernels.rms_norm({.x = x,
                    .delta = nullptr,
                    .weight = weight,
                    .weight_offset = 0.0f,
                    .eps = eps,
                    .out = x,
                    .cols = cols});
}

void RunHeadNormRotate(const OpContext& context, const HeadNormRotateArgs& args,
                       std::byte* scratch) {
  const KernelTable& kernels = *KernelsFor(context.device);
  const Rotation& r = args.rotation;
  ForAngles(context, args.sequences, r, 20.0 * static_cast<double>(args.x.cols),
            reinterpret_cast<float*>(scratch),
            [&](const SequenceSpan& span, int64_t i, const float* cos_sin) {
              float* row = args.x.row(span.token_begin + i);
              for (int64_t c = 0; c < args.x.cols; c += args.head_dim) {
                NormInPlace(kernels, row + c, args.weight, args.eps, args.head_dim);
                kernels.rotate(row + c, cos_sin, r.pairs, r.interleaved);
              }
            });
}

void RunWriteLatent(const OpContext& context, const WriteLatentArgs& a, std::byte* scratch) {
  const KernelTable& kernels = *KernelsFor(context.device);
  const Rotation& r = a.rotation;
  const int64_t width = a.shape.head_dim, latent = a.shape.value_dim, key = width - latent;
  const int64_t from = a.q.cols / a.shape.heads, to = a.q_out.cols / a.shape.heads;
  ForAngles(context, a.sequences, r, 20.0 * static_cast<double>(a.shape.heads * key + width),
            reinterpret_cast<float*>(scratch),
            [&](const SequenceSpan& span, int64_t i, const float* cos_sin) {
              const int64_t token = span.token_begin + i, position = span.start + i;
              for (int64_t h = 0; h < a.shape.heads; ++h) {
                float* q = a.q_out.row(token) + (h + 1) * to - key;
                const float* raw = a.q.row(token) + (h + 1) * from - key;
                if (q != raw) std::copy_n(raw, key, q);
                kernels.rotate(q, cos_sin, r.pairs, r.interleaved);
              }
              if (!a.row.data) return;
              float* row = a.row.row(token);
              NormInPlace(kernels, row, a.norm, a.eps, latent);
              kernels.rotate(row + latent, cos_sin, r.pairs, r.interleaved);
              const KvPage page = KvPageOf(a.shape, a.cache, span, position, 0);
              StoreKvRow(kernels, a.shape.kv_dtype, row, position % kBlockTokens, page.keys);
              KeepValueFinite(a.shape, position % kBlockTokens, page);
            });
}

// The activations of one matrix.
PackedActivations HeadOperand(const OpContext& context, const HeadLinearArgs& args,
                              std::byte* data) {
  return {.kernel = &GemmKernelFor(context.device, args.w->format, false),
          .data = data,
          .rows = args.x.rows,
          .k = args.w->k};
}

int64_t HeadLinearScratch(const OpContext& context, const HeadLinearArgs& args) {
  NoteGemmKernel(context, args.w->format, false);
  return RoundUp(HeadOperand(context, args, nullptr).bytes(), 64) * context.pool->threads();
}

// One matrix: packs its columns of x, then all of its panels.
void RunOneHead(const HeadLinearArgs& args, int64_t head, PackedActivations x) {
  const PackedMatrix& w = *args.w;
  x.order = w.order(head);
  const Matrix columns{args.x.data + head * args.x_step, args.x.rows, w.k, args.x.stride};
  for (int64_t b = 0; b < x.blocks(); ++b) x.PackBlock(b, columns, nullptr);
  GemmTask task = TaskOf(x, w, head, 0, x.rows);
  task.y = args.y.data + head * args.y_step;
  task.y_stride = args.y.stride;
  x.kernel->run(task);
  for (int64_t r = 0; args.gate.data && r < args.x.rows; ++r) {
    const float gate = 1.0f / (1.0f + std::exp(-args.gate.row(r)[head]));
    float* y = args.y.row(r) + head * args.y_step;
    for (int64_t c = 0; c < w.n; ++c) y[c] *= gate;
  }
}

void RunHeadLinear(const OpContext& context, const HeadLinearArgs& args, std::byte* scratch) {
  const int64_t bytes = RoundUp(HeadOperand(context, args, nullptr).bytes(), 64);
  const double flops =
      2.0 * static_cast<double>(args.x.rows * args.w->n) * static_cast<double>(args.w->k);
  ForTasks(context, args.w->count, flops * static_cast<double>(args.w->count),
           [&](int64_t head, int member) {
             RunOneHead(args, head, HeadOperand(context, args, scratch + member * bytes));
           });
}

int64_t HeadNormRotateScratch(const OpContext& context, const HeadNormRotateArgs& args) {
  return AngleBytes(context, args.rotation);
}
int64_t WriteLatentScratch(const OpContext& context, const WriteLatentArgs& args) {
  return AngleBytes(context, args.rotation);
}

template <class Args>
const char* WhyNot(const Device& device, const Args&) {
  return NeedsAvx2(device);
}

}  // namespace

constinit const Impl<HeadNormRotateArgs> kHeadNormRotate = {"cpu", WhyNot, HeadNormRotateScratch,
                                                            RunHeadNormRotate};
constinit const Impl<WriteLatentArgs> kWriteLatent = {"cpu", WhyNot, WriteLatentScratch,
                                                      RunWriteLatent};
constinit const Impl<HeadLinearArgs> kHeadLinear = {"cpu", WhyNot, HeadLinearScratch,
                                                    RunHeadLinear};

}  // namespace braid::ops::cpu
