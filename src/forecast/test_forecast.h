// A dense model, a mixture of experts and a machine with round numbers, for tests of forecasts
// whose sums can be done by hand. Tests only.
#pragma once

#include <string>

#include "base/check.h"
#include "forecast/forecast.h"

namespace braid {

inline ModelSpec Dense() {
  return {.hidden = 64,
          .vocabulary = 128,
          .context_tokens_max = 4096,
          .layers = {{.prefix = "@layers.0.",
                      .mixer = FullAttention{.heads = 4, .kv_heads = 2, .head_dim = 16},
                      .ffn = DenseFfn{.width = 256}}},
          .prefixes = {""}};
}
inline ModelSpec Mixture() {
  ModelSpec spec = Dense();
  spec.layers[0].ffn = MoeFfn{.experts = 16, .top_k = 2, .width = 32, .shared_width = 32};
  return spec;
}
inline Hardware Machine() {
  return {.name = "machine",
          .memory_bytes = 1e9,
          .memory_bytes_per_second = 1e9,
          .bf16_flops = 1e12,
          .link_bytes_per_second = 1e8,
          .link_devices = 8,
          .network_bytes_per_second = 1e7};
}
inline Forecast Of(const ModelSpec& spec, const Mesh& mesh, const Workload& workload,
                   const ForecastOptions& options = {}, const Hardware& hardware = Machine()) {
  Result<Forecast> forecast = ForecastOf(spec, mesh, hardware, workload, options);
  CHECK(forecast, "{}", forecast.error().message);
  return *std::move(forecast);
}
inline constexpr Workload kWorkload{.input_tokens = 512, .output_tokens = 64, .concurrency = 8};

inline std::string ErrorOf(const Result<Forecast>& forecast) {
  return forecast ? "no error" : forecast.error().message;
}

}  // namespace braid
