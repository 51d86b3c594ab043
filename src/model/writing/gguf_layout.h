// What a GGUF file of a model holds: its metadata, its tensors, and which rows of the model's
// weights each of them is made of. It is the mapping by which such files are read
// (families/gguf.h), turned round. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "model/families/gguf.h"
#include "model/writing/gguf_mixtures.h"
#include "model/writing/model_tensors.h"

namespace braid {

// Rows [begin, begin + count) of a tensor are those of a weight from `row` on.
struct GgufRun {
  int64_t begin = 0;
  int64_t count = 0;
  size_t weight = 0;  // index into GgufLayout::weights
  int64_t row = 0;
};

struct GgufTensorLayout {
  std::string name;
  std::vector<int64_t> shape;              // slowest first
  std::vector<GgufRun> runs;               // in order, all rows of the tensor
  std::vector<GgufView::Columns> columns;  // where the weight's columns lie; empty: in order
  bool log_of_negative = false;            // the tensor has -exp of the weight
};

struct GgufLayout {
  std::string architecture;
  json::object metadata;                  // with the architecture's name before the keys
  ModelSpec spec;                         // as the files store its values
  std::vector<TensorPlan> weights;        // of that spec
  std::vector<GgufTensorLayout> tensors;  // block after block
  GgufModelSizes sizes;
};

// An error for models of which there are no GGUF files.
Result<GgufLayout> LayOutGguf(const ModelSpec& spec);

}  // namespace braid
