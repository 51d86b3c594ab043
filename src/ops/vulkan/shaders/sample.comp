// A token from a row of logits: the largest, or a draw (ops/sample.h); and what log-probabilities
// are made of. Sums are of integers, so no order of threads matters. A workgroup per row.
//
// Filters are a cut: the last token that is kept, in the order of logits, then of ids. It is found
// a digit at a time: a histogram of what the tokens that begin like the cut add, by the next digit.
// The draw finds its segment of the ids, its thread's part of that, and the token in it.
#version 460
#include "memory.glsl"
layout(constant_id = 0) const uint INVOCATIONS = 128;
layout(local_size_x_id = 0) in;
const int THREADS = int(INVOCATIONS), kThreadsMax = 512;
struct Draw {
  uint64_t seed;
  int position;
  float scale;  // 1 / temperature; 0: the largest logit
  int top_k;    // 0: all
  float top_p, min_p;
  int next;   // a token whose logit is wanted; -1: none
  int flags;  // best tokens wanted | kChoose | kDescribe
};
struct Best {
  int id;
  float logit;
};
const int kBestMax = 20, kBestMask = 0xff, kChoose = 0x100, kDescribe = 0x200;
struct Drawn {
  uint64_t sum;  // of exp(logit - most), in 2^-40
  int token, finite;
  float most, token_logit, next_logit;
  int best_count;
  Best best[kBestMax];
};
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Draws { Draw at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) writeonly buffer Results { Drawn at[]; };
layout(push_constant) uniform Arguments {
  uint64_t logits, draws, results, ids;
  int stride, vocabulary, sampled;
  int told;  // rows whose tokens, or `next` where none is chosen, go to `ids` too
} a;

const int kLoads = 8;  // of an invocation at once
const int kSegments = 128, kDigits = 256, kLimbs = 4, kLimbBits = 11;
const float kOne = 1099511627776.0;  // 2^40
const int kIdMax = 0xffffff;
shared uint all_most, pick_most, bad, best_count;
shared int pick_id, found;
shared uint histogram[kLimbs][kDigits];
shared uint segment_low[kSegments], segment_high[kSegments];
shared uint64_t parts[kThreadsMax];

Floats row;
Draw draw;
float pick;           // the largest logit that may be chosen
uint cut_key = 0;     // the cut's logit
int cut_id = kIdMax;  // and its id

// Integers in the order of floats.
uint KeyOf(float x) {
  const uint bits = x == 0.0 ? 0u : floatBitsToUint(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
float OfKey(uint key) {
  return uintBitsToFloat((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}
bool Before(uint key, int id, uint other_key, int other_id) {
  return key > other_key || (key == other_key && id < other_id);
}

uint64_t WeightOf(float x) {
  // exp(0) need not be 1.
  const float weight = x == pick ? 1.0 : exp((x - pick) * draw.scale);
  return weight >= draw.min_p ? uint64_t(weight * kOne) : 0ul;
}
uint64_t KeptWeight(float x, int id) {
  return Before(cut_key, cut_id, KeyOf(x), id) ? 0ul : WeightOf(x);
}

uint64_t SumOfParts(uint64_t own) {
  barrier();
  parts[gl_LocalInvocationID.x] = own;
  barrier();
  uint64_t sum = 0;
  for (int i = 0; i < THREADS; i += 8) {
    [[unroll]] for (int j = 0; j < 8; ++j) sum += parts[i + j];
  }
  return sum;
}

void Count(float x, int id, int digit, bool by_weight, uint key_prefix, int id_prefix) {
  const uint key = KeyOf(x);
  int at;
  if (digit < 4) {
    if (digit > 0 && key >> (32 - 8 * digit) != key_prefix >> (32 - 8 * digit)) return;
    at = int(key >> (24 - 8 * digit) & 255u);
  } else {
    const int turned = kIdMax - id, d = digit - 4;
    if (key != key_prefix || turned >> (24 - 8 * d) != id_prefix >> (24 - 8 * d)) return;
    at = turned >> (16 - 8 * d) & 255;
  }
  if (Before(cut_key, cut_id, key, id)) return;
  uint64_t amount = by_weight || draw.min_p > 0.0 ? WeightOf(x) : 1ul;
  if (!by_weight && amount != 0) amount = 1;
  for (int limb = 0; limb < kLimbs && amount != 0; ++limb, amount >>= kLimbBits) {
    atomicAdd(histogram[limb][at], uint(amount) & ((1u << kLimbBits) - 1u));
  }
}

uint64_t AmountAt(int digit_value) {
  uint64_t amount = 0;
  [[unroll]] for (int limb = 0; limb < kLimbs; ++limb) {
    amount += uint64_t(histogram[limb][digit_value]) << (kLimbBits * limb);
  }
  return amount;
}

// Moves the cut so far that what is kept just reaches `left` tokens, or weight. By number `min_p`
// drops what it drops.
void Cut(int vocabulary, bool by_weight, uint64_t left) {
  const int me = int(gl_LocalInvocationID.x);
  uint key_prefix = 0;
  int id_prefix = 0;
  bool ties = true;
  for (int digit = 0; digit < 7 && ties; ++digit) {
    barrier();
    for (int i = me; i < kLimbs * kDigits; i += THREADS) histogram[i / kDigits][i % kDigits] = 0;
    barrier();
    for (int id = me; id < vocabulary; id += 4 * THREADS) {
      [[unroll]] for (int j = 0; j < 4; ++j) {
        const int at = id + j * THREADS;
        if (at < vocabulary) {
          Count(row.at[at], at, digit, by_weight, key_prefix, id_prefix);
        }
      }
    }
    barrier();
    int value = kDigits - 1;
    for (; value > 0; --value) {
      const uint64_t amount = AmountAt(value);
      if (amount >= left) break;
      left -= amount;
    }
    if (digit < 4) {
      key_prefix |= uint(value) << (24 - 8 * digit);
    } else {
      id_prefix |= value << (16 - 8 * (digit - 4));
    }
    // Of equal logits all may be kept.
    if (digit == 3) ties = left < AmountAt(value);
  }
  barrier();
  cut_key = key_prefix;
  cut_id = ties ? kIdMax - id_prefix : kIdMax;
}

// share * sum, for shares from 0 to 1.
uint64_t ShareOf(float share, uint64_t sum) {
  const uint64_t parts24 = uint64_t(share * 16777216.0);
  return (sum >> 24) * parts24 + ((sum & 0xfffffful) * parts24 >> 24);
}

uint64_t MixBits(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ul;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebul;
  return z ^ (z >> 31);
}
// base/rng.h: the bits of a uniform number, times `sum`.
uint64_t UniformOf(uint64_t sum) {
  const uint64_t step = 0x9e3779b97f4a7c15ul;
  const uint64_t bits = MixBits(MixBits(draw.seed + step) + (uint64_t(draw.position) + 1ul) * step);
  const uint64_t x = bits >> 11 << 11, low = x & 0xfffffffful, high = x >> 32;
  const uint64_t sum_low = sum & 0xfffffffful, sum_high = sum >> 32;
  const uint64_t middle = high * sum_low + (low * sum_low >> 32);
  const uint64_t other = low * sum_high + (middle & 0xfffffffful);
  return high * sum_high + (middle >> 32) + (other >> 32);
}

int DrawToken() {
  const int me = int(gl_LocalInvocationID.x);
  if (draw.top_k > 0) Cut(a.sampled, false, uint64_t(draw.top_k));
  if (draw.top_p < 1.0) {
    uint64_t own = 0;
    for (int id = me; id < a.sampled; id += THREADS) own += KeptWeight(row.at[id], id);
    Cut(a.sampled, true, max(ShareOf(draw.top_p, SumOfParts(own)), 1ul));
  }
  const int least = (a.sampled + kSegments - 1) / kSegments;
  const int length = (least + THREADS - 1) / THREADS * THREADS;
  for (int s = me; s < kSegments; s += THREADS) segment_low[s] = segment_high[s] = 0;
  barrier();
  for (int s = 0; s * length < a.sampled; ++s) {
    uint64_t own = 0;
    for (int id = s * length + me; id < min(a.sampled, (s + 1) * length); id += THREADS) {
      own += KeptWeight(row.at[id], id);
    }
    if (own == 0) continue;
    atomicAdd(segment_low[s], uint(own & 0x3ffffful));
    atomicAdd(segment_high[s], uint(own >> 22));
  }
  barrier();
  uint64_t sum = 0;
  for (int s = 0; s < kSegments; ++s) {
    sum += uint64_t(segment_low[s]) + (uint64_t(segment_high[s]) << 22);
  }
  uint64_t left = UniformOf(sum);
  int segment = 0;
  for (; segment < kSegments - 1; ++segment) {
    const uint64_t amount =
        uint64_t(segment_low[segment]) + (uint64_t(segment_high[segment]) << 22);
    if (left < amount) break;
    left -= amount;
  }
  const int each = length / THREADS, begin = segment * length + me * each;
  const int end = min(begin + each, a.sampled);
  uint64_t own = 0;
  for (int id = begin; id < end; ++id) own += KeptWeight(row.at[id], id);
  if (me == 0) found = pick_id;  // until one finds more
  SumOfParts(own);
  uint64_t before = 0;
  for (int i = 0; i < me; ++i) before += parts[i];
  if (before <= left && left < before + own) {
    left -= before;
    for (int id = begin; id < end; ++id) {
      const uint64_t weight = KeptWeight(row.at[id], id);
      if (left < weight) {
        found = id;
        break;
      }
      left -= weight;
    }
  }
  barrier();
  return found;
}

// The largest logits, and whether all are finite or minus infinity.
void Look() {
  const int me = int(gl_LocalInvocationID.x);
  if (me == 0) {
    all_most = pick_most = bad = best_count = 0;
    pick_id = kIdMax;
  }
  barrier();
  uint own_all = 0, own_pick = 0;
  int own_id = kIdMax;
  bool own_bad = false;
  for (int id = me; id < a.vocabulary; id += kLoads * THREADS) {
    float loaded[kLoads];
    [[unroll]] for (int j = 0; j < kLoads; ++j) {
      loaded[j] = row.at[min(id + j * THREADS, a.vocabulary - 1)];
    }
    [[unroll]] for (int j = 0; j < kLoads; ++j) {
      const int at = id + j * THREADS;
      if (at >= a.vocabulary) continue;
      const float x = loaded[j];
      const uint bits = floatBitsToUint(x);
      own_bad = own_bad || ((bits & 0x7f800000u) == 0x7f800000u && bits != 0xff800000u);
      const uint key = KeyOf(x);
      own_all = max(own_all, key);
      if (at < a.sampled && key > own_pick) {
        own_pick = key;
        own_id = at;
      }
    }
  }
  atomicMax(all_most, own_all);
  atomicMax(pick_most, own_pick);
  if (own_bad) atomicOr(bad, 1u);
  barrier();
  if (own_pick == pick_most) atomicMin(pick_id, own_id);
  barrier();
  pick = OfKey(pick_most);
}

void main() {
  const int me = int(gl_LocalInvocationID.x), r = int(gl_WorkGroupID.x);
  draw = Draws(a.draws).at[r];
  const bool choose = (draw.flags & kChoose) != 0, describe = (draw.flags & kDescribe) != 0;
  const bool tell = me == 0 && r < a.told;
  if (tell && !choose) Ints(a.ids).at[r] = max(draw.next, 0);
  if (!choose && !describe) return;
  row = RowOf(a.logits, r, a.stride);
  Look();
  const float most = OfKey(all_most);
  const bool finite = bad == 0 && most > uintBitsToFloat(0xff800000u);
  Results results = Results(a.results);
  int token = -1;
  if (finite && choose) token = draw.scale == 0.0 ? pick_id : DrawToken();
  if (finite && describe) {
    uint64_t own = 0;
    for (int id = me; id < a.vocabulary; id += kLoads * THREADS) {
      [[unroll]] for (int j = 0; j < kLoads; ++j) {
        const int at = id + j * THREADS;
        const float x = row.at[min(at, a.vocabulary - 1)];
        const uint64_t weight = x == most ? uint64_t(kOne) : uint64_t(exp(x - most) * kOne);
        own += at < a.vocabulary ? weight : 0ul;
      }
    }
    const uint64_t sum = SumOfParts(own);
    const int best = draw.flags & kBestMask;
    if (best > 0) {
      cut_key = 0;
      cut_id = kIdMax;
      draw.min_p = 0.0;
      Cut(a.vocabulary, false, uint64_t(best));
      for (int id = me; id < a.vocabulary; id += THREADS) {
        const float x = row.at[id];
        if (Before(cut_key, cut_id, KeyOf(x), id)) continue;
        const uint at = atomicAdd(best_count, 1u);
        if (at >= kBestMax) continue;
        results.at[r].best[at].id = id;
        results.at[r].best[at].logit = x;
      }
    }
    if (me == 0) results.at[r].sum = sum;
  }
  barrier();
  if (me != 0) return;
  if (tell && choose) Ints(a.ids).at[r] = max(token, 0);
  results.at[r].token = token;
  results.at[r].finite = finite ? 1 : 0;
  results.at[r].most = most;
  results.at[r].token_logit = token >= 0 ? row.at[token] : 0.0;
  results.at[r].next_logit = draw.next >= 0 ? row.at[draw.next] : 0.0;
  results.at[r].best_count = int(min(best_count, uint(kBestMax)));
}
