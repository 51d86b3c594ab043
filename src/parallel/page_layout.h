// Where the blocks of each rank of a group lie in the blocks of one rank alone: what an engine that
// divides the heads among ranks needs to exchange pages with one that divides them otherwise. Pure.
#pragma once

#include "cache/page_runs.h"
#include "model/spec.h"
#include "parallel/mesh.h"
#include "tensor/dtype.h"

namespace braid {

// Of the ranks of one group (mesh.tp of them). The mesh divides the model (CheckMesh); the cache is
// that of CachePlanOf, for the model and for each rank's view of it.
PageLayout PageLayoutOf(const ModelSpec& spec, const Mesh& mesh, DType kv_dtype);

}  // namespace braid
