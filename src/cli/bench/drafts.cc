// `braid bench drafts`: how much faster answers come with drafts than without, in turns on one
// engine. Every answer is compared with that without drafts.
#include <fmt/core.h>

#include <algorithm>

#include "base/progress.h"
#include "base/rng.h"
#include "cli/bench/statistics.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "cli/eval.h"
#include "engine/engine.h"
#include "engine/engine_ranks.h"
#include "engine/output_queue.h"

namespace braid {
namespace {

using Answers = std::vector<RequestResult>;

class BenchDraftsCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.RequiredList("MODEL [FILE...]", words_,
                       "Directory of the checkpoint, then files of tasks as for eval (default: "
                       "random prompts)");
    flags.Number("--draft-acceptance", rehearsal_acceptance_, {0, 1},
                 "Replace the head's drafts by known ones, of which this part is right");
    flags.Number("--sequences", sequences_, {1, 4096}, "Sequences that run at the same time");
    flags.Number("--input-tokens", input_tokens_, {1, 1 << 20}, "Tokens of a random prompt");
    flags.Number("--output-tokens", output_tokens_, {2, 1 << 20},
                 "Tokens of an answer to a random prompt");
    flags.Number("--temperature", temperature_, {0, 2}, "Of all answers (0: greedy)");
    flags.Number("--limit", limit_, {1, 1 << 20}, "Most items per file");
    flags.Number("--repeat", repeat_, {1, 1000}, "Rounds; medians are reported");
    flags.Seed("--seed", seed_, "Seed of the random prompts (default: 0)");
    flags.Switch("--json", json_, "Print a JSON object");
    AddEngineFlags(flags, options_);
  }
  Status Run() override;

 private:
  struct Round {
    TokenRates without, with;
    double ratio() const { return with.tokens_per_second / without.tokens_per_second; }
  };

  Status Check(const Engine& engine) const;
  Result<std::vector<Request>> MakeRequests(const Engine& engine) const;
  Result<Answers> Answer(Driver& driver, std::vector<Request> requests, int32_t drafts) const;
  TokenRates Rates(const Answers& answers) const;
  Result<Round> RunRound(Driver& driver, const std::vector<Request>& requests,
                         const Answers& known) const;
  void Print(const std::vector<Round>& rounds, const SchedulerStats& stats) const;

  EngineOptions options_;
  Rehearsal rehearsal_;
  std::vector<std::string> words_;
  std::optional<double> rehearsal_acceptance_;
  int32_t sequences_ = 1, input_tokens_ = 128, output_tokens_ = 128, limit_ = 20, repeat_ = 3;
  double temperature_ = 0;
  std::optional<uint64_t> seed_;
  bool json_ = false;
};

Status BenchDraftsCommand::Check(const Engine& engine) const {
  const SchedulerConfig& limits = engine.limits();
  if (limits.draft_tokens_max == 0) {
    return Error{ErrorCode::kInvalid,
                 "--draft off leaves nothing to compare; use auto, ngram or a number", "draft"};
  }
  if (!rehearsal_acceptance_) return {};
  if (!limits.draft_head) {
    return Error{
        ErrorCode::kInvalid,
        "--draft-acceptance is for models with a draft head, which --draft must not leave out"};
  }
  if (options_.mesh.ranks() > 1) {
    return Error{ErrorCode::kInvalid, "--draft-acceptance is for one rank"};
  }
  return {};
}

// Chats of the files, or random prompts.
Result<std::vector<Request>> BenchDraftsCommand::MakeRequests(const Engine& engine) const {
  std::vector<Request> requests;
  if (words_.size() > 1) {
    ASSIGN_OR_RETURN(const std::vector<EvalTask> tasks,
                     ReadTasks({words_.begin() + 1, words_.end()}, static_cast<size_t>(limit_)));
    for (const EvalTask& task : tasks) {
      for (const EvalItem& item : task.chats) {
        ASSIGN_OR_RETURN(Request request, ChatRequest(engine, item));
        requests.push_back(std::move(request));
      }
    }
  } else {
    for (int32_t s = 0; s < sequences_; ++s) {
      Rng rng(seed_.value_or(0) + static_cast<uint64_t>(s));
      Request& request = requests.emplace_back();
      for (int32_t i = 0; i < input_tokens_; ++i) {
        request.prompt.push_back(static_cast<TokenId>(rng.Below(engine.spec().vocabulary)));
      }
      request.stop.new_tokens_max = output_tokens_;
    }
  }
  if (requests.empty()) return Error{ErrorCode::kInvalid, "the files have no chats to answer"};
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].sampling.temperature = static_cast<float>(temperature_);
    requests[i].sampling.seed = seed_.value_or(0) + i;
  }
  return requests;
}

Result<Answers> BenchDraftsCommand::Answer(Driver& driver, std::vector<Request> requests,
                                           int32_t drafts) const {
  for (Request& request : requests) request.draft_tokens = drafts;
  Answers answers(requests.size());
  RETURN_IF_ERROR(RunRequests(driver, std::move(requests), static_cast<size_t>(sequences_),
                              [&](size_t i, RequestResult r) { answers[i] = std::move(r); }));
  return answers;
}

TokenRates BenchDraftsCommand::Rates(const Answers& answers) const {
  std::vector<std::vector<int64_t>> times;
  for (const RequestResult& answer : answers) times.push_back(answer.token_us);
  return RatesOf(times, std::ssize(answers) <= sequences_);
}

Result<BenchDraftsCommand::Round> BenchDraftsCommand::RunRound(Driver& driver,
                                                               const std::vector<Request>& requests,
                                                               const Answers& known) const {
  ASSIGN_OR_RETURN(const Answers without, Answer(driver, requests, 0));
  ASSIGN_OR_RETURN(const Answers with, Answer(driver, requests, -1));
  for (size_t i = 0; i < known.size(); ++i) {
    if (with[i].tokens == known[i].tokens && without[i].tokens == known[i].tokens) continue;
    return Error{ErrorCode::kInternal,
                 fmt::format("answer {} is not what it was without drafts", i)};
  }
  return Round{.without = Rates(without), .with = Rates(with)};
}

void BenchDraftsCommand::Print(const std::vector<Round>& rounds,
                               const SchedulerStats& stats) const {
  const auto median = [&](auto of) {
    std::vector<double> values;
    for (const Round& round : rounds) values.push_back(of(round));
    return Median(values);
  };
  const double without = median([](const Round& r) { return r.without.tokens_per_second; });
  const double with = median([](const Round& r) { return r.with.tokens_per_second; });
  const double ratio = median([](const Round& r) { return r.ratio(); });
  const double tokens_per_step = median([](const Round& r) { return r.with.tokens_per_step; });
  const DraftCounts& places = stats.drafts_by_place;
  json::array ratios, accepted;
  for (const Round& round : rounds) ratios.push_back(round.ratio());
  for (size_t i = 0; i < kDraftPlaces && places.drafted[i] > 0; ++i) {
    accepted.push_back(static_cast<double>(places.accepted[i]) /
                       static_cast<double>(places.drafted[i]));
  }
  if (json_) {
    fmt::print("{}\n", json::serialize(json::object{
                           {"sequences", sequences_},
                           {"tokens_per_second_without", without},
                           {"tokens_per_second_with", with},
                           {"speed_up", ratio},
                           {"speed_up_by_round", std::move(ratios)},
                           {"tokens_per_step", tokens_per_step},
                           {"acceptance_is_artificial", rehearsal_acceptance_.has_value()},
                           {"drafts", stats.drafts},
                           {"drafts_accepted", stats.drafts_accepted},
                           {"draft_acceptance_by_place", std::move(accepted)}}));
    return;
  }
  fmt::print("{} sequence{}: {:.1f} tokens/s each without drafts, {:.1f} with them: {:.2f} times (",
             sequences_, sequences_ == 1 ? "" : "s", without, with, ratio);
  for (size_t i = 0; i < rounds.size(); ++i) {
    fmt::print("{}{:.2f}", i == 0 ? "" : ", ", rounds[i].ratio());
  }
  fmt::print(")\n{:.2f} tokens a step; {} of {} drafts were right{}; by place", tokens_per_step,
             stats.drafts_accepted, stats.drafts,
             rehearsal_acceptance_ ? " (an artificial acceptance)" : "");
  for (const json::value& share : accepted) fmt::print(" {:.1f} %", share.as_double() * 100);
  fmt::print("\nall answers are those without drafts\n");
}

Status BenchDraftsCommand::Run() {
  options_.model_dir = words_.front();
  options_.scheduler.running_max = sequences_;
  if (rehearsal_acceptance_) {
    rehearsal_.acceptance = *rehearsal_acceptance_;
    options_.rehearsal = &rehearsal_;
  }
  if (FollowsAsRank()) return Engine::Follow(options_);
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(options_));
  RETURN_IF_ERROR(Check(*engine));
  ASSIGN_OR_RETURN(const std::vector<Request> requests, MakeRequests(*engine));
  // The first answers fill the cache, so that later ones begin with their first token.
  ASSIGN_OR_RETURN(const Answers known, Answer(engine->driver(), requests, 0));
  if (rehearsal_acceptance_) {
    for (size_t i = 0; i < known.size(); ++i) {
      std::vector<TokenId>& sequence = rehearsal_.sequences.emplace_back(requests[i].prompt);
      sequence.insert(sequence.end(), known[i].tokens.begin(), known[i].tokens.end());
    }
  }
  std::vector<Round> rounds;
  ProgressBar bar("bench", 0);
  for (int32_t i = 0; i < repeat_; ++i) {
    bar.Show(static_cast<double>(i) / repeat_);
    ASSIGN_OR_RETURN(const Round round, RunRound(engine->driver(), requests, known));
    rounds.push_back(round);
  }
  Print(rounds, engine->driver().stats().scheduler);
  return {};
}

}  // namespace

CommandPointer MakeBenchDraftsCommand() { return std::make_unique<BenchDraftsCommand>(); }

}  // namespace braid
