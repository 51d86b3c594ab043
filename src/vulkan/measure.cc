// Timed by the host's clock around submission and wait, so runs are long enough for that not to
// matter.
#include "vulkan/measure.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"
#include "base/clock.h"

namespace braid {

extern const std::string_view kShaderRead, kShaderMultiply, kShaderAddOne;

namespace vulkan {
namespace {

constexpr int64_t kGroups = 1024, kThreads = 256;
static_assert(kReadBytesLeast / 16 % (8 * kGroups * kThreads) == 0);  // read.comp
static_assert(kReadBytes % kReadBytesLeast == 0);

// Arguments of both kernels.
struct Arguments {
  uint64_t from, to;
  int32_t count, unused = 0;
};

// Seconds of a run in the fastest submission. After the first it has as many runs as take 2 ms, so
// that the submission's own time, some 50 us, does not count on a fast device.
Result<double> Time(Gpu& gpu, const Kernel& kernel, const Arguments& arguments) {
  constexpr int kSubmissions = 4;
  double best = 1e9;
  int runs = 1;
  for (int i = 0; i < kSubmissions; ++i) {
    Recorder recorder(gpu);
    for (int run = 0; run < runs; ++run) recorder.Run(kernel, arguments, {kGroups});
    const int64_t begin_ns = MonotonicNs();
    RETURN_IF_ERROR(recorder.Finish());
    best = std::min(best, static_cast<double>(MonotonicNs() - begin_ns + 1) * 1e-9 / runs);
    runs = static_cast<int>(std::clamp(2e-3 / best, 1.0, 256.0));
  }
  return best;
}

}  // namespace

Result<double> MeasureReading(Gpu& gpu, int64_t bytes) {
  CHECK(bytes > 0 && bytes % kReadBytesLeast == 0, "{} bytes cannot be shared out", bytes);
  ASSIGN_OR_RETURN(const Memory from, gpu.Allocate(bytes, Place::kDevice));
  ASSIGN_OR_RETURN(const Memory to, gpu.Allocate(kGroups * kThreads * 4, Place::kDevice));
  const Arguments arguments{reinterpret_cast<uint64_t>(from.address()),
                            reinterpret_cast<uint64_t>(to.address()),
                            static_cast<int32_t>(bytes / 16)};
  ASSIGN_OR_RETURN(const double reading, Time(gpu, {"read", kShaderRead}, arguments));
  return static_cast<double>(bytes) / reading;
}

Result<DeviceLimits> MeasureDevice(Gpu& gpu, int64_t read_bytes) {
  DeviceLimits limits;
  ASSIGN_OR_RETURN(limits.read_bytes_per_second, MeasureReading(gpu, read_bytes));
  ASSIGN_OR_RETURN(const Memory to, gpu.Allocate(kGroups * kThreads * 4, Place::kDevice));
  Arguments arguments{0, reinterpret_cast<uint64_t>(to.address()), 0};
  // As many rounds as take some hundredths of a second.
  double computing = 0;
  for (arguments.count = 64; computing < 0.02 && arguments.count < (1 << 22);
       arguments.count *= 4) {
    ASSIGN_OR_RETURN(computing, Time(gpu, {"multiply", kShaderMultiply}, arguments));
    limits.fp32_operations_per_second =
        2.0 * 16 * arguments.count * static_cast<double>(kGroups * kThreads) / computing;
  }
  ASSIGN_OR_RETURN(limits.start_seconds, MeasureStart(gpu));
  return limits;
}

// The best of three submissions that have one command buffer, as steps of decode have; the first
// submission also records it. That a submission takes time itself counts a 256th.
Result<double> MeasureStart(Gpu& gpu) {
  constexpr int kSubmissions = 4, kKernels = 256;
  ASSIGN_OR_RETURN(const Memory words, gpu.Allocate(kThreads * 4, Place::kDevice));
  Recorder recorder(gpu);
  double best = 1e9;
  for (int i = 0; i < kSubmissions; ++i) {
    for (int kernel = 0; kernel < kKernels; ++kernel) {
      recorder.Run({"add_one", kShaderAddOne}, reinterpret_cast<uint64_t>(words.address()), {});
    }
    const int64_t begin_ns = MonotonicNs();
    RETURN_IF_ERROR(recorder.Finish());
    if (i > 0) best = std::min(best, static_cast<double>(MonotonicNs() - begin_ns) * 1e-9);
  }
  return best / kKernels;
}

Result<double> MeasureSubmission(Gpu& gpu) {
  ASSIGN_OR_RETURN(const Memory to, gpu.Allocate(64, Place::kDevice));
  std::array<double, 15> seconds;
  for (double& each : seconds) {
    Recorder recorder(gpu);
    recorder.Zero(to.address(), to.bytes());
    const int64_t begin_ns = MonotonicNs();
    RETURN_IF_ERROR(recorder.Finish());
    each = static_cast<double>(MonotonicNs() - begin_ns) * 1e-9;
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

}  // namespace vulkan
}  // namespace braid
