// What to draw, and the tables that it is drawn from.
#include "model/writing/random_weights.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/rng.h"

namespace braid {
namespace {

struct Rule {
  std::string_view suffix;
  double gain;  // size of the outputs for inputs of size one
  bool branch;  // adds to the residual stream and must stay small beside it
};
// Matrices whose outputs are not simply of size one.
constexpr Rule kRules[] = {
    {"lm_head.weight", 2.5, false},     {"mlp.gate.weight", 1.5, false},
    {"expert_gate.weight", 1.5, false}, {"in_proj_b.weight", 1.5, false},
    {"gate_proj.weight", 1.3, false},   {"gate_up_proj", 1.15, false},
    {"o_proj.weight", 1.5, true},       {"out_proj.weight", 1.0, true},
    {"dense.weight", 1.5, true},        {"w2.weight", 1.2, true},
    {"down_proj.weight", 1.2, true},    {"down_proj", 1.2, true},
};

uint64_t HashName(std::string_view name) {  // FNV-1a: the same on every machine
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

}  // namespace

Draw DrawOf(const TensorPlan& tensor, const ModelSpec& spec) {
  const std::string& name = tensor.name;
  const double hidden = spec.hidden;
  // A tied embedding is also the head.
  const double embedding = spec.tied_head ? 2.5 / std::sqrt(hidden) : 1.0;
  if (name.ends_with("A_log")) return {0.25, 2.25, true, DType::kF32};
  if (name.ends_with("dt_bias")) return {-2.0, 3.0, true};
  if (name.ends_with("linear_attn.norm.weight")) return {1.0, 0.2, false, DType::kF32};
  if (name.ends_with("conv1d.weight")) return {0.0, 0.5};
  if (name.ends_with(spec.embedding.substr(1) + ".weight")) return {0.0, embedding};
  if (name.ends_with("_bias")) return {0.0, 0.2, false, DType::kF32};
  if (tensor.shape.size() == 1) return {1.0 - spec.norm.offset, 0.2};
  // The key half of kv_b_proj is stored the other way round.
  const bool turned = name.ends_with(".k_b_proj.weight");
  const int64_t inputs = turned ? tensor.shape[tensor.shape.size() - 2] : tensor.shape.back();
  const double one = 1.0 / std::sqrt(static_cast<double>(inputs));
  for (const Rule& rule : kRules) {
    if (name.ends_with(rule.suffix)) {
      return {0.0, one * rule.gain * (rule.branch ? 0.4 * embedding : 1.0)};
    }
  }
  return {0.0, one};
}

// By bisection.
double NormalQuantile(double p) {
  double low = -6, high = 6;
  for (int step = 0; step < 50; ++step) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return low;
}

// At the middles of equal steps.
std::unique_ptr<RandomWeights::Table> RandomWeights::NormalQuantiles() {
  auto table = std::make_unique<Table>();
  for (size_t i = 0; i < kQuantiles; ++i) {
    (*table)[i] = NormalQuantile((static_cast<double>(i) + 0.5) / kQuantiles);
  }
  return table;
}

std::unique_ptr<RandomWeights::Table> RandomWeights::UniformQuantiles() {
  auto table = std::make_unique<Table>();
  for (size_t i = 0; i < kQuantiles; ++i) {
    (*table)[i] = 2 * (static_cast<double>(i) + 0.5) / kQuantiles - 1;
  }
  return table;
}

RandomWeights::RandomWeights(const ModelSpec& spec, uint64_t seed,
                             std::map<std::string, std::vector<float>> given)
    : spec_(spec),
      seed_(seed),
      given_(std::move(given)),
      normal_(NormalQuantiles()),
      uniform_(UniformQuantiles()) {}

// Four elements from each 64 random bits.
template <class T, class Convert>
void RandomWeights::FillAs(const TensorPlan& tensor, int64_t begin, int64_t count, T* out,
                           Convert convert) const {
  if (const auto at = given_.find(tensor.name); at != given_.end()) {
    std::transform(at->second.begin() + begin, at->second.begin() + begin + count, out, convert);
    return;
  }
  const Draw draw = DrawOf(tensor, spec_);
  const Table& unit = draw.uniform ? *uniform_ : *normal_;
  std::array<T, kQuantiles> values;
  for (size_t i = 0; i < kQuantiles; ++i) {
    values[i] = convert(static_cast<float>(draw.mean + draw.deviation * unit[i]));
  }
  const uint64_t stream = MixBits(seed_ + 1) ^ HashName(tensor.name);
  for (int64_t i = 0; i < count; i += 4) {
    uint64_t bits = RandomBits(stream, static_cast<uint64_t>((begin + i) / 4));
    const int64_t n = std::min<int64_t>(4, count - i);
    for (int64_t j = 0; j < n; ++j) {
      out[i + j] = values[bits & (kQuantiles - 1)];
      bits >>= 16;
    }
  }
}

float RandomWeights::Largest(const TensorPlan& tensor) const {
  const Draw draw = DrawOf(tensor, spec_);
  const double end = (draw.uniform ? *uniform_ : *normal_).back();
  return RoundToBf16(static_cast<float>(std::abs(draw.mean) + draw.deviation * end));
}

void RandomWeights::Fill(const TensorPlan& tensor, int64_t begin, int64_t count, float* out) const {
  FillAs(tensor, begin, count, out, RoundToBf16);
}

void RandomWeights::Fill(const TensorPlan& tensor, int64_t begin, int64_t count,
                         uint16_t* out) const {
  FillAs(tensor, begin, count, out, Bf16OfFloat);
}

}  // namespace braid
