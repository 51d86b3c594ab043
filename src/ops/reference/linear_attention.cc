// References of convolution and recurrence. A row is evaluated from the state at its chunk's start
// and the rows of the chunk before it, exactly as ops/linear_attention.h defines; the plain
// recurrence from token to token is the tests' independent oracle.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/reference/kv_row.h"
#include "ops/reference/reference.h"
#include "ops/state_layout.h"

namespace braid::ops::reference {
namespace {

int64_t ConvScratch(const OpContext&, const ConvArgs& args) {
  return 4 * args.shape.conv_channels() + 8 * args.shape.conv_width;
}

void RunConv(const OpContext&, const ConvArgs& args, std::byte* scratch) {
  const int64_t channels = args.shape.conv_channels();
  const float** inputs = reinterpret_cast<const float**>(scratch);
  float* zeros = reinterpret_cast<float*>(scratch + 8 * args.shape.conv_width);
  std::fill_n(zeros, channels, 0.0f);
  ConvArgs a = args;
  a.zeros = zeros;
  for (int32_t s = 0; s < a.sequences.count; ++s) {
    const SequenceSpan& span = a.sequences.spans[s];
    for (int64_t i = 0; i < span.token_count; ++i) {
      ConvInputs(a, span, i, 1, inputs);
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (int32_t j = 0; j < a.shape.conv_width; ++j) {
          sum += double{a.weight[j * channels + c]} * inputs[j][c];
        }
        a.out.row(span.token_begin + i)[c] = static_cast<float>(Silu(sum));
      }
    }
    WriteConvWindows(a, span);
  }
}

void MakeUnit(float* x, int64_t count, double scale) {
  double squares = 0;
  for (int64_t d = 0; d < count; ++d) squares += double{x[d]} * x[d];
  for (int64_t d = 0; d < count; ++d) {
    x[d] = static_cast<float>(x[d] * scale / std::sqrt(squares + 1e-6));
  }
}

// The scale of a row of integers in a state page: the least power of two of which it has at most
// 127. Zero for rows too small, NaN for rows that are not finite.
float ScaleOf(const float* x, int64_t count) {
  float most = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i])) return NAN;
    most = std::max(most, std::abs(x[i]));
  }
  int exponent = 0;
  const bool power = std::frexp(most / 127.0, &exponent) == 0.5;
  return most < 0x1p-100f ? 0.0f : std::ldexp(power ? 0.5f : 1.0f, exponent);
}
int8_t CodeOf(float x, float scale) {
  return static_cast<int8_t>(scale > 0 ? std::nearbyint(x / scale) : 0.0f);
}

// x as a state page keeps it.
void RoundRow(DType kept, int64_t count, float* x) {
  const float scale = ScaleOf(x, count);
  for (int64_t i = 0; i < count; ++i) {
    if (kept == DType::kBF16) x[i] = RoundToBf16(x[i]);
    if (kept == DType::kI8) x[i] = scale * static_cast<float>(CodeOf(x[i], scale));
  }
}

void StoreRow(DType kept, const float* x, int64_t slot, const CachedRows& to) {
  if (kept != DType::kI8) return StoreKvRow(kept, x, slot, to);
  const float scale = to.scales[slot] = ScaleOf(x, to.dim);
  for (int64_t c = 0; c < to.dim; ++c) {
    reinterpret_cast<int8_t*>(to.rows)[slot * to.dim + c] = CodeOf(x[c], scale);
  }
}

void StoreRows(DType kept, const float* x, int64_t count, const CachedRows& to) {
  for (int64_t r = 0; r < count; ++r) StoreRow(kept, x + r * to.dim, r, to);
}
void LoadRows(DType kept, const CachedRows& from, int64_t count, float* x) {
  for (int64_t r = 0; r < count; ++r) {
    for (double value : KvRow(kept, from, r)) *x++ = static_cast<float>(value);
  }
}

// The rows of one chunk of one head, and the state at its start.
struct Chunk {
  std::vector<float> k, u, g;
  std::vector<float> state;  // [dk][dv]; zeros before the first boundary
};

// For every column c: sum_d exp(g_row[d]) x[d] S[d][c] +
// sum_{j < rows} (sum_d exp(g_row[d] - g_j[d]) x[d] k_j[d]) u_j[c]
std::vector<double> Read(const Chunk& chunk, const LinearAttentionShape& s, const float* x,
                         int64_t row, int64_t rows) {
  auto g = [&](int64_t j, int64_t d) {
    return double{chunk.g[static_cast<size_t>(j * s.decay_width() + d % s.decay_width())]};
  };
  std::vector<double> out(static_cast<size_t>(s.value_dim));
  for (int64_t d = 0; d < s.key_dim; ++d) {
    for (int64_t c = 0; c < s.value_dim; ++c) {
      out[static_cast<size_t>(c)] +=
          std::exp(g(row, d)) * x[d] * chunk.state[static_cast<size_t>(d * s.value_dim + c)];
    }
  }
  for (int64_t j = 0; j < rows; ++j) {
    double weight = 0;
    for (int64_t d = 0; d < s.key_dim; ++d) {
      weight += std::exp(g(row, d) - g(j, d)) * x[d] *
                double{chunk.k[static_cast<size_t>(j * s.key_dim + d)]};
    }
    for (int64_t c = 0; c < s.value_dim; ++c) {
      out[static_cast<size_t>(c)] += weight * chunk.u[static_cast<size_t>(j * s.value_dim + c)];
    }
  }
  return out;
}

void Row(const LinearAttentionArgs& a, int64_t token, int64_t head, int64_t row, Chunk& chunk) {
  const LinearAttentionShape& s = a.shape;
  const int64_t key_head = head / (s.value_heads / s.key_heads), keys = s.key_heads;
  const float* q = a.qkv.row(token) + key_head * s.key_dim;
  const float* k = q + keys * s.key_dim;
  const float* v = a.qkv.row(token) + 2 * keys * s.key_dim + head * s.value_dim;
  const int64_t width = s.decay_width();
  float* g = chunk.g.data() + row * width;
  LogDecays(a, token, head, g);
  for (int64_t d = 0; d < width && row > 0; ++d) g[d] += g[d - width];
  std::copy_n(k, s.key_dim, chunk.k.data() + row * s.key_dim);
  if (a.rule.add) {
    std::copy_n(v, s.value_dim, chunk.u.data() + row * s.value_dim);
  } else {
    const double beta = UpdateGate(a.b.row(token)[head]);
    const std::vector<double> memory = Read(chunk, s, k, row, row);
    for (int64_t c = 0; c < s.value_dim; ++c) {
      chunk.u[static_cast<size_t>(row * s.value_dim + c)] =
          static_cast<float>(beta * (v[c] - memory[static_cast<size_t>(c)]));
    }
  }
  RoundRow(s.state_dtype, s.value_dim, chunk.u.data() + row * s.value_dim);
  const std::vector<double> out = Read(chunk, s, q, row, row + 1);
  for (int64_t c = 0; c < s.value_dim; ++c) {
    a.out.row(token)[head * s.value_dim + c] = static_cast<float>(out[static_cast<size_t>(c)]);
  }
}

std::vector<float> StateAfter(const Chunk& chunk, const LinearAttentionShape& s) {
  std::vector<float> state(chunk.state.size());
  auto g = [&](int64_t j, int64_t d) {
    return double{chunk.g[static_cast<size_t>(j * s.decay_width() + d % s.decay_width())]};
  };
  for (int64_t d = 0; d < s.key_dim; ++d) {
    const double last = g(kBlockTokens - 1, d);
    for (int64_t c = 0; c < s.value_dim; ++c) {
      double sum = std::exp(last) * chunk.state[static_cast<size_t>(d * s.value_dim + c)];
      for (int64_t j = 0; j < kBlockTokens; ++j) {
        sum += std::exp(last - g(j, d)) * double{chunk.k[static_cast<size_t>(j * s.key_dim + d)]} *
               chunk.u[static_cast<size_t>(j * s.value_dim + c)];
      }
      state[static_cast<size_t>(d * s.value_dim + c)] = static_cast<float>(sum);
    }
    RoundRow(s.state_dtype, s.value_dim, state.data() + d * s.value_dim);
  }
  return state;
}

void RunHead(const LinearAttentionArgs& a, const SequenceSpan& span, int64_t head) {
  const LinearAttentionShape& s = a.shape;
  const int64_t dk = s.key_dim, dv = s.value_dim;
  Chunk chunk{std::vector<float>(static_cast<size_t>(kBlockTokens * dk)),
              std::vector<float>(static_cast<size_t>(kBlockTokens * dv)),
              std::vector<float>(static_cast<size_t>(kBlockTokens * s.decay_width())),
              std::vector<float>(static_cast<size_t>(dk * dv))};
  const CachedRows before = StateBefore(a, span, head);
  if (before.rows) LoadRows(s.state_dtype, before, dk, chunk.state.data());
  const int64_t first_row = span.start % kBlockTokens;
  if (first_row > 0) {
    const StatePage page = PageOf(s, a.cache, span, span.start / kBlockTokens, head);
    LoadRows(s.state_dtype, page.rows_k, first_row, chunk.k.data());
    LoadRows(s.state_dtype, page.rows_u, first_row, chunk.u.data());
    std::copy_n(page.rows_g, first_row * s.decay_width(), chunk.g.data());
  }
  for (int64_t i = 0; i < span.token_count; ++i) {
    const int64_t position = span.start + i, row = position % kBlockTokens;
    const StatePage page = PageOf(s, a.cache, span, position / kBlockTokens, head);
    Row(a, span.token_begin + i, head, row, chunk);
    if (row == kBlockTokens - 1) {
      chunk.state = StateAfter(chunk, s);
      if (page.state.rows) StoreRows(s.state_dtype, chunk.state.data(), dk, page.state);
    } else if (i + 1 == span.token_count) {
      StoreRows(s.state_dtype, chunk.k.data(), row + 1, page.rows_k);
      StoreRows(s.state_dtype, chunk.u.data(), row + 1, page.rows_u);
      std::copy_n(chunk.g.data(), (row + 1) * s.decay_width(), page.rows_g);
    }
  }
}

void RunStep(const OpContext&, const LinearAttentionArgs& a, std::byte*) {
  const LinearAttentionShape& s = a.shape;
  for (int64_t t = 0; t < a.qkv.rows; ++t) {
    for (int64_t c = 0; a.rule.add && c < int64_t{s.key_heads} * s.key_dim; ++c) {
      a.qkv.row(t)[c] *= QueryScale(s);
    }
    for (int64_t h = 0; !a.rule.add && h < s.key_heads; ++h) {
      MakeUnit(a.qkv.row(t) + h * s.key_dim, s.key_dim, QueryScale(s));
      MakeUnit(a.qkv.row(t) + (s.key_heads + h) * s.key_dim, s.key_dim, 1.0);
    }
    for (int64_t h = 0; h < s.key_heads; ++h) {
      RoundRow(s.state_dtype, s.key_dim, a.qkv.row(t) + (s.key_heads + h) * s.key_dim);
    }
  }
  for (int32_t i = 0; i < a.sequences.count; ++i) {
    for (int64_t h = 0; h < s.value_heads; ++h) RunHead(a, a.sequences.spans[i], h);
  }
}

}  // namespace

constinit const Impl<ConvArgs> kCausalConv = {"reference", Accepts, ConvScratch, RunConv};
constinit const Impl<LinearAttentionArgs> kLinearAttention = {"reference", Accepts, nullptr,
                                                              RunStep};

}  // namespace braid::ops::reference
