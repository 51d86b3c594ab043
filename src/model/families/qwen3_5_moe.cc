// Qwen3.5-MoE: text models, and the text part of the multimodal ones (prefix
// "model.language_model.").
#include "model/families/qwen_hybrid.h"

namespace braid {
namespace {

ModelSpec Read(HfConfig& config) {
  return ReadQwenHybrid(config,
                        {.layout = DeltaLayout::kSeparate,
                         .prefixes = {"model.language_model.", "language_model.model.", "model."},
                         .skip_prefixes = {"model.visual.", "visual."}});
}

json::object Example(ExampleSize size) {
  json::object config = QwenHybridExample(size);
  config["architectures"] = {"Qwen3_5MoeForCausalLM"};
  config["model_type"] = "qwen3_5_moe_text";
  return config;
}

}  // namespace

Family Qwen3_5MoeFamily() {
  return {.name = "qwen3_5_moe",
          .architectures = {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"},
          .read = Read,
          .example = Example};
}

}  // namespace braid
