// `braid eval`: accuracy on task sets. A task is a file; its name without ending is the task's.
#include "cli/eval.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/progress.h"
#include "cli/bench/statistics.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "cli/terminal/json_lines.h"
#include "engine/engine.h"
#include "engine/engine_ranks.h"
#include "engine/output_queue.h"

namespace braid {
namespace {

class EvalCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.RequiredList("MODEL FILE...", words_, "Directory of the checkpoint, then files of tasks");
    flags.Switch("--json", json_, "Print the result as a JSON object");
    flags.Number("--limit", limit_, {1, 1 << 30}, "Most items per file");
    flags.Number("--shots", shots_.prompting.shots, {0, 64},
                 "Of published sets (GSM8K, MMLU-Pro): worked examples before each question");
    flags.Text("--shots-file", shots_.file,
               "With --shots: their file; else they are the first lines of each file");
    flags.Switch("--raw", shots_.prompting.raw,
                 "Ask published sets in plain text, not by the chat template");
    flags.SwitchOff("--no-thinking", shots_.prompting.thinking,
                    "Ask published sets without thinking, if the chat template can");
    flags.Number("--max-tokens", max_tokens_, {1, 1 << 20}, "Most tokens of an answer");
    flags.Number("--min-accuracy", min_accuracy_, {0, 1},
                 "Fail if a task's accuracy is lower: the exit code is 1");
    flags.Number("--concurrency", concurrency_, {1, 4096}, "Most items that run at the same time");
    AddEngineFlags(flags, options_);
  }
  Status Run() override;

 private:
  Status RunTasks(std::vector<EvalTask>& tasks);
  void Print(const std::vector<EvalTask>& tasks) const;

  EngineOptions options_;
  std::vector<std::string> words_;
  std::optional<int32_t> limit_;
  std::optional<double> min_accuracy_;
  SetShots shots_;
  int32_t max_tokens_ = kEvalTokens;
  int32_t concurrency_ = 32;
  bool json_ = false;
};

// Every token of the text and of its end but the first counts.
Result<Request> TextRequest(const Engine& engine, const EvalItem& item) {
  Request request;
  ASSIGN_OR_RETURN(request.prompt, EncodeText(engine, item.text, true));
  const std::optional<TokenId> end = EndOfText(*engine.tokenizer(), engine.eos_tokens());
  const bool ended = !request.prompt.empty() && request.prompt.back() == end;
  if (end && !ended) request.prompt.push_back(*end);
  request.stop.new_tokens_max = 0;
  request.prompt_logprobs = 0;
  return request;
}

void Count(const Engine& engine, const EvalItem& item, const RequestResult& result,
           EvalTask& task) {
  if (item.measures_perplexity()) {
    for (size_t i = 0; i + 1 < result.prompt_logprobs.size(); ++i) {
      task.log_likelihood += static_cast<double>(result.prompt_logprobs[i].logprob);
      ++task.scored_tokens;
    }
    return;
  }
  std::vector<TokenId> ids = result.tokens;
  if (result.finish == FinishReason::kStop && !ids.empty()) ids.pop_back();
  const std::string text = engine.tokenizer()->Decode(ids, false);
  task.right += IsRight(
      item, SplitReply(item.prompt.empty() ? std::string_view(text) : UpToNextQuestion(text)));
  ++task.answered;
}

Status EvalCommand::RunTasks(std::vector<EvalTask>& tasks) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(options_));
  std::vector<Request> requests;
  std::vector<std::pair<size_t, const EvalItem*>> items;  // task and item of each request
  for (size_t t = 0; t < tasks.size(); ++t) {
    for (const EvalItem& item : tasks[t].chats) {
      ASSIGN_OR_RETURN(Request request, ChatRequest(*engine, item, max_tokens_));
      requests.push_back(std::move(request));
      items.emplace_back(t, &item);
    }
    for (const EvalItem& item : tasks[t].texts) {
      ASSIGN_OR_RETURN(Request request, TextRequest(*engine, item));
      requests.push_back(std::move(request));
      items.emplace_back(t, &item);
    }
  }
  ProgressBar bar("eval", 0);
  size_t done = 0;
  const size_t window = static_cast<size_t>(concurrency_) * 2;
  RETURN_IF_ERROR(RunRequests(
      engine->driver(), std::move(requests), window, [&](size_t index, RequestResult result) {
        EvalTask& task = tasks[items[index].first];
        Count(*engine, *items[index].second, result, task);
        bar.Show(static_cast<double>(++done) / static_cast<double>(items.size()), task.name);
      }));
  if (options_.explain_ops) fmt::print(stderr, "{}", engine->ExplainOps());
  return {};
}

json::object JsonOf(const EvalTask& task) {
  json::object out{{"task", task.name}, {"n", task.answered}};
  const Interval interval = WilsonInterval(task.right, task.answered);
  const double n = static_cast<double>(task.answered);
  if (task.answered > 0) {
    out["accuracy"] = static_cast<double>(task.right) / n;
    out["low"] = interval.low;
    out["high"] = interval.high;
  } else {
    out["accuracy"] = out["low"] = out["high"] = nullptr;
  }
  if (task.scored_tokens > 0) out["perplexity"] = task.perplexity();
  return out;
}

void EvalCommand::Print(const std::vector<EvalTask>& tasks) const {
  if (json_) {
    json::array list;
    for (const EvalTask& task : tasks) list.push_back(JsonOf(task));
    fmt::print("{}\n", json::serialize(json::object{{"tasks", std::move(list)}}));
    return;
  }
  fmt::print("{:<16} {:>6} {:>10}   {:<18} {:>10}\n", "task", "items", "accuracy", "95 % interval",
             "perplexity");
  int64_t right = 0, answered = 0;
  const auto line = [](const std::string& name, int64_t r, int64_t n, double perplexity) {
    const Interval i = WilsonInterval(r, n);
    const std::string share =
        n == 0 ? "-"
               : fmt::format("{:.1f} %", 100.0 * static_cast<double>(r) / static_cast<double>(n));
    const std::string range =
        n == 0 ? "-" : fmt::format("{:.1f} – {:.1f} %", 100 * i.low, 100 * i.high);
    fmt::print("{:<16} {:>6} {:>10}   {:<18} {:>10}\n", name, n, share, range,
               perplexity > 0 ? fmt::format("{:.4f}", perplexity) : "-");
  };
  for (const EvalTask& task : tasks) {
    line(task.name, task.right, task.answered, task.perplexity());
    right += task.right;
    answered += task.answered;
  }
  if (tasks.size() > 1) line("all", right, answered, 0);
}

Status EvalCommand::Run() {
  if (words_.size() < 2) {
    return Error{ErrorCode::kInvalid, "a model directory and at least one file are needed"};
  }
  options_.model_dir = words_.front();
  options_.scheduler.running_max = concurrency_;
  if (FollowsAsRank()) return Engine::Follow(options_);
  ASSIGN_OR_RETURN(std::vector<EvalTask> tasks,
                   ReadTasks({words_.begin() + 1, words_.end()},
                             static_cast<size_t>(limit_.value_or(1 << 30)), shots_));
  RETURN_IF_ERROR(RunTasks(tasks));
  Print(tasks);
  for (const EvalTask& task : tasks) {
    if (!min_accuracy_ || task.answered == 0) continue;
    const double accuracy = static_cast<double>(task.right) / static_cast<double>(task.answered);
    if (accuracy >= *min_accuracy_) continue;
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: the accuracy {:.4f} is below --min-accuracy {}", task.name,
                             accuracy, *min_accuracy_)};
  }
  return {};
}

}  // namespace

double EvalTask::perplexity() const {
  return scored_tokens == 0 ? 0 : std::exp(-log_likelihood / static_cast<double>(scored_tokens));
}

namespace {

// The questions of a published set in a file; other lines are an error.
Result<std::vector<SetQuestion>> ReadExamples(const std::string& file) {
  std::vector<SetQuestion> examples;
  if (file.empty()) return examples;
  ASSIGN_OR_RETURN(const std::vector<JsonLine> lines, ReadJsonLines(file));
  for (const JsonLine& line : lines) {
    const std::string place = fmt::format("{}:{}", file, line.number);
    ASSIGN_OR_RETURN(std::optional<SetQuestion> question, ParseSetQuestion(line.object, place));
    if (!question) {
      return Error{ErrorCode::kInvalid, place + ": is no line of GSM8K or MMLU-Pro"};
    }
    examples.push_back(*std::move(question));
  }
  return examples;
}

// The lines of one file.
Result<EvalTask> ReadTask(const std::string& file, size_t items_max, const SetShots& shots,
                          std::vector<SetQuestion> examples) {
  EvalTask task;
  task.name = std::filesystem::path(file).stem().string();
  ASSIGN_OR_RETURN(const std::vector<JsonLine> lines, ReadJsonLines(file));
  for (const JsonLine& line : lines) {
    const std::string place = fmt::format("{}:{}", file, line.number);
    ASSIGN_OR_RETURN(std::optional<SetQuestion> question, ParseSetQuestion(line.object, place));
    if (question && shots.file.empty() && std::ssize(examples) < shots.prompting.shots) {
      examples.push_back(*std::move(question));
      continue;
    }
    EvalItem item;
    if (question) {
      item = ItemOf(*question, examples, shots.prompting);
    } else {
      ASSIGN_OR_RETURN(item, ParseEvalItem(line.object, place));
    }
    std::vector<EvalItem>& list = item.measures_perplexity() ? task.texts : task.chats;
    if (list.size() < items_max) list.push_back(std::move(item));
  }
  if (task.chats.empty() && task.texts.empty() && shots.prompting.shots > 0) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: all lines are worked examples; lower --shots or give them in a "
                             "--shots-file",
                             file)};
  }
  return task;
}

}  // namespace

Result<std::vector<EvalTask>> ReadTasks(const std::vector<std::string>& files, size_t items_max,
                                        const SetShots& shots) {
  ASSIGN_OR_RETURN(const std::vector<SetQuestion> examples, ReadExamples(shots.file));
  std::vector<EvalTask> tasks;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(EvalTask task, ReadTask(file, items_max, shots, examples));
    tasks.push_back(std::move(task));
  }
  return tasks;
}

std::optional<TokenId> EndOfText(const Tokenizer& tokenizer, std::span<const TokenId> eos) {
  const std::optional<TokenId> end = tokenizer.TokenToId("<|endoftext|>");
  return !end && eos.size() == 1 ? eos[0] : end;
}

Result<Request> ChatRequest(const Engine& engine, const EvalItem& item, int32_t new_tokens_max) {
  Request request;
  request.stop.stop_tokens = engine.eos_tokens();
  request.stop.new_tokens_max = new_tokens_max;
  if (!item.prompt.empty()) {
    ASSIGN_OR_RETURN(request.prompt, EncodeText(engine, item.prompt, true));
    return request;
  }
  ASSIGN_OR_RETURN(json::array messages, NormalizeMessages(item.messages));
  json::object context{{"messages", std::move(messages)},
                       {"add_generation_prompt", true},
                       {"enable_thinking", item.thinking}};
  if (!item.tools.is_null()) context["tools"] = item.tools;
  ASSIGN_OR_RETURN(RenderedPrompt prompt, RenderPrompt(engine, context));
  request.prompt = std::move(prompt.tokens);
  return request;
}

CommandPointer MakeEvalCommand() { return std::make_unique<EvalCommand>(); }

}  // namespace braid
