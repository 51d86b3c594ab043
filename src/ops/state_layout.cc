// Address arithmetic of state blocks, convolution windows and the gates.
#include "ops/state_layout.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"

namespace braid::ops {
namespace {

std::byte* Slice(const CacheSlice& cache, const SequenceSpan& span, int64_t chunk) {
  std::byte* block = span.tables[static_cast<size_t>(cache.group)][chunk];
  return block ? block + cache.byte_offset : nullptr;
}

// The input row at `position` in the window of the page of its chunk; null where there is no page.
float* WindowRow(const ConvArgs& args, const SequenceSpan& span, int64_t position) {
  std::byte* slice = Slice(args.cache, span, position / kBlockTokens);
  if (!slice) return nullptr;
  const int64_t slot = position % args.shape.window_rows();
  return reinterpret_cast<float*>(slice + args.shape.window_offset()) +
         slot * args.shape.conv_channels();
}

// The input row at `position`: from this step, from a window before it, or zero.
const float* InputAt(const ConvArgs& args, const SequenceSpan& span, int64_t position) {
  if (position < 0) return args.zeros;
  if (position >= span.start) return args.x.row(span.token_begin + position - span.start);
  const float* row = WindowRow(args, span, position);
  CHECK(row != nullptr, "no state page of position {}, before {}", position, span.start);
  return row;
}

}  // namespace

int64_t StateBlockBytes(const LinearAttentionShape& shape) {
  const int64_t window = shape.window_rows() * shape.conv_channels();
  return RoundUp(shape.window_offset() + 4 * window, 64);
}

StatePage PageOf(const LinearAttentionShape& shape, const CacheSlice& cache,
                 const SequenceSpan& span, int64_t chunk, int64_t head) {
  std::byte* slice = Slice(cache, span, chunk);
  if (!slice) return {};
  std::byte* area = slice + head * shape.head_bytes();
  float* scales = shape.state_dtype == DType::kI8
                      ? reinterpret_cast<float*>(area + shape.scales_offset())
                      : nullptr;
  StatePage page;
  page.state = {area, scales, shape.value_dim};
  page.rows_k = {area, scales, shape.key_dim};
  page.rows_u = {area + int64_t{kBlockTokens} * shape.key_dim * SizeOf(shape.state_dtype),
                 scales ? scales + kBlockTokens : nullptr, shape.value_dim};
  page.rows_g = reinterpret_cast<float*>(slice + shape.decay_offset()) +
                head * kBlockTokens * shape.decay_width();
  return page;
}

CachedRows StateBefore(const LinearAttentionArgs& args, const SequenceSpan& span, int64_t head) {
  const int64_t chunk = span.start / kBlockTokens;
  if (chunk == 0) return {};
  const StatePage page = PageOf(args.shape, args.cache, span, chunk - 1, head);
  CHECK(page.state.rows != nullptr, "no state page before position {}", span.start);
  return page.state;
}

void ConvInputs(const ConvArgs& args, const SequenceSpan& span, int64_t i, int32_t count,
                const float** inputs) {
  const int32_t before = args.shape.conv_width - 1;
  for (int32_t j = 0; j < before + count; ++j) {
    inputs[j] = InputAt(args, span, span.start + i - before + j);
  }
}

void WriteConvWindows(const ConvArgs& args, const SequenceSpan& span) {
  const int64_t end = span.start + span.token_count;
  const int64_t boundary = end / kBlockTokens * kBlockTokens;
  const int64_t channels = args.shape.conv_channels(), rows = args.shape.window_rows();
  auto write = [&](int64_t chunk_end) {
    const int64_t chunk_begin = (chunk_end - 1) / kBlockTokens * kBlockTokens;
    for (int64_t p = std::max({int64_t{span.start}, chunk_begin, chunk_end - rows}); p < chunk_end;
         ++p) {
      float* row = WindowRow(args, span, p);
      CHECK(row != nullptr, "no state page for position {}", p);
      std::copy_n(args.x.row(span.token_begin + p - span.start), channels, row);
    }
  };
  write(end);
  if (boundary > span.start && boundary < end) write(boundary);
}

float LogDecay(const LinearAttentionRule& rule, float a, float a_log, float dt_bias) {
  const float x = a + dt_bias;
  if (rule.decay == DecayForm::kBounded) {
    return rule.lower_bound / (1.0f + std::exp(-std::exp(a_log) * x));
  }
  const float softplus = x > 20.0f ? x : std::log1p(std::exp(x));
  return -std::exp(a_log) * softplus;
}

void LogDecays(const LinearAttentionArgs& args, int64_t token, int64_t head, float* out) {
  const int64_t width = args.shape.decay_width();
  for (int64_t d = 0; d < width; ++d) {
    const int64_t at = head * width + d;
    out[d] = args.rule.decay == DecayForm::kConstant
                 ? args.constant[head]
                 : LogDecay(args.rule, args.a.row(token)[at], args.a_log[head], args.dt_bias[at]);
  }
}

float UpdateGate(float b) { return 1.0f / (1.0f + std::exp(-b)); }

float QueryScale(const LinearAttentionShape& shape) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.key_dim)));
}

}  // namespace braid::ops
