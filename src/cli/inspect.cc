// `braid inspect`: what a checkpoint holds and needs, without loading its weights.
#include <fmt/core.h>

#include "base/file.h"
#include "cli/command_factories.h"
#include "cli/engine_options.h"
#include "model/checkpoint.h"
#include "model/describe.h"
#include "model/families/families.h"
#include "model/weights.h"

namespace braid {
namespace {

class InspectCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("MODEL", directory_, "Directory of the checkpoint");
    AddWeightFlags(flags, weights_, quantise_head_);
    flags.Switch("--json", json_, "Print a JSON object");
  }
  Status Run() override;

 private:
  std::string directory_;
  std::string weights_ = "auto";
  bool quantise_head_ = false;
  bool json_ = false;
};

Status InspectCommand::Run() {
  if (!IsDirectory(directory_)) {
    return Error{ErrorCode::kNotFound, fmt::format("{} is not a directory", directory_)};
  }
  ASSIGN_OR_RETURN(ModelSpec spec, ReadModelSpec(directory_));
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(directory_));
  spec = FitToCheckpoint(std::move(spec), checkpoint);
  ASSIGN_OR_RETURN(const LoadReport report, CheckWeights(spec, checkpoint));
  const std::vector<FactSection> facts =
      DescribeModel(spec, &checkpoint, &report, WeightChoiceOf(weights_, quantise_head_));
  if (json_) {
    fmt::print("{}\n", json::serialize(FactsAsJson(facts)));
  } else {
    fmt::print("{}", FactsAsText(facts));
  }
  return {};
}

}  // namespace

CommandPointer MakeInspectCommand() { return std::make_unique<InspectCommand>(); }

}  // namespace braid
