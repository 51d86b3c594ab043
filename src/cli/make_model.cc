// `braid make-model`: a checkpoint with random weights.
#include "model/writing/make_model.h"

#include <fmt/core.h>

#include "base/progress.h"
#include "base/quantities.h"
#include "cli/command/command_factories.h"
#include "model/families/families.h"
#include "tensor/device.h"

namespace braid {
namespace {

class MakeModelCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    std::vector<std::string> names;
    for (const Family& family : Families()) names.emplace_back(family.name);
    flags.Required("OUT", directory_, "Directory to write to, or a GGUF file to write");
    flags.Choice("--family", family_, std::move(names), "Model family");
    flags.Text("--shape", shape_,
               "tiny, mid or a published model (a wrong name lists them), then values for "
               "keys of config.json: tiny,hidden_size=128,num_experts=5");
    std::vector<std::string> formats = MakeableFormats();
    for (std::string& name : GgufMixtureNames()) formats.push_back(std::move(name));
    flags.Choice("--format", format_, std::move(formats),
                 "Format of the weight matrices; from q4_0 on a GGUF file of these types");
    flags.Switch("--quantize-head", head_,
                 "With a quantised format, but for GGUF files: also quantise the embedding and the "
                 "output head");
    flags.Number("--expert-skew", expert_skew_, {0, 10},
                 "Let tokens choose experts by Zipf's law of this exponent, by the biases of the "
                 "routers (default: random biases)");
    flags.Seed("--seed", seed_, "Random seed; equal seeds give equal files (default: 0)");
    flags.Number("--threads", threads_, {1, 1024}, "Number of threads (default: physical cores)");
  }
  Status Run() override;

 private:
  std::string directory_;
  std::string family_{Families().front().name};
  std::string shape_ = "tiny", format_ = "bf16";
  bool head_ = false;
  double expert_skew_ = 0;
  std::optional<uint64_t> seed_;
  int32_t threads_ = 0;
};

// At commas, but not at those inside brackets or quotes of a JSON value.
std::vector<std::string> SplitShape(std::string_view shape) {
  std::vector<std::string> parts(1);
  int depth = 0;
  bool quoted = false;
  for (const char c : shape) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '[' || c == '{')) ++depth;
    if (!quoted && (c == ']' || c == '}')) --depth;
    if (c == ',' && depth == 0 && !quoted) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Status MakeModelCommand::Run() {
  MakeModelRequest request;
  request.directory = directory_;
  request.family = family_;
  request.shape = SplitShape(shape_);
  request.gguf = FindGgufMixture(format_);
  if (request.gguf != nullptr && head_) {
    return Error{ErrorCode::kInvalid,
                 "--quantize-head: a GGUF file's format says what becomes of the embedding and the "
                 "head; leave the flag out",
                 "quantize_head"};
  }
  if (request.gguf == nullptr) request.weights = *ops::FindWeightFormat(format_);
  request.quantise_head = head_;
  request.expert_skew = expert_skew_;
  request.seed = seed_.value_or(0);
  ProgressBar bar("writing " + directory_, 0.5);
  request.progress = [&](double fraction) { bar.Show(fraction); };
  ThreadPool pool(threads_ > 0 ? threads_ : DetectCpu().topology.DefaultThreads());
  ASSIGN_OR_RETURN(const MadeModel made, MakeModel(request, pool));
  fmt::print("{}: {} parameters, {} tensors, {} in {} file{}\n", directory_,
             CountText(made.parameters), made.tensors, ByteText(made.bytes), made.files,
             made.files == 1 ? "" : "s");
  return {};
}

}  // namespace

CommandPointer MakeMakeModelCommand() { return std::make_unique<MakeModelCommand>(); }

}  // namespace braid
