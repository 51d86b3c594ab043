// References of norms and rotations per head, latent cache rows, products per head, and keys and
// values from cache rows.
#include <cmath>
#include <vector>

#include "ops/reference/activation_row.h"
#include "ops/reference/kv_row.h"
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
  const int64_t width = a.shape.head_dim, latent = a.shape.value_dim, key = width - latent;
  const int64_t from = a.q.cols / a.shape.heads, to = a.q_out.cols / a.shape.heads;
  for (int32_t s = 0; s < a.sequences.count; ++s) {
    const SequenceSpan& span = a.sequences.spans[s];
    for (int64_t i = 0; i < span.token_count; ++i) {
      const int64_t token = span.token_begin + i, position = span.start + i;
      for (int64_t h = 0; h < a.shape.heads; ++h) {
        float* q = a.q_out.row(token) + (h + 1) * to - key;
        const float* raw = a.q.row(token) + (h + 1) * from - key;
        for (int64_t c = 0; c < key; ++c) {
          q[c] = raw[c];
        }
        Rotate(a.rotation, position, q);
      }
      if (!a.row.data) continue;
      float* row = a.row.row(token);
      Norm(row, a.norm, a.eps, latent);
      Rotate(a.rotation, position, row + latent);
      const KvPage page = KvPageOf(a.shape, a.cache, span, position, 0);
      StoreKvRow(a.shape.kv_dtype, row, position % kBlockTokens, page.keys);
    }
  }
}

std::vector<WeightRow> WeightRows(const PackedMatrix& w, int64_t matrix) {
  std::vector<WeightRow> rows;
  for (int64_t n = 0; n < w.n; ++n) rows.emplace_back(w, matrix, n);
  return rows;
}

void RunHeadLinear(const OpContext& context, const HeadLinearArgs& args, std::byte*) {
  for (int64_t i = 0; i < args.w->count; ++i) {
    const std::vector<WeightRow> outputs = WeightRows(*args.w, i);
    for (int64_t r = 0; r < args.x.rows; ++r) {
      const double gate = args.gate.data ? Sigmoid(args.gate.row(r)[i]) : 1.0;
      const ActivationRow x(context.device, args.w->format, false, args.x.row(r) + i * args.x_step,
                            args.w->k);
      float* y = args.y.row(r) + i * args.y_step;
      for (const WeightRow& w : outputs) *y++ = static_cast<float>(x.Times(w) * gate);
    }
  }
}

void RunExpandLatent(const OpContext& context, const ExpandLatentArgs& a, std::byte*) {
  SequenceSpan heads;
  heads.tables[0] = a.blocks;
  for (int64_t h = 0; h < a.keys->count; ++h) {
    const std::vector<WeightRow> keys = WeightRows(*a.keys, h), values = WeightRows(*a.values, h);
    for (int64_t p = 0; p < a.span->start + a.span->token_count; ++p) {
      const int64_t slot = p % kBlockTokens;
      const KvPage from = KvPageOf(a.shape, a.cache, *a.span, p, 0);
      const std::vector<double> stored = KvRow(a.shape.kv_dtype, from.keys, slot);
      const std::vector<float> row(stored.begin(), stored.end());
      const KvPage page = KvPageOf(a.heads, {}, heads, p, h);
      const ActivationRow key_row(context.device, a.keys->format, false, row.data(), a.keys->k);
      const ActivationRow value_row(context.device, a.values->format, false, row.data(),
                                    a.values->k);
      std::vector<float> key, value;
      for (const WeightRow& w : keys) key.push_back(static_cast<float>(key_row.Times(w)));
      key.insert(key.end(), row.begin() + a.shape.value_dim, row.end());
      for (const WeightRow& w : values) value.push_back(static_cast<float>(value_row.Times(w)));
      StoreKvRow(a.heads.kv_dtype, key.data(), slot, page.keys);
      StoreKvRow(a.heads.kv_dtype, value.data(), slot, page.values);
    }
  }
}

}  // namespace

constinit const Impl<HeadNormRotateArgs> kHeadNormRotate = {"reference", Accepts, nullptr,
                                                            RunHeadNormRotate};
constinit const Impl<WriteLatentArgs> kWriteLatent = {"reference", Accepts, nullptr,
                                                      RunWriteLatent};
constinit const Impl<HeadLinearArgs> kHeadLinear = {"reference", Accepts, nullptr, RunHeadLinear};
constinit const Impl<ExpandLatentArgs> kExpandLatent = {"reference", Accepts, nullptr,
                                                        RunExpandLatent};

}  // namespace braid::ops::reference
