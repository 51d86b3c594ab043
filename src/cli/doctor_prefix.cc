// `braid doctor prefix`: renders two request bodies with the model's template, shows where they
// differ, what the client could change, and how many tokens the second can reuse. Reads the
// checkpoint's text files and configuration, no weights.
#include <fmt/core.h>

#include "base/block.h"
#include "cli/command/command_factories.h"
#include "cli/command/prompt_file.h"
#include "model/spec.h"
#include "server/api/prompt_difference.h"

namespace braid {
namespace {

class DoctorPrefixCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("A.json", first_, "Body of the first request");
    flags.Required("B.json", second_, "Body of a later request that should have reused it");
    flags.Text("--model", model_,
               "Directory or GGUF file of the model whose chat template renders the requests");
    flags.Number("--max-batch-tokens", step_tokens_max_, {kBlockTokens, 1 << 24},
                 "Token budget of a step on the server, which decides where prompts are cut");
    flags.Switch("--json", json_, "Print a JSON object");
  }
  Status Run() override;

 private:
  // Tokens that the second request reuses right after the first, and that later requests with the
  // same beginning reuse.
  struct Reusable {
    int32_t next = 0, later = 0;
  };

  Reusable ReusableOf(const PromptDifference& difference, const PromptSide& first,
                      const PromptSide& second) const;

  std::string first_, second_, model_;
  int32_t step_tokens_max_ = 2048;
  bool json_ = false;
  ModelSpec spec_;
};

// Attention resumes after any whole block. Recurrent states exist where a chunk of the first prompt
// ended and at its last block boundary; the second request leaves one where it diverges.
DoctorPrefixCommand::Reusable DoctorPrefixCommand::ReusableOf(const PromptDifference& difference,
                                                              const PromptSide& first,
                                                              const PromptSide& second) const {
  if (first.request.cache_salt != second.request.cache_salt) return {};
  const auto last_boundary = [](const PromptSide& side) {
    return (static_cast<int32_t>(side.tokens.size()) - 1) / kBlockTokens * kBlockTokens;
  };
  Reusable reusable;
  reusable.later =
      std::min(difference.common_tokens / kBlockTokens * kBlockTokens, last_boundary(second));
  const int32_t chunk = step_tokens_max_ / kBlockTokens * kBlockTokens;
  bool has_state = false;
  for (const GroupGeometry& group : CachePlanOf(spec_, DType::kF32).groups) {
    has_state |= group.kind == GroupKind::kState;
  }
  const auto stored = static_cast<int32_t>(first.tokens.size()) / kBlockTokens * kBlockTokens;
  const bool whole = reusable.later == last_boundary(first) || reusable.later == stored;
  reusable.next = whole || !has_state ? reusable.later : reusable.later / chunk * chunk;
  return reusable;
}

json::object PlaceJson(const PromptSide& side, const PromptPlace& place) {
  return {{"tokens", side.tokens.size()},
          {"where", place.where},
          {"token", place.token},
          {"before", place.before},
          {"after", place.after}};
}

// Line ends and the like as JSON writes them.
std::string Shown(const std::string& text) {
  const std::string quoted = json::serialize(json::string(text));
  return quoted.substr(1, quoted.size() - 2);
}

void PrintPlace(char name, const PromptSide& side, const PromptPlace& place) {
  fmt::print("  {}: {} tokens, here in {}\n", name, side.tokens.size(), place.where);
  fmt::print("     …{}⟦{}⟧\n", Shown(place.before), Shown(place.after));
}

Status DoctorPrefixCommand::Run() {
  if (model_.empty()) {
    return Error{ErrorCode::kInvalid,
                 "--model is needed: the directory or the GGUF file that is served, for its "
                 "template and its tokenizer"};
  }
  ASSIGN_OR_RETURN(const PromptModel model, ReadPromptModel(model_));
  spec_ = model.spec;
  ASSIGN_OR_RETURN(const PromptSide first, ReadPromptFile(first_, model));
  ASSIGN_OR_RETURN(const PromptSide second, ReadPromptFile(second_, model));
  const PromptDifference difference = ComparePrompts(*model.text.tokenizer, first, second);
  const Reusable reusable = ReusableOf(difference, first, second);
  if (json_) {
    const json::object out{
        {"common_tokens", difference.common_tokens},
        {"same", difference.same},
        {"reusable_tokens_next", reusable.next},
        {"reusable_tokens_later", reusable.later},
        {"a", PlaceJson(first, difference.first)},
        {"b", PlaceJson(second, difference.second)},
        {"advice", json::array(difference.advice.begin(), difference.advice.end())}};
    fmt::print("{}\n", json::serialize(out));
    return {};
  }
  fmt::print("the first {} tokens are the same\n", difference.common_tokens);
  if (!difference.same) {
    fmt::print("then come \"{}\" in A and \"{}\" in B\n", Shown(difference.first.token),
               Shown(difference.second.token));
    PrintPlace('A', first, difference.first);
    PrintPlace('B', second, difference.second);
  }
  fmt::print(
      "reusable right after A: {} of B's {} tokens; by later requests that begin like B: {}\n",
      reusable.next, second.tokens.size(), reusable.later);
  for (const std::string& advice : difference.advice) fmt::print("* {}\n", advice);
  return {};
}

}  // namespace

CommandPointer MakeDoctorPrefixCommand() { return std::make_unique<DoctorPrefixCommand>(); }

}  // namespace braid
