// CPU candidates of the router's ops in ops/experts.h, and of ops/embed.h.
#pragma once

#include "ops/embed.h"
#include "ops/experts.h"

namespace braid::ops::cpu {

extern const Impl<RouteArgs> kRoute;
extern const Impl<ScalarGateArgs> kScalarGate;
extern const Impl<AddRowsArgs> kAddRows;
extern const Impl<EmbedArgs> kEmbed;

}  // namespace braid::ops::cpu
