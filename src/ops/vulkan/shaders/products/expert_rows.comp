// The rows of each expert, in their order: a workgroup of 256 finds those of one expert among all
// tokens' choices. `begins` has where each expert's begin in `order`.
#version 460
#include "../memory.glsl"
const int MEMBERS = 256;
layout(local_size_x = MEMBERS) in;
layout(push_constant) uniform Arguments {
  uint64_t ids, order, begins;
  int count;
} a;
shared int lower[MEMBERS], own[MEMBERS];

void main() {
  const int me = int(gl_LocalInvocationID.x), expert = int(gl_WorkGroupID.x);
  const int each = (a.count + MEMBERS - 1) / MEMBERS;
  const int begin = min(me * each, a.count), end = min(begin + each, a.count);
  Ints ids = Ints(a.ids);
  int below = 0, here = 0;
  for (int i = begin; i < end; ++i) {
    below += ids.at[i] < expert ? 1 : 0;
    here += ids.at[i] == expert ? 1 : 0;
  }
  lower[me] = below;
  own[me] = here;
  barrier();
  int first = 0, place = 0;
  for (int i = 0; i < MEMBERS; i += 8) {
    [[unroll]] for (int j = 0; j < 8; ++j) {
      first += lower[i + j];
      place += i + j < me ? own[i + j] : 0;
    }
  }
  if (me == 0) Ints(a.begins).at[expert] = first;
  place += first;
  for (int i = begin; i < end; ++i) {
    if (ids.at[i] == expert) Ints(a.order).at[place++] = i;
  }
}
