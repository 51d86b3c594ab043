// What the loader found in a checkpoint, for people: how each weight is stored and runs, and which
// tensors are not used.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
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
// How much more the weights take in memory than in the files, and which stored formats make it so.
struct Expansion {
  int64_t stored = 0, packed = 0;    // bytes of all weights
  std::vector<std::string> formats;  // "Q4_K from 6 MiB to 32 MiB in fp32"

  double times() const { return static_cast<double>(packed) / static_cast<double>(stored); }
  // Whether that much is loaded only where --expand asks for it: more than 1.5 times the files, and
  // more than 64 MiB.
  bool must_be_asked_for() const { return 2 * packed > 3 * stored && packed > int64_t{64} << 20; }
};
Expansion ExpansionOf(const LoadReport& report);
// An error for such a model, which says why and what to do instead. `name` is the model's.
Status CheckExpansion(const LoadReport& report, std::string_view name);

// "int8 1.9 GB, bf16 0.2 GB": most bytes first.
std::string FormatsText(const std::map<std::string_view, int64_t>& bytes);

}  // namespace braid
