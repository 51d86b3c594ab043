// All meshes of a search.
#pragma once

#include "parallel/mesh.h"

namespace braid {

// Calls f(mesh) for every mesh of at most `devices_max` devices.
template <class F>
void ForEachMesh(int32_t devices_max, F f) {
  for (int32_t tp = 1; tp <= devices_max; ++tp) {
    for (int32_t dp = 1; dp * tp <= devices_max; ++dp) {
      for (int32_t ep = 1; ep <= dp * tp; ++ep) {
        if (dp * tp % ep == 0) f(Mesh{.dp = dp, .tp = tp, .ep = ep});
      }
    }
  }
}

}  // namespace braid
