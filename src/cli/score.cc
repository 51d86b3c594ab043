// `braid score`: log-probabilities of given texts, through the same driver as serving. The output
// does not depend on --chunk-tokens, --batch or --threads.
#include <fmt/core.h>

#include <cstdio>
#include <map>

#include "base/progress.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "cli/terminal/json_lines.h"
#include "cli/terminal/token_output.h"
#include "engine/engine.h"
#include "engine/engine_ranks.h"
#include "engine/output_queue.h"

namespace braid {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

class ScoreCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("MODEL", options_.model_dir, "Directory of the checkpoint");
    flags.Required("FILE", file_,
                   "File of lines {\"token_ids\": […]} or {\"text\": …}; -: standard input");
    flags.Number("--top", top_, {0, 100}, "Number of most probable tokens to list per position");
    flags.Number("--batch", batch_, {1, 4096}, "Most texts that run at the same time");
    flags.Text("--output", output_, "File to write to (default: standard output)");
    AddEngineFlags(flags, options_);
  }
  Status Run() override;

 private:
  Result<Request> RequestOf(const Engine& engine, const JsonLine& line) const;
  Status ScoreAll(Engine& engine, const std::vector<JsonLine>& lines, std::FILE* out);

  EngineOptions options_;
  std::string file_, output_;
  int32_t top_ = 5;
  int32_t batch_ = 16;
};

// One output line: logprobs[i] is that of token i, top[i] the distribution after it.
std::string ScoreLine(const std::vector<TokenId>& ids, const RequestResult& answer) {
  std::string out = "{\"token_ids\":";
  AppendIds(out, ids);
  out += ",\"logprobs\":[null";
  for (size_t i = 1; i < ids.size(); ++i) {
    out += ',';
    AppendLogprob(out, answer.prompt_logprobs[i - 1].logprob);
  }
  out += "],\"top\":[";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    AppendTop(out, answer.prompt_logprobs[i]);
  }
  out += "]}\n";
  return out;
}

Result<Request> ScoreCommand::RequestOf(const Engine& engine, const JsonLine& line) const {
  const std::string place = fmt::format("{}:{}: ", file_, line.number);
  const json::value* ids = line.object.if_contains("token_ids");
  const json::value* text = line.object.if_contains("text");
  Request request;
  if (ids != nullptr) {
    ASSIGN_OR_RETURN(request.prompt,
                     TokenIdsOf(*ids, place + "token_ids", engine.spec().vocabulary));
  } else if (text != nullptr && text->is_string()) {
    ASSIGN_OR_RETURN(request.prompt, EncodeText(engine, text->as_string(), true));
    if (request.prompt.empty()) {
      return Error{ErrorCode::kInvalid, place + "\"text\" has no token"};
    }
  } else {
    return Error{ErrorCode::kInvalid,
                 place + "neither \"token_ids\" (an array) nor \"text\" (a string)"};
  }
  request.stop.new_tokens_max = 0;
  request.prompt_logprobs = top_;
  return request;
}

Status ScoreCommand::ScoreAll(Engine& engine, const std::vector<JsonLine>& lines, std::FILE* out) {
  std::vector<Request> requests;
  std::vector<std::vector<TokenId>> ids;
  for (const JsonLine& line : lines) {
    ASSIGN_OR_RETURN(Request request, RequestOf(engine, line));
    ids.push_back(request.prompt);
    requests.push_back(std::move(request));
  }
  ProgressBar bar("scoring", 0.5);
  std::map<size_t, std::string> ready;  // lines whose turn has not come
  size_t next = 0, done = 0;
  Status written;
  const auto take = [&](size_t index, RequestResult answer) {
    CHECK(answer.prompt_logprobs.size() == ids[index].size(), "{} entries for {} tokens",
          answer.prompt_logprobs.size(), ids[index].size());
    ready[index] = ScoreLine(ids[index], answer);
    for (auto at = ready.begin(); at != ready.end() && at->first == next; ++next) {
      if (std::fwrite(at->second.data(), 1, at->second.size(), out) != at->second.size()) {
        written = Error{ErrorCode::kInternal, "writing the output failed"};
      }
      at = ready.erase(at);
    }
    bar.Show(static_cast<double>(++done) / static_cast<double>(ids.size()));
  };
  const size_t window = static_cast<size_t>(batch_) * 2;
  RETURN_IF_ERROR(RunRequests(engine.driver(), std::move(requests), window, take));
  if (written && std::fflush(out) != 0) {
    written = Error{ErrorCode::kInternal, "writing the output failed"};
  }
  return written;
}

Status ScoreCommand::Run() {
  options_.scheduler.running_max = batch_;
  if (FollowsAsRank()) return Engine::Follow(options_);
  ASSIGN_OR_RETURN(const std::vector<JsonLine> lines, ReadJsonLines(file_));
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(options_));
  if (StderrIsTerminal()) fmt::print(stderr, "{}", engine->PlanText());
  std::unique_ptr<std::FILE, CloseFile> file;
  if (!output_.empty()) {
    file.reset(std::fopen(output_.c_str(), "w"));
    if (file == nullptr) {
      return Error{ErrorCode::kInvalid, fmt::format("{} cannot be written", output_)};
    }
  }
  RETURN_IF_ERROR(ScoreAll(*engine, lines, file ? file.get() : stdout));
  if (options_.explain_ops) fmt::print(stderr, "{}", engine->ExplainOps());
  return {};
}

}  // namespace

CommandPointer MakeScoreCommand() { return std::make_unique<ScoreCommand>(); }

}  // namespace braid
