// `braid bench load`: compares loading a model with the least it can take, which is reading the
// checkpoint's files into new memory with as many threads. Both run alternately, with the files in
// the page cache or, with --cold, on disk.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <set>

#include "base/clock.h"
#include "base/math.h"
#include "base/quantities.h"
#include "base/system/control_groups.h"
#include "cli/bench/statistics.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "cli/command/flags.h"
#include "comm/launch.h"
#include "engine/engine.h"
#include "model/families/families.h"
#include "tensor/tensor.h"

namespace braid {
namespace {

constexpr int64_t kReadBytes = int64_t{4} << 20;
constexpr int64_t kAheadBytes = int64_t{64} << 20;

struct SourceFile {
  std::string path;
  int fd = -1;
  int64_t bytes = 0;
};

// A checkpoint's files, open; move-only.
class SourceFiles {
 public:
  static Result<SourceFiles> Open(const std::string& directory) {
    ASSIGN_OR_RETURN(const OpenedModel model, OpenModel(directory));
    std::set<std::string> paths;
    for (const auto& [name, tensor] : model.checkpoint.tensors()) {
      paths.insert(model.checkpoint.file_path(tensor));
    }
    SourceFiles out;
    for (const std::string& path : paths) {
      struct stat status = {};
      const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0 || ::fstat(fd, &status) != 0) {
        return Error{ErrorCode::kUnavailable, fmt::format("cannot open {}", path)};
      }
      out.files_.push_back({path, fd, status.st_size});
    }
    return out;
  }
  SourceFiles() = default;
  SourceFiles(SourceFiles&& other) noexcept { std::swap(files_, other.files_); }
  ~SourceFiles() {
    for (const SourceFile& file : files_) ::close(file.fd);
  }

  int64_t bytes() const {
    int64_t sum = 0;
    for (const SourceFile& file : files_) sum += file.bytes;
    return sum;
  }

  // Drops them from the page cache.
  void Forget() const {
    for (const SourceFile& file : files_) ::posix_fadvise(file.fd, 0, 0, POSIX_FADV_DONTNEED);
  }

  // Reads all of them into newly allocated memory.
  Result<double> ReadSeconds(ThreadPool& pool) const {
    if (const int64_t available = AvailableMemory(); bytes() > available) {
      return Error{ErrorCode::kExhausted,
                   fmt::format("reading the files into memory, the time to compare with, takes {}; "
                               "{} are free",
                               ByteText(bytes()), ByteText(available))};
    }
    const int64_t start_us = MonotonicUs();
    std::atomic<bool> failed = false;
    const Buffer buffer(bytes());
    std::byte* to = buffer.data();
    for (const SourceFile& file : files_) {
      pool.Run(CeilDiv(file.bytes, kReadBytes), [&](int64_t task, int) {
        int64_t at = task * kReadBytes;
        // Keep more requests in the disk's queue than the readers wait for.
        ::posix_fadvise(file.fd, at + kAheadBytes, kReadBytes, POSIX_FADV_WILLNEED);
        const int64_t end = std::min(file.bytes, at + kReadBytes);
        while (at < end) {
          const ssize_t got = ::pread(file.fd, to + at, static_cast<size_t>(end - at), at);
          if (got <= 0) {
            failed = true;
            return;
          }
          at += got;
        }
      });
      to += file.bytes;
    }
    if (failed) return Error{ErrorCode::kUnavailable, "a file of the checkpoint cannot be read"};
    return static_cast<double>(MonotonicUs() - start_us) * 1e-6;
  }

 private:
  std::vector<SourceFile> files_;
};

// The most memory that the process has held since Reset.
struct PeakResident {
  static void Reset() { std::ofstream("/proc/self/clear_refs") << "5"; }
  static int64_t Bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
    }
    return 0;
  }
};

struct LoadSample {
  double read_seconds = 0;
  double load_seconds = 0;
};

class BenchLoadCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("MODEL", options_.model_dir, "Directory of the checkpoint");
    flags.Switch("--cold", cold_, "Drop the files from the page cache before each measurement");
    flags.Number("--repeat", repeat_, {1, 1000},
                 "Number of measurements; the medians are reported");
    flags.Switch("--json", json_, "Print a JSON object");
    AddEngineFlags(flags, options_);
  }
  Status Run() override;

 private:
  EngineOptions options_;
  bool cold_ = false;
  int32_t repeat_ = 3;
  bool json_ = false;
};

Status BenchLoadCommand::Run() {
  if (LaunchHere().several()) {
    return Error{ErrorCode::kInvalid,
                 "bench load loads several times, which a launcher's processes do once: start it "
                 "alone; its ranks are threads then"};
  }
  ASSIGN_OR_RETURN(const SourceFiles files, SourceFiles::Open(options_.model_dir));
  ASSIGN_OR_RETURN(const Machine machine, ResolveMachine(options_));
  ThreadPool pool(machine.threads, machine.places);
  std::vector<LoadSample> samples;
  json::object plan;
  int64_t resident = 0;
  for (int32_t i = 0; i <= repeat_; ++i) {
    LoadSample sample;
    if (cold_) files.Forget();
    ASSIGN_OR_RETURN(sample.read_seconds, files.ReadSeconds(pool));
    if (cold_) files.Forget();
    PeakResident::Reset();
    ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(options_));
    sample.load_seconds = engine->load_seconds();
    resident = std::max(resident, PeakResident::Bytes());
    plan = engine->PlanObject();
    // The first pair warms up the page cache and a virtual machine's memory; do not count it.
    if (i > 0) samples.push_back(sample);
  }
  auto median = [&](auto of) {
    std::vector<double> values;
    for (const LoadSample& sample : samples) values.push_back(of(sample));
    return Median(values);
  };
  const double bytes = static_cast<double>(files.bytes());
  const double read = bytes / median([](const LoadSample& s) { return s.read_seconds; });
  const double seconds = median([](const LoadSample& s) { return s.load_seconds; });
  const double fraction =
      median([](const LoadSample& s) { return s.read_seconds / s.load_seconds; });
  const auto number = [&](const char* key) { return plan.at(key).to_number<double>(); };
  const double held = number("weight_bytes") + number("workspace_bytes");
  const double resident_ratio = static_cast<double>(resident) / held;
  if (json_) {
    const json::object out{{"source_bytes", files.bytes()},
                           {"cold", cold_},
                           {"load_seconds", seconds},
                           {"load_bytes_per_second", bytes / seconds},
                           {"read_bytes_per_second", read},
                           {"fraction_of_read", fraction},
                           {"peak_resident_bytes", resident},
                           {"peak_resident_by_weights_and_workspace", resident_ratio},
                           {"engine", plan}};
    fmt::print("{}\n", json::serialize(out));
    return {};
  }
  fmt::print("load           {:>8.2f} s   {:.2f} GB/s, {:.1f} % of {:.2f} GB/s ({}, {} threads)\n",
             seconds, bytes / seconds * 1e-9, fraction * 100, read * 1e-9,
             cold_ ? "reading the disk" : "reading the page cache", machine.threads);
  fmt::print("peak resident  {:>8}   {:.2f} times weights and workspace\n", ByteText(resident),
             resident_ratio);
  return {};
}

}  // namespace

CommandPointer MakeBenchLoadCommand() { return std::make_unique<BenchLoadCommand>(); }

}  // namespace braid
