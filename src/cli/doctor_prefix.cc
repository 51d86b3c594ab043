// `braid doctor prefix`: renders two request bodies with the model's template, shows where they
// differ, what the client could change, and how many tokens the second can reuse. Reads the
// checkpoint's text files and configuration, no weights.
#include <fmt/core.h>

#include "base/block.h"
#include "base/system/file.h"
#include "cli/command/command_factories.h"
#include "model/families/families.h"
#include "model/spec.h"
#include "server/api/limits.h"
#include "server/api/prompt_difference.h"
#include "server/serving/prepare.h"
#include "text/chat/chat_template.h"

namespace braid {
namespace {

class DoctorPrefixCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("A.json", first_, "Body of the first request");
    flags.Required("B.json", second_, "Body of a later request that should have reused it");
    flags.Text("--model", model_dir_,
               "Directory of the checkpoint whose chat template renders the requests");
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

  Result<PromptSide> Read(const std::string& path, const Tokenizer& tokenizer) const;
  Reusable ReusableOf(const PromptDifference& difference, const PromptSide& first,
                      const PromptSide& second) const;

  std::string first_, second_, model_dir_;
  int32_t step_tokens_max_ = 2048;
  bool json_ = false;
  ModelSpec spec_;
};

Error AsError(const ApiError& error, const std::string& path) {
  return {ErrorCode::kInvalid, fmt::format("{}: {}", path, error.message)};
}

Result<PromptSide> DoctorPrefixCommand::Read(const std::string& path,
                                             const Tokenizer& tokenizer) const {
  ASSIGN_OR_RETURN(const std::string body, ReadFile(path, limits::kBodyBytesMax));
  ASSIGN_OR_RETURN(const json::value value, ParseJson(body, path));
  const bool chat = value.is_object() && value.get_object().contains("messages");
  auto parsed =
      ParseApiRequest(chat ? kChat : kCompletions, body, {.vocabulary = spec_.vocabulary});
  if (!parsed) return AsError(parsed.error(), path);
  PromptSide side{.request = *std::move(parsed), .text = {}, .tokens = {}};
  bool add_special_tokens = false;
  if (chat) {
    ASSIGN_OR_RETURN(const ChatTemplate chat_template, ChatTemplate::Load(model_dir_));
    auto text = RenderChat(chat_template, side.request);
    if (!text) return AsError(text.error(), path);
    side.text = *std::move(text);
  } else if (side.request.prompts.size() != 1) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: has {} prompts; give one of them in a file of its own", path,
                             side.request.prompts.size())};
  } else if (const auto* ids = std::get_if<std::vector<TokenId>>(&side.request.prompts[0])) {
    side.tokens = *ids;
    side.text = tokenizer.Decode(*ids, false);
    return side;
  } else {
    side.text = std::get<std::string>(side.request.prompts[0]);
    add_special_tokens = side.request.add_special_tokens.value_or(true);
  }
  ASSIGN_OR_RETURN(side.tokens, tokenizer.Encode(side.text, add_special_tokens));
  return side;
}

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
  if (model_dir_.empty()) {
    return Error{ErrorCode::kInvalid,
                 "--model is needed: the directory of the checkpoint that is served, for its "
                 "template and its tokenizer"};
  }
  ASSIGN_OR_RETURN(spec_, ReadModelSpec(model_dir_));
  ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(model_dir_));
  ASSIGN_OR_RETURN(const PromptSide first, Read(first_, tokenizer));
  ASSIGN_OR_RETURN(const PromptSide second, Read(second_, tokenizer));
  const PromptDifference difference = ComparePrompts(tokenizer, first, second);
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
