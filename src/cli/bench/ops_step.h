// A whole step as its parts: what `braid bench ops --model` measures, part by part, within the
// step, so that caches and memory are in the state in which the engine's steps leave them.
#pragma once

#include <memory>
#include <vector>

#include "cli/bench/ops.h"

namespace braid {

struct StepModel {
  ModelSpec spec;
  DType kv_dtype = DType::kBF16;
  ops::WeightFormat format = ops::WeightFormat::kBF16;
};

// The parts of a step in the order of its layers, each with data of its own; then the work on rows
// of all layers, and embedding and head where logits of at most 64 rows of each token are wanted.
// Operations and bytes of a part are those of CostsOf. Alone, a part runs again and again: its data
// are then as many copies as a step reads bytes between two uses of the same.
std::vector<OpCase> PartsOf(const StepModel& model, const BenchStep& step, bool alone);

// Whether they are the same part of the same amounts.
bool IsSame(const OpCase& a, const OpCase& b);

// Runs the step, or as many of its layers as make kColdBytes and one of each kind, and counts the
// time of the parts that are the same as `alone`, their mean. On a device only `alone` runs.
std::unique_ptr<OpRun> MakeStepRun(const std::vector<OpCase>& parts, const OpCase& alone);

}  // namespace braid
