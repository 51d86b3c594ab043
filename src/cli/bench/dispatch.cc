// `braid bench dispatch`: what it takes to bring tokens to the experts of other ranks and their
// rows back, in both forms (ops::Ranks::parcel_rows), turn by turn in one run. The experts are
// narrow, so that the exchange is what is measured. Ranks are threads, or mpirun's processes.
#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/math.h"
#include "base/quantities.h"
#include "base/rng.h"
#include "cli/bench/ops.h"
#include "cli/bench/statistics.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "engine/engine_ranks.h"
#include "ops/ranks.h"

namespace braid {
namespace {

constexpr struct {
  int64_t experts = 64, top_k = 8, width = 16;
} kMoe;
constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 32, 64, 128, 512, 2048};
constexpr std::string_view kForms[] = {"throughput", "latency"};

// One rank's tokens and experts.
class DispatchRank {
 public:
  DispatchRank(const Machine& machine, ops::Ranks ranks, int64_t hidden)
      : machine_(machine),
        ranks_(std::move(ranks)),
        hidden_(hidden),
        pool_(1),
        gate_up_(ops::WeightFormat::kBF16, 2 * Own(kMoe.experts), kMoe.width, hidden),
        down_(ops::WeightFormat::kBF16, Own(kMoe.experts), hidden, kMoe.width) {}

  // Nanoseconds, bytes sent to other ranks and calls of one exchange of so many rows of all ranks.
  struct Sample {
    double ns = 0, bytes = 0, calls = 0;
  };
  Result<Sample> Measure(int64_t rows, bool parcels, int64_t loops) {
    Communicator& group = *ranks_.experts;
    const int64_t own = Own(rows);
    const BenchMatrix x(std::max<int64_t>(1, own), hidden_),
        out(std::max<int64_t>(1, own), hidden_);
    std::vector<int32_t> ids = Draw(own);
    const std::vector<float> weights(ids.size(), 1.0f / kMoe.top_k);
    ranks_.parcel_rows = parcels ? CeilDiv(rows, int64_t{group.size()}) : 0;
    const ops::DividedExpertsArgs args{.x = x.view.first_rows(own),
                                       .gate_up = &gate_up_.all,
                                       .down = &down_.all,
                                       .ids = ids.data(),
                                       .weights = weights.data(),
                                       .top_k = kMoe.top_k,
                                       .out = out.view.first_rows(own)};
    Workspace measuring = Workspace::Measuring();
    ops::OpContext context{machine_.device, &pool_, &measuring, nullptr, &ranks_};
    ops::DividedExperts(context, args);
    Workspace workspace(measuring.peak());
    context.workspace = &workspace;
    ops::DividedExperts(context, args);
    RETURN_IF_ERROR(group.Barrier());
    const Traffic before = group.traffic();
    const int64_t start_ns = MonotonicNs();
    for (int64_t i = 0; i < loops; ++i) ops::DividedExperts(context, args);
    RETURN_IF_ERROR(ranks_.status);
    const int64_t end_ns = MonotonicNs();
    const Traffic& after = group.traffic();
    const auto each = [&](int64_t all) {
      return static_cast<double>(all) / static_cast<double>(loops);
    };
    return Sample{each(end_ns - start_ns), each(after.bytes - before.bytes),
                  each(after.calls - before.calls)};
  }

 private:
  int64_t Own(int64_t total) const {
    return PartOf(total, ranks_.experts->rank(), ranks_.experts->size()).count;
  }
  // Ascending distinct experts of each token.
  std::vector<int32_t> Draw(int64_t rows) const {
    Rng rng(static_cast<uint64_t>(ranks_.experts->rank()));
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < rows; ++t) {
      std::set<int32_t> chosen;
      while (chosen.size() < kMoe.top_k) {
        chosen.insert(static_cast<int32_t>(rng.Below(kMoe.experts)));
      }
      ids.insert(ids.end(), chosen.begin(), chosen.end());
    }
    return ids;
  }

  const Machine& machine_;
  ops::Ranks ranks_;
  const int64_t hidden_;
  ThreadPool pool_;
  BenchWeights gate_up_, down_;
};

class BenchDispatchCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Number("--ranks", options_.mesh.dp, {2, 64}, "Ranks that divide 64 experts (default: 2)");
    flags.Number("--hidden", hidden_, {16, 1 << 16}, "Channels of a token (default: 2048)");
    flags.Number("--repeat", repeat_, {1, 1000},
                 "Number of measurements; the medians are reported");
    flags.Switch("--json", json_, "Print a JSON object");
    AddDeviceFlags(flags, options_);
  }
  Status Run() override;

 private:
  struct Row {
    int64_t rows = 0;
    std::vector<double> ns[2];
    DispatchRank::Sample last[2];
  };
  // All ranks measure the same; the first one's figures are kept.
  Status Serve(DispatchRank& rank, std::vector<Row>* rows) const;
  void Print(const std::vector<Row>& rows) const;

  EngineOptions options_ = [] {
    EngineOptions options;
    options.mesh.dp = 2;
    return options;
  }();
  int32_t hidden_ = 2048;
  int32_t repeat_ = 9;
  bool json_ = false;
};

Status BenchDispatchCommand::Serve(DispatchRank& rank, std::vector<Row>* rows) const {
  constexpr int64_t kRowsOfASample = 2048, kLoopsMost = 100;
  for (const int64_t count : kRows) {
    Row row{.rows = count};
    const int64_t loops = std::min(kLoopsMost, std::max<int64_t>(1, kRowsOfASample / count));
    for (int32_t i = 0; i < repeat_; ++i) {
      for (size_t form = 0; form < 2; ++form) {
        ASSIGN_OR_RETURN(row.last[form], rank.Measure(count, form == 1, loops));
        row.ns[form].push_back(row.last[form].ns);
      }
    }
    if (rows != nullptr) rows->push_back(std::move(row));
  }
  return {};
}

void BenchDispatchCommand::Print(const std::vector<Row>& rows) const {
  json::array out;
  if (!json_) {
    fmt::print("{} ranks, {} of 64 experts a token of {} channels; of the first rank\n\n{:>6}",
               options_.mesh.dp, kMoe.top_k, hidden_, "rows");
    for (const std::string_view form : kForms) {
      fmt::print("  {:>12} {:>8} {:>10}", form, "messages", "bytes");
    }
    fmt::print("  {}\n", "time of latency by throughput");
  }
  for (const Row& row : rows) {
    const double ns[] = {Median(row.ns[0]), Median(row.ns[1])};
    json::object line{{"rows", row.rows}, {"latency_by_throughput", ns[1] / ns[0]}};
    if (!json_) fmt::print("{:>6}", row.rows);
    for (size_t form = 0; form < 2; ++form) {
      const DispatchRank::Sample& last = row.last[form];
      line[kForms[form]] = {{"ns", ns[form]}, {"messages", last.calls}, {"bytes", last.bytes}};
      if (json_) continue;
      fmt::print("  {:>9.1f} us {:>8.0f} {:>10.0f}", ns[form] * 1e-3, last.calls, last.bytes);
    }
    if (!json_) fmt::print("  {:.2f}\n", ns[1] / ns[0]);
    out.push_back(std::move(line));
  }
  if (json_) {
    fmt::print("{}\n",
               json::serialize(json::object{
                   {"ranks", options_.mesh.dp}, {"hidden", hidden_}, {"results", std::move(out)}}));
  }
}

Status BenchDispatchCommand::Run() {
  options_.mesh.ep = options_.mesh.dp;
  if (kMoe.experts % options_.mesh.ep != 0) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("--ranks {} does not divide {} experts", options_.mesh.ep,
                             kMoe.experts),
                 "ranks"};
  }
  ASSIGN_OR_RETURN(const Machine machine, ResolveMachine(options_));
  ASSIGN_OR_RETURN(const std::unique_ptr<EngineRanks> ranks, EngineRanks::Create(options_));
  std::vector<Row> rows;
  std::vector<Status> ended(ranks->here().size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ended.size(); ++i) {
    threads.emplace_back([&, i, number = ranks->here()[i]] {
      DispatchRank rank(machine, ranks->Groups(number), hidden_);
      ended[i] = Serve(rank, number == 0 ? &rows : nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : ended) RETURN_IF_ERROR(status);
  if (!rows.empty()) Print(rows);
  return {};
}

}  // namespace

CommandPointer MakeBenchDispatchCommand() { return std::make_unique<BenchDispatchCommand>(); }

}  // namespace braid
