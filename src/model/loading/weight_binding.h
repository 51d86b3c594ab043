// Which bytes of a checkpoint are which weight. Binding is strict in both directions: every weight
// has exactly one complete source, every tensor is claimed; all that is wrong is reported in one
// message. A model is bound once; everything that asks about its weights reads the binding.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/formats/storage_format.h"
#include "model/loading/load_report.h"
#include "model/loading/weight_choice.h"
#include "model/spec.h"
#include "model/weights.h"

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
  Weight* weight = nullptr;  // where it goes, in Binding::model
  WeightSpec spec;
  DType dtype = DType::kBF16;  // what Read delivers; holds every stored value exactly
  // The format that keeps what is stored: its codes as they are, or every bit of `dtype`.
  ops::WeightFormat stored_as = ops::WeightFormat::kBF16;
  bool ordered = false;  // codes of stored_as have an order of columns
  std::vector<SourceRun> runs;

  int64_t elements() const { return spec.count * spec.n * spec.k; }
  const SourceRun& RunAt(int64_t element) const;
  // The address of elements [first, first + count), if they lie in the file as `dtype`; else null.
  const std::byte* Direct(int64_t first, int64_t count) const;
  // Codes and scales of the row that begins with element `first`, where stored_as is quantised.
  void CodedRow(int64_t first, std::byte* codes, std::byte* scales) const;
  // The order of columns in that row; empty: that of the inputs.
  std::span<const uint16_t> OrderAt(int64_t first) const;
  // Writes elements [first, first + count). Of a quantised weight: whole rows.
  void Read(int64_t first, int64_t count, std::byte* out) const;
};

struct Binding {
  const Checkpoint* checkpoint = nullptr;
  bool tied_head = false;
  std::unique_ptr<ModelWeights> model;  // every weight's layout; no data yet
  std::vector<BoundWeight> weights;     // in the order of WeightsOf(ModelSpec)
  std::deque<StoredWeight> stored;      // the tensors of the model, each once; the runs' sources
  LoadReport report;
};

// What the report says of a weight. A tensor that several weights share counts in proportion to the
// elements that they take.
WeightStorage StorageOf(const BoundWeight& bound);

// The weights of `spec` (as FitToCheckpoint gives it), kept as `choice` says. Reads no weights, but
// perhaps the scales of quantised ones. Spec and checkpoint must outlive the binding.
Result<Binding> BindWeights(const ModelSpec& spec, const Checkpoint& checkpoint,
                            const WeightChoice& choice = {});

}  // namespace braid
