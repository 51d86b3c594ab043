// `braid inspect`: what a checkpoint holds and needs, without loading its weights; or what a
// config alone says; or one tensor's values.
#include <fmt/format.h>

#include <algorithm>

#include "base/quantities.h"
#include "base/system/file.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "cli/outlook.h"
#include "engine/engine_options.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/checksums.h"
#include "model/checkpoint/formats/storage_format.h"
#include "model/describe.h"
#include "model/families/families.h"
#include "model/loading/weight_binding.h"

namespace braid {
namespace {

class InspectCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required(
        "MODEL", directory_,
        "Directory of the checkpoint, or a GGUF file (of a split one any part); with --config-only "
        "also a config.json");
    AddWeightFlags(flags, weights_, quantise_head_);
    flags.Switch("--json", json_, "Print a JSON object");
    flags.Switch("--config-only", config_only_, "Read only config.json; no weights are needed");
    flags.Switch("--tensors", tensors_, "Also list every weight with its formats and sizes");
    flags.Text("--dump", dump_, "Write the values of the tensor with this name to --output");
    flags.Text("--output", output_, "File for --dump (fp32, row-major, little-endian)");
    flags.Switch("--verify", verify_,
                 "First check the files against the SHA-256 sums stored beside them");
  }
  Status Run() override;

 private:
  Status DescribeConfig() const;
  Status Verify() const;
  Status Dump(const Binding& binding) const;
  void Print(const std::vector<FactSection>& facts, const LoadReport* report,
             const Outlook* outlook) const;

  std::string directory_, dump_, output_;
  std::string weights_ = "auto";
  bool quantise_head_ = false;
  bool json_ = false, config_only_ = false, tensors_ = false, verify_ = false;
};

// `report` and `outlook` are null for a config alone.
void InspectCommand::Print(const std::vector<FactSection>& facts, const LoadReport* report,
                           const Outlook* outlook) const {
  const bool list = tensors_ && report;
  if (!json_) {
    if (outlook) fmt::print("{}\n\n", outlook->text);
    fmt::print("{}", FactsAsText(facts));
    if (list) fmt::print("\ntensors\n");
    for (size_t i = 0; list && i < report->weights.size(); ++i) {
      const WeightStorage& w = report->weights[i];
      fmt::print("  {}: {}, {} stored, runs as {}, {}\n", w.name, w.stored_as,
                 ByteText(w.stored_bytes), ops::NameOf(w.runs_as), ByteText(w.packed_bytes));
    }
    return;
  }
  json::object object = FactsAsJson(facts);
  if (outlook) object["outlook"] = OutlookObject(*outlook);
  if (list) {
    json::array& all = object["tensors"].emplace_array();
    for (const WeightStorage& w : report->weights) {
      all.push_back({{"name", w.name},
                     {"stored_as", w.stored_as},
                     {"stored_bytes", w.stored_bytes},
                     {"runs_as", std::string(ops::NameOf(w.runs_as))},
                     {"packed_bytes", w.packed_bytes}});
    }
  }
  fmt::print("{}\n", json::serialize(object));
}

Status InspectCommand::DescribeConfig() const {
  ASSIGN_OR_RETURN(const ModelSpec spec, ReadModelConfig(directory_));
  Print(DescribeModel(spec, nullptr, nullptr, WeightChoiceOf(weights_, quantise_head_)), nullptr,
        nullptr);
  return {};
}

Status InspectCommand::Dump(const Binding& binding) const {
  if (output_.empty()) {
    return Error{ErrorCode::kInvalid, "--dump needs --output FILE for the values", "--output"};
  }
  const auto at = std::ranges::find(binding.stored, dump_, &StoredWeight::name);
  if (at == binding.stored.end()) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} has no weight \"{}\"; --tensors lists them", directory_, dump_)};
  }
  std::string values(static_cast<size_t>(at->elements()) * sizeof(float), '\0');
  at->Read(0, at->elements(), DType::kF32, reinterpret_cast<std::byte*>(values.data()));
  RETURN_IF_ERROR(WriteFile(output_, values));
  fmt::print("{}\n", json::serialize(json::object{{"name", dump_},
                                                  {"stored_as", std::string(at->format_name())},
                                                  {"rows", at->matrices * at->rows},
                                                  {"columns", at->k}}));
  return {};
}

// Reports to standard error, apart from what is printed of the model.
Status InspectCommand::Verify() const {
  const auto progress = [](const std::string& name) { fmt::print(stderr, "checking {}\n", name); };
  ASSIGN_OR_RETURN(const ChecksumReport report, VerifyChecksums(directory_, progress));
  fmt::print(stderr, "{} files match their checksums\n", report.checked.size());
  for (const std::string& name : report.unknown) {
    fmt::print(stderr, "{}: no checksum found\n", name);
  }
  return {};
}

Status InspectCommand::Run() {
  if (config_only_) return DescribeConfig();
  if (verify_) RETURN_IF_ERROR(Verify());
  ASSIGN_OR_RETURN(const OpenedModel model, OpenModel(directory_));
  const ModelSpec& spec = model.spec;
  const Checkpoint& checkpoint = model.checkpoint;
  const WeightChoice choice = WeightChoiceOf(weights_, quantise_head_);
  ASSIGN_OR_RETURN(const Binding binding, BindWeights(spec, checkpoint, choice));
  if (!dump_.empty()) return Dump(binding);
  ASSIGN_OR_RETURN(const Outlook outlook, OutlookOf(spec, checkpoint, choice));
  Print(DescribeModel(spec, &checkpoint, &binding.report, choice), &binding.report, &outlook);
  return {};
}

}  // namespace

CommandPointer MakeInspectCommand() { return std::make_unique<InspectCommand>(); }

}  // namespace braid
