// The kernels of the Vulkan candidates as the build has compiled them, but for one that the
// environment names: BRAID_WRONG_SHADER=kShaderName=FILE. In the place of the embedded ones.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/check.h"

namespace braid {
namespace {

std::string_view Load(std::string_view symbol) {
  const char* wrong = std::getenv("BRAID_WRONG_SHADER");
  const std::string_view named = wrong != nullptr ? wrong : "";
  std::string path = BRAID_EMBED_DIR "/" + std::string(symbol) + ".spv";
  if (named.starts_with(std::string(symbol) + "=")) path = named.substr(symbol.size() + 1);
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good(), "{} cannot be read", path);
  return *new std::string(std::istreambuf_iterator<char>(file), {});  // for the program's life
}

}  // namespace

#define BRAID_CHOSEN(name)             \
  extern const std::string_view name; \
  const std::string_view name = Load(#name);
BRAID_CHOSEN(kShaderAddRows)
BRAID_CHOSEN(kShaderAttention)
BRAID_CHOSEN(kShaderAttentionMerge)
BRAID_CHOSEN(kShaderAttentionSplit1)
BRAID_CHOSEN(kShaderAttentionSplit2)
BRAID_CHOSEN(kShaderAttentionSplit4)
BRAID_CHOSEN(kShaderAttentionWide)
BRAID_CHOSEN(kShaderConv)
BRAID_CHOSEN(kShaderConvWindow)
BRAID_CHOSEN(kShaderDelta)
BRAID_CHOSEN(kShaderDeltaRows)
BRAID_CHOSEN(kShaderDeltaStep)
BRAID_CHOSEN(kShaderEmbed)
BRAID_CHOSEN(kShaderExpertRows)
BRAID_CHOSEN(kShaderExpertTiles)
BRAID_CHOSEN(kShaderGatedNorm)
BRAID_CHOSEN(kShaderLinear1)
BRAID_CHOSEN(kShaderLinear4)
BRAID_CHOSEN(kShaderLinear8)
BRAID_CHOSEN(kShaderLinearTile32)
BRAID_CHOSEN(kShaderLinearTile64)
BRAID_CHOSEN(kShaderQuantise)
BRAID_CHOSEN(kShaderRmsNorm)
BRAID_CHOSEN(kShaderRoute)
BRAID_CHOSEN(kShaderSample)
BRAID_CHOSEN(kShaderScalarGate)
BRAID_CHOSEN(kShaderSwiglu)
BRAID_CHOSEN(kShaderWriteKv)
BRAID_CHOSEN(kShaderWriteLatent)
#undef BRAID_CHOSEN

}  // namespace braid
