// Ctrl-C at the prompt begins a new line; during an answer it stops that.
#include "cli/terminal/chat_loop.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "base/progress.h"
#include "cli/terminal/input.h"
#include "text/answer/reasoning.h"

namespace braid {
namespace {

constexpr const char* kHelp =
    "/reset   forget the conversation\n"
    "/help    this list\n"
    "/exit    leave (also Ctrl-D)\n"
    "Ctrl-C stops an answer.\n";

class LineReader {
 public:
  LineReader(SignalQueue& signals, bool terminal) : signals_(signals), terminal_(terminal) {}

  // The next line without its end, or nothing at the end of the input.
  std::optional<std::string> Next() {
    Prompt();
    while (true) {
      const size_t end = buffer_.find('\n');
      if (end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return line;
      }
      if (ended_) {
        if (buffer_.empty()) return std::nullopt;
        return std::exchange(buffer_, {});
      }
      Wait();
    }
  }

 private:
  void Prompt() const {
    if (!terminal_) return;
    fmt::print("\033[1m>\033[0m ");
    std::fflush(stdout);
  }

  void Wait() {
    const Arrived arrived = ReadInput(signals_, buffer_);
    ended_ = arrived == Arrived::kEnd;
    if (arrived != Arrived::kSignal) return;
    buffer_.clear();
    fmt::print("\n(/exit or Ctrl-D leaves)\n");
    Prompt();
  }

  SignalQueue& signals_;
  bool terminal_;
  bool ended_ = false;
  std::string buffer_;
};

json::array FirstMessages(const ChatOptions& options) {
  json::array messages;
  if (!options.system.empty()) {
    messages.push_back(json::object{{"role", "system"}, {"content", options.system}});
  }
  return messages;
}

void PrintSpeed(const GeneratedAnswer& generation) {
  const auto& times = generation.answer.token_us;
  if (times.size() < 2 || times.back() == times.front()) return;
  const double seconds = static_cast<double>(times.back() - times.front()) * 1e-6;
  fmt::print("\033[2m[{} tokens, {:.1f} per second{}]\033[0m\n", times.size(),
             static_cast<double>(times.size() - 1) / seconds,
             generation.interrupted                              ? ", stopped"
             : generation.answer.finish == FinishReason::kLength ? ", cut off"
                                                                 : "");
}

// One turn: the user's message is in `messages`, the answer is appended.
Status TakeTurn(Engine& engine, const ChatOptions& options, const SamplingChoice& sampling,
                SignalQueue& signals, json::array& messages) {
  ASSIGN_OR_RETURN(RenderedPrompt prompt, RenderPrompt(engine, ChatContext(options, messages)));
  const bool terminal = StdoutIsTerminal();
  AnswerPrinter printer(terminal);
  GenerateOptions how;
  how.reasoning = &ReasoningOf(engine);
  how.starts_in_reasoning = StartsInReasoning(*how.reasoning, prompt.text);
  how.on_piece = [&](const TextPiece& piece) { printer.Print(piece); };
  how.interrupted = [&] { return signals.Wait(0) != 0; };
  Request request = RequestFor(engine, std::move(prompt.tokens), sampling);
  ASSIGN_OR_RETURN(const GeneratedAnswer generation, Generate(engine, std::move(request), how));
  printer.End();
  if (terminal) PrintSpeed(generation);
  json::object message{{"role", "assistant"}, {"content", generation.text.content}};
  if (!generation.text.reasoning.empty()) {
    message["reasoning_content"] = generation.text.reasoning;
  }
  messages.push_back(std::move(message));
  return {};
}

}  // namespace

json::object ChatContext(const ChatOptions& options, json::array messages) {
  json::object context{{"messages", std::move(messages)}, {"add_generation_prompt", true}};
  if (options.no_thinking) context["enable_thinking"] = false;
  return context;
}

void AnswerPrinter::Print(const TextPiece& piece) {
  if (terminal_ && !piece.reasoning.empty()) {
    if (!dimmed_) fmt::print("\033[2m");
    dimmed_ = true;
    fmt::print("{}", piece.reasoning);
  }
  if (!piece.content.empty()) {
    if (dimmed_) fmt::print("\033[0m\n\n");
    dimmed_ = false;
    fmt::print("{}", piece.content);
  }
  std::fflush(stdout);
}

void AnswerPrinter::End() {
  fmt::print("{}\n", dimmed_ ? "\033[0m" : "");
  dimmed_ = false;
  std::fflush(stdout);
}

Status ChatLoop(Engine& engine, const ChatOptions& options, const SamplingChoice& sampling,
                SignalQueue& signals) {
  const bool terminal = StdoutIsTerminal() && ::isatty(STDIN_FILENO) == 1;
  if (terminal) fmt::print("{}{}", engine.PlanText(), kHelp);
  LineReader lines(signals, terminal);
  json::array messages = FirstMessages(options);
  while (std::optional<std::string> line = lines.Next()) {
    if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
    if (*line == "/exit" || *line == "/quit") break;
    if (*line == "/help") {
      fmt::print("{}", kHelp);
    } else if (*line == "/reset") {
      messages = FirstMessages(options);
      if (terminal) fmt::print("(forgotten)\n");
    } else {
      messages.push_back(json::object{{"role", "user"}, {"content", *line}});
      const Status status = TakeTurn(engine, options, sampling, signals, messages);
      if (status) continue;
      if (!terminal) return status;
      messages.pop_back();
      fmt::print("{}\n", status.error().message);
    }
  }
  return {};
}

}  // namespace braid
