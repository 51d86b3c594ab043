// The weights of a model in memory, by name. The struct of a kind has a member for every weight
// that the kind can have; the members that a mixer or feed-forward lacks stay empty.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "ops/packed.h"
#include "tensor/tensor.h"

namespace braid {

// One of the two, as WeightSpec::use says. Without data until it is loaded.
struct Weight {
  ops::PackedMatrix matrix;
  const float* vector = nullptr;
};

struct FullAttentionWeights {
  Weight qkv;  // queries (with their gates), keys, values
  Weight out;
  Weight q_norm, k_norm;
};

struct LatentAttentionWeights {
  Weight q_down, q_norm;  // of queries that go through a low rank
  Weight q;
  Weight kv_down, kv_norm;  // to the cache row: latent vector and shared key
  Weight key_up;            // per head, from queries into the latent space
  Weight value_up;          // per head, from the latent space to values
  Weight out;
  Weight gate;           // per head
  Weight expanded_keys;  // per head, from the latent space to keys
};

struct LinearAttentionWeights {
  Weight in;  // q, k, v, output gate
  Weight out;
  Weight gates;  // update gate, decay
  Weight conv, a_log, dt_bias, norm, q_norm, k_norm;
  Weight gate_up, decay_up;  // from gate_lora_rank channels to all
};

struct DenseFfnWeights {
  Weight gate_up, down;
};

struct MoeFfnWeights {
  Weight router;
  Weight gate_up, down;  // of the experts
  // On several ranks: the slot of each expert to which this rank sends tokens (DividedExpertsArgs).
  std::vector<int32_t> slot_of;
  Weight shared_gate_up, shared_down, shared_gate;
  Weight bias;  // of the router's selection
};

using MixerWeights =
    std::variant<FullAttentionWeights, LatentAttentionWeights, LinearAttentionWeights>;
using FfnWeights = std::variant<DenseFfnWeights, MoeFfnWeights>;

struct LayerWeights {
  Weight input_norm;
  MixerWeights mixer;
  Weight post_norm;
  FfnWeights ffn;
};

// Of a draft head; embedding and output head are the model's.
struct DraftWeights {
  Weight embedding_norm, hidden_norm;
  Weight projection;
  std::vector<LayerWeights> layers;
  Weight final_norm;
};

// Move-only: owns the memory that the weights point into, but for those of a mapped checkpoint.
struct ModelWeights {
  Weight embedding;
  std::vector<LayerWeights> layers;
  DraftWeights draft;  // where DraftSpec::used
  Weight final_norm;
  Weight head;  // the embedding's matrix when tied
  std::vector<Buffer> memory;
  int64_t bytes = 0;
  int64_t mapped_bytes = 0;  // of them, in the checkpoint's own file
};

// Every member that is a weight, filled or not.
std::vector<Weight*> AllWeights(ModelWeights& weights);
// Of them, those of experts that a router chooses.
std::vector<Weight*> RoutedWeights(ModelWeights& weights);

}  // namespace braid
