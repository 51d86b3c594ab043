// Qwen3-Next: fused projections whose rows are interleaved per key head; some layers may be dense.
#include "model/families/qwen_hybrid.h"

namespace braid {
namespace {

ModelSpec Read(HfConfig& config) {
  return ReadQwenHybrid(config, {.layout = DeltaLayout::kFused, .prefixes = {"model."}});
}

json::object Example(ExampleSize size) {
  json::object config = QwenHybridExample(size);
  config["architectures"] = {"Qwen3NextForCausalLM"};
  config["model_type"] = "qwen3_next";
  return config;
}

}  // namespace

Family Qwen3NextFamily() {
  return {.name = "qwen3_next",
          .architectures = {"Qwen3NextForCausalLM"},
          .read = Read,
          .example = Example};
}

}  // namespace braid
