// GEMM of the mid model (16 layers, hidden 2048, 64 experts of width 512, 8 per token, one
// shared, vocabulary 65536): projections, router, head, experts; rows as in decode and prefill.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "cli/bench/ops.h"
#include "ops/experts.h"
#include "ops/linear.h"

namespace braid {
namespace {

using ops::WeightFormat;

constexpr int64_t kHidden = 2048;
constexpr int64_t kRowCounts[] = {1, 8, 32, 2048};

class LinearRun : public OpRun {
 public:
  struct Shape {
    int64_t rows, n, k;
    WeightFormat format;
    bool exact;
  };
  explicit LinearRun(const Shape& s)
      : exact_(s.exact),
        x_(s.rows, s.k),
        y_(s.rows, s.n),
        copies_(ColdCopies(s.n * s.k)),
        weights_(s.format, copies_, s.n, s.k) {}
  void Run(const ops::OpContext& context, int64_t turn) override {
    const ops::PackedMatrix w = weights_.one(turn % copies_);
    ops::Linear(context, {.x = x_.view, .w = &w, .y = y_.view, .exact = exact_});
  }

 private:
  bool exact_;
  BenchMatrix x_, y_;
  int64_t copies_;
  BenchWeights weights_;
};

double BytesOf(WeightFormat format, int64_t n, int64_t k) {
  return static_cast<double>(ops::PackedMatrix{format, 1, n, k, nullptr}.bytes());
}

void AddLinear(std::vector<OpCase>& cases, std::string_view what, LinearRun::Shape s) {
  cases.push_back({.family = "linear",
                   .name = fmt::format("{} {} -> {}, {}", what, s.k, s.n, Rows(s.rows)),
                   .weights = s.exact ? WeightFormat::kF32 : s.format,
                   .flops = 2 * static_cast<double>(s.n * s.k * s.rows),
                   .bytes = BytesOf(s.format, s.n, s.k),
                   .make = [s] { return std::make_unique<LinearRun>(s); }});
}

constexpr int64_t kExperts = 64, kTopK = 8, kWidth = 512;

// Ascending distinct experts per token; the same for the same seed.
std::vector<int32_t> DrawExperts(int64_t rows, uint64_t seed) {
  Rng rng(seed);
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < rows; ++t) {
    std::set<int32_t> chosen;
    while (chosen.size() < kTopK) {
      chosen.insert(static_cast<int32_t>(rng.Below(static_cast<uint64_t>(kExperts))));
    }
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  return ids;
}

class ExpertsRun : public OpRun {
 public:
  // Several draws, so that one token's experts are cold again when they come around.
  static constexpr int64_t kDraws = 16;

  ExpertsRun(WeightFormat format, int64_t rows)
      : x_(rows, kHidden),
        out_(rows, kHidden),
        gate_up_(format, 2 * kExperts, kWidth, kHidden),
        down_(format, kExperts, kHidden, kWidth),
        shared_gate_up_(format, 2, kWidth, kHidden),
        shared_down_(format, 1, kHidden, kWidth),
        weights_(static_cast<size_t>(rows * kTopK), 1.0f / kTopK) {
    for (int64_t d = 0; d < kDraws; ++d)
      ids_.push_back(DrawExperts(rows, static_cast<uint64_t>(d)));
  }
  void Run(const ops::OpContext& context, int64_t turn) override {
    ops::Experts(context, {.x = x_.view,
                           .gate_up = &gate_up_.all,
                           .down = &down_.all,
                           .ids = ids_[static_cast<size_t>(turn % kDraws)].data(),
                           .weights = weights_.data(),
                           .top_k = kTopK,
                           .shared_gate_up = &shared_gate_up_.all,
                           .shared_down = &shared_down_.all,
                           .out = out_.view});
  }

 private:
  BenchMatrix x_, out_;
  BenchWeights gate_up_, down_, shared_gate_up_, shared_down_;
  std::vector<float> weights_;
  std::vector<std::vector<int32_t>> ids_;
};

void AddExperts(std::vector<OpCase>& cases, WeightFormat format, int64_t rows) {
  // Distinct experts, on average over the draws, and the shared one.
  double distinct = 1;
  for (int64_t d = 0; d < ExpertsRun::kDraws; ++d) {
    const std::vector<int32_t> ids = DrawExperts(rows, static_cast<uint64_t>(d));
    distinct +=
        static_cast<double>(std::set<int32_t>(ids.begin(), ids.end()).size()) / ExpertsRun::kDraws;
  }
  const double expert = 3.0 * kWidth * kHidden;
  const double expert_bytes =
      2 * BytesOf(format, kWidth, kHidden) + BytesOf(format, kHidden, kWidth);
  cases.push_back({.family = "experts",
                   .name = fmt::format("64 of width 512, 8 + 1 per token, {}", Rows(rows)),
                   .weights = format,
                   .flops = 2 * expert * (kTopK + 1) * static_cast<double>(rows),
                   .bytes = expert_bytes * distinct,
                   .make = [=] { return std::make_unique<ExpertsRun>(format, rows); }});
}

}  // namespace

void AddGemmCases(WeightFormat weights, std::vector<OpCase>& cases) {
  for (int64_t rows : kRowCounts) {
    AddLinear(cases, "delta in", {rows, 12352, kHidden, weights, false});
    AddLinear(cases, "attention in", {rows, 9216, kHidden, weights, false});
    AddLinear(cases, "mixer out", {rows, kHidden, 4096, weights, false});
    // Never quantised, and with fp32 activations.
    AddLinear(cases, "router", {rows, kExperts, kHidden, WeightFormat::kBF16, true});
  }
  for (int64_t rows : {1, 8, 32}) {
    AddLinear(cases, "head", {rows, 65536, kHidden, weights, false});
  }
  AddLinear(cases, "small", {7, 96, 80, weights, false});
  for (int64_t rows : kRowCounts) AddExperts(cases, weights, rows);
}

}  // namespace braid
