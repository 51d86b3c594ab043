// Timed by the host's clock around submission and wait, so runs are long enough for that not to
// matter.
#include "vulkan/measure.h"

#include <algorithm>
#include <string_view>

#include "base/clock.h"

namespace braid {

extern const std::string_view kShaderRead, kShaderMultiply;

namespace vulkan {
namespace {

constexpr int64_t kReadBytes = int64_t{256} << 20;
constexpr int64_t kGroups = 1024, kThreads = 256;
static_assert(kReadBytes / 16 % (8 * kGroups * kThreads) == 0);  // read.comp

// Arguments of both kernels.
struct Arguments {
  uint64_t from, to;
  int32_t count, unused = 0;
};

// Seconds of the fastest run.
Result<double> Time(Gpu& gpu, const Kernel& kernel, const Arguments& arguments) {
  constexpr int kRuns = 4;
  double best = 1e9;
  for (int i = 0; i < kRuns; ++i) {
    Recorder recorder(gpu);
    recorder.Run(kernel, arguments, {kGroups});
    const int64_t begin = MonotonicUs();
    RETURN_IF_ERROR(recorder.Finish());
    best = std::min(best, static_cast<double>(MonotonicUs() - begin + 1) * 1e-6);
  }
  return best;
}

}  // namespace

Result<double> MeasureReading(Gpu& gpu) {
  ASSIGN_OR_RETURN(const Memory from, gpu.Allocate(kReadBytes, Place::kDevice));
  ASSIGN_OR_RETURN(const Memory to, gpu.Allocate(kGroups * kThreads * 4, Place::kDevice));
  const Arguments arguments{reinterpret_cast<uint64_t>(from.address()),
                            reinterpret_cast<uint64_t>(to.address()), kReadBytes / 16};
  ASSIGN_OR_RETURN(const double reading, Time(gpu, {"read", kShaderRead}, arguments));
  return kReadBytes / reading;
}

Result<DeviceLimits> MeasureDevice(Gpu& gpu) {
  DeviceLimits limits;
  ASSIGN_OR_RETURN(limits.read_bytes_per_second, MeasureReading(gpu));
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
  return limits;
}

}  // namespace vulkan
}  // namespace braid
