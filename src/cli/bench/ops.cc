// `braid bench ops`: every op with the mid model's shapes, beside the measured limits of the
// machine, measured in the same run. The limit of a case is the larger of two times: its operations
// at the peak of the unit that computes them, its bytes at the bandwidth of where they come from.
#include "cli/bench/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/math.h"
#include "base/progress.h"
#include "base/system/control_groups.h"
#include "cli/bench/bench_device.h"
#include "cli/bench/machine_limits.h"
#include "cli/bench/statistics.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "cli/command/version.h"
#include "model/families/families.h"

namespace braid {

BenchMatrix::BenchMatrix(int64_t rows, int64_t cols)
    : memory(rows * Workspace::StrideOf(cols) * 4),
      view{memory.as<float>(), rows, cols, Workspace::StrideOf(cols)} {
  Rng rng(static_cast<uint64_t>(rows * 31 + cols));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      view.row(r)[c] = static_cast<float>(rng.Below(2001)) * 1e-3f - 1.0f;
    }
  }
}

BenchWeights::BenchWeights(ops::WeightFormat format, int64_t count, int64_t n, int64_t k)
    : all{format, count, n, k, nullptr}, memory(all.bytes()) {
  all.data = memory.data();
  Rng rng(static_cast<uint64_t>(n * 31 + k));
  // fp32 panels take fp32 rows, all other formats rows in bf16.
  const DType dtype = format == ops::WeightFormat::kF32 ? DType::kF32 : DType::kBF16;
  std::vector<std::byte> rows(static_cast<size_t>(ops::kPanelRows * k * SizeOf(dtype)));
  for (int64_t i = 0; i < ops::kPanelRows * k; ++i) {
    const float value = static_cast<float>(rng.Below(2001)) * 1e-5f - 0.01f;
    const uint16_t half = Bf16OfFloat(value);
    std::memcpy(rows.data() + i * SizeOf(dtype),
                dtype == DType::kBF16 ? static_cast<const void*>(&half) : &value,
                static_cast<size_t>(SizeOf(dtype)));
  }
  for (int64_t p = 0; p < all.panels(); ++p) {
    const std::byte* pointers[ops::kPanelRows] = {};
    for (int64_t r = 0; r < ops::kPanelRows && p * ops::kPanelRows + r < n; ++r) {
      pointers[r] = rows.data() + r * k * SizeOf(dtype);
    }
    ops::PackPanel(all, 0, p, pointers, dtype);
  }
  for (int64_t m = 1; m < count; ++m) {
    std::copy_n(all.data, all.matrix_bytes(), all.data + m * all.matrix_bytes());
  }
}

void BenchMatrix::Move(BenchDevice& device) {
  device.Move(view.data, view.rows * view.stride);
  memory = {};
}

void BenchWeights::Move(BenchDevice& device) {
  device.Move(all.data, all.bytes());
  memory = {};
}

ops::PackedMatrix BenchWeights::one(int64_t matrix) const {
  return {all.format, 1, all.n, all.k, all.data + matrix * all.matrix_bytes()};
}

int64_t ColdCopies(int64_t bytes, int64_t cold) {
  return std::clamp<int64_t>(CeilDiv(cold, std::max<int64_t>(1, bytes)), 1, 4096);
}

std::string Rows(int64_t rows) { return fmt::format("{} row{}", rows, rows == 1 ? "" : "s"); }

namespace {

struct OpResult {
  const OpCase* op = nullptr;
  std::string taken;  // the candidate
  double ns_median = 0;
  double ns_min = 0;
  double memory_read = 0;  // bytes per second, before and after; 0 where memory is not the source
  double peak = 0;         // operations per second of the unit, the best so far and after the case
  double limit_ns = 0;     // 0: none
  std::string limited_by;
};

// Seconds that a sample must last, so that the clock does not matter.
constexpr double kSampleSeconds = 100e-6;
constexpr double kCaseSeconds = 0.15;
// Likewise on a device, where a sample is a submission.
constexpr double kSubmissionSeconds = 2e-3;
// Of reading memory, before and after each case: a shared machine gives twice as much at times.
constexpr double kMemorySeconds = 0.1;

class BenchOpsCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Optional("FAMILY", family_, "Only this family (default: all)");
    flags.Text("--filter", filter_, "Only cases whose name contains this");
    flags.Text("--model", model_,
               "Parts of this model's steps instead (a config.json or its directory): what "
               "braid plan --calibration needs");
    std::vector<std::string> formats;
    for (const auto& format : ops::WeightFormats()) formats.emplace_back(format.name);
    flags.Choice("--weights", weights_, std::move(formats), "Format of the weights");
    flags.Number("--repeat", repeat_, {5, 1000}, "Least measurements per case; medians are shown");
    flags.Switch("--list", list_, "Print the names of the cases only");
    flags.Switch("--json", json_, "Print a JSON object");
    flags.Text("--device", options_.device,
               "Where ops run: cpu; vulkan or vulkan:N, beside the limits that are measured there");
    AddDeviceFlags(flags, options_);
    AddCacheTypeFlags(flags, options_);
  }
  Status Run() override;

 private:
  ops::WeightFormat Weights() const;
  Result<std::vector<OpCase>> Cases(const Machine& machine) const;
  Status OpenDevice();
  OpResult Measure(const OpCase& op, ThreadPool& pool, const MemoryMeter& memory) const;
  Result<OpResult> MeasureThere(const OpCase& op, ThreadPool& pool);
  Status MeasureAll(const std::vector<OpCase>& cases, std::vector<OpResult>& results);
  void SetLimit(OpResult& result) const;
  void PrintMachine() const;
  void PrintTable(const std::vector<OpResult>& results) const;
  json::object HardwareObject() const;
  void PrintJson(const std::vector<OpResult>& results) const;

  EngineOptions options_;
  Machine machine_;
  MachineLimits limits_;                 // of the CPU
  std::unique_ptr<BenchDevice> device_;  // null: ops run on the CPU
  // Cases that the device does not run, and why.
  std::vector<std::pair<std::string, std::string>> left_out_;
  std::string family_, filter_, model_;
  std::string weights_ = "bf16";
  int32_t repeat_ = 5;
  bool list_ = false;
  bool json_ = false;
};

ops::WeightFormat BenchOpsCommand::Weights() const {
  return *WeightChoiceOf(weights_, false).format;
}

Result<std::vector<OpCase>> BenchOpsCommand::Cases(const Machine& machine) const {
  std::vector<OpCase> cases;
  if (!model_.empty()) {
    ASSIGN_OR_RETURN(ModelSpec spec, ReadModelConfig(model_));
    PlanState(spec, 0, machine.state_dtype);
    AddModelCases(spec, machine, Weights(), cases);
  } else {
    AddGemmCases(Weights(), cases);
    AddMixerCases(machine, cases);
    AddRowCases(cases);
    AddPoolCases(machine.threads, cases);
  }
  std::vector<std::string_view> families;
  for (const OpCase& op : cases) {
    if (std::find(families.begin(), families.end(), op.family) == families.end()) {
      families.push_back(op.family);
    }
  }
  if (!family_.empty() && std::find(families.begin(), families.end(), family_) == families.end()) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("no family \"{}\": one of {}", family_, fmt::join(families, ", "))};
  }
  std::erase_if(cases, [&](const OpCase& op) {
    return (!family_.empty() && op.family != family_) || op.name.find(filter_) == std::string::npos;
  });
  if (cases.empty()) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("no case's name contains \"{}\"; --list shows them", filter_)};
  }
  return cases;
}

OpResult BenchOpsCommand::Measure(const OpCase& op, ThreadPool& pool,
                                  const MemoryMeter& memory) const {
  OpResult result{.op = &op};
  const bool from_memory = op.source == Source::kMemory;
  const std::unique_ptr<OpRun> run = op.make();
  Workspace measuring = Workspace::Measuring();
  ops::OpContext context{machine_.device, &pool, &measuring, nullptr};
  run->Run(context, 0);
  Workspace workspace(std::max<int64_t>(64, measuring.peak()));
  ops::OpChoices choices;
  context.workspace = &workspace;
  context.choices = &choices;
  int64_t turn = 0;
  const auto sample = [&](int64_t runs) {
    const int64_t start_ns = MonotonicNs();
    double counted_ns = -1;
    for (int64_t i = 0; i < runs; ++i) {
      run->Run(context, turn++);
      if (run->counted_ns() >= 0) counted_ns = std::max(0.0, counted_ns) + run->counted_ns();
    }
    return counted_ns >= 0 ? counted_ns : static_cast<double>(MonotonicNs() - start_ns);
  };
  sample(1);
  if (!choices.choices.empty()) result.taken = choices.choices.back().taken;
  context.choices = nullptr;
  int64_t runs = 1;
  while (runs < (1 << 20) && sample(runs) < kSampleSeconds * 1e9) runs *= 2;
  const double memory_before = from_memory ? memory.Read(kMemorySeconds) : 0.0;
  std::vector<double> ns;
  const int64_t begin_ns = MonotonicNs();
  while (static_cast<int32_t>(ns.size()) < repeat_ ||
         static_cast<double>(MonotonicNs() - begin_ns) < kCaseSeconds * 1e9) {
    ns.push_back(sample(runs) / static_cast<double>(runs));
  }
  if (from_memory) result.memory_read = (memory_before + memory.Read(kMemorySeconds)) / 2;
  const Unit unit = UnitFor(machine_.device, op.weights);
  result.peak = limits_.PeakOf(unit);
  if (op.flops > 0) result.peak = std::max(result.peak, MeasureUnit(unit, pool));
  result.ns_median = Median(ns);
  result.ns_min = *std::min_element(ns.begin(), ns.end());
  SetLimit(result);
  return result;
}

// Data are uploaded first; commands are recorded before the clock runs, which sees a submission and
// its end.
Result<OpResult> BenchOpsCommand::MeasureThere(const OpCase& op, ThreadPool& pool) {
  OpResult result{.op = &op};
  const auto lacks = [](std::string why) { return Error{ErrorCode::kInvalid, std::move(why)}; };
  device_->BeginCase();
  const std::unique_ptr<OpRun> run = op.make();
  Workspace measuring = Workspace::Measuring();
  std::string missing;
  ops::OpContext context{.device = {.vulkan = true}, .pool = &pool, .workspace = &measuring};
  context.missing = &missing;
  run->Run(context, 0);
  if (!missing.empty()) return lacks(missing);
  if (!run->Move(*device_)) return lacks("it is the CPU's");
  Workspace workspace = device_->MakeWorkspace(measuring.peak());
  RETURN_IF_ERROR(device_->status());
  ops::OpChoices choices;
  context.workspace = &workspace;
  context.choices = &choices;
  context.recorder = &device_->recorder();
  int64_t turn = 0;
  const auto sample = [&](int64_t runs) -> Result<double> {
    for (int64_t i = 0; i < runs; ++i) run->Run(context, turn++);
    const int64_t start_ns = MonotonicNs();
    RETURN_IF_ERROR(device_->recorder().Finish());
    return static_cast<double>(MonotonicNs() - start_ns);
  };
  if (const Result<double> first = sample(1); !first) return first.error();
  if (!choices.choices.empty()) result.taken = choices.choices.back().taken;
  context.choices = nullptr;
  int64_t runs = 1;
  for (double took = 0; runs < (1 << 12) && took < kSubmissionSeconds * 1e9; runs *= 2) {
    ASSIGN_OR_RETURN(took, sample(runs));
  }
  const bool from_memory = op.source == Source::kMemory;
  double before = 0;
  if (from_memory) {
    ASSIGN_OR_RETURN(before, device_->MeasureReading());
  }
  std::vector<double> ns;
  const int64_t begin_ns = MonotonicNs();
  while (static_cast<int32_t>(ns.size()) < repeat_ ||
         static_cast<double>(MonotonicNs() - begin_ns) < kCaseSeconds * 1e9) {
    ASSIGN_OR_RETURN(const double took, sample(runs));
    ns.push_back(took / static_cast<double>(runs));
  }
  if (from_memory) {
    ASSIGN_OR_RETURN(const double after, device_->MeasureReading());
    result.memory_read = (before + after) / 2;
  }
  result.peak = device_->limits().fp32_operations_per_second;
  result.ns_median = Median(ns);
  result.ns_min = *std::min_element(ns.begin(), ns.end());
  const double compute_ns = op.flops / result.peak * 1e9;
  const double bytes_ns = result.memory_read > 0 ? op.bytes / result.memory_read * 1e9 : 0;
  result.limit_ns = std::max(compute_ns, bytes_ns);
  if (result.limit_ns > 0) result.limited_by = compute_ns > bytes_ns ? "fp32" : "memory";
  return result;
}

void BenchOpsCommand::SetLimit(OpResult& result) const {
  const OpCase& op = *result.op;
  const Unit unit = UnitFor(machine_.device, op.weights);
  const Bandwidth& bandwidth = limits_.bandwidth;
  // Activations: of a few rows they stay in the second-level caches.
  const bool small = op.bytes <= (512 << 10) * double(machine_.threads);
  const auto [source, rate] = op.source == Source::kMemory ? std::pair{"memory", result.memory_read}
                              : small                      ? std::pair{"L2", bandwidth.l2_read}
                                                           : std::pair{"L3", bandwidth.l3_read};
  const double compute_ns = op.flops / result.peak * 1e9;
  const double bytes_ns = op.bytes / rate * 1e9;
  result.limit_ns = std::max(compute_ns, bytes_ns);
  if (result.limit_ns == 0) return;
  result.limited_by = compute_ns > bytes_ns ? NameOf(unit) : source;
}

void BenchOpsCommand::PrintMachine() const {
  if (device_) {
    fmt::print("{} ({}), products in fp32, weights {}; medians, % of the limit\n\n",
               device_->facts().name, device_->facts().driver, weights_);
    const vulkan::DeviceLimits& limits = device_->limits();
    fmt::print("{:<20} {:>8.1f} Gop/s\n", "fp32", limits.fp32_operations_per_second * 1e-9);
    fmt::print("{:<20} {:>8.1f} GB/s\n", "memory", limits.read_bytes_per_second * 1e-9);
    fmt::print("{:<20} {:>8.1f} us\n", "start of a kernel", limits.start_seconds * 1e6);
    return;
  }
  fmt::print("{}, {} threads, {}, products in {}, weights {}; medians, % of the limit\n\n",
             machine_.cpu.model_name, machine_.threads, NameOf(machine_.device.isa),
             machine_.device.compute == Compute::kF32 ? "fp32" : "bf16", weights_);
  for (const UnitPeak& peak : limits_.units) {
    fmt::print("{:<20} {:>8.1f} Gop/s\n", NameOf(peak.unit), peak.operations_per_second * 1e-9);
  }
  const Bandwidth& bandwidth = limits_.bandwidth;
  for (const auto& [name, rate] :
       {std::pair{"memory", bandwidth.memory_read}, std::pair{"L3", bandwidth.l3_read},
        std::pair{"L2", bandwidth.l2_read}}) {
    fmt::print("{:<20} {:>8.1f} GB/s\n", name, rate * 1e-9);
  }
}

void BenchOpsCommand::PrintTable(const std::vector<OpResult>& results) const {
  PrintMachine();
  std::string_view family;
  for (const OpResult& result : results) {
    const OpCase& op = *result.op;
    if (op.family != family) fmt::print("\n{}\n", op.family);
    family = op.family;
    fmt::print("  {:<44} {:>12.2f} us {:>8.1f} GFLOP/s {:>7.1f} GB/s", op.name,
               result.ns_median * 1e-3, op.flops / result.ns_median, op.bytes / result.ns_median);
    if (result.limit_ns > 0) {
      fmt::print("  {:>5.1f} % of {}", result.limit_ns / result.ns_median * 100, result.limited_by);
      if (result.limited_by == "memory") fmt::print(" ({:.1f} GB/s)", result.memory_read * 1e-9);
    }
    fmt::print("  {}\n", result.taken);
  }
  if (!left_out_.empty()) fmt::print("\nnot on this device\n");
  for (const auto& [name, why] : left_out_) fmt::print("  {:<44} {}\n", name, why);
}

// As a file of `braid plan --hardware`, for `--calibration`.
json::object BenchOpsCommand::HardwareObject() const {
  json::object numbers;
  const auto add = [&](std::string_view key, double value, std::string_view what) {
    numbers[key] = {{"value", value}, {"source", fmt::format("`braid bench ops`: {}", what)}};
  };
  add("memory_bytes", static_cast<double>(AvailableMemory()), "memory that is available");
  add("memory_bytes_per_second", limits_.bandwidth.memory_read, "memory_read");
  using enum ops::WeightFormat;
  for (const auto& [key, format] : {std::pair{"bf16_flops", kBF16}, std::pair{"fp8_flops", kF8},
                                    std::pair{"int8_flops", kI8}, std::pair{"int4_flops", kI4}}) {
    const Unit unit = UnitFor(machine_.device, format);
    add(key, limits_.PeakOf(unit), KeyOf(unit));
  }
  return {{"name", machine_.cpu.model_name},
          {"description", fmt::format("{}, {} threads", machine_.cpu.model_name, machine_.threads)},
          {"numbers", std::move(numbers)}};
}

void BenchOpsCommand::PrintJson(const std::vector<OpResult>& results) const {
  json::array rows;
  for (const OpResult& result : results) {
    const OpCase& op = *result.op;
    rows.push_back(json::object{{"family", op.family},
                                {"name", op.name},
                                {"candidate", result.taken},
                                {"part", op.part},
                                {"format", op.of_format ? weights_ : ""},
                                {"ns_median", result.ns_median},
                                {"ns_min", result.ns_min},
                                {"flops", op.flops},
                                {"bytes", op.bytes},
                                {"memory_read", result.memory_read},
                                {"peak", result.peak},
                                {"limit_ns", result.limit_ns},
                                {"limited_by", result.limited_by},
                                {"fraction_of_limit", result.limit_ns / result.ns_median}});
  }
  json::object limits = device_ ? device_->LimitsObject() : LimitsObject(limits_);
  json::array left_out;
  for (const auto& [name, why] : left_out_) {
    left_out.push_back(json::object{{"name", name}, {"why", why}});
  }
  const json::object out{{"version", kVersion},
                         {"device", device_ ? device_->facts().name : std::string("cpu")},
                         {"left_out", std::move(left_out)},
                         {"cpu", machine_.cpu.model_name},
                         {"cores", machine_.cpu.topology.cores.size()},
                         {"threads", machine_.threads},
                         {"isa", NameOf(machine_.device.isa)},
                         {"compute", machine_.device.compute == Compute::kF32 ? "fp32" : "bf16"},
                         {"kv_dtype", NameOf(machine_.kv_dtype)},
                         {"state_dtype", NameOf(machine_.state_dtype)},
                         {"weights", weights_},
                         {"hardware", device_ ? json::object() : HardwareObject()},
                         {"compiler", __VERSION__},
                         {"limits", std::move(limits)},
                         {"results", std::move(rows)}};
  fmt::print("{}\n", json::serialize(out));
}

Status BenchOpsCommand::Run() {
  ASSIGN_OR_RETURN(machine_, ResolveMachine(options_));
  if (!list_) RETURN_IF_ERROR(OpenDevice());
  ASSIGN_OR_RETURN(const std::vector<OpCase> cases, Cases(machine_));
  if (list_) {
    for (const OpCase& op : cases) fmt::print("{:<18} {}\n", op.family, op.name);
    return {};
  }
  std::vector<OpResult> results;
  RETURN_IF_ERROR(MeasureAll(cases, results));
  json_ ? PrintJson(results) : PrintTable(results);
  return {};
}

// Leaves out the cases that the device lacks a kernel or memory for; a device that fails ends it.
Status BenchOpsCommand::MeasureAll(const std::vector<OpCase>& cases,
                                   std::vector<OpResult>& results) {
  ThreadPool pool(machine_.threads, machine_.places);
  pool.BindCaller();
  std::optional<MemoryMeter> memory;
  if (!device_) {
    limits_ = MeasureLimits(machine_.cpu, machine_.device.isa, pool);
    memory.emplace(machine_.device.isa, pool);
  }
  ProgressBar bar("bench", 0);
  for (const OpCase& op : cases) {
    bar.Show(static_cast<double>(results.size()) / static_cast<double>(cases.size()));
    if (memory) {
      results.push_back(Measure(op, pool, *memory));
    } else if (auto result = MeasureThere(op, pool); result) {
      results.push_back(*std::move(result));
    } else if (const ErrorCode code = result.error().code;
               code == ErrorCode::kInvalid || code == ErrorCode::kExhausted) {
      left_out_.emplace_back(fmt::format("{} {}", op.family, op.name), result.error().message);
    } else {
      return result.error();
    }
  }
  return {};
}

// As the engine computes there (EngineDevice::Open).
Status BenchOpsCommand::OpenDevice() {
  ASSIGN_OR_RETURN(device_, BenchDevice::Open(options_));
  if (!device_) return {};
  machine_.device.compute = Compute::kF32;
  if (options_.kv_dtype == "auto") machine_.kv_dtype = DType::kF32;
  return {};
}

}  // namespace

CommandPointer MakeBenchOpsCommand() { return std::make_unique<BenchOpsCommand>(); }

}  // namespace braid
