// Cuts each expert's rows into tiles of at most `height`: how many tiles there are, then expert,
// begin and end of each (product.glsl). One workgroup of 256.
#version 460
#include "../memory.glsl"
const int MEMBERS = 256;
layout(local_size_x = MEMBERS) in;
layout(push_constant) uniform Arguments {
  uint64_t begins, tiles;
  int experts, count, height;
} a;
shared int tiles_of[MEMBERS];

int EndOf(int expert) { return expert + 1 < a.experts ? Ints(a.begins).at[expert + 1] : a.count; }

void main() {
  const int me = int(gl_LocalInvocationID.x);
  const int each = (a.experts + MEMBERS - 1) / MEMBERS;
  const int first = min(me * each, a.experts), last = min(first + each, a.experts);
  int own = 0;
  for (int e = first; e < last; ++e) {
    own += (EndOf(e) - Ints(a.begins).at[e] + a.height - 1) / a.height;
  }
  tiles_of[me] = own;
  barrier();
  int place = 0;
  for (int i = 0; i < MEMBERS; i += 8) {
    [[unroll]] for (int j = 0; j < 8; ++j) place += i + j < me ? tiles_of[i + j] : 0;
  }
  Ints tiles = Ints(a.tiles);
  if (me == MEMBERS - 1) tiles.at[0] = place + own;
  for (int e = first; e < last; ++e) {
    const int end = EndOf(e);
    for (int begin = Ints(a.begins).at[e]; begin < end; begin += a.height) {
      tiles.at[3 * place + 1] = e;
      tiles.at[3 * place + 2] = begin;
      tiles.at[3 * place + 3] = min(begin + a.height, end);
      ++place;
    }
  }
}
