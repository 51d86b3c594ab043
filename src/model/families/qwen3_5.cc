// Qwen3.5 with dense feed-forward parts: text models, and the text part of the multimodal ones.
#include "model/families/qwen_hybrid.h"

namespace braid {
namespace {

ModelSpec Read(HfConfig& config) {
  config.MustBeNeutral("num_experts", "a mixture of experts, which another architecture has");
  return ReadQwenHybrid(config,
                        {.layout = DeltaLayout::kSeparate,
                         .prefixes = {"model.language_model.", "language_model.model.", "model."},
                         .skip_prefixes = {"model.visual.", "visual."}});
}

json::object Example(ExampleSize size) {
  json::object config = QwenHybridExample(size);
  config["architectures"] = {"Qwen3_5ForCausalLM"};
  config["model_type"] = "qwen3_5_text";
  for (const char* key : {"num_experts", "num_experts_per_tok", "norm_topk_prob",
                          "moe_intermediate_size", "shared_expert_intermediate_size"}) {
    config.erase(key);
  }
  config["intermediate_size"] = size == ExampleSize::kMid ? 6144 : 160;
  return config;
}

}  // namespace

Family Qwen3_5Family() {
  return {.name = "qwen3_5",
          .architectures = {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"},
          .read = Read,
          .example = Example};
}

}  // namespace braid
