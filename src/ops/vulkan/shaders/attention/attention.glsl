// What the kernels of attention share: arguments, and how a block's sums are merged into those of
// the blocks before it. attention.comp has the order of all sums.
struct Arguments {
  uint64_t batch, q, gate, out_;
  uint64_t running;  // [token][head][chunk] maximum and sum between two dispatches
  uint64_t parts;    // [token][head][blocks] maximum, sum, two unused, values: of single blocks
  uint64_t slice;
  int first_span, spans, first_token;  // of this dispatch; running counts tokens from first_of_all
  int first_of_all;
  int heads;        // kv heads << 16
  int dims;         // channels of a key, those of a value << 16
  int q_stride, gate_stride, gate_head, out_stride;
  int flags_group;  // gate per head | skip first << 1 | latent << 2 | rows of q on lines << 3 | group << 4
  int first_block, blocks;
  int unit;         // tokens of a unit, tiles of its rows << 16
  float scale;
};
layout(push_constant) uniform Pushed { Arguments a; };

const int kChunksMax = 9;  // of 64 channels of a value

int Heads() { return a.heads & 0xffff; }
int KvHeads() { return a.heads >> 16; }
int KeyDim() { return a.dims & 0xffff; }
int ValueDim() { return a.dims >> 16; }

Floats RunningAt(int token, int head, int chunk) {
  const int at = ((token - a.first_of_all) * Heads() + head) * kChunksMax + chunk;
  return Floats(a.running + 8ul * uint64_t(at));
}
// Of block a.first_block + i.
uint64_t PartAt(int token, int head, int i) {
  const int at = ((token - a.first_token) * Heads() + head) * a.blocks + i;
  return a.parts + 4ul * uint64_t(at) * uint64_t(ValueDim() + 4);
}
int BlocksOf(int keys) { return (keys + kBlockTokens - 1) / kBlockTokens; }

// The shares of the blocks before and of one block, whose maximum is `block_most`, in their sum.
float KeepOf(float most, float new_most) { return most == kNever ? 0.0 : exp(most - new_most); }
float AddOf(float block_most, float new_most) { return exp(block_most - new_most); }
float Merged(float before, float keep, float part, float add) {
  precise const float added = part * add;
  return fma(before, keep, added);
}

// The output, when all blocks are merged.
void Finish(int token, int head, int c, float value, float sum) {
  value = value / sum;
  if (a.gate != 0) {
    const int at = head * a.gate_head + ((a.flags_group & 1) != 0 ? 0 : c);
    value *= Sigmoid(RowOf(a.gate, token, a.gate_stride).at[at]);
  }
  RowOf(a.out_, token, a.out_stride).at[head * ValueDim() + c] = value;
}
