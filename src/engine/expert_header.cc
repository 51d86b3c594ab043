// All expert layers of a model have as many experts; see the CHECK.
#include "engine/expert_header.h"

#include <filesystem>

#include "base/check.h"

namespace braid {

ExpertLoads LoadsHeaderOf(const ModelSpec& spec, const std::string& model_dir) {
  ExpertLoads header{.model = std::filesystem::path(model_dir).filename().string()};
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const MoeFfn* moe = std::get_if<MoeFfn>(&spec.layers[i].ffn);
    if (moe == nullptr) continue;
    CHECK(header.layers.empty() || (moe->experts == header.experts && moe->top_k == header.top_k));
    header.layers.push_back(static_cast<int32_t>(i));
    header.experts = moe->experts;
    header.top_k = moe->top_k;
  }
  return header;
}

}  // namespace braid
