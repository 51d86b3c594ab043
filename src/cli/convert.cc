// `braid convert`: a checkpoint with plain or quantised weights from one in any format that the
// engine reads.
#include "model/loading/convert.h"

#include <fmt/core.h>

#include "base/progress.h"
#include "base/quantities.h"
#include "cli/command/command_factories.h"
#include "engine/engine_options.h"
#include "model/checkpoint/formats/export.h"
#include "tensor/device.h"

namespace braid {
namespace {

class ConvertCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("IN", from_, "Directory of a checkpoint");
    flags.Required("OUT", to_, "Directory to write to; must be new or empty");
    flags.Choice("--weights", weights_, ExportableFormats(), "Format of the weight matrices");
    flags.Switch("--quantize-head", head_,
                 "With a quantised format: also quantise the embedding and the output head");
    flags.Number("--threads", threads_, {1, 1024}, "Number of threads (default: physical cores)");
  }
  Status Run() override;

 private:
  std::string from_, to_, weights_ = "bf16";
  bool head_ = false;
  int32_t threads_ = 0;
};

Status ConvertCommand::Run() {
  ProgressBar bar("writing " + to_, 0.5);
  const ConvertRequest request = {.from = from_,
                                  .to = to_,
                                  .weights = *WeightChoiceOf(weights_, head_).format,
                                  .head = head_,
                                  .progress = [&](double fraction) { bar.Show(fraction); }};
  ThreadPool pool(threads_ > 0 ? threads_ : DetectCpu().topology.DefaultThreads());
  ASSIGN_OR_RETURN(const Converted made, ConvertCheckpoint(request, pool));
  fmt::print("{}: {} tensors, {} in {} file{}\n", to_, made.tensors, ByteText(made.bytes),
             made.files, made.files == 1 ? "" : "s");
  if (made.quantised > 0) fmt::print("{} matrices are {}\n", made.quantised, weights_);
  if (made.rounded > 0) {
    fmt::print("{} matrices were rounded to bf16; --weights fp32 keeps every bit\n", made.rounded);
  }
  return {};
}

}  // namespace

CommandPointer MakeConvertCommand() { return std::make_unique<ConvertCommand>(); }

}  // namespace braid
