// Attention and the recurrence with their products on VDPBF16PS.
#include "ops/cpu/kernels/attend_tiles.h"
#include "ops/cpu/kernels/delta_row.h"
#include "ops/cpu/kernels/delta_tiles.h"
#include "ops/cpu/kernels/tiles_dot.h"

namespace braid::ops::cpu {
namespace {

void RunDelta(const DeltaTask& t) {
  if (t.row_end - t.row_begin > 1) return TiledDelta<DotTiles>::Run(t);
  DeltaRow::Run(t);
  if (t.s1 && t.row_end == 64) TiledDelta<DotTiles>::FinishChunk(t);
}

}  // namespace

const TileKernels& DotTileKernels() {
  static constexpr TileKernels kKernels = {
      .pack_queries = TiledAttend<DotTiles>::PackQueries,
      .attend = TiledAttend<DotTiles>::Run,
      .delta = RunDelta,
  };
  return kKernels;
}

}  // namespace braid::ops::cpu
