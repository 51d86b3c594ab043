// Sampling on a device: what the host wants of each row of logits, and what it gets back. The
// choice is ops/sample.h's, by the same key; its sums are of integers here, so a device's tokens
// depend on nothing but the logits.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ops/op.h"

namespace braid::ops::gpu {

inline constexpr int32_t kBestMax = 20;                   // of the most probable tokens
inline constexpr int64_t kSampledMax = int64_t{1} << 20;  // of a vocabulary

// In device memory; sample.comp mirrors both.
struct DeviceDraw {
  static constexpr int32_t kChoose = 0x100, kDescribe = 0x200;
  uint64_t seed = 0;
  int32_t position = 0;
  float scale = 0.0f;  // 1 / temperature; 0: the largest logit
  int32_t top_k = 0;   // 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;
  int32_t next = -1;  // a token whose logit is wanted; -1: none
  // kChoose: a token is wanted; kDescribe: what log-probabilities are made of, and so many of the
  // largest logits; neither: nothing is.
  int32_t flags = 0;
  int32_t unused = 0;
};
struct DeviceDrawn {
  uint64_t sum = 0;  // of exp(logit - most), in 2^-40
  int32_t token = -1;
  int32_t finite = 0;
  float most = 0.0f;  // of the logits
  float token_logit = 0.0f, next_logit = 0.0f;
  int32_t best_count = 0;
  struct Best {
    int32_t id;
    float logit;
  } best[kBestMax] = {};  // in any order
};

// Of each row of logits; tokens at and past `sampled` are never chosen. The tokens of the first
// `told` rows also go to `ids`, where a pass may read them: those that are chosen, or `next`.
// Pointers are into device memory.
struct SampleRowsArgs {
  Matrix logits;
  int64_t sampled = 0;
  const DeviceDraw* draws = nullptr;
  DeviceDrawn* drawn = nullptr;
  TokenId* ids = nullptr;
  int64_t told = 0;
  int32_t invocations =
      0;  // of a workgroup, 128, 256 or 512, which changes no result; 0: the device's
};
void RunSample(const OpContext& context, const SampleRowsArgs& args);

}  // namespace braid::ops::gpu
