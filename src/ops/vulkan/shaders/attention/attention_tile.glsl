// The tile of a workgroup of attention.comp, and what its invocations take to shared memory.
const int LANES = 8 * WIDE, THREADS = 8 * LANES, TILE = 8 * ROWS;
const int KEYS = kBlockTokens / LANES;  // of an invocation
const int PAIRS = KEYS / 2;             // of keys, 32 apart
// Fours of channels in a slice of keys: more where a token's rows are few and all time is loads'.
#if defined(SPLIT) && ROWS < 4
const int FOURS = 16;
#else
const int FOURS = 8;
#endif
const int PITCH = FOURS + 1;            // fours from one row of shared memory to the next
const int VALUES = kBlockTokens * FOURS / LANES, PIECES = kBlockTokens / VALUES;
const int FETCHES = kBlockTokens * FOURS / THREADS, QUERIES = (TILE * FOURS + THREADS - 1) / THREADS;
layout(local_size_x = THREADS) in;
layout(constant_id = 2) const int CHUNKS = 1;  // of 4 LANES channels of a value

#if ROWS == 1
#define OfRows float
float WeightOf(float weights, int r) { return weights; }
void SetWeight(inout float weights, int r, float weight) { weights = weight; }
#else
#if ROWS == 2
#define OfRows vec2
#else
#define OfRows vec4
#endif
float WeightOf(OfRows weights, int r) { return weights[r]; }
void SetWeight(inout OfRows weights, int r, float weight) { weights[r] = weight; }
#endif

shared vec4 slots[kBlockTokens * PITCH];  // a slice of keys, or a piece of values
shared vec4 queries[TILE * PITCH];
shared OfRows weights[kBlockTokens * 9];  // rows y, y + 8, ... together
shared float lanes[TILE][33];             // maxima of lanes, then sums of pairs
shared float maxima[TILE], sums[TILE];

int me, x, y;  // rows y, y + 8, ...; keys x, x + LANES, ...
Span span;
int kv_head, group_heads, unit_token, first_row, rows;
uint64_t q_at[QUERIES];  // 0: no such row
uvec4 next[FETCHES];
vec4 next_q[QUERIES];
float dots[ROWS][KEYS];

int TokenOf(int row) { return unit_token + (first_row + row) / group_heads; }
int HeadOf(int row) { return kv_head * group_heads + (first_row + row) % group_heads; }
int KeysOf(int row) { return span.start + TokenOf(row) - span.token_begin + 1; }

// Spans begin at units of their own.
int PlaceOf(Span s, int index) {
  return (s.token_begin - a.first_token) / (a.unit & 0xffff) + index - a.first_span;
}

// False: there is nothing to do for this workgroup.
bool FindTile(Batch batch) {
  const int tiles = a.unit >> 16, unit_tokens = a.unit & 0xffff;
#ifdef SPLIT
  const int place = int(gl_WorkGroupID.y);
#else
  const int place = int(gl_NumWorkGroups.y - 1 - gl_WorkGroupID.y);  // the most keys first
#endif
  int low = a.first_span, high = low + a.spans - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (PlaceOf(Spans(batch.spans).at[middle], middle) <= place) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  span = Spans(batch.spans).at[low];
  unit_token = span.token_begin + (place - PlaceOf(span, low)) * unit_tokens;
  const int tokens = min(unit_tokens, span.token_begin + span.token_count - unit_token);
  kv_head = int(gl_WorkGroupID.z) / tiles;
  group_heads = Heads() / KvHeads();
  first_row = int(gl_WorkGroupID.z) % tiles * TILE;
  rows = min(TILE, tokens * group_heads - first_row);
  return rows > 0;
}

// A block's layout: ops/attention.h.
bool Latent() { return (a.flags_group & 4) != 0; }
uint64_t ValuesOffset() {
  return Latent() ? 0ul : uint64_t(kBlockTokens) * RowBytes(KeyDim());
}
uint64_t ScalesOffset() {
  return uint64_t(kBlockTokens) * (RowBytes(KeyDim()) + (Latent() ? 0ul : RowBytes(ValueDim())));
}
uint64_t ValueScalesOffset() {
  return ScalesOffset() + (Latent() ? 0ul : uint64_t(4 * kBlockTokens));
}
uint64_t HeadBytes() {
  return CACHE == kCacheI8 ? ValueScalesOffset() + uint64_t(4 * kBlockTokens) : ScalesOffset();
}

vec4 QueryAt(uint64_t row, int i) {
  if ((a.flags_group & 8) != 0) return uintBitsToFloat(Lines(row).at[i]);
  Floats q = Floats(row);
  return vec4(q.at[4 * i], q.at[4 * i + 1], q.at[4 * i + 2], q.at[4 * i + 3]);
}

// A slice of the channels of a block's keys and of the tile's queries, from memory. What lies in slots
// behind the newest key is fetched, too, and not looked at.
void FetchKeys(uint64_t page, int slice) {
  [[unroll]] for (int i = 0; i < FETCHES; ++i) {
    const int at = me + i * THREADS, four = slice * FOURS + at % FOURS;
    next[i] = 4 * four < KeyDim()
                  ? StoredAt(page + uint64_t(at / FOURS) * RowBytes(KeyDim()), four)
                  : uvec4(0);
  }
  [[unroll]] for (int i = 0; i < QUERIES; ++i) {
    const int four = slice * FOURS + (me + i * THREADS) % FOURS;
    next_q[i] = q_at[i] != 0ul && 4 * four < KeyDim() ? QueryAt(q_at[i], four) : vec4(0.0);
  }
}
void StoreKeys() {
  [[unroll]] for (int i = 0; i < FETCHES; ++i) {
    const int at = me + i * THREADS;
    slots[at / FOURS * PITCH + at % FOURS] = FourOf(next[i]);
  }
  [[unroll]] for (int i = 0; i < QUERIES; ++i) {
    const int at = me + i * THREADS;
    if (at < TILE * FOURS) queries[at / FOURS * PITCH + at % FOURS] = next_q[i];
  }
}

// A chunk of the channels of some of a block's values.
void FetchValues(uint64_t values, int chunk, int piece) {
  const uint64_t stride = RowBytes(Latent() ? KeyDim() : ValueDim());
  [[unroll]] for (int i = 0; i < FETCHES; ++i) {
    const int at = me + i * THREADS, four = chunk * LANES + at % LANES;
    next[i] = 4 * four < ValueDim()
                  ? StoredAt(values + uint64_t(piece * VALUES + at / LANES) * stride, four)
                  : uvec4(0);
  }
}
void StoreValues() {
  [[unroll]] for (int i = 0; i < FETCHES; ++i) slots[me + i * THREADS] = FourOf(next[i]);
}

void AddFour(int four) {
  vec4 k[KEYS];
  [[unroll]] for (int j = 0; j < KEYS; ++j) k[j] = slots[(x + LANES * j) * PITCH + four];
  [[unroll]] for (int r = 0; r < ROWS; ++r) {
    const vec4 q = queries[(y + 8 * r) * PITCH + four];
    [[unroll]] for (int j = 0; j < KEYS; ++j) {
      [[unroll]] for (int i = 0; i < 4; ++i) dots[r][j] = fma(q[i], k[j][i], dots[r][j]);
    }
  }
}
