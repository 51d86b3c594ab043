// What the loader found in a checkpoint, for people: how each weight is stored and runs, and which
// tensors are not used.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ops/packed.h"

namespace braid {

// How one weight is stored, and how it runs.
struct WeightStorage {
  std::string name;
  std::string_view part;  // of the model (WeightSpec::part)
  std::string stored_as;  // "fp8 in blocks"
  int64_t stored_bytes = 0;
  ops::WeightFormat runs_as = ops::WeightFormat::kBF16;  // vectors: fp32
  int64_t packed_bytes = 0;                              // in memory
};

struct LoadReport {
  std::vector<WeightStorage> weights;  // in the order of WeightsOf(ModelSpec)
  std::vector<std::string> skipped;    // "model.visual.…: 153 tensors, 1.2 GB (vision, not used)"
  std::vector<std::string> draft;      // "mtp.*: 19 tensors, 2.6 MB (draft head, …)"
  std::vector<std::string> notes;      // anything else that a reader should know
};

// The formats in which most of the layers' weights run, and the head.
struct RunningFormats {
  ops::WeightFormat layers = ops::WeightFormat::kBF16;
  ops::WeightFormat head = ops::WeightFormat::kBF16;
};
RunningFormats RunningFormatsOf(const LoadReport& report);

// Bytes of all weights by the name of the format in which they run ("bf16", "int8").
std::map<std::string_view, int64_t> WeightBytesOf(const LoadReport& report);
// "int8 1.9 GB, bf16 0.2 GB": most bytes first.
std::string FormatsText(const std::map<std::string_view, int64_t>& bytes);

}  // namespace braid
