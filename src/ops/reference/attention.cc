// References of the attention ops. Softmax is taken over all keys at once: the partitions of the
// fast candidates are a way to compute it, not part of its meaning.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/reference/kv_row.h"
#include "ops/reference/reference.h"

namespace braid::ops::reference {
namespace {

// Norm (when there is a weight), then rotation of the first channels.
void NormAndRotate(const WriteKvArgs& a, const float* weight, int64_t position, float* x) {
  const int64_t dim = a.shape.head_dim;
  if (weight) {
    double squares = 0;
    for (int64_t c = 0; c < dim; ++c) squares += double{x[c]} * x[c];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(dim) + a.eps);
    for (int64_t c = 0; c < dim; ++c) {
      x[c] = static_cast<float>(x[c] * scale * (double{a.norm_offset} + weight[c]));
    }
  }
  for (int64_t j = 0; j < a.rotary_pairs; ++j) {
    // The angle is an fp32 product by definition (ops/attention.h).
    const float angle = static_cast<float>(position) * a.inverse_frequency[j];
    const double c = std::cos(double{angle}) * a.rotary_scale;
    const double s = std::sin(double{angle}) * a.rotary_scale;
    const double first = x[j], second = x[j + a.rotary_pairs];
    x[j] = static_cast<float>(first * c - second * s);
    x[j + a.rotary_pairs] = static_cast<float>(second * c + first * s);
  }
}

void RunWrite(const OpContext&, const WriteKvArgs& a, std::byte*) {
  const int64_t dim = a.shape.head_dim;
  for (int32_t s = 0; s < a.sequences.count; ++s) {
    const SequenceSpan& span = a.sequences.spans[s];
    for (int64_t i = 0; i < span.token_count; ++i) {
      const int64_t token = span.token_begin + i, position = span.start + i;
      for (int64_t h = 0; h < a.shape.heads; ++h) {
        float* q = a.q_out.row(token) + h * dim;
        std::copy_n(a.q.row(token) + h * a.q_stride, dim, q);
        NormAndRotate(a, a.q_norm, position, q);
      }
      for (int64_t h = 0; h < a.shape.kv_heads; ++h) {
        const KvPage page = KvPageOf(a.shape, a.cache, span, position, h);
        float* k = a.k.row(token) + h * dim;
        NormAndRotate(a, a.k_norm, position, k);
        StoreKvRow(a.shape.kv_dtype, k, position % kBlockTokens, page.keys);
        StoreKvRow(a.shape.kv_dtype, a.v.row(token) + h * page.values.dim, position % kBlockTokens,
                   page.values);
      }
    }
  }
}

// What a sequence's pages hold of one head, by position.
struct CachedHead {
  CachedHead(const AttentionArgs& a, const SequenceSpan& span, int64_t head) {
    for (int64_t p = 0; p < span.start + span.token_count; ++p) {
      const KvPage page = KvPageOf(a.shape, a.cache, span, p, head);
      keys.push_back(KvRow(a.shape.kv_dtype, page.keys, p % kBlockTokens));
      values.push_back(KvRow(a.shape.kv_dtype, page.values, p % kBlockTokens));
    }
  }

  std::vector<std::vector<double>> keys, values;
};

// One query head at one position.
void AttendOne(const AttentionArgs& a, const SequenceSpan& span, const CachedHead& cached,
               int64_t i, int64_t h) {
  const int64_t dim = a.shape.head_dim;
  const int64_t token = span.token_begin + i, keys = span.start + i + 1;
  const int64_t first = a.cache.skip_first && keys > 1 ? 1 : 0;
  const float* q = a.q.row(token) + h * dim;
  std::vector<double> scores(static_cast<size_t>(keys), -std::numeric_limits<double>::infinity());
  for (int64_t p = first; p < keys; ++p) {
    const std::vector<double>& k = cached.keys[static_cast<size_t>(p)];
    double dot = 0;
    for (int64_t c = 0; c < dim; ++c) dot += q[c] * k[static_cast<size_t>(c)];
    scores[static_cast<size_t>(p)] = dot * a.scale;
  }
  const double maximum = *std::max_element(scores.begin(), scores.end());
  const int64_t value_dim = a.shape.out_dim();
  std::vector<double> out(static_cast<size_t>(value_dim));
  double sum = 0;
  for (int64_t p = first; p < keys; ++p) {
    const double weight = std::exp(scores[static_cast<size_t>(p)] - maximum);
    const std::vector<double>& v = cached.values[static_cast<size_t>(p)];
    sum += weight;
    for (size_t c = 0; c < out.size(); ++c) out[c] += weight * v[c];
  }
  for (int64_t c = 0; c < value_dim; ++c) {
    double value = out[static_cast<size_t>(c)] / sum;
    const int64_t gate = h * a.gate_stride + (a.gate_per_head ? 0 : c);
    if (a.gate.data) value *= Sigmoid(a.gate.row(token)[gate]);
    a.out.row(token)[h * value_dim + c] = static_cast<float>(value);
  }
}

void RunAttention(const OpContext&, const AttentionArgs& a, std::byte*) {
  for (int32_t s = 0; s < a.sequences.count; ++s) {
    const SequenceSpan& span = a.sequences.spans[s];
    const int64_t shared_by = a.shape.heads / a.shape.kv_heads;
    for (int64_t kv_head = 0; kv_head < a.shape.kv_heads; ++kv_head) {
      const CachedHead cached(a, span, kv_head);
      for (int64_t i = 0; i < span.token_count; ++i) {
        for (int64_t h = 0; h < shared_by; ++h) {
          AttendOne(a, span, cached, i, kv_head * shared_by + h);
        }
      }
    }
  }
}

}  // namespace

constinit const Impl<WriteKvArgs> kNormRopeWriteKv = {"reference", Accepts, nullptr, RunWrite};
constinit const Impl<AttentionArgs> kAttention = {"reference", Accepts, nullptr, RunAttention};

}  // namespace braid::ops::reference
