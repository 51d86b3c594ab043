// Writes a checkpoint anew with plain weights: what quantised formats stand for, as bf16 or fp32.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "base/thread_pool.h"
#include "tensor/dtype.h"

namespace braid {

struct ConvertRequest {
  std::string from;  // a Hugging Face directory
  std::string to;    // made if it is not there; must not hold a checkpoint yet
  // Of matrices: kBF16 rounds what it does not hold (to nearest even), kF32 holds everything.
  // Vectors (norms, decays) keep their type.
  DType weights = DType::kBF16;
  int64_t shard_bytes_max = int64_t{4} << 30;
  std::function<void(double fraction)> progress;  // may be empty; called from the calling thread
};

struct Converted {
  int64_t tensors = 0;
  int64_t bytes = 0;
  int64_t files = 0;
  int64_t rounded = 0;  // matrices of which bf16 does not hold every value
};

// All of the loader's checks apply. Tensors that a text engine skips are left out; the other files
// of the directory (tokenizer, template, generation config) are copied.
Result<Converted> ConvertCheckpoint(const ConvertRequest& request, ThreadPool& pool);

}  // namespace braid
