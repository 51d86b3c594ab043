// Random-weight checkpoints, as directories in a family's Hugging Face format or as GGUF files, for
// tests and benchmarks. They hold the tensors that the loader asks for, scaled so that the model
// behaves like a trained one: logits spread by two to three, routers prefer some experts, decays
// last one token to hundreds. Equal requests give equal files.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/system/thread_pool.h"
#include "model/writing/gguf_mixtures.h"
#include "ops/weight_format.h"

namespace braid {

struct MakeModelRequest {
  // Made if it is not there; must not hold a checkpoint yet. With `gguf` perhaps a name of a file
  // that ends with ".gguf".
  std::string directory;
  std::string family;  // its name in Families(); not read with a published shape
  // "tiny", "mid" or the name of a published model (tiny when none is given), then "key=value" for
  // keys of config.json with values in JSON, as in "num_hidden_layers=8".
  std::vector<std::string> shape;
  // kBF16, or a quantised format: then the files are what `convert` makes of the model in bf16.
  ops::WeightFormat weights = ops::WeightFormat::kBF16;
  const GgufMixture* gguf = nullptr;  // in place of `weights`: a GGUF file of these types
  bool quantise_head = false;         // with a quantised format: embedding and head too
  // Exponent of Zipf's law by which tokens choose experts; 0: as the random weights have it.
  double expert_skew = 0;
  uint64_t seed = 0;
  int64_t shard_bytes_max = int64_t{4} << 30;
  std::function<void(double fraction)> progress;  // may be empty; called from the calling thread
};

struct MadeModel {
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;
  int64_t files = 0;
};

// Names of the formats of directories that it can write; those of GGUF files: GgufMixtureNames().
std::vector<std::string> MakeableFormats();

// Takes some megabytes of memory per thread, whatever the model's size.
Result<MadeModel> MakeModel(const MakeModelRequest& request, ThreadPool& pool);

}  // namespace braid
