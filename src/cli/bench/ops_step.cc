// See the header. The cases of single layers come from the files of their families.
#include "cli/bench/ops_step.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "forecast/calibration.h"
#include "model/loading/weight_choice.h"

namespace braid {
namespace {

constexpr int64_t kLogitsTokensMax = 4;  // of a sequence: one and its drafts

// Operations that follow each other.
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

std::vector<std::unique_ptr<OpRun>> RunsOf(const std::vector<LinearShape>& products) {
  std::vector<std::unique_ptr<OpRun>> runs;
  for (const LinearShape& shape : products) runs.push_back(MakeLinearRun(shape));
  return runs;
}

std::unique_ptr<OpRun> Chain(std::vector<std::unique_ptr<OpRun>> runs) {
  return std::make_unique<ChainRun>(std::move(runs));
}

ops::LinearAttentionShape LinearShapeOf(const LinearAttention& m) {
  return {m.key_heads,  m.value_heads,   m.key_dim, m.value_dim,
          m.conv_width, m.channel_decay, 0,         m.state_dtype};
}

class StepParts {
 public:
  StepParts(const StepModel& model, BenchStep step, bool alone)
      : spec_(model.spec), kv_dtype_(model.kv_dtype), format_(model.format), step_(step) {
    step_.cold_bytes = 1;
    if (!alone) return;
    double bytes = 0;
    for (const Cost& cost : CostsOf(spec_, Shape(), step_.sequences)) bytes += cost.bytes;
    step_.cold_bytes = std::min(kColdBytes, static_cast<int64_t>(bytes));
  }

  std::vector<OpCase> All() {
    for (const LayerSpec& layer : spec_.layers) {
      std::visit([&](const auto& mixer) { AddMixer(mixer, layer); }, layer.mixer);
      std::visit([&](const auto& ffn) { AddFfn(ffn, layer); }, layer.ffn);
    }
    AddRowWork();
    if (step_.tokens <= kLogitsTokensMax) AddHead();
    return std::move(parts_);
  }

 private:
  double BytesPerWeight(ops::WeightFormat format) const {
    return ops::PackedMatrix{.format = format, .n = 1, .k = spec_.hidden}.bytes_per_weight();
  }
  StepShape Shape() const {
    return {.tokens = step_.rows(),
            .sequences = step_.sequences,
            .context_tokens = step_.context,
            .bytes_per_weight = BytesPerWeight(format_),
            .kv_dtype = kv_dtype_};
  }

  void Add(const Cost& cost, bool of_format, std::function<std::unique_ptr<OpRun>()> make) {
    parts_.push_back({.family = cost.part,
                      .name = Rows(step_.rows()),
                      .weights = of_format ? format_ : ops::WeightFormat::kBF16,
                      .flops = cost.flops,
                      .bytes = cost.bytes,
                      .part = cost.part,
                      .of_format = of_format,
                      .make = std::move(make)});
  }

  void AddRowWork() {
    Add(RowWorkOf(spec_, step_.rows()), false,
        [layers = spec_.layers, hidden = spec_.hidden, step = step_] {
          const int64_t rows = step.rows();
          std::vector<std::unique_ptr<OpRun>> runs;
          runs.push_back(MakeNormRun(rows, hidden));
          for (const LayerSpec& layer : layers) {
            runs.push_back(MakeNormRun(rows, hidden));
            runs.push_back(MakeNormRun(rows, hidden));
            const LinearAttention* m = std::get_if<LinearAttention>(&layer.mixer);
            if (m == nullptr) continue;
            if (m->conv_width > 1) runs.push_back(MakeConvRun(LinearShapeOf(*m), step));
            runs.push_back(
                MakeGatedNormRun(rows, int64_t{m->value_heads} * m->value_dim, m->value_dim));
          }
          return Chain(std::move(runs));
        });
  }

  void AddHead() {
    const Cost cost = CostsOf(spec_, Shape(), step_.rows()).front();
    const LinearShape head{0, spec_.vocabulary, spec_.hidden, ops::WeightFormat::kBF16, false};
    Add(cost, false, [product = InTurns({head}).front()] {
      std::vector<std::unique_ptr<OpRun>> runs;
      runs.push_back(MakeEmbedRun(product.rows, product.n, product.k));
      runs.push_back(MakeLinearRun(product));
      runs.push_back(MakeGreedyRun(product.rows, product.n));
      return Chain(std::move(runs));
    });
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
      products.push_back({0, w.count * w.n, w.k, format, false});
    }
    return InTurns(std::move(products));
  }
  std::vector<LinearShape> InTurns(std::vector<LinearShape> products) const {
    double bytes = 0;
    for (const LinearShape& shape : products) {
      bytes += static_cast<double>(shape.n * shape.k) * BytesPerWeight(shape.format);
    }
    for (LinearShape& shape : products) {
      shape.rows = step_.rows();
      shape.copies = ColdCopies(static_cast<int64_t>(bytes), step_.cold_bytes);
    }
    return products;
  }

  template <class M>
  void AddMixer(const M& mixer, const LayerSpec& layer) {
    const std::vector<Cost> costs = CostsOf(mixer, spec_.hidden, Shape());
    Add(costs[0], true, [products = ProductsOf(mixer, layer)] { return Chain(RunsOf(products)); });
    AddMemory(mixer);
    parts_.back().flops = costs[1].flops;
    parts_.back().bytes = costs[1].bytes;
  }
  void AddMemory(const FullAttention& m) {
    AddAttention(parts_, {m.heads, m.kv_heads, m.head_dim, kv_dtype_}, step_,
                 {.of_layer = true, .gated = m.output_gate, .rotary_pairs = m.rotary.dims / 2});
  }
  void AddMemory(const LatentAttention& m) {
    AddAttention(parts_, {m.heads, 1, m.latent_dim + m.shared_dim, kv_dtype_, m.latent_dim, true},
                 step_, {.of_layer = true, .rotary_pairs = m.rotary.dims / 2});
  }
  void AddMemory(const LinearAttention& m) {
    AddLinearAttention(parts_, LinearShapeOf(m), m.rule, step_);
  }

  void AddFfn(const DenseFfn& ffn, const LayerSpec& layer) {
    const Cost cost = CostsOf(ffn, spec_.hidden, Shape())[0];
    Add(cost, true, [products = ProductsOf(ffn, layer), rows = step_.rows(), width = ffn.width] {
      std::vector<std::unique_ptr<OpRun>> runs = RunsOf(products);
      runs.push_back(MakeSwigluRun(rows, width));
      return Chain(std::move(runs));
    });
  }
  void AddFfn(const MoeFfn& ffn, const LayerSpec&) {
    const ExpertsShape shape{spec_.hidden, ffn.experts,      ffn.top_k,
                             ffn.width,    ffn.shared_width, step_.cold_bytes};
    const LinearShape router{
        step_.rows(), ffn.experts, spec_.hidden, ops::WeightFormat::kBF16, true, 1};
    const Cost cost = CostsOf(ffn, spec_.hidden, Shape())[0];
    Add(cost, true, [=, format = format_, gated = ffn.shared_gate] {
      std::vector<std::unique_ptr<OpRun>> runs;
      runs.push_back(MakeLinearRun(router));
      runs.push_back(MakeRouteRun(router.rows, shape.experts, shape.top_k));
      if (gated) runs.push_back(MakeScalarGateRun(router.rows, shape.hidden));
      runs.push_back(MakeExpertsRun(shape, format, router.rows));
      return Chain(std::move(runs));
    });
  }

  const ModelSpec& spec_;
  const DType kv_dtype_;
  const ops::WeightFormat format_;
  BenchStep step_;
  std::vector<OpCase> parts_;
};

class StepRun : public OpRun {
 public:
  StepRun(const std::vector<OpCase>& parts, const OpCase& alone) : alone_(alone) {
    double bytes = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto same = [&](const OpCase& other) { return IsSame(parts[i], other); };
      const bool is_new = std::none_of(parts.begin(), parts.begin() + static_cast<long>(i), same);
      if (!is_new && bytes > static_cast<double>(kColdBytes)) continue;
      bytes += parts[i].bytes;
      runs_.push_back({.run = parts[i].make(), .counts = same(alone)});
    }
  }

  void Run(const ops::OpContext& context, int64_t turn) override {
    ops::OpContext rest = context;
    rest.choices = nullptr;
    int64_t ns = 0, count = 0;
    for (const Element& element : runs_) {
      if (!element.counts) {
        element.run->Run(rest, turn);
        continue;
      }
      const int64_t start_ns = MonotonicNs();
      element.run->Run(context, turn);
      ns += MonotonicNs() - start_ns;
      ++count;
    }
    if (count > 0) counted_ns_ = static_cast<double>(ns) / static_cast<double>(count);
  }

  // Of a device's commands only whole submissions are timed: there the part runs alone.
  bool Move(BenchDevice& device) override {
    runs_.clear();
    runs_.push_back({.run = alone_.make(), .counts = true});
    return runs_.front().run->Move(device);
  }

  double counted_ns() const override { return counted_ns_; }

 private:
  struct Element {
    std::unique_ptr<OpRun> run;
    bool counts = false;
  };
  OpCase alone_;
  std::vector<Element> runs_;
  double counted_ns_ = -1;
};

}  // namespace

bool IsSame(const OpCase& a, const OpCase& b) {
  return a.part == b.part && a.flops == b.flops && a.bytes == b.bytes;
}

std::vector<OpCase> PartsOf(const StepModel& model, const BenchStep& step, bool alone) {
  return StepParts(model, step, alone).All();
}

std::unique_ptr<OpRun> MakeStepRun(const std::vector<OpCase>& parts, const OpCase& alone) {
  return std::make_unique<StepRun>(parts, alone);
}

}  // namespace braid
