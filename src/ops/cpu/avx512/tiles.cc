// Attention and the recurrence with their products on VDPBF16PS.
#include "ops/cpu/kernels/attend_tiles.h"
#include "ops/cpu/kernels/delta_tiles.h"
#include "ops/cpu/kernels/tiles_dot.h"

namespace braid::cpu {

const TileKernels& DotTileKernels() {
  static constexpr TileKernels kKernels = {
      .pack_queries = TiledAttend<DotTiles>::PackQueries,
      .attend = TiledAttend<DotTiles>::Run,
      .delta = TiledDelta<DotTiles>::Run,
  };
  return kKernels;
}

}  // namespace braid::cpu
