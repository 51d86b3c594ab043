// A trace file, and an event log of records that have their right checksums: the input is, for
// each, its kind, two bytes of length and the payload. What is read as requests can be simulated.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/system/file.h"
#include "cluster/cluster.h"
#include "cluster/trace.h"
#include "forecast/test_forecast.h"
#include "fuzz_file.h"
#include "scheduler/event_log.h"
#include "scheduler/testing/built_record.h"

namespace braid {
namespace {

constexpr int64_t kSeconds = 60;
constexpr int64_t kTokensMax = 20'000;  // that are simulated

void Simulate(const std::vector<ClusterRequest>& requests) {
  int64_t tokens = 0;
  for (const ClusterRequest& request : requests) {
    CHECK(request.at_us >= 0 && request.at_us < kSeconds * 1'000'000);
    tokens += int64_t{request.prompt_tokens()} + request.answer_tokens();
  }
  if (tokens > kTokensMax) return;
  for (const int32_t prefill_engines : {0, 1}) {
    const ClusterOptions options{.engines = 2, .prefill_engines = prefill_engines};
    const auto report = SimulateCluster(Dense(), Machine(), {}, options, requests);
    CHECK(report, "{}", report.error().message);
    CHECK(report->finished + report->refused == std::ssize(requests));
  }
}

}  // namespace
}  // namespace braid

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  static const FuzzDirectory directory;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  (void)ReadTrace(directory.Write("trace", input), kSeconds).ok();

  const std::string path = directory.path() + "/log";
  CHECK(EventLogWriter::Create(path, {.config = {.context_tokens_max = 4096}, .model = "m"}));
  std::string log = *ReadFile(path, 1 << 20);
  for (std::string_view rest = input; rest.size() >= 3;) {
    const auto kind = static_cast<uint8_t>(rest[0]);
    const size_t length =
        static_cast<uint8_t>(rest[1]) + 256 * size_t{static_cast<uint8_t>(rest[2])};
    log += RecordOf(kind, rest.substr(3, length));
    rest.remove_prefix(std::min(rest.size(), length + 3));
  }
  const auto trace = ReadTrace(directory.Write("log", log), kSeconds);
  if (trace) Simulate(trace->requests);
  return 0;
}
