// What two engines must have in common so that one can go on with pages of the other.
#pragma once

#include <string>

#include "cache/geometry.h"
#include "engine/engine_options.h"
#include "model/checkpoint/checkpoint.h"
#include "model/spec.h"

namespace braid {

struct FingerprintParts {
  const ModelSpec& spec;
  const Checkpoint& checkpoint;
  const Machine& machine;
  const CacheGeometry& cache;
  std::string weights;  // in memory, in words
  std::string mla;
};

// Lines of "name: value". Weights are told apart by names, shapes and samples of every tensor.
std::string FingerprintOf(const FingerprintParts& parts);

// What options do not go together with partners.
Status CheckPartners(const EngineOptions& options, const ModelSpec& spec);

}  // namespace braid
