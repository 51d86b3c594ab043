// Scores of experts and the best of them (ops/experts.h). An expert is chosen when fewer than top_k
// are better, so no order of threads matters. A workgroup per token.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
layout(push_constant) uniform Arguments {
  uint64_t logits, bias, ids, weights;
  int experts, top_k, stride, groups, groups_kept, sigmoid, renormalise;
  float scale;
} a;

const int kExpertsMax = 1024, kTopMax = 64;
shared float logit[kExpertsMax], choice[kExpertsMax];
shared float group_sum[kExpertsMax];
shared int chosen[kExpertsMax];
shared float score[kTopMax];
shared int picked[kTopMax];

const int kAtOnce = 8;  // experts that a loop compares; those behind the last are never chosen

bool Better(float x, int i, float y, int j) { return x > y || (x == y && i < j); }

void main() {
  const int me = int(gl_LocalInvocationID.x), token = int(gl_WorkGroupID.x);
  Floats from = RowOf(a.logits, token, a.stride);
  float most = kNever;
  for (int e = me; e < a.experts; e += THREADS) {
    logit[e] = from.at[e];
    most = max(most, logit[e]);
    choice[e] = logit[e];
    if (a.sigmoid != 0) choice[e] = Sigmoid(logit[e]) + (a.bias != 0 ? Floats(a.bias).at[e] : 0.0);
  }
  const int padded = (a.experts + kAtOnce - 1) / kAtOnce * kAtOnce;
  for (int e = a.experts + me; e < padded; e += THREADS) {
    choice[e] = kNever;
    chosen[e] = 0;
  }
  most = MaxOfAll(most);
  if (a.groups > 1) {
    const int size = a.experts / a.groups;
    for (int g = me; g < a.groups; g += THREADS) {
      float best = kNever, second = kNever;
      for (int e = g * size; e < (g + 1) * size; ++e) {
        if (choice[e] > best) {
          second = best;
          best = choice[e];
        } else {
          second = max(second, choice[e]);
        }
      }
      group_sum[g] = best + second;
    }
    barrier();
    for (int e = me; e < a.experts; e += THREADS) {
      const int own = e / size;
      int better = 0;
      for (int g = 0; g < a.groups; ++g) {
        if (Better(group_sum[g], g, group_sum[own], own)) ++better;
      }
      if (better >= a.groups_kept) choice[e] = kNever;
    }
    barrier();
  }
  for (int e = me; e < a.experts; e += THREADS) {
    int better = 0;
    for (int f8 = 0; f8 < padded; f8 += kAtOnce) {
      [[unroll]] for (int f = f8; f < f8 + kAtOnce; ++f) {
        if (Better(choice[f], f, choice[e], e)) ++better;
      }
    }
    chosen[e] = better < a.top_k ? 1 : 0;
  }
  for (int j = me; j < a.top_k; j += THREADS) picked[j] = j;  // where numbers are not finite
  float all = 0.0;
  for (int e = me; e < a.experts; e += THREADS) all += exp(logit[e] - most);
  all = SumOfAll(all);
  for (int e = me; e < a.experts; e += THREADS) {
    if (chosen[e] == 0) continue;
    int at = 0;
    for (int f8 = 0; f8 < e; f8 += kAtOnce) {
      [[unroll]] for (int f = f8; f < f8 + kAtOnce; ++f) at += f < e ? chosen[f] : 0;
    }
    if (at < a.top_k) picked[at] = e;
  }
  barrier();
  for (int j = me; j < a.top_k; j += THREADS) {
    const float x = logit[picked[j]];
    score[j] = a.sigmoid != 0 ? Sigmoid(x) : exp(x - most);
  }
  barrier();
  float sum = a.sigmoid != 0 ? 1e-20 : 0.0;
  if (a.renormalise != 0) {
    for (int j = 0; j < a.top_k; ++j) sum += score[j];
  } else {
    sum = a.sigmoid != 0 ? 1.0 : all;
  }
  for (int j = me; j < a.top_k; j += THREADS) {
    Ints(a.ids).at[token * a.top_k + j] = picked[j];
    Floats(a.weights).at[token * a.top_k + j] = score[j] / sum * a.scale;
  }
}
