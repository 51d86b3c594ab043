// The loaded weights of a model, in the order of its specs.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/spec.h"
#include "ops/packed.h"
#include "tensor/tensor.h"

namespace braid {

class Checkpoint;
struct StoredWeight;

// Exactly one of the two is set, by WeightSpec::use.
struct Weight {
  ops::PackedMatrix matrix;
  const float* vector = nullptr;
};

struct LayerWeights {
  Weight input_norm;
  std::vector<Weight> mixer;  // in the order of WeightsOf(mixer)
  Weight post_norm;
  std::vector<Weight> ffn;
};

// Move-only: owns the memory that the weights point into.
struct ModelWeights {
  Weight embedding;
  std::vector<LayerWeights> layers;
  Weight final_norm;
  Weight head;  // the embedding's matrix when tied
  std::vector<Buffer> memory;
  int64_t bytes = 0;
};

// The formats in which matrices are kept.
struct WeightChoice {
  std::optional<ops::WeightFormat> format;  // none: as the checkpoint stores them
  bool head = false;                        // a quantised format holds for embedding and head too
};
// Not of what decides (routers, gates), nor of rows longer than 65536: the longest sum of products
// of 8 bits that 32 bits hold.
bool MayQuantise(const WeightSpec& weight);
// `stored` is the format that keeps what the checkpoint stores (BoundWeight::stored_as).
ops::WeightFormat FormatOf(const WeightSpec& weight, ops::WeightFormat stored,
                           const WeightChoice& choice);

// How one weight is stored, and how it runs.
struct WeightStorage {
  std::string name;
  std::string stored_as;  // "fp8 in blocks"
  int64_t stored_bytes = 0;
  ops::WeightFormat runs_as = ops::WeightFormat::kBF16;  // vectors: fp32
  int64_t packed_bytes = 0;                              // in memory
};

// What loading did besides loading.
struct LoadReport {
  std::vector<WeightStorage> weights;  // in the order of the specs

  std::vector<std::string> skipped;  // "model.visual.…: 153 tensors, 1.2 GB (vision, not used)"
  std::vector<std::string> draft;    // "mtp.*: 19 tensors, 2.6 MB (draft head, not used yet)"
  std::vector<std::string> notes;    // anything else that a reader should know
  int64_t bytes_read = 0;
};

// The formats in which most of the layers' weights run, and the head.
struct RunningFormats {
  ops::WeightFormat layers = ops::WeightFormat::kBF16;
  ops::WeightFormat head = ops::WeightFormat::kBF16;
};
RunningFormats RunningFormatsOf(const LoadReport& report, bool tied_head);

// fraction in [0, 1]; called from one thread.
using LoadProgress = std::function<void(double fraction)>;

// The spec as this checkpoint fills it: the head is untied if lm_head.weight is there, and the
// draft head goes if no tensor of it is. LoadWeights does this itself.
ModelSpec FitToCheckpoint(ModelSpec spec, const Checkpoint& checkpoint);

// All of LoadWeights' checks without reading a weight; quantised ones may have their scales read.
Result<LoadReport> CheckWeights(const ModelSpec& spec, const Checkpoint& checkpoint,
                                const WeightChoice& choice = {});

// The tensors of the model as the checkpoint stores them, each once, after CheckWeights' checks.
// `fitted` (FitToCheckpoint) and the checkpoint must outlive them.
Result<std::deque<StoredWeight>> StoredWeightsOf(const ModelSpec& fitted,
                                                 const Checkpoint& checkpoint);

// Strict in both directions: a weight without exactly one complete source, a tensor that nothing
// claims, a wrong shape or type are errors, all of them listed together with the nearest known
// name.
struct LoadOptions {
  WeightChoice weights;
  LoadProgress progress;  // may be empty
};
Result<ModelWeights> LoadWeights(const ModelSpec& spec, const Checkpoint& checkpoint,
                                 ThreadPool& pool, const LoadOptions& options, LoadReport* report);

}  // namespace braid
