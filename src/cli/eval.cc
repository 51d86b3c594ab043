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

constexpr int32_t kNewTokensMax = 512;

class EvalCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.RequiredList("MODEL FILE...", words_, "Directory of the checkpoint, then files of tasks");
    flags.Switch("--json", json_, "Print the result as a JSON object");
    flags.Number("--limit", limit_, {1, 1 << 30}, "Most items per file");
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
  int32_t concurrency_ = 32;
  bool json_ = false;
};

// Every token of the text and of the end of text but the first counts.
Result<Request> TextRequest(const Engine& engine, const EvalItem& item) {
  Request request;
  ASSIGN_OR_RETURN(request.prompt, EncodeText(engine, item.text + "<|endoftext|>", true));
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
  task.right += IsRight(item, SplitReply(engine.tokenizer()->Decode(ids, false)));
  ++task.answered;
}

Status EvalCommand::RunTasks(std::vector<EvalTask>& tasks) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(options_));
  std::vector<Request> requests;
  std::vector<std::pair<size_t, const EvalItem*>> items;  // task and item of each request
  for (size_t t = 0; t < tasks.size(); ++t) {
    for (const EvalItem& item : tasks[t].chats) {
      ASSIGN_OR_RETURN(Request request, ChatRequest(*engine, item));
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
  ASSIGN_OR_RETURN(
      std::vector<EvalTask> tasks,
      ReadTasks({words_.begin() + 1, words_.end()}, static_cast<size_t>(limit_.value_or(1 << 30))));
  RETURN_IF_ERROR(RunTasks(tasks));
  Print(tasks);
  return {};
}

}  // namespace

double EvalTask::perplexity() const {
  return scored_tokens == 0 ? 0 : std::exp(-log_likelihood / static_cast<double>(scored_tokens));
}

Result<std::vector<EvalTask>> ReadTasks(const std::vector<std::string>& files, size_t items_max) {
  std::vector<EvalTask> tasks;
  for (const std::string& file : files) {
    EvalTask task;
    task.name = std::filesystem::path(file).stem().string();
    ASSIGN_OR_RETURN(const std::vector<JsonLine> lines, ReadJsonLines(file));
    for (const JsonLine& line : lines) {
      const std::string place = fmt::format("{}:{}", file, line.number);
      ASSIGN_OR_RETURN(EvalItem item, ParseEvalItem(line.object, place));
      std::vector<EvalItem>& list = item.measures_perplexity() ? task.texts : task.chats;
      if (list.size() < items_max) list.push_back(std::move(item));
    }
    tasks.push_back(std::move(task));
  }
  return tasks;
}

Result<Request> ChatRequest(const Engine& engine, const EvalItem& item) {
  ASSIGN_OR_RETURN(json::array messages, NormalizeMessages(item.messages));
  json::object context{{"messages", std::move(messages)},
                       {"add_generation_prompt", true},
                       {"enable_thinking", item.thinking}};
  if (!item.tools.is_null()) context["tools"] = item.tools;
  ASSIGN_OR_RETURN(RenderedPrompt prompt, RenderPrompt(engine, context));
  Request request;
  request.prompt = std::move(prompt.tokens);
  request.stop.stop_tokens = engine.eos_tokens();
  request.stop.new_tokens_max = kNewTokensMax;
  return request;
}

CommandPointer MakeEvalCommand() { return std::make_unique<EvalCommand>(); }

}  // namespace braid
