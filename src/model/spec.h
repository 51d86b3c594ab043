// A model as data. A family turns config.json into a ModelSpec; weights, cache needs, cost and the
// forward pass are derived from it by visiting. Kinds of mixer and of feed-forward are closed
// variants: a kind that does not answer every question below does not compile.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cache/geometry.h"
#include "model/checkpoint/formats/quantization.h"
#include "model/weights.h"
#include "ops/experts.h"
#include "ops/linear_attention.h"
#include "ops/norm.h"
#include "ops/op.h"
#include "ops/sequence.h"
#include "tensor/dtype.h"

namespace braid {

// ---------------------------------------------------------------- weights

// What parallel ranks divide a weight by. A rank holds whole units, never a part of one.
enum class ShardUnit : uint8_t {
  kHead,     // of queries, or of the values of linear attention
  kKeyHead,  // keys (and values) that several heads read
  kGroup,    // channels that one norm spans
  kExpert,
  kRow,    // a single output
  kWhole,  // not divided: every rank holds it
};
struct RowUnits {
  ShardUnit unit = ShardUnit::kRow;
  int64_t count = 0;
  int64_t rows = 1;  // of each
};

struct RowRange {
  int64_t begin = 0;
  int64_t count = 0;
};

// A tensor of the checkpoint, or some of its rows in a given order. A leading '@' of the name
// stands for the checkpoint's prefix ("model." or "model.language_model."). All dimensions but the
// last count as rows, so a fused expert tensor [E, 2I, H] has E * 2I rows.
struct Piece {
  std::string tensor;
  std::vector<int64_t> shape;
  std::vector<RowRange> rows;  // empty: all, in order
};

enum class WeightUse : uint8_t {
  kMatrix,  // packed for products: `count` matrices [n, k]
  kVector,  // fp32, n * k elements in row-major order [n, k]
};

// Whether a choice of a quantised format holds for a matrix (model/loading/weight_choice.h).
enum class Quantisable : uint8_t {
  kYes,
  kHead,   // embedding and output head: when asked for
  kNever,  // it decides, or stands in an exponent: routers, update gates, decays
};

struct WeightSpec {
  std::string name;       // canonical, for messages ("self_attn.qkv")
  std::string_view part;  // of the model, for tables ("experts"); set by ListWeights(ModelSpec)
  int32_t layer = -1;     // of the model; -1: of none, or of a draft head; set likewise
  WeightUse use = WeightUse::kMatrix;
  int64_t count = 1;
  int64_t n = 0;
  int64_t k = 1;
  // The count * n rows of all matrices as units, in order; empty: every rank holds all of them.
  std::vector<RowUnits> units;
  Quantisable quantisable = Quantisable::kYes;
  // Vectors are stored as [k, n] after loading. Of a matrix the source is count matrices [k, n].
  bool transpose = false;
  // Alternatives in order of preference; each is a list of pieces whose rows, one after the other,
  // are the count * n rows of the weight. Exactly one alternative must be present in the
  // checkpoint.
  std::vector<std::vector<Piece>> sources;
};

// ---------------------------------------------------------------- kinds

struct NormSpec {
  float eps = 1e-6f;
  float offset = 0.0f;  // 1: zero-centred weights
};

// Interpolation of slow rotations for contexts longer than the trained one (Peng et al. 2023).
struct YarnSpec {
  double factor = 1.0;
  int32_t original_tokens = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
};

struct RotarySpec {
  int32_t dims = 0;  // rotated channels of a head, even; 0: no positions
  double theta = 10000.0;
  bool interleaved = false;  // pairs of neighbours instead of halves
  std::optional<YarnSpec> yarn;
  float scale = 1.0f;  // of cos and sin
};
// out[dims / 2]
void FillInverseFrequencies(const RotarySpec& rotary, float* out);

// Softmax attention over all earlier tokens, grouped heads.
struct FullAttention {
  using Weights = FullAttentionWeights;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  bool output_gate = false;  // q_proj emits [query | gate] per head; out *= sigmoid(gate)
  bool qk_norm = false;
  RotarySpec rotary;
};

// A sequence with at least so many tokens in a step is worth the expanded form (--mla expanded):
// with all keys already in the cache it takes fewer operations from some 170 tokens on.
inline constexpr int32_t kExpandedTokensMin = 256;

// Softmax attention over a latent vector and a shared key per token. In the absorbed form queries
// are brought into the latent space, in prefill as in decode; in the expanded form each head's keys
// and values are made from the latent vectors.
struct LatentAttention {
  using Weights = LatentAttentionWeights;
  std::string module;  // "self_attn."
  int32_t heads = 0;
  int32_t q_lora_rank = 0;  // 0: queries come from one projection, else through this many channels
  int32_t latent_dim = 0;
  int32_t key_dim = 0;     // of a head, not rotated, reconstructed from the latent
  int32_t shared_dim = 0;  // of the key that all heads share; rotary.dims or 0 of them are rotated
  int32_t value_dim = 0;
  bool head_gate = false;  // a head's output *= sigmoid(g_proj x), one number per head
  bool split_kv_b =
      false;  // stored as k_b_proj [heads, latent, key], v_b_proj [heads, value, latent]
  RotarySpec rotary;
  float score_scale = 1.0f;            // of queries times keys
  float latent_eps = 1e-6f;            // of the norms of the latent and of low-rank queries
  std::vector<std::string> out_names;  // of the output projection, alternatives
  // A sequence with at least so many tokens in a step takes the expanded form there; 0: none does.
  int32_t expanded_tokens_min = 0;
};

// How the tensors of a linear mixer are called and cut.
enum class DeltaLayout : uint8_t {
  kSeparate,   // in_proj_qkv, in_proj_z, in_proj_b, in_proj_a
  kFused,      // in_proj_qkvz, in_proj_ba, rows interleaved per key head
  kPerTensor,  // q_proj, k_proj, v_proj, g_proj, b_proj, f_proj, one convolution each
  kPacked,     // query_key_value, g_proj
};

// Linear attention with a gated norm.
struct LinearAttention {
  using Weights = LinearAttentionWeights;
  std::string module = "linear_attn.";
  int32_t key_heads = 0;
  int32_t value_heads = 0;
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  int32_t conv_width = 0;  // 1: no convolution
  DeltaLayout layout = DeltaLayout::kSeparate;
  ops::LinearAttentionRule rule;
  bool channel_decay = false;
  std::vector<float> constant_decay;  // rule.decay kConstant: the log decay of every head
  int32_t gate_lora_rank = 0;  // kPerTensor: of the projections of decay and output gate; 0: full
  bool qk_norm = false;        // RMS norms of q and k per head, then their rotation
  RotarySpec rotary;           // with qk_norm
  int32_t norm_groups = 0;  // of the output norm over all channels; 0: one per head, shared weights
  ops::GateActivation gate = ops::GateActivation::kSilu;
  int32_t drafts_max = 0;           // the most draft tokens of a row; room for them is in the cache
  DType state_dtype = DType::kF32;  // of the state in the cache
};

using Mixer = std::variant<FullAttention, LatentAttention, LinearAttention>;

struct DenseFfn {
  using Weights = DenseFfnWeights;
  std::vector<std::string> modules = {"mlp."};  // alternatives
  int32_t width = 0;
  float limit = 0.0f;  // of the activation (ops::SwigluArgs)
};

// The names of a mixture's tensors.
struct MoeNames {
  std::string module = "mlp.";
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";  // of a routed expert
  std::string shared = "shared_expert.";
  std::vector<std::string> bias;  // of the router's selection bias, alternatives; empty: none
};

// Router, top-k experts, one shared expert.
struct MoeFfn {
  using Weights = MoeFfnWeights;
  MoeNames names;
  int32_t experts = 0;
  int32_t top_k = 0;
  int32_t width = 0;
  int32_t shared_width = 0;  // 0: no shared expert
  bool shared_gate = false;  // its output is scaled by sigmoid(shared_expert_gate . x)
  ops::RouterRule router;
  float limit = 0.0f;  // of the activation (ops::SwigluArgs)
  float shared_limit = 0.0f;
};

using Ffn = std::variant<DenseFfn, MoeFfn>;

struct LayerSpec {
  std::string prefix;  // of its tensors, "@layers.3."
  Mixer mixer;
  Ffn ffn;
};

// A multi-token-prediction head: one decoder layer that shares embedding and output head.
struct DraftSpec {
  std::string prefix;     // "mtp."
  bool declared = false;  // config.json asks for it; whether it is there, the checkpoint says
  bool used = false;      // it is loaded and has a cache (UseDraftHead)
  std::vector<LayerSpec> layers;
  // Names under the prefix.
  std::string embedding_norm = "pre_fc_norm_embedding";
  std::string hidden_norm = "pre_fc_norm_hidden";
  std::string projection = "fc";
  std::string final_norm = "norm";
};

struct ModelSpec {
  std::string family;        // its name in Families()
  std::string architecture;  // as in config.json
  int32_t hidden = 0;
  int32_t vocabulary = 0;
  int32_t context_tokens_max = 0;
  NormSpec norm;
  std::vector<LayerSpec> layers;
  bool tied_head = false;
  std::string embedding = "@embed_tokens";  // its tensor without ".weight"
  std::vector<std::string> prefixes;        // candidates for '@', in order
  std::vector<std::string>
      skip_prefixes;  // tensors that a text engine leaves alone ("model.visual.")
  std::optional<DraftSpec> draft;
  QuantizationSpec quantization;  // how the checkpoint's weights are stored
};

// ---------------------------------------------------------------- what a kind must answer

struct CacheNeed {
  GroupKind kind = GroupKind::kFull;
  int64_t block_bytes =
      0;  // of one layer per kBlockTokens tokens (kFull) or per state block (kState)
};

struct StepShape {
  int64_t tokens = 0;  // in the step
  int64_t sequences = 0;
  int64_t context_tokens = 0;  // already in the cache, per sequence
  // Experts that ranks share: the tokens of all of these ranks (0: `tokens`), and which part of
  // the experts is here.
  int64_t routed_tokens = 0;
  double expert_share = 1;
  double expert_load = 1;            // their tokens over those of an equal part
  double bytes_per_weight = 2;       // of matrices that may be quantised
  double bytes_per_head_weight = 2;  // of embedding and head
  DType kv_dtype = DType::kBF16;
};

// A part of a step, which other parts wait for: flops of products and recurrences; bytes that must
// come from memory, weights once, cache once. A mixer's are its projections and what lies between
// them.
struct Cost {
  double flops = 0;
  double bytes = 0;
  double weight_bytes = 0;     // of `bytes`
  std::string_view part = "";  // of the model, for tables: "attention", "experts"
};

struct LayerPlace {
  int64_t hidden = 0;
  std::string prefix;
};

// A weight's description and the member that holds it.
struct WeightEntry {
  Weight* weight = nullptr;
  WeightSpec spec;
};
using WeightList = std::vector<WeightEntry>;

struct LayerContext;  // model/layer_context.h

void ListWeights(const FullAttention&, const LayerPlace&, FullAttentionWeights&, WeightList&);
CacheNeed CacheOf(const FullAttention&, DType kv_dtype);
std::vector<Cost> CostsOf(const FullAttention&, int64_t hidden, const StepShape&);
void Forward(const FullAttention&, const FullAttentionWeights&, const LayerContext&, Matrix x,
             Matrix out);

void ListWeights(const LatentAttention&, const LayerPlace&, LatentAttentionWeights&, WeightList&);
CacheNeed CacheOf(const LatentAttention&, DType kv_dtype);
std::vector<Cost> CostsOf(const LatentAttention&, int64_t hidden, const StepShape&);
void Forward(const LatentAttention&, const LatentAttentionWeights&, const LayerContext&, Matrix x,
             Matrix out);

void ListWeights(const LinearAttention&, const LayerPlace&, LinearAttentionWeights&, WeightList&);
CacheNeed CacheOf(const LinearAttention&, DType kv_dtype);
std::vector<Cost> CostsOf(const LinearAttention&, int64_t hidden, const StepShape&);
void Forward(const LinearAttention&, const LinearAttentionWeights&, const LayerContext&, Matrix x,
             Matrix out);

void ListWeights(const DenseFfn&, const LayerPlace&, DenseFfnWeights&, WeightList&);
std::vector<Cost> CostsOf(const DenseFfn&, int64_t hidden, const StepShape&);
void Forward(const DenseFfn&, const DenseFfnWeights&, const LayerContext&, Matrix x, Matrix out);

void ListWeights(const MoeFfn&, const LayerPlace&, MoeFfnWeights&, WeightList&);
std::vector<Cost> CostsOf(const MoeFfn&, int64_t hidden, const StepShape&);
// Of the routed experts of a device alone: so many rows, of so many experts.
Cost ExpertCost(const MoeFfn&, int64_t hidden, double rows, double experts,
                double bytes_per_weight);
void Forward(const MoeFfn&, const MoeFfnWeights&, const LayerContext&, Matrix x, Matrix out);

template <class M>
concept MixerKind =
    requires(const M& m, typename M::Weights& weights, const LayerPlace& place, WeightList& list,
             const StepShape& shape, const LayerContext& context, Matrix x) {
      { ListWeights(m, place, weights, list) } -> std::same_as<void>;
      { CacheOf(m, DType::kF32) } -> std::same_as<CacheNeed>;
      { CostsOf(m, int64_t{}, shape) } -> std::same_as<std::vector<Cost>>;
      { Forward(m, weights, context, x, x) } -> std::same_as<void>;
    };
template <class F>
concept FfnKind =
    requires(const F& f, typename F::Weights& weights, const LayerPlace& place, WeightList& list,
             const StepShape& shape, const LayerContext& context, Matrix x) {
      { ListWeights(f, place, weights, list) } -> std::same_as<void>;
      { CostsOf(f, int64_t{}, shape) } -> std::same_as<std::vector<Cost>>;
      { Forward(f, weights, context, x, x) } -> std::same_as<void>;
    };
template <class... K>
constexpr bool AllMixerKinds(const std::variant<K...>*) {
  return (MixerKind<K> && ...);
}
template <class... K>
constexpr bool AllFfnKinds(const std::variant<K...>*) {
  return (FfnKind<K> && ...);
}
static_assert(AllMixerKinds(static_cast<const Mixer*>(nullptr)));
static_assert(AllFfnKinds(static_cast<const Ffn*>(nullptr)));

// ---------------------------------------------------------------- derived from the spec

// All weights of the model with the members of `weights` that hold them: embedding, per layer
// {input norm, mixer's, post norm, ffn's}, those of a used draft head, final norm, head (unless
// tied). Gives `weights` its
// layers. The list points into `weights`.
WeightList ListWeights(const ModelSpec& spec, ModelWeights& weights);
// The descriptions alone.
std::vector<WeightSpec> WeightsOf(const ModelSpec& spec);
// Sets LatentAttention::expanded_tokens_min of all layers, before weights are loaded.
void ExpandLatentAttention(ModelSpec& spec, int32_t tokens_min);
// Sets both of all linear layers, before the cache is planned.
void PlanState(ModelSpec& spec, int32_t drafts_max, DType state_dtype = DType::kF32);
// Whether the model has a draft head that can run: one with a single layer of attention.
bool HasDraftHead(const ModelSpec& spec);
// Sets DraftSpec::used, before weights are loaded and the cache is planned.
void UseDraftHead(ModelSpec& spec);
// The draft head's weights, whether it is used or not.
std::vector<WeightSpec> DraftWeightsOf(const ModelSpec& spec);

// Cache groups: all full-attention layers share "attention", all linear ones "state". slices[i]
// says where layer i lies in its group's blocks. What a used draft head keeps is the beginning of
// the attention group's blocks: its layers' entries, and the model's normed state of the block's
// last token.
struct CachePlan {
  std::vector<GroupGeometry> groups;  // blocks_per_page still 1
  std::vector<ops::CacheSlice> slices;
  struct Draft {
    std::vector<ops::CacheSlice> layers;
    ops::CacheSlice last_state;
    int64_t bytes = 0;  // of a block
  } draft;
};
CachePlan CachePlanOf(const ModelSpec& spec, DType kv_dtype);

// One step of the model: embedding and head, then every layer's mixer and ffn. `logits_rows` rows
// go through the head.
std::vector<Cost> CostsOf(const ModelSpec& spec, const StepShape& shape, int64_t logits_rows);

// Parameters in all, and those that one token's forward pass uses (head included, embedding not).
struct ParameterCount {
  int64_t total = 0;
  int64_t active = 0;
  int64_t embedding = 0;
};
ParameterCount ParametersOf(const ModelSpec& spec);

}  // namespace braid
