// `braid bench handoff`: how fast pages go between engines (engine/bench/handoff_speed.h).
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/quantities.h"
#include "cli/bench/statistics.h"
#include "cli/command/command_factories.h"
#include "cli/command/flags.h"
#include "engine/bench/handoff_speed.h"

namespace braid {
namespace {

class BenchHandoffCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Number("--part-kib", part_kib_, {1, 1 << 20}, "KiB of a part: a block of a group");
    flags.Number("--mib", mib_, {1, 1 << 20}, "MiB that a repetition sends");
    flags.Number("--repeat", repeat_, {1, 1000}, "Number of measurements; the median is reported");
    flags.Text("--host", host_, "Address of this machine that the receiver listens at");
    flags.Switch("--json", json_, "Print a JSON object");
  }
  Status Run() override;

 private:
  int32_t part_kib_ = 1024, mib_ = 1024, repeat_ = 5;
  std::string host_ = "127.0.0.1";
  bool json_ = false;
};

Status BenchHandoffCommand::Run() {
  HandoffLoad load{.part_bytes = int64_t{part_kib_} << 10, .repeat = repeat_};
  load.parts = std::max<int64_t>(1, (int64_t{mib_} << 10) / part_kib_);
  ASSIGN_OR_RETURN(const std::vector<double> seconds, MeasureHandoff(load, host_));
  const double bytes = static_cast<double>(load.parts * load.part_bytes);
  const double rate = bytes / Median(seconds);
  if (json_) {
    fmt::print("{}\n", json::serialize(json::object{{"part_bytes", load.part_bytes},
                                                    {"parts", load.parts},
                                                    {"bytes_per_second", rate}}));
  } else {
    fmt::print("{} parts of {}: {:.2f} GB/s\n", load.parts, ByteText(load.part_bytes), rate * 1e-9);
  }
  return {};
}

}  // namespace

CommandPointer MakeBenchHandoffCommand() { return std::make_unique<BenchHandoffCommand>(); }

}  // namespace braid
