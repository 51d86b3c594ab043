// Which bytes of a checkpoint are which weight. Binding is strict in both directions: every weight
// has exactly one complete source, every tensor is claimed; whatever is wrong is reported in one
// message.
#pragma once

#include <deque>
#include <vector>

#include "base/result.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/formats/storage_format.h"
#include "model/loading/weights.h"
#include "model/spec.h"

namespace braid {

// Elements of a stored weight that lie one after the other, and which of the weight they are.
struct SourceRun {
  const StoredWeight* stored = nullptr;
  int64_t first = 0;  // of the stored weight
  int64_t at = 0;     // of the weight
  int64_t count = 0;
};

// The weight's count * n * k elements, row-major, in runs of ascending `at`.
struct BoundWeight {
  const WeightSpec* spec = nullptr;
  DType dtype = DType::kBF16;  // what Read delivers; holds every stored value exactly
  // The format that keeps what is stored: its codes as they are, or every bit of `dtype`.
  ops::WeightFormat stored_as = ops::WeightFormat::kBF16;
  std::vector<SourceRun> runs;
  std::vector<int64_t> pieces;  // where each piece of the source begins, in elements

  int64_t elements() const { return spec->count * spec->n * spec->k; }
  const SourceRun& RunAt(int64_t element) const;
  // The address of elements [first, first + count), if they lie in the file as `dtype`; else null.
  const std::byte* Direct(int64_t first, int64_t count) const;
  // Codes and scales of the row that begins with element `first`, where stored_as is quantised.
  void CodedRow(int64_t first, std::byte* codes, std::byte* scales) const;
  // Writes elements [first, first + count). Of a quantised weight: whole rows.
  void Read(int64_t first, int64_t count, std::byte* out) const;
};

struct Binding {
  std::vector<BoundWeight> weights;
  std::deque<StoredWeight> stored;  // what the runs point to
};

// `weights` in the order given. Fills `report`, for weights kept as `choice` says, when it is not
// null. Spec, weights and checkpoint
// must outlive the binding.
Result<Binding> BindWeights(const ModelSpec& spec, const std::vector<const WeightSpec*>& weights,
                            const Checkpoint& checkpoint, const WeightChoice& choice,
                            LoadReport* report);

}  // namespace braid
