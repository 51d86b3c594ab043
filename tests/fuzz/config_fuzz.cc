// A config.json: what is accepted has weights, a cache plan and a description; the rest an error.
#include "base/check.h"
#include "model/describe.h"
#include "model/families/families.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  const Result<ModelSpec> spec =
      ParseModelSpec({reinterpret_cast<const char*>(data), size}, "config.json");
  if (!spec) {
    CHECK(!spec.error().message.empty());
    return 0;
  }
  CHECK(!spec->layers.empty() && ParametersOf(*spec).total > 0);
  CHECK(CachePlanOf(*spec, DType::kBF16).slices.size() == spec->layers.size());
  CHECK(!FactsAsText(DescribeModel(*spec, nullptr, nullptr)).empty());
  int64_t steps = 100'000;
  (void)IsIgnored(spec->quantization, "model.layers.0.mlp.gate", steps);
  return 0;
}
