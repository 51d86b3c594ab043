// `braid convert`: a checkpoint with plain or quantised weights from one in any format that the
// engine reads, or one whose weights lie as they do in memory.
#include "model/writing/convert.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/progress.h"
#include "base/quantities.h"
#include "cli/command/command_factories.h"
#include "engine/engine_options.h"
#include "model/checkpoint/formats/export.h"
#include "model/writing/convert_panels.h"
#include "tensor/device.h"

namespace braid {
namespace {

class ConvertCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("IN", from_, "Directory of a checkpoint; with --mapped also a GGUF file");
    flags.Required("OUT", to_, "Directory to write to; must be new or empty");
    std::vector<std::string> formats = {"auto"};
    for (const ops::WeightFormatRow& row : ops::WeightFormats()) formats.emplace_back(row.name);
    flags.Choice("--weights", weights_, std::move(formats),
                 "Format of the weight matrices; auto: with --mapped as stored, else bf16");
    flags.Switch("--quantize-head", head_,
                 "With a quantised format: also quantise the embedding and the output head");
    flags.Switch("--mapped", mapped_,
                 "Write matrices as they lie in memory: the engine maps such a checkpoint and "
                 "starts at once");
    flags.Number("--threads", threads_, {1, 1024}, "Number of threads (default: physical cores)");
  }
  Status Run() override;

 private:
  Result<Converted> Convert(ThreadPool& pool, const std::function<void(double)>& progress) const;

  std::string from_, to_, weights_ = "auto";
  bool head_ = false, mapped_ = false;
  int32_t threads_ = 0;
};

Result<Converted> ConvertCommand::Convert(ThreadPool& pool,
                                          const std::function<void(double)>& progress) const {
  const WeightChoice choice = WeightChoiceOf(weights_, head_);
  if (mapped_) {
    return ConvertToPanels({.from = from_, .to = to_, .choice = choice, .progress = progress},
                           pool);
  }
  const ops::WeightFormat format = choice.format.value_or(ops::WeightFormat::kBF16);
  const std::vector<std::string> known = ExportableFormats();
  if (std::ranges::count(known, ops::NameOf(format)) == 0) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("--weights {}: without --mapped it must be one of {}", weights_,
                             fmt::join(known, ", ")),
                 "--weights"};
  }
  return ConvertCheckpoint(
      {.from = from_, .to = to_, .weights = format, .head = head_, .progress = progress}, pool);
}

Status ConvertCommand::Run() {
  ProgressBar bar("writing " + to_, 0.5);
  ThreadPool pool(threads_ > 0 ? threads_ : DetectCpu().topology.DefaultThreads());
  ASSIGN_OR_RETURN(const Converted made,
                   Convert(pool, [&](double fraction) { bar.Show(fraction); }));
  fmt::print("{}: {} tensors, {} in {} file{}\n", to_, made.tensors, ByteText(made.bytes),
             made.files, made.files == 1 ? "" : "s");
  if (made.quantised > 0) {
    fmt::print("{} matrices are {}\n", made.quantised,
               weights_ == "auto" ? "quantised as they were stored" : weights_);
  }
  if (made.rounded > 0) {
    fmt::print("{} matrices were rounded to {}; --weights fp32 keeps every bit\n", made.rounded,
               weights_ == "fp16" ? "fp16" : "bf16");
  }
  return {};
}

}  // namespace

CommandPointer MakeConvertCommand() { return std::make_unique<ConvertCommand>(); }

}  // namespace braid
