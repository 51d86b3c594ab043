// The tensors of a model's checkpoint as its spec names them. Pure.
#pragma once

#include <vector>

#include "model/checkpoint/safetensors_writer.h"
#include "model/spec.h"

namespace braid {

// Where a weight may be stored in several ways: its first one, in which experts are stacked, or the
// one in which each expert has tensors of its own.
enum class ExpertTensors : uint8_t { kStacked, kSingle };

// The pieces that a weight is made of, of its alternatives.
const std::vector<Piece>& PiecesOf(const WeightSpec& weight, ExpertTensors experts);
// The name of a piece with the prefix of checkpoints that are written.
std::string NameOfPiece(const Piece& piece, const ModelSpec& spec);
// Every tensor once, with the type that it has where it is not quantised. A declared draft head's
// too.
std::vector<TensorPlan> PlanTensors(const ModelSpec& spec,
                                    ExpertTensors experts = ExpertTensors::kStacked);

}  // namespace braid
