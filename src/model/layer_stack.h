// Layers one after the other with the norm behind them: what the decoder and the draft head run.
#pragma once

#include <cstdint>
#include <span>

#include "model/spec.h"
#include "model/weights.h"
#include "ops/op.h"
#include "ops/sequence.h"

namespace braid {

struct RouteSink;  // model/layer_context.h

// Hears of the layers as they run.
struct LayerWatch {
  virtual ~LayerWatch() = default;
  virtual void BeforeMixer(int32_t layer) = 0;
  virtual void AfterMixer(int32_t layer) = 0;
};

struct LayerStack {
  std::span<const LayerSpec> layers;
  std::span<const LayerWeights> weights;
  std::span<const ops::CacheSlice> slices;
  const Weight& final_norm;
  NormSpec norm;
  DType kv_dtype = DType::kF32;
  RouteSink* routes = nullptr;  // hears of every layer with experts; null: nobody does
  LayerWatch* watch = nullptr;  // or null
};

// out = weight * x / rms(x), row by row.
void Norm(const ops::OpContext& context, const NormSpec& norm, const Weight& weight, Matrix x,
          Matrix out);

// Per layer: x += mixer(norm(x)); x += ffn(norm(x)). Then states = norm(x). x and states are
// [tokens, hidden]; x is overwritten.
void RunLayers(const ops::OpContext& context, const LayerStack& stack,
               const ops::SequenceIndex& sequences, Matrix x, Matrix states);

}  // namespace braid
