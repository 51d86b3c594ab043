// `braid cache export` and `import`: one conversation's pages as a file.
#include <fmt/format.h>

#include <optional>

#include "base/json.h"
#include "base/progress.h"
#include "base/quantities.h"
#include "cli/command/command_factories.h"
#include "cli/command/prompt_file.h"
#include "tiers/export.h"

namespace braid {
namespace {

void Print(const Exported& done, const std::string& what, bool json) {
  if (json) {
    fmt::print("{}\n", json::serialize(json::object{{"fingerprint", done.fingerprint},
                                                    {"tokens", done.tokens},
                                                    {"parts", done.parts},
                                                    {"bytes", done.bytes}}));
    return;
  }
  fmt::print("{}: {} tokens, {} in {} parts, of fingerprint {}\n", what, done.tokens,
             ByteText(done.bytes), done.parts, done.fingerprint);
}

class ExportCommand final : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("DIR", request_.directory, "Directory that --cache-dir names");
    flags.Required("OUT", request_.to, "File to write");
    flags.Text("--prefix", prefix_,
               "Body of a request that begins with the conversation: messages, or a prompt of text "
               "or of token ids");
    flags.Text("--model", model_,
               "Directory of the checkpoint or GGUF file, for its template and tokenizer");
    flags.Text("--tenant", request_.tenant, "Name of the key that the conversation belongs to");
    flags.Text("--fingerprint", request_.fingerprint,
               "Only pages of the fingerprint that begins with this (`braid cache stat`)");
    flags.NonEmpty("--cache-key-file", key_file_,
                   "Key of encrypted pages; the file stays encrypted");
    flags.Switch("--json", json_, "Print a JSON object");
  }
  Status Run() override {
    for (const auto& [name, value] : {std::pair("--prefix", &prefix_), {"--model", &model_}}) {
      if (!value->empty()) continue;
      return Error{ErrorCode::kInvalid,
                   fmt::format("{} is needed: pages are found by the tokens of a conversation, "
                               "which the model's template and tokenizer make of a request",
                               name),
                   name};
    }
    ASSIGN_OR_RETURN(const PromptModel model, ReadPromptModel(model_));
    ASSIGN_OR_RETURN(const PromptSide prompt, ReadPromptFile(prefix_, model));
    std::optional<PageCipher> cipher;
    if (!key_file_.empty()) {
      ASSIGN_OR_RETURN(cipher, PageCipher::Load(key_file_));
    }
    ProgressBar bar("writing " + request_.to, 0.5);
    request_.salt = prompt.request.cache_salt;
    request_.tokens = prompt.tokens;
    request_.cipher = cipher ? &*cipher : nullptr;
    request_.progress = [&](double fraction) { bar.Show(fraction); };
    ASSIGN_OR_RETURN(const Exported done, ExportPages(request_));
    Print(done, request_.to, json_);
    return {};
  }

 private:
  ExportRequest request_;
  std::string prefix_, model_, key_file_;
  bool json_ = false;
};

class ImportCommand final : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("DIR", directory_, "Directory that --cache-dir names; a server has used it");
    flags.Required("FILE", from_, "File of `braid cache export`");
    flags.Switch("--json", json_, "Print a JSON object");
  }
  Status Run() override {
    ProgressBar bar("reading " + from_, 0.5);
    ASSIGN_OR_RETURN(const Exported done,
                     ImportPages(from_, directory_, [&](double fraction) { bar.Show(fraction); }));
    Print(done, directory_, json_);
    return {};
  }

 private:
  std::string directory_, from_;
  bool json_ = false;
};

}  // namespace

CommandPointer MakeCacheExportCommand() { return std::make_unique<ExportCommand>(); }
CommandPointer MakeCacheImportCommand() { return std::make_unique<ImportCommand>(); }

}  // namespace braid
