// `braid run`: one answer (text, ids or JSON), or a chat in the terminal.
#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>

#include "base/progress.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "cli/terminal/chat_loop.h"
#include "cli/terminal/input.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/token_output.h"
#include "engine/engine.h"
#include "engine/engine_ranks.h"
#include "engine/generate.h"
#include "server/metrics.h"
#include "text/answer/reasoning.h"

namespace braid {
namespace {

class RunCommandOptions : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("MODEL", options_.model_dir, "Directory of the checkpoint");
    flags.Optional("PROMPT", prompt_,
                   "The prompt (default: an interactive chat, or standard input)");
    flags.Switch("--json", json_, "Print one answer as a JSON object");
    flags.Switch("--raw", raw_, "Continue the prompt without applying the chat template");
    flags.Text("--token-ids", token_ids_,
               "The prompt as a JSON array of token ids; prints token ids");
    flags.Text("--system", chat_.system, "System message");
    flags.Switch("--no-thinking", chat_.no_thinking, "Ask the chat template to disable thinking");
    flags.Number("--logprobs", logprobs_, {0, 100},
                 "With --json: log-probabilities of each token and of this many alternatives");
    AddSamplingFlags(flags, sampling_);
    AddEngineFlags(flags, options_);
  }
  Status Run() override;

 private:
  Status CheckFlags() const;
  Result<RenderedPrompt> PromptOf(const Engine& engine, SignalQueue& signals) const;
  Status Answer(Engine& engine, SignalQueue& signals);
  std::string JsonOf(const Engine& engine, const GeneratedAnswer& generation) const;

  EngineOptions options_;
  SamplingChoice sampling_;
  ChatOptions chat_;
  std::string prompt_, token_ids_;
  std::optional<int32_t> logprobs_;
  bool json_ = false;
  bool raw_ = false;
};

Status RunCommandOptions::CheckFlags() const {
  if (!token_ids_.empty() && !prompt_.empty()) {
    return Error{ErrorCode::kInvalid, "give a PROMPT or --token-ids, not both"};
  }
  if (logprobs_ && !json_) return Error{ErrorCode::kInvalid, "--logprobs needs --json"};
  return {};
}

[[noreturn]] void LeaveAfterSignal() { std::_Exit(128 + SIGINT); }

Result<RenderedPrompt> RunCommandOptions::PromptOf(const Engine& engine,
                                                   SignalQueue& signals) const {
  RenderedPrompt prompt;
  if (!token_ids_.empty()) {
    ASSIGN_OR_RETURN(const json::value ids, ParseJson(token_ids_, "--token-ids"));
    ASSIGN_OR_RETURN(prompt.tokens, TokenIdsOf(ids, "--token-ids", engine.spec().vocabulary));
    return prompt;
  }
  std::string text = prompt_;
  if (text.empty()) {
    std::optional<std::string> input = ReadAllInput(signals);
    if (!input) LeaveAfterSignal();
    text = *std::move(input);
  }
  if (!raw_) {
    json::array messages;
    if (!chat_.system.empty()) {
      messages.push_back(json::object{{"role", "system"}, {"content", chat_.system}});
    }
    messages.push_back(json::object{{"role", "user"}, {"content", text}});
    return RenderPrompt(engine, ChatContext(chat_, std::move(messages)));
  }
  while (!text.empty() && text.back() == '\n' && prompt_.empty()) text.pop_back();
  ASSIGN_OR_RETURN(prompt.tokens, EncodeText(engine, text, true));
  prompt.text = std::move(text);
  if (prompt.tokens.empty()) {
    return Error{ErrorCode::kInvalid, "the prompt is empty, at least one token is needed"};
  }
  return prompt;
}

std::string RunCommandOptions::JsonOf(const Engine& engine,
                                      const GeneratedAnswer& generation) const {
  const auto& answer = generation.answer;
  std::string out = "{\"token_ids\":";
  AppendIds(out, answer.tokens);
  const auto text = [&](const char* key, const std::string& value, bool known) {
    out += fmt::format(",\"{}\":", key);
    known ? AppendQuoted(out, value) : static_cast<void>(out += "null");
  };
  text("text", generation.text.content, engine.tokenizer() != nullptr);
  text("reasoning", generation.text.reasoning, !generation.text.reasoning.empty());
  text("finish_reason", std::string(FinishName(answer.finish)), true);
  if (logprobs_) {
    out += ",\"logprobs\":[";
    for (size_t i = 0; i < answer.logprobs.size(); ++i) {
      out += fmt::format("{}{{\"id\":{},\"logprob\":", i > 0 ? "," : "", answer.logprobs[i].token);
      AppendLogprob(out, answer.logprobs[i].logprob);
      out += ",\"top\":";
      AppendTop(out, answer.logprobs[i]);
      out += '}';
    }
    out += ']';
  }
  out += fmt::format(
      ",\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{}}}}}\n",
      answer.prompt_tokens, answer.tokens.size(),
      static_cast<size_t>(answer.prompt_tokens) + answer.tokens.size());
  return out;
}

Status RunCommandOptions::Answer(Engine& engine, SignalQueue& signals) {
  ASSIGN_OR_RETURN(RenderedPrompt prompt, PromptOf(engine, signals));
  const bool chat = token_ids_.empty() && !raw_;
  Request request = RequestFor(engine, std::move(prompt.tokens), sampling_);
  request.logprobs = logprobs_.value_or(-1);
  AnswerPrinter printer(StdoutIsTerminal());
  const bool stream = !json_ && token_ids_.empty();
  GenerateOptions how;
  how.reasoning = chat ? &ReasoningOf(engine) : nullptr;
  how.starts_in_reasoning = chat && StartsInReasoning(*how.reasoning, prompt.text);
  if (stream) how.on_piece = [&](const TextPiece& piece) { printer.Print(piece); };
  how.interrupted = [&] { return signals.Wait(0) != 0; };
  ASSIGN_OR_RETURN(const GeneratedAnswer generation, Generate(engine, std::move(request), how));
  if (stream) {
    printer.End();
  } else if (json_) {
    fmt::print("{}", JsonOf(engine, generation));
  } else {
    std::string ids;
    AppendIds(ids, generation.answer.tokens);
    fmt::print("{}\n", ids);
  }
  return {};
}

Status RunCommandOptions::Run() {
  RETURN_IF_ERROR(CheckFlags());
  SignalQueue signals{SIGINT};
  const auto leave_if_asked = [&](std::string) {
    if (signals.Wait(0) != 0) LeaveAfterSignal();
  };
  options_.scheduler.running_max = 1;
  if (FollowsAsRank()) return Engine::Follow(options_);
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(options_, leave_if_asked));
  if (!prompt_.empty() || !token_ids_.empty() || raw_ || json_) {
    RETURN_IF_ERROR(Answer(*engine, signals));
  } else {
    RETURN_IF_ERROR(ChatLoop(*engine, chat_, sampling_, signals));
  }
  if (options_.explain_ops) fmt::print(stderr, "{}", engine->ExplainOps());
  return {};
}

}  // namespace

CommandPointer MakeRunCommand() { return std::make_unique<RunCommandOptions>(); }

}  // namespace braid
