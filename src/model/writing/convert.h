// Converts a checkpoint to plain or quantised weights.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "base/system/thread_pool.h"
#include "ops/packed.h"

namespace braid {

struct ConvertRequest {
  std::string from;  // a Hugging Face directory
  std::string to;    // made if it is not there; must not hold a checkpoint yet
  // The format of matrices. kBF16 and kF16 round to nearest even, kF32 keeps every value; a number
  // that is too large for kF16 is an error. The others
  // quantise the matrices that loading would (embedding and head only with `head`), except those
  // that run transposed. The rest keeps its codes if they are in the format, or else every bit, but
  // for other codes of a draft head: these become bf16. Vectors (norms, decays) keep their type.
  ops::WeightFormat weights = ops::WeightFormat::kBF16;
  bool head = false;
  int64_t shard_bytes_max = int64_t{4} << 30;
  std::function<void(double fraction)> progress;  // may be empty; called from the calling thread
};

struct Converted {
  int64_t tensors = 0;
  int64_t bytes = 0;
  int64_t files = 0;
  int64_t quantised = 0;  // matrices
  int64_t rounded = 0;    // plain matrices that may have values which their new type cannot hold
};

// All of the loader's checks apply. Tensors that a text engine skips are left out; the other files
// of the directory (tokenizer, template, generation config) are copied.
Result<Converted> ConvertCheckpoint(const ConvertRequest& request, ThreadPool& pool);

}  // namespace braid
