// References of the attention ops. Softmax is taken over all keys at once: the partitions of the
// fast candidates are a way to compute it, not part of its meaning.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/reference/reference.h"

namespace braid::ops::reference {
namespace {

int64_t ValueOffset(const AttentionShape& shape) {
  return shape.latent() ? 0 : shape.head_bytes() / 2;
}

std::byte* At(const SequenceSpan& span, const CacheSlice& cache, const AttentionShape& shape,
              int64_t position, int64_t head) {
  std::byte* block = span.tables[static_cast<size_t>(cache.group)][position / kBlockTokens];
  return block + cache.byte_offset + head * shape.head_bytes() +
         position % kBlockTokens * shape.head_dim * SizeOf(shape.kv_dtype);
}

float Load(const std::byte* at, int64_t i, DType dtype) {
  if (dtype == DType::kBF16) return FloatOfBf16(reinterpret_cast<const uint16_t*>(at)[i]);
  return reinterpret_cast<const float*>(at)[i];
}

void Store(std::byte* at, int64_t i, DType dtype, float value) {
  if (dtype == DType::kBF16) {
    reinterpret_cast<uint16_t*>(at)[i] = Bf16OfFloat(value);
  } else {
    reinterpret_cast<float*>(at)[i] = value;
  }
}

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
        std::byte* at = At(span, a.cache, a.shape, position, h);
        float* k = a.k.row(token) + h * dim;
        NormAndRotate(a, a.k_norm, position, k);
        for (int64_t c = 0; c < dim; ++c) {
          Store(at, c, a.shape.kv_dtype, k[c]);
          Store(at + ValueOffset(a.shape), c, a.shape.kv_dtype, a.v.row(token)[h * dim + c]);
        }
      }
    }
  }
}

// One query head at one position.
void AttendOne(const AttentionArgs& a, const SequenceSpan& span, int64_t i, int64_t h) {
  const int64_t dim = a.shape.head_dim, kv_head = h / (a.shape.heads / a.shape.kv_heads);
  const int64_t token = span.token_begin + i, keys = span.start + i + 1;
  const float* q = a.q.row(token) + h * dim;
  std::vector<double> scores(static_cast<size_t>(keys));
  for (int64_t p = 0; p < keys; ++p) {
    const std::byte* k = At(span, a.cache, a.shape, p, kv_head);
    double dot = 0;
    for (int64_t c = 0; c < dim; ++c) dot += double{q[c]} * Load(k, c, a.shape.kv_dtype);
    scores[static_cast<size_t>(p)] = dot * a.scale;
  }
  const double maximum = *std::max_element(scores.begin(), scores.end());
  const int64_t value_dim = a.shape.out_dim();
  std::vector<double> out(static_cast<size_t>(value_dim));
  double sum = 0;
  for (int64_t p = 0; p < keys; ++p) {
    const double weight = std::exp(scores[static_cast<size_t>(p)] - maximum);
    const std::byte* v = At(span, a.cache, a.shape, p, kv_head) + ValueOffset(a.shape);
    sum += weight;
    for (int64_t c = 0; c < value_dim; ++c) {
      out[static_cast<size_t>(c)] += weight * Load(v, c, a.shape.kv_dtype);
    }
  }
  for (int64_t c = 0; c < value_dim; ++c) {
    double value = out[static_cast<size_t>(c)] / sum;
    if (a.gate.data) value *= Sigmoid(a.gate.row(token)[h * a.gate_stride + c]);
    a.out.row(token)[h * value_dim + c] = static_cast<float>(value);
  }
}

void RunAttention(const OpContext&, const AttentionArgs& a, std::byte*) {
  for (int32_t s = 0; s < a.sequences.count; ++s) {
    const SequenceSpan& span = a.sequences.spans[s];
    for (int64_t i = 0; i < span.token_count; ++i) {
      for (int64_t h = 0; h < a.shape.heads; ++h) AttendOne(a, span, i, h);
    }
  }
}

}  // namespace

constinit const Impl<WriteKvArgs> kNormRopeWriteKv = {"reference", Accepts, nullptr, RunWrite};
constinit const Impl<AttentionArgs> kAttention = {"reference", Accepts, nullptr, RunAttention};

}  // namespace braid::ops::reference
