// All weights of a model, member by member: a struct that gets another member does not compile here
// until it is listed.
#include "model/weights.h"

namespace braid {
namespace {

void Append(FullAttentionWeights& w, std::vector<Weight*>& all) {
  auto& [qkv, out, q_norm, k_norm] = w;
  all.insert(all.end(), {&qkv, &out, &q_norm, &k_norm});
}

void Append(LatentAttentionWeights& w, std::vector<Weight*>& all) {
  auto& [q_down, q_norm, q, kv_down, kv_norm, key_up, value_up, out, gate, expanded_keys] = w;
  all.insert(all.end(), {&q_down, &q_norm, &q, &kv_down, &kv_norm, &key_up, &value_up, &out, &gate,
                         &expanded_keys});
}

void Append(LinearAttentionWeights& w, std::vector<Weight*>& all) {
  auto& [in, out, gates, conv, a_log, dt_bias, norm, q_norm, k_norm, gate_up, decay_up] = w;
  all.insert(all.end(), {&in, &out, &gates, &conv, &a_log, &dt_bias, &norm, &q_norm, &k_norm,
                         &gate_up, &decay_up});
}

void Append(DenseFfnWeights& w, std::vector<Weight*>& all) {
  auto& [gate_up, down] = w;
  all.insert(all.end(), {&gate_up, &down});
}

void Append(MoeFfnWeights& w, std::vector<Weight*>& all) {
  auto& [router, gate_up, down, slot_of, shared_gate_up, shared_down, shared_gate, bias] = w;
  (void)slot_of;  // of ranks; no weight
  all.insert(all.end(),
             {&router, &gate_up, &down, &shared_gate_up, &shared_down, &shared_gate, &bias});
}

void Append(std::vector<LayerWeights>& layers, std::vector<Weight*>& all) {
  for (LayerWeights& layer : layers) {
    all.insert(all.end(), {&layer.input_norm, &layer.post_norm});
    std::visit([&](auto& mixer) { Append(mixer, all); }, layer.mixer);
    std::visit([&](auto& ffn) { Append(ffn, all); }, layer.ffn);
  }
}

}  // namespace

std::vector<Weight*> AllWeights(ModelWeights& weights) {
  std::vector<Weight*> all = {&weights.embedding, &weights.final_norm, &weights.head};
  Append(weights.layers, all);
  DraftWeights& draft = weights.draft;
  all.insert(all.end(),
             {&draft.embedding_norm, &draft.hidden_norm, &draft.projection, &draft.final_norm});
  Append(draft.layers, all);
  return all;
}

std::vector<Weight*> RoutedWeights(ModelWeights& weights) {
  std::vector<Weight*> routed;
  for (std::vector<LayerWeights>* layers : {&weights.layers, &weights.draft.layers}) {
    for (LayerWeights& layer : *layers) {
      auto* moe = std::get_if<MoeFfnWeights>(&layer.ffn);
      if (moe != nullptr) routed.insert(routed.end(), {&moe->gate_up, &moe->down});
    }
  }
  return routed;
}

}  // namespace braid
