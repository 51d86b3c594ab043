// What the kernels of the recurrence share (ops/linear_attention.h): where its rows lie, and the
// order of sums, which is one for all of them. Of row i of a chunk:
//   the squares of k and q: 32 sums, of every 32nd channel each, then SumOf32;
//   its weights for an earlier row j: sums of 32 channels each, in order;
//   what it reads: sums of 32 channels of the state each, in order; then sums of 8 earlier rows
//   each, in order, the last of which are those of its own eight.
// A row of few (IsStep) is done by delta_step.comp alone; all others by delta_rows.comp, which needs
// no state, and then by delta.comp.
#include "state.glsl"
layout(push_constant) uniform Arguments {
  uint64_t batch, qkv, decay, update;
  uint64_t rates, bias;  // a_log, or constant decays; dt_bias
  uint64_t out_, scratch, carry, slice;
  int first_span, first_chunk, chunks;  // of each span, that are done at once
  int heads;                            // key heads | value heads << 16
  int dims;                             // key_dim | value_dim << 16
  int qkv_stride, decay_stride, update_stride, out_stride;
  int group_rule;  // decay form | add << 2 | cache group << 3
  float lower_bound;
} a;
// What an invocation leaves in memory for others of its workgroup: barriers order these only.
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer SharedFloats {
  float at[];
};
// lavapipe runs what an `if` hides from all its invocations, but leaves their loops.
#define ONLY_IF(condition) for (bool once = (condition); once; once = false)

const int kThreads = 256, kColumns = 32, kKeysMax = 256;
const int kStepRows = 4;          // linear_attention.cc
const int kSquareSums = 32, kWeightSum = 32, kStateSum = 32, kRowSum = 8;
const int kStaged = 16;  // channels in shared memory at a time

int dk, dv, width, key_heads, value_heads;
bool add;
void ReadShape() {
  dk = a.dims & 0xffff;
  dv = a.dims >> 16;
  width = CHANNEL_DECAY != 0 ? dk : 1;
  key_heads = a.heads & 0xffff;
  value_heads = a.heads >> 16;
  add = (a.group_rule & 4) != 0;
}

// Of a chunk: rows [first, end) are those of this step; row r is token `token` + r.
struct Rows {
  int chunk, first, end, token;
};
Rows RowsOfChunk(Span span, int chunk) {
  const int begin = chunk * kBlockTokens;
  return Rows(chunk, max(span.start - begin, 0),
              min(span.start + span.token_count - begin, kBlockTokens),
              span.token_begin - span.start + begin);
}

// Few rows of a chunk that goes on after them.
bool IsStep(Span span) {
  return span.token_count <= kStepRows && span.start % kBlockTokens + span.token_count < kBlockTokens;
}

// In the slice of a page: the head's state, or its rows of k and, behind them, u; its decays.
uint64_t HeadBytes() { return uint64_t(4 * max(dk * dv, kBlockTokens * (dk + dv))); }
uint64_t DecayAt(int head) {
  return HeadBytes() * uint64_t(value_heads) + uint64_t(4 * kBlockTokens * width) * uint64_t(head);
}
uint64_t PageOf(Batch batch, Span span, int chunk) {
  return SliceOf(batch, span, a.group_rule >> 3, a.slice, chunk);
}
// Without pages a chunk lies whole inside its span, which carries its state to the next.
uint64_t Carried(int span, int head) {
  return a.carry + uint64_t(4 * dk * dv) * uint64_t(span * value_heads + head);
}
// At the start of a chunk; 0: there is none.
uint64_t StateBefore(Batch batch, Span span, int number, int chunk, int head) {
  if (chunk == 0) return 0ul;
  const uint64_t page = PageOf(batch, span, chunk - 1);
  return page == 0 ? Carried(number, head) : page + HeadBytes() * uint64_t(head);
}

// The scratch of a chunk of a head: k of all rows; q of this step's rows and u of those before
// them; decays; weights for k and for q of all earlier rows, and for q of itself.
struct Places {
  uint64_t k, q, g, k_weights, q_weights;
};
int QueryWidth() { return max(dk, dv); }
Places PlacesOf(int item) {
  const int row_floats = dk + QueryWidth() + width + 2 * kBlockTokens;
  // Decays come last, for their rows may be no multiple of four floats wide.
  const uint64_t row = uint64_t(4 * kBlockTokens);
  Places p;
  p.k = a.scratch + row * uint64_t((row_floats + 3) / 4 * 4) * uint64_t(item);
  p.k_weights = p.k + row * uint64_t(dk);
  p.q_weights = p.k_weights + row * uint64_t(kBlockTokens);
  p.q = p.q_weights + row * uint64_t(kBlockTokens);
  p.g = p.q + row * uint64_t(QueryWidth());
  return p;
}

float LogDecay(int token, int head, int d) {
  const int form = a.group_rule & 3;
  if (form == 2) return Floats(a.rates).at[head];
  precise float x = RowOf(a.decay, token, a.decay_stride).at[head * width + d] +
                    Floats(a.bias).at[head * width + d];
  precise float rate = exp(Floats(a.rates).at[head]);
  precise float steep = -rate * x;
  if (form == 1) {
    precise float bounded = a.lower_bound / (1.0 + exp(steep));
    return bounded;
  }
  precise float softplus = x > 20.0 ? x : x < -15.0 ? exp(x) : log(1.0 + exp(x));
  precise float g = -rate * softplus;
  return g;
}
float Update(int token, int head) {
  return add ? 1.0 : Sigmoid(RowOf(a.update, token, a.update_stride).at[head]);
}

// One of the sums of squares of `dk` numbers at `row`.
float SquareSum(Floats row, int first, int lane) {
  float sum = 0.0;
  for (int d = lane; d < dk; d += kSquareSums) sum = fma(row.at[first + d], row.at[first + d], sum);
  return sum;
}
shared float squares_[2 * kThreads];
float SumOf32(int first) {
  vec4 sums = vec4(0.0);
  [[unroll]] for (int i = 0; i < kSquareSums; i += 4) {
    sums += vec4(squares_[first + i], squares_[first + i + 1], squares_[first + i + 2],
                 squares_[first + i + 3]);
  }
  return (sums.x + sums.y) + (sums.z + sums.w);
}
// `precise` here and below: a quotient with a root has several forms to choose from.
float KeyScale(float squares) {
  precise float root = sqrt(squares + 1e-6);
  precise float scale = 1.0 / root;
  return add ? 1.0 : scale;
}
float QueryScale(float squares) {
  precise float all = 1.0 / sqrt(float(dk));
  precise float root = sqrt(squares + 1e-6);
  precise float scale = all / root;
  return add ? all : scale;
}
float ValueAt(int token, int head, int c) {
  return RowOf(a.qkv, token, a.qkv_stride).at[2 * key_heads * dk + head * dv + c];
}
int KeyAt(int head) { return (key_heads + head / (value_heads / key_heads)) * dk; }
int QueryAt(int head) { return head / (value_heads / key_heads) * dk; }
