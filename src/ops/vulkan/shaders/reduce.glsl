// Sums and maxima over a workgroup of THREADS, in one order of its threads. Loops here and
// in other kernels are unrolled in part, with constant bounds: lavapipe (22.3) ends an invocation after
// 65535 rounds of all its loops together, without a word. A kernel must stay well below that.
const int THREADS = 64;
layout(local_size_x = THREADS) in;
shared float reduced[THREADS];

float SumOfAll(float x) {
  const uint me = gl_LocalInvocationID.x;
  barrier();
  reduced[me] = x;
  barrier();
  vec4 sums = vec4(0.0);  // of every fourth thread
  for (int i = 0; i < THREADS; i += 16) {
    [[unroll]] for (int j = i; j < i + 16; j += 4) {
      sums += vec4(reduced[j], reduced[j + 1], reduced[j + 2], reduced[j + 3]);
    }
  }
  return (sums.x + sums.y) + (sums.z + sums.w);
}

float MaxOfAll(float x) {
  const uint me = gl_LocalInvocationID.x;
  barrier();
  reduced[me] = x;
  barrier();
  float most = reduced[0];
  for (int i = 0; i < THREADS; i += 8) {
    [[unroll]] for (int j = 0; j < 8; ++j) most = max(most, reduced[i + j]);
  }
  return most;
}
