// Attention and the recurrence with their products on tile registers.
#include "ops/cpu/kernels/attend_tiles.h"
#include "ops/cpu/kernels/delta_tiles.h"
#include "ops/cpu/kernels/tiles_amx.h"

namespace braid::ops::cpu {

const TileKernels& AmxTileKernels() {
  static constexpr TileKernels kKernels = {
      .pack_queries = TiledAttend<AmxTiles>::PackQueries,
      .attend = TiledAttend<AmxTiles>::Run,
      .delta = TiledDelta<AmxTiles>::Run,
  };
  return kKernels;
}

}  // namespace braid::ops::cpu
