// References of norms and rotations per head, latent cache rows and products per head.
#include <cmath>

#include "ops/reference/kv_row.h"
#include "ops/reference/left_row.h"
#include "ops/reference/reference.h"

namespace braid::ops::reference {
namespace {

void Norm(float* x, const float* weight, float eps, int64_t cols) {
  double squares = 0;
  for (int64_t c = 0; c < cols; ++c) squares += double{x[c]} * x[c];
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(cols) + eps);
  for (int64_t c = 0; c < cols; ++c) x[c] = static_cast<float>(x[c] * scale * weight[c]);
}

void Rotate(const Rotation& r, int64_t position, float* x) {
  for (int32_t j = 0; j < r.pairs; ++j) {
    // The angle is an fp32 product by definition (ops/rotary.h).
    const float angle = static_cast<float>(position) * r.inverse_frequency[j];
    const double c = std::cos(double{angle}) * r.scale, s = std::sin(double{angle}) * r.scale;
    float* first = r.interleaved ? x + 2 * j : x + j;
    float* second = r.interleaved ? first + 1 : first + r.pairs;
    const double a = *first, b = *second;
    *first = static_cast<float>(a * c - b * s);
    *second = static_cast<float>(b * c + a * s);
  }
}

void RunHeadNormRotate(const OpContext&, const HeadNormRotateArgs& args, std::byte*) {
  for (int32_t s = 0; s < args.sequences.count; ++s) {
    const SequenceSpan& span = args.sequences.spans[s];
    for (int64_t i = 0; i < span.token_count; ++i) {
      float* row = args.x.row(span.token_begin + i);
      for (int64_t c = 0; c < args.x.cols; c += args.head_dim) {
        Norm(row + c, args.weight, args.eps, args.head_dim);
        Rotate(args.rotation, span.start + i, row + c);
      }
    }
  }
}

void RunWriteLatent(const OpContext&, const WriteLatentArgs& a, std::byte*) {
  const int64_t width = a.shape.head_dim, latent = a.shape.value_dim;
  for (int32_t s = 0; s < a.sequences.count; ++s) {
    const SequenceSpan& span = a.sequences.spans[s];
    for (int64_t i = 0; i < span.token_count; ++i) {
      const int64_t token = span.token_begin + i, position = span.start + i;
      for (int64_t h = 0; h < a.shape.heads; ++h) {
        float* q = a.q_out.row(token) + h * width + latent;
        for (int64_t c = 0; c < width - latent; ++c) {
          q[c] = a.q.row(token)[h * a.q_stride + a.q_offset + c];
        }
        Rotate(a.rotation, position, q);
      }
      if (!a.row.data) continue;
      float* row = a.row.row(token);
      Norm(row, a.norm, a.eps, latent);
      Rotate(a.rotation, position, row + latent);
      const KvPage page = KvPageOf(a.shape, a.cache, span, position, 0);
      StoreKvRow(a.shape, row, position % kBlockTokens, page.keys);
    }
  }
}

void RunHeadLinear(const OpContext& context, const HeadLinearArgs& args, std::byte*) {
  for (int64_t r = 0; r < args.x.rows; ++r) {
    for (int64_t i = 0; i < args.w->count; ++i) {
      const double gate = args.gate.data ? Sigmoid(args.gate.row(r)[i]) : 1.0;
      const LeftRow x(context.device, args.w->format, false, args.x.row(r) + i * args.x_step,
                      args.w->k);
      for (int64_t n = 0; n < args.w->n; ++n) {
        args.y.row(r)[i * args.y_step + n] = static_cast<float>(x.Times(*args.w, i, n) * gate);
      }
    }
  }
}

}  // namespace

constinit const Impl<HeadNormRotateArgs> kHeadNormRotate = {"reference", Accepts, nullptr,
                                                            RunHeadNormRotate};
constinit const Impl<WriteLatentArgs> kWriteLatent = {"reference", Accepts, nullptr,
                                                      RunWriteLatent};
constinit const Impl<HeadLinearArgs> kHeadLinear = {"reference", Accepts, nullptr, RunHeadLinear};

}  // namespace braid::ops::reference
