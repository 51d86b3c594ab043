// GEMM of the mid model (16 layers, hidden 2048, 64 experts of width 512, 8 per token, one
// shared, vocabulary 65536): projections, router, head, experts; rows as in decode and prefill.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "cli/bench/bench_device.h"
#include "cli/bench/ops.h"
#include "ops/experts.h"
#include "ops/linear.h"

namespace braid {
namespace {

using ops::WeightFormat;

constexpr int64_t kRowCounts[] = {1, 8, 32, 2048};

class LinearRun : public OpRun {
 public:
  explicit LinearRun(const LinearShape& s)
      : exact_(s.exact),
        x_(s.rows, s.k),
        y_(s.rows, s.n),
        copies_(s.copies > 0 ? s.copies : ColdCopies(s.n * s.k)),
        weights_(s.format, copies_, s.n, s.k) {}
  void Run(const ops::OpContext& context, int64_t turn) override {
    const ops::PackedMatrix w = weights_.one(turn % copies_);
    ops::Linear(context, {.x = x_.view, .w = &w, .y = y_.view, .exact = exact_});
  }
  bool Move(BenchDevice& device) override {
    x_.Move(device);
    y_.Move(device);
    weights_.Move(device);
    return true;
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

void AddLinear(std::vector<OpCase>& cases, std::string_view what, LinearShape s) {
  cases.push_back({.family = "linear",
                   .name = fmt::format("{} {} -> {}, {}", what, s.k, s.n, Rows(s.rows)),
                   .weights = s.exact ? WeightFormat::kF32 : s.format,
                   .flops = 2 * static_cast<double>(s.n * s.k * s.rows),
                   .bytes = BytesOf(s.format, s.n, s.k),
                   .make = [s] { return std::make_unique<LinearRun>(s); }});
}

constexpr ExpertsShape kMid{
    .hidden = kMidHidden, .experts = 64, .top_k = 8, .width = 512, .shared_width = 512};

// Ascending distinct experts per token; the same for the same seed.
std::vector<int32_t> DrawExperts(const ExpertsShape& shape, int64_t rows, uint64_t seed) {
  Rng rng(seed);
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < rows; ++t) {
    std::set<int32_t> chosen;
    while (std::ssize(chosen) < shape.top_k) {
      chosen.insert(static_cast<int32_t>(rng.Below(static_cast<uint64_t>(shape.experts))));
    }
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  return ids;
}

double BytesOfExpert(const ExpertsShape& shape, WeightFormat format) {
  return 2 * BytesOf(format, shape.width, shape.hidden) +
         BytesOf(format, shape.hidden, shape.width);
}

class ExpertsRun : public OpRun {
 public:
  // Several draws, so that one token's experts are cold again when they come around: a prime, for
  // each to meet each copy.
  static constexpr int64_t kDraws = 61;

  ExpertsRun(const ExpertsShape& shape, WeightFormat format, int64_t rows)
      : shape_(shape),
        layers_(ColdCopies(shape.experts * static_cast<int64_t>(BytesOfExpert(shape, format)),
                           shape.cold_bytes)),
        x_(rows, shape.hidden),
        out_(rows, shape.hidden),
        gate_up_(format, layers_ * 2 * shape.experts, shape.width, shape.hidden),
        down_(format, layers_ * shape.experts, shape.hidden, shape.width),
        shared_gate_up_(format, layers_ * 2, std::max<int64_t>(1, shape.shared_width),
                        shape.hidden),
        shared_down_(format, layers_, shape.hidden, std::max<int64_t>(1, shape.shared_width)),
        weights_(static_cast<size_t>(rows * shape.top_k), 1.0f / static_cast<float>(shape.top_k)) {
    for (int64_t d = 0; d < kDraws; ++d) {
      ids_.push_back(DrawExperts(shape, rows, static_cast<uint64_t>(d)));
      ids_at_.push_back(ids_.back().data());
    }
    weights_at_ = weights_.data();
  }
  void Run(const ops::OpContext& context, int64_t turn) override {
    const ops::PackedMatrix gate_up = OfLayer(gate_up_.all, turn), down = OfLayer(down_.all, turn);
    const ops::PackedMatrix shared_gate_up = OfLayer(shared_gate_up_.all, turn);
    const ops::PackedMatrix shared_down = OfLayer(shared_down_.all, turn);
    const bool shared = shape_.shared_width > 0;
    ops::Experts(context, {.x = x_.view,
                           .gate_up = &gate_up,
                           .down = &down,
                           .ids = ids_at_[static_cast<size_t>(turn % kDraws)],
                           .weights = weights_at_,
                           .top_k = static_cast<int32_t>(shape_.top_k),
                           .shared_gate_up = shared ? &shared_gate_up : nullptr,
                           .shared_down = shared ? &shared_down : nullptr,
                           .out = out_.view});
  }
  bool Move(BenchDevice& device) override {
    for (BenchMatrix* matrix : {&x_, &out_}) matrix->Move(device);
    for (BenchWeights* w : {&gate_up_, &down_, &shared_gate_up_, &shared_down_}) w->Move(device);
    for (size_t d = 0; d < ids_.size(); ++d) device.Move(ids_at_[d], std::ssize(ids_[d]));
    device.Move(weights_at_, std::ssize(weights_));
    return true;
  }

 private:
  ops::PackedMatrix OfLayer(ops::PackedMatrix all, int64_t turn) const {
    all.count /= layers_;
    all.data += turn % layers_ * all.count * all.matrix_bytes();
    return all;
  }

  ExpertsShape shape_;
  int64_t layers_;
  BenchMatrix x_, out_;
  BenchWeights gate_up_, down_, shared_gate_up_, shared_down_;
  std::vector<float> weights_;
  std::vector<std::vector<int32_t>> ids_;
  const float* weights_at_ = nullptr;  // here, or on a device
  std::vector<const int32_t*> ids_at_;
};

void AddExperts(std::vector<OpCase>& cases, WeightFormat format, int64_t rows) {
  // Distinct experts, on average over the draws, and the shared one.
  double distinct = 1;
  for (int64_t d = 0; d < ExpertsRun::kDraws; ++d) {
    const std::vector<int32_t> ids = DrawExperts(kMid, rows, static_cast<uint64_t>(d));
    distinct +=
        static_cast<double>(std::set<int32_t>(ids.begin(), ids.end()).size()) / ExpertsRun::kDraws;
  }
  const double expert = 3.0 * static_cast<double>(kMid.width * kMid.hidden);
  cases.push_back({.family = "experts",
                   .name = fmt::format("64 of width 512, 8 + 1 per token, {}", Rows(rows)),
                   .weights = format,
                   .flops = 2 * expert * static_cast<double>((kMid.top_k + 1) * rows),
                   .bytes = BytesOfExpert(kMid, format) * distinct,
                   .part = "experts",
                   .of_format = true,
                   .make = [=] { return MakeExpertsRun(kMid, format, rows); }});
}

}  // namespace

std::unique_ptr<OpRun> MakeLinearRun(const LinearShape& shape) {
  return std::make_unique<LinearRun>(shape);
}

std::unique_ptr<OpRun> MakeExpertsRun(const ExpertsShape& shape, WeightFormat format,
                                      int64_t rows) {
  return std::make_unique<ExpertsRun>(shape, format, rows);
}

void AddGemmCases(WeightFormat weights, std::vector<OpCase>& cases) {
  for (int64_t rows : kRowCounts) {
    AddLinear(cases, "delta in", {rows, 12352, kMidHidden, weights, false});
    AddLinear(cases, "attention in", {rows, 9216, kMidHidden, weights, false});
    AddLinear(cases, "mixer out", {rows, kMidHidden, 4096, weights, false});
    // Never quantised, and with fp32 activations.
    AddLinear(cases, "router", {rows, kMid.experts, kMidHidden, WeightFormat::kBF16, true});
  }
  for (int64_t rows : {1, 8, 32}) {
    AddLinear(cases, "head", {rows, 65536, kMidHidden, weights, false});
  }
  AddLinear(cases, "small", {7, 96, 80, weights, false});
  for (int64_t rows : kRowCounts) AddExperts(cases, weights, rows);
}

}  // namespace braid
