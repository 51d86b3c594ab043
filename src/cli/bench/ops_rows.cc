// What works on rows (norms, routing, sampling) and the thread pool's own cost.
#include <fmt/core.h>

#include <atomic>

#include "cli/bench/bench_device.h"
#include "cli/bench/ops.h"
#include "ops/attention.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/linear_attention.h"
#include "ops/norm.h"
#include "ops/sample.h"

namespace braid {
namespace {

template <class Data>
concept Moves = requires(Data data, BenchDevice& device) { data.MoveAll(device); };

// A case whose data are a few matrices and whose run is a function of them.
template <class Data, class F>
class DataRun : public OpRun {
 public:
  DataRun(std::unique_ptr<Data> data, F f) : data_(std::move(data)), f_(std::move(f)) {}
  void Run(const ops::OpContext& context, int64_t turn) override { f_(context, *data_, turn); }
  bool Move(BenchDevice& device) override {
    if constexpr (Moves<Data>) {
      data_->MoveAll(device);
      return true;
    }
    return false;
  }

 private:
  std::unique_ptr<Data> data_;
  F f_;
};

struct RowsData {
  RowsData(int64_t rows, int64_t cols) : x(rows, cols), delta(rows, cols), out(rows, cols) {}
  void MoveAll(BenchDevice& device) {
    for (BenchMatrix* matrix : {&x, &delta, &out}) matrix->Move(device);
  }
  BenchMatrix x, delta, out;
};

template <class F>
OpCase RowCase(std::string_view family, std::string_view what, int64_t rows, int64_t cols,
               double floats_per_element, F f) {
  const auto elements = static_cast<double>(rows * cols);
  return {.family = family,
          .name = fmt::format("{} {}, {}", what, cols, Rows(rows)),
          .bytes = 4 * floats_per_element * elements,
          .source = elements < (1 << 22) ? Source::kCaches : Source::kMemory,
          .make = [=]() -> std::unique_ptr<OpRun> {
            return std::make_unique<DataRun<RowsData, F>>(std::make_unique<RowsData>(rows, cols),
                                                          f);
          }};
}

struct RouteData {
  explicit RouteData(int64_t rows, int64_t experts = 64, int64_t top_k = 8)
      : logits(rows, experts), ids(static_cast<size_t>(rows * top_k)), weights(ids.size()) {
    ids_at = ids.data();
    weights_at = weights.data();
  }
  void MoveAll(BenchDevice& device) {
    logits.Move(device);
    device.Move(ids_at, std::ssize(ids));
    device.Move(weights_at, std::ssize(weights));
  }
  BenchMatrix logits;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  int32_t* ids_at = nullptr;  // here, or on a device
  float* weights_at = nullptr;
};

struct SampleData {
  // Peaked as a trained model's: nine tenths of the mass are in some hundreds of tokens.
  SampleData() : logits(1, 65536) {
    for (int64_t i = 0; i < logits.view.cols; ++i) logits.view.data[i] *= 300;
  }
  BenchMatrix logits;
  ops::SampleScratch scratch;
  TokenId token = 0;
};

struct EmbedData {
  EmbedData(int64_t rows, int64_t vocabulary, int64_t hidden)
      : table(ops::WeightFormat::kBF16, 1, vocabulary, hidden),
        ids(static_cast<size_t>(rows)),
        out(rows, hidden) {
    Rng rng(static_cast<uint64_t>(rows));
    for (TokenId& id : ids) id = static_cast<TokenId>(rng.Below(static_cast<uint64_t>(vocabulary)));
    ids_at = ids.data();
  }
  void MoveAll(BenchDevice& device) {
    table.Move(device);
    device.Move(ids_at, std::ssize(ids));
    out.Move(device);
  }
  BenchWeights table;
  std::vector<TokenId> ids;
  const TokenId* ids_at = nullptr;  // here, or on a device
  BenchMatrix out;
};

constexpr auto kNorm = [](const ops::OpContext& c, RowsData& d, int64_t) {
  ops::RmsNorm(
      c, {.x = d.x.view, .delta = d.delta.view, .weight = d.delta.view.data, .out = d.out.view});
};

void AddNorms(std::vector<OpCase>& cases, int64_t rows) {
  cases.push_back(RowCase("norm", "residual + RMS", rows, kMidHidden, 4, kNorm));
  cases.push_back(RowCase("norm", "gated, heads of 128", rows, 4096, 3,
                          [](const ops::OpContext& c, RowsData& d, int64_t) {
                            ops::GatedNorm(c, {.x = d.x.view,
                                               .gate = d.delta.view,
                                               .weight = d.delta.view.data,
                                               .head_dim = 128,
                                               .out = d.out.view});
                          }));
}

template <class F>
OpCase SampleCase(std::string_view name, F f) {
  return {.family = "sample",
          .name = fmt::format("{} of 65536", name),
          .bytes = 4.0 * 65536,
          .source = Source::kCaches,
          .make = [f]() -> std::unique_ptr<OpRun> {
            return std::make_unique<DataRun<SampleData, F>>(std::make_unique<SampleData>(), f);
          }};
}

std::span<const float> LogitsOf(const SampleData& d) {
  return {d.logits.view.data, static_cast<size_t>(d.logits.view.cols)};
}

class BarrierRun : public OpRun {
 public:
  // Every member has to take one task: each waits until all have come.
  void Run(const ops::OpContext& context, int64_t) override {
    const int threads = context.pool->threads();
    std::atomic<int> arrived{0};
    context.pool->Run(threads, [&](int64_t, int) {
      arrived.fetch_add(1);
      while (arrived.load(std::memory_order_acquire) < threads) {
      }
    });
  }
};

class LoopRun : public OpRun {
 public:
  void Run(const ops::OpContext& context, int64_t) override {
    context.pool->Run(16, [](int64_t, int) {});
  }
};

}  // namespace

std::unique_ptr<OpRun> MakeNormRun(int64_t rows, int64_t cols) {
  return std::make_unique<DataRun<RowsData, decltype(kNorm)>>(
      std::make_unique<RowsData>(rows, cols), kNorm);
}

std::unique_ptr<OpRun> MakeGatedNormRun(int64_t rows, int64_t cols, int64_t head_dim) {
  const auto run = [head_dim](const ops::OpContext& c, RowsData& d, int64_t) {
    ops::GatedNorm(c, {.x = d.x.view,
                       .gate = d.delta.view,
                       .weight = d.delta.view.data,
                       .head_dim = head_dim,
                       .out = d.out.view});
  };
  return std::make_unique<DataRun<RowsData, decltype(run)>>(std::make_unique<RowsData>(rows, cols),
                                                            run);
}

std::unique_ptr<OpRun> MakeRouteRun(int64_t rows, int64_t experts, int64_t top_k) {
  const auto run = [top_k](const ops::OpContext& c, RouteData& d, int64_t) {
    ops::Route(c, {.logits = d.logits.view,
                   .top_k = static_cast<int32_t>(top_k),
                   .ids = d.ids_at,
                   .weights = d.weights_at});
  };
  return std::make_unique<DataRun<RouteData, decltype(run)>>(
      std::make_unique<RouteData>(rows, experts, top_k), run);
}

std::unique_ptr<OpRun> MakeScalarGateRun(int64_t rows, int64_t hidden) {
  const auto run = [](const ops::OpContext& c, RowsData& d, int64_t) {
    ops::ScalarGate(c, {.x = d.x.view, .weight = d.delta.view.data, .out = d.out.view.data});
  };
  return std::make_unique<DataRun<RowsData, decltype(run)>>(
      std::make_unique<RowsData>(rows, hidden), run);
}

std::unique_ptr<OpRun> MakeSwigluRun(int64_t rows, int64_t width) {
  const auto run = [](const ops::OpContext& c, RowsData& d, int64_t) {
    ops::Swiglu(c, {.gate_up = d.x.view, .out = d.out.view.columns(0, d.x.view.cols / 2)});
  };
  return std::make_unique<DataRun<RowsData, decltype(run)>>(
      std::make_unique<RowsData>(rows, 2 * width), run);
}

std::unique_ptr<OpRun> MakeEmbedRun(int64_t rows, int64_t vocabulary, int64_t hidden) {
  const auto run = [](const ops::OpContext& c, EmbedData& d, int64_t) {
    ops::Embed(c, {.table = &d.table.all, .ids = d.ids_at, .out = d.out.view});
  };
  return std::make_unique<DataRun<EmbedData, decltype(run)>>(
      std::make_unique<EmbedData>(rows, vocabulary, hidden), run);
}

std::unique_ptr<OpRun> MakeGreedyRun(int64_t rows, int64_t vocabulary) {
  const auto run = [](const ops::OpContext& c, BenchMatrix& logits, int64_t) {
    c.pool->Run(logits.view.rows, [&](int64_t r, int) {
      const std::span<const float> row(logits.view.row(r), static_cast<size_t>(logits.view.cols));
      if (ops::StatsOf(c, row).finite) ops::ArgMax(c, row);
    });
  };
  return std::make_unique<DataRun<BenchMatrix, decltype(run)>>(
      std::make_unique<BenchMatrix>(rows, vocabulary), run);
}

void AddRowCases(std::vector<OpCase>& cases) {
  for (int64_t rows : {1, 32, 2048}) {
    AddNorms(cases, rows);
    using Route = void (*)(const ops::OpContext&, RouteData&, int64_t);
    constexpr Route kRoute = [](const ops::OpContext& c, RouteData& d, int64_t) {
      ops::Route(c,
                 {.logits = d.logits.view, .top_k = 8, .ids = d.ids_at, .weights = d.weights_at});
    };
    cases.push_back({.family = "route",
                     .name = "top 8 of 64, " + Rows(rows),
                     .bytes = 4.0 * 64 * static_cast<double>(rows),
                     .source = Source::kCaches,
                     .make = [=]() -> std::unique_ptr<OpRun> {
                       return std::make_unique<DataRun<RouteData, Route>>(
                           std::make_unique<RouteData>(rows), kRoute);
                     }});
  }
  cases.push_back(SampleCase("log-sum", [](const ops::OpContext& c, SampleData& d, int64_t) {
    d.token = ops::StatsOf(c, LogitsOf(d)).finite;
  }));
  cases.push_back(SampleCase("greedy", [](const ops::OpContext& c, SampleData& d, int64_t) {
    d.token = ops::ArgMax(c, LogitsOf(d));
  }));
  cases.push_back(SampleCase("top-p 0.9", [](const ops::OpContext& c, SampleData& d, int64_t turn) {
    const double draw = static_cast<double>(turn % 100) / 100;
    d.token = ops::Sample(c, {.top_p = 0.9f}, LogitsOf(d), draw, d.scratch);
  }));
}

void AddPoolCases(int threads, std::vector<OpCase>& cases) {
  if (threads < 2) return;
  cases.push_back({.family = "pool",
                   .name = fmt::format("barrier, {} threads", threads),
                   .make = [] { return std::make_unique<BarrierRun>(); }});
  cases.push_back({.family = "pool",
                   .name = fmt::format("loop of 16 empty tasks, {} threads", threads),
                   .make = [] { return std::make_unique<LoopRun>(); }});
}

}  // namespace braid
