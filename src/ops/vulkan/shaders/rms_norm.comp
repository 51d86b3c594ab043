// x += delta; out = x / rms(x) * (offset + weight). A workgroup per row. Each invocation sums the
// squares of its columns in order; 32 invocations then add each 32nd of these sums, in order; the
// last 32 are added by fours. The device and the width alone say how many invocations there are.
#version 460
#include "memory.glsl"
layout(constant_id = 0) const uint INVOCATIONS = 64;
layout(local_size_x_id = 0) in;
layout(push_constant) uniform Arguments {
  uint64_t x, delta, weight, out_;
  int cols, x_stride, delta_stride, out_stride;
  float offset, eps;
} a;

const int THREADS = int(INVOCATIONS), kThreadsMax = 512, kSums = 32;
const int kHeld = 4;  // columns of an invocation that are loaded at once, and read once
shared float parts_[kThreadsMax], sums_[kSums];

float SumOfSquares(float squares, int me) {
  parts_[me] = squares;
  barrier();
  for (int n = me; n < kSums; n += THREADS) {
    float sum = 0.0;
    for (int i = n; i < THREADS; i += kSums) sum += parts_[i];
    sums_[n] = sum;
  }
  barrier();
  vec4 sums = vec4(0.0);
  [[unroll]] for (int i = 0; i < kSums; i += 4) {
    sums += vec4(sums_[i], sums_[i + 1], sums_[i + 2], sums_[i + 3]);
  }
  return (sums.x + sums.y) + (sums.z + sums.w);
}

void main() {
  const int row = int(gl_WorkGroupID.x), me = int(gl_LocalInvocationID.x);
  Floats x = RowOf(a.x, row, a.x_stride);
  Floats delta = RowOf(a.delta, row, a.delta_stride);
  Floats weight = Floats(a.weight), result = RowOf(a.out_, row, a.out_stride);
  float held[kHeld], gains[kHeld];
  [[unroll]] for (int i = 0; i < kHeld; ++i) {
    const int c = min(me + i * THREADS, a.cols - 1);
    held[i] = x.at[c];
    gains[i] = a.out_ != 0 ? weight.at[c] : 0.0;
  }
  if (a.delta != 0) {
    [[unroll]] for (int i = 0; i < kHeld; ++i) {
      held[i] += delta.at[min(me + i * THREADS, a.cols - 1)];
    }
  }
  barrier();  // the last column is read by several
  float squares = 0.0;
  [[unroll]] for (int i = 0; i < kHeld; ++i) {
    const int c = me + i * THREADS;
    if (c >= a.cols) continue;
    if (a.delta != 0) x.at[c] = held[i];
    squares = fma(held[i], held[i], squares);
  }
  for (int c = me + kHeld * THREADS; c < a.cols; c += THREADS) {
    float value = x.at[c];
    if (a.delta != 0) {
      value += delta.at[c];
      x.at[c] = value;
    }
    squares = fma(value, value, squares);
  }
  if (a.out_ == 0) return;
  const float scale = 1.0 / sqrt(SumOfSquares(squares, me) / float(a.cols) + a.eps);
  [[unroll]] for (int i = 0; i < kHeld; ++i) {
    const int c = me + i * THREADS;
    if (c < a.cols) result.at[c] = held[i] * scale * (a.offset + gains[i]);
  }
  for (int c = me + kHeld * THREADS; c < a.cols; c += THREADS) {
    result.at[c] = x.at[c] * scale * (a.offset + weight.at[c]);
  }
}
