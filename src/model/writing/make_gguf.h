// Random-weight GGUF files: the numbers of make_model.h's checkpoints in the types of a mixture.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/system/thread_pool.h"
#include "model/spec.h"
#include "model/writing/gguf_mixtures.h"

namespace braid {

struct MadeModel;

struct MakeGgufRequest {
  std::string path;
  const GgufMixture* mixture = nullptr;
  uint64_t seed = 0;
  std::map<std::string, std::vector<float>> given;  // as RandomWeights has it
  std::function<void(double fraction)> progress;    // may be empty; called from the calling thread
};

// Takes some megabytes of memory per thread, whatever the model's size.
Result<MadeModel> MakeGguf(const MakeGgufRequest& request, const ModelSpec& spec, ThreadPool& pool);

}  // namespace braid
