// The cases of `braid bench ops --model`: every part that a forecast of the model counts, with the
// model's own shapes, so that `braid plan --calibration` predicts its steps from what they take.
// Operations and bytes of a case are those of CostsOf.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "cli/bench/ops.h"
#include "forecast/calibration.h"
#include "model/loading/weight_choice.h"

namespace braid {
namespace {

constexpr int64_t kRows[] = {1, 8, 32, 64, 256, 1024};
// Of all sequences of a decode step: bounds the memory of a case.
constexpr int64_t kCachedTokensMax = 128 << 10;

// Products that follow each other.
class ChainRun : public OpRun {
 public:
  explicit ChainRun(std::vector<std::unique_ptr<OpRun>> runs) : runs_(std::move(runs)) {}
  void Run(const ops::OpContext& context, int64_t turn) override {
    for (const std::unique_ptr<OpRun>& run : runs_) run->Run(context, turn);
  }
  bool Move(BenchDevice& device) override {
    return std::ranges::all_of(runs_, [&](const auto& run) { return run->Move(device); });
  }

 private:
  std::vector<std::unique_ptr<OpRun>> runs_;
};

class ModelCases {
 public:
  ModelCases(const ModelSpec& spec, const Machine& machine, ops::WeightFormat format,
             std::vector<OpCase>& cases)
      : spec_(spec), kv_dtype_(machine.kv_dtype), format_(format), cases_(cases) {
    // A step reads all weights, so of a small model they stay in the caches from step to step.
    const ops::PackedMatrix row{.format = format_, .n = 1, .k = spec_.hidden};
    cold_weights_ = std::min(kColdBytes, ParametersOf(spec_).total);
    cold_bytes_ =
        std::min(kColdBytes, static_cast<int64_t>(static_cast<double>(ParametersOf(spec_).total) *
                                                  row.bytes_per_weight()));
  }

  void Add() {
    for (const LayerSpec& layer : spec_.layers) {
      std::visit([&](const auto& mixer) { AddMixer(mixer, layer); }, layer.mixer);
      std::visit([&](const auto& ffn) { AddFfn(ffn, layer); }, layer.ffn);
    }
    AddRowWork();
    for (const int64_t rows : kRows) {
      if (rows > 64) continue;  // one for each sequence that decodes
      const Cost cost = CostsOf(spec_, ShapeOf({rows, 0, 1}), rows).front();
      const LinearShape shape{rows,  spec_.vocabulary, spec_.hidden, ops::WeightFormat::kBF16,
                              false, cold_weights_};
      const auto make = [=] {
        std::vector<std::unique_ptr<OpRun>> runs;
        runs.push_back(MakeLinearRun(shape));
        runs.push_back(MakeGreedyRun(shape.rows, shape.n));
        return std::make_unique<ChainRun>(std::move(runs));
      };
      AddPart(cost, Rows(rows), make, false);
    }
  }

 private:
  StepShape ShapeOf(const BenchStep& step) const {
    const ops::PackedMatrix row{.format = format_, .n = 1, .k = spec_.hidden};
    return {.tokens = step.rows(),
            .sequences = step.sequences,
            .context_tokens = step.context,
            .bytes_per_weight = row.bytes_per_weight(),
            .kv_dtype = kv_dtype_};
  }

  void AddPart(const Cost& cost, const std::string& name,
               std::function<std::unique_ptr<OpRun>()> make, bool of_format = true) {
    cases_.push_back({.family = cost.part,
                      .name = name,
                      .weights = of_format ? format_ : ops::WeightFormat::kBF16,
                      .flops = cost.flops,
                      .bytes = cost.bytes,
                      .part = cost.part,
                      .of_format = of_format,
                      .make = std::move(make)});
  }

  // Of all layers. Few rows are of as many sequences, many of one prompt.
  void AddRowWork() {
    for (const int64_t rows : kRows) {
      const BenchStep step = rows <= 64 ? BenchStep{rows, 96, 1} : BenchStep{1, 0, rows};
      AddPart(
          RowWorkOf(spec_, rows), Rows(rows),
          [=, spec = spec_] {
            std::vector<std::unique_ptr<OpRun>> runs;
            for (const LayerSpec& layer : spec.layers) {
              runs.push_back(MakeNormRun(rows, spec.hidden));
              runs.push_back(MakeNormRun(rows, spec.hidden));
              const LinearAttention* m = std::get_if<LinearAttention>(&layer.mixer);
              if (m == nullptr) continue;
              if (m->conv_width > 1) runs.push_back(MakeConvRun(LinearShapeOf(*m), step));
              runs.push_back(
                  MakeGatedNormRun(rows, int64_t{m->value_heads} * m->value_dim, m->value_dim));
            }
            return std::make_unique<ChainRun>(std::move(runs));
          },
          false);
    }
  }

  // Products of a kind's matrices; those of a mixture's experts are left out.
  template <class Kind>
  std::vector<LinearShape> ProductsOf(const Kind& kind, const LayerSpec& layer) const {
    typename Kind::Weights unfilled;
    WeightList list;
    ListWeights(kind, LayerPlace{spec_.hidden, layer.prefix}, unfilled, list);
    std::vector<LinearShape> products;
    for (const auto& [weight, w] : list) {
      const bool experts = !w.units.empty() && w.units[0].unit == ShardUnit::kExpert;
      if (w.use != WeightUse::kMatrix || experts) continue;
      const ops::WeightFormat format =
          LayoutOf(w, ops::WeightFormat::kBF16, {.format = format_}).matrix.format;
      products.push_back({0, w.count * w.n, w.k, format, false, cold_weights_});
    }
    return products;
  }

  // False if a layer before it had the same.
  bool IsNew(const Cost& cost) {
    return seen_.insert(fmt::format("{} {} {}", cost.part, cost.flops, cost.bytes)).second;
  }

  template <class M>
  void AddMixer(const M& mixer, const LayerSpec& layer) {
    const auto costs_of = [&](const BenchStep& step) {
      return CostsOf(mixer, spec_.hidden, ShapeOf(step));
    };
    if (IsNew(costs_of({3, 64, 1})[0])) {
      const std::vector<LinearShape> products = ProductsOf(mixer, layer);
      for (const int64_t rows : kRows) {
        AddPart(costs_of({1, 0, rows})[0], Rows(rows), [=] { return Chain(products, rows); });
      }
    }
    if (!IsNew(costs_of({3, 64, 1})[1])) return;
    for (const BenchStep& step : Steps(!std::is_same_v<M, LinearAttention>)) {
      AddSteps(mixer, step);
      const Cost cost = costs_of(step)[1];
      cases_.back().flops = cost.flops;
      cases_.back().bytes = cost.bytes;
    }
  }

  // A recurrence takes the same time after any context.
  std::vector<BenchStep> Steps(bool of_contexts) const {
    std::vector<BenchStep> steps;
    for (const int64_t context : {96, 352, 1056, 4128}) {
      for (const int64_t sequences : {1, 8, 32, 64}) {
        if (!of_contexts && context > 96) continue;
        if (context < spec_.context_tokens_max && sequences * context <= kCachedTokensMax) {
          steps.push_back({sequences, context, 1, cold_bytes_});
        }
      }
    }
    // With two drafts each.
    for (const int64_t sequences : {1, 8, 32}) steps.push_back({sequences, 96, 3, cold_bytes_});
    for (const int64_t tokens : {16, 64, 256, 1024, 2048}) {
      if (tokens < spec_.context_tokens_max) steps.push_back({1, 0, tokens, cold_bytes_});
    }
    if (of_contexts && spec_.context_tokens_max > 1280)
      steps.push_back({1, 1024, 256, cold_bytes_});
    return steps;
  }

  void AddSteps(const FullAttention& m, const BenchStep& step) {
    AddAttention(cases_, {m.heads, m.kv_heads, m.head_dim, kv_dtype_}, step);
  }
  void AddSteps(const LatentAttention& m, const BenchStep& step) {
    AddAttention(cases_, {m.heads, 1, m.latent_dim + m.shared_dim, kv_dtype_, m.latent_dim, true},
                 step);
  }
  void AddSteps(const LinearAttention& m, const BenchStep& step) {
    AddLinearAttention(cases_, LinearShapeOf(m), m.rule, step);
  }
  static ops::LinearAttentionShape LinearShapeOf(const LinearAttention& m) {
    return {m.key_heads,  m.value_heads,   m.key_dim, m.value_dim,
            m.conv_width, m.channel_decay, 0,         m.state_dtype};
  }

  void AddFfn(const DenseFfn& ffn, const LayerSpec& layer) {
    if (!IsNew(CostsOf(ffn, spec_.hidden, ShapeOf({1, 0, 3}))[0])) return;
    const std::vector<LinearShape> products = ProductsOf(ffn, layer);
    for (const int64_t rows : kRows) {
      AddPart(CostsOf(ffn, spec_.hidden, ShapeOf({1, 0, rows}))[0], Rows(rows),
              [=] { return Chain(products, rows); });
    }
  }
  void AddFfn(const MoeFfn& ffn, const LayerSpec&) {
    if (!IsNew(CostsOf(ffn, spec_.hidden, ShapeOf({1, 0, 3}))[0])) return;
    const ExpertsShape shape{spec_.hidden, ffn.experts,      ffn.top_k,
                             ffn.width,    ffn.shared_width, cold_bytes_};
    for (const int64_t rows : kRows) {
      const LinearShape router{rows, ffn.experts,  spec_.hidden, ops::WeightFormat::kBF16,
                               true, cold_weights_};
      AddPart(CostsOf(ffn, spec_.hidden, ShapeOf({1, 0, rows}))[0], Rows(rows),
              [=, format = format_] {
                std::vector<std::unique_ptr<OpRun>> runs;
                runs.push_back(MakeLinearRun(router));
                runs.push_back(MakeRouteRun(rows, shape.experts, shape.top_k));
                runs.push_back(MakeExpertsRun(shape, format, rows));
                return std::make_unique<ChainRun>(std::move(runs));
              });
    }
  }

  static std::unique_ptr<OpRun> Chain(const std::vector<LinearShape>& products, int64_t rows) {
    std::vector<std::unique_ptr<OpRun>> runs;
    for (LinearShape shape : products) {
      shape.rows = rows;
      runs.push_back(MakeLinearRun(shape));
    }
    return std::make_unique<ChainRun>(std::move(runs));
  }

  const ModelSpec& spec_;
  const DType kv_dtype_;
  const ops::WeightFormat format_;
  int64_t cold_weights_ = 0, cold_bytes_ = 0;
  std::vector<OpCase>& cases_;
  std::set<std::string> seen_;
};

}  // namespace

void AddModelCases(const ModelSpec& spec, const Machine& machine, ops::WeightFormat weights,
                   std::vector<OpCase>& cases) {
  ModelCases(spec, machine, weights, cases).Add();
}

}  // namespace braid
