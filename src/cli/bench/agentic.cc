// `braid bench agentic`: conversations that grow turn by turn and take turns with each other, as
// programs that call models in a loop have them. How much of what the engine computed before does
// it compute again, and what does a later turn's first token cost? At the end some of the last
// answers are regenerated, and others lose their first half, as thinking is lost, before the next
// turn.
#include <fmt/core.h>

#include <algorithm>

#include "base/json.h"
#include "base/progress.h"
#include "base/rng.h"
#include "cli/bench/statistics.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"
#include "comm/launch.h"
#include "engine/engine.h"
#include "engine/engine_ranks.h"
#include "engine/output_queue.h"

namespace braid {
namespace {

using Tokens = std::vector<TokenId>;

// One turn of one conversation, as the engine answered it.
struct Turn : RequestResult {
  int64_t reusable_tokens = 0;  // computed before in this conversation
};

struct Conversation {
  Tokens said;  // so far: the next prompt
  std::vector<Turn> turns;
  Tokens asked;                          // the last turn's prompt
  std::optional<Turn> again, shortened;  // after it: its prompt once more; a part of its answer
};

// Sums over turns.
struct TurnSums {
  int64_t requests = 0, prompt = 0, reusable = 0, reused = 0;  // the last three in tokens
  std::vector<double> ttft_ms;

  void Add(const Turn& turn) {
    ++requests;
    prompt += turn.prompt_tokens;
    reusable += turn.reusable_tokens;
    reused += std::min<int64_t>(turn.cached_tokens, turn.reusable_tokens);
    ttft_ms.push_back(turn.ttft_ms());
  }
  double reuse() const {
    return reusable > 0 ? static_cast<double>(reused) / static_cast<double>(reusable) : 0.0;
  }
};

class BenchAgenticCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Required("MODEL", options_.model_dir, "Directory of the checkpoint");
    flags.Number("--conversations", conversations_, {1, 4096}, "Conversations that take turns");
    flags.Number("--turns", turns_, {2, 1000}, "Turns of each conversation");
    flags.Number("--first-tokens", first_tokens_, {1, 1 << 24}, "Prompt tokens of the first turn");
    flags.Number("--turn-tokens", turn_tokens_, {1, 1 << 20},
                 "Tokens that each turn adds, including the answer");
    flags.Number("--output-tokens", output_tokens_, {1, 1 << 20}, "Tokens of each answer");
    flags.Number("--concurrency", concurrency_, {1, 4096}, "Requests that run at the same time");
    flags.Number("--cache-share", cache_share_, {0.01, 1},
                 "Run twice: first with a cache that evicts nothing, then with this share of the "
                 "pages that the first run filled");
    flags.Seed("--seed", seed_, "Seed of the prompts (default: 0)");
    flags.Switch("--json", json_, "Print a JSON object");
    AddEngineFlags(flags, options_);
  }
  Status Run() override;

 private:
  Result<json::object> Measure() const;
  Result<std::vector<Conversation>> Converse(Driver& driver) const;
  Status TakeTurn(Driver& driver, std::vector<Conversation>& conversations) const;
  Status GoBack(Driver& driver, Rng& rng, std::vector<Conversation>& conversations) const;
  Result<std::vector<Turn>> Ask(Driver& driver, const std::vector<Tokens>& prompts) const;
  json::object Report(const std::vector<Conversation>& conversations) const;

  EngineOptions options_;
  int32_t conversations_ = 8, turns_ = 12;
  int32_t first_tokens_ = 1500, turn_tokens_ = 100, output_tokens_ = 32;
  int32_t concurrency_ = 1;
  std::optional<double> cache_share_;
  std::optional<uint64_t> seed_;
  bool json_ = false;
};

// Ids that are plain text in byte-level vocabularies, never special.
void AppendRandom(Rng& rng, int64_t count, Tokens& tokens) {
  constexpr int64_t kIdBegin = 300, kIdEnd = 1000;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(kIdBegin + rng.Below(kIdEnd - kIdBegin)));
  }
}

// Greedy answers of full length.
Result<std::vector<Turn>> BenchAgenticCommand::Ask(Driver& driver,
                                                   const std::vector<Tokens>& prompts) const {
  std::vector<Request> requests(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    requests[i].prompt = prompts[i];
    requests[i].stop.new_tokens_max = output_tokens_;
  }
  std::vector<Turn> turns(prompts.size());
  RETURN_IF_ERROR(
      RunRequests(driver, std::move(requests), static_cast<size_t>(concurrency_),
                  [&](size_t i, RequestResult answer) { turns[i] = {std::move(answer)}; }));
  return turns;
}

// One turn of every conversation, in their order.
Status BenchAgenticCommand::TakeTurn(Driver& driver,
                                     std::vector<Conversation>& conversations) const {
  std::vector<Tokens> prompts;
  for (const Conversation& conversation : conversations) prompts.push_back(conversation.said);
  ASSIGN_OR_RETURN(std::vector<Turn> turns, Ask(driver, prompts));
  for (size_t i = 0; i < turns.size(); ++i) {
    Turn& turn = turns[i];
    Conversation& conversation = conversations[i];
    conversation.asked = std::move(prompts[i]);
    if (!conversation.turns.empty()) {
      // The last token that was sampled has not been through the model yet.
      const Turn& before = conversation.turns.back();
      turn.reusable_tokens = before.prompt_tokens + std::ssize(before.tokens) - 1;
    }
    conversation.said.insert(conversation.said.end(), turn.tokens.begin(), turn.tokens.end());
    conversation.turns.push_back(std::move(turn));
  }
  return {};
}

// The even conversations ask for their last answer again; the odd ones go on from its second half,
// which comes right after the prompt. A single conversation does both.
Status BenchAgenticCommand::GoBack(Driver& driver, Rng& rng,
                                   std::vector<Conversation>& conversations) const {
  std::vector<Tokens> prompts;
  std::vector<std::pair<Conversation*, std::optional<Turn> Conversation::*>> places;
  for (size_t i = 0; i < conversations.size(); ++i) {
    Conversation& c = conversations[i];
    if (i % 2 == 0) {
      prompts.push_back(c.asked);
      places.emplace_back(&c, &Conversation::again);
    }
    if (i % 2 == 0 && conversations.size() > 1) continue;
    const Tokens& answer = c.turns.back().tokens;
    Tokens shorter = c.asked;
    shorter.insert(shorter.end(), answer.begin() + std::ssize(answer) / 2, answer.end());
    AppendRandom(rng, turn_tokens_ - output_tokens_, shorter);
    prompts.push_back(std::move(shorter));
    places.emplace_back(&c, &Conversation::shortened);
  }
  ASSIGN_OR_RETURN(std::vector<Turn> turns, Ask(driver, prompts));
  for (size_t i = 0; i < turns.size(); ++i) {
    const auto& [conversation, place] = places[i];
    turns[i].reusable_tokens = conversation->turns.back().prompt_tokens - 1;
    conversation->*place = std::move(turns[i]);
  }
  return {};
}

Result<std::vector<Conversation>> BenchAgenticCommand::Converse(Driver& driver) const {
  std::vector<Conversation> conversations(static_cast<size_t>(conversations_));
  ProgressBar bar("turns", 0);
  Rng rng(seed_.value_or(0));
  for (int32_t turn = 0; turn < turns_; ++turn) {
    for (Conversation& conversation : conversations) {
      AppendRandom(rng, turn == 0 ? first_tokens_ : turn_tokens_ - output_tokens_,
                   conversation.said);
    }
    RETURN_IF_ERROR(TakeTurn(driver, conversations));
    bar.Show(static_cast<double>(turn + 1) / turns_);
  }
  RETURN_IF_ERROR(GoBack(driver, rng, conversations));
  return conversations;
}

json::object BenchAgenticCommand::Report(const std::vector<Conversation>& conversations) const {
  TurnSums first, later, again, shortened;
  json::array by_turn;
  for (size_t t = 0; t < static_cast<size_t>(turns_); ++t) {
    TurnSums sums;
    for (const Conversation& conversation : conversations) {
      sums.Add(conversation.turns[t]);
      (t == 0 ? first : later).Add(conversation.turns[t]);
    }
    by_turn.push_back(json::object{{"prompt_tokens", sums.prompt},
                                   {"reusable_tokens", sums.reusable},
                                   {"reused_tokens", sums.reused},
                                   {"reprocessed_tokens", sums.reusable - sums.reused},
                                   {"median_ttft_ms", Median(sums.ttft_ms)}});
  }
  for (const Conversation& conversation : conversations) {
    if (conversation.again) again.Add(*conversation.again);
    if (conversation.shortened) shortened.Add(*conversation.shortened);
  }
  const auto gone_back = [](const TurnSums& sums) {
    return json::object{{"requests", sums.requests},
                        {"reusable_tokens", sums.reusable},
                        {"reused_tokens", sums.reused},
                        {"reuse", sums.reuse()},
                        {"median_ttft_ms", Median(sums.ttft_ms)}};
  };
  const double cold = Median(first.ttft_ms);
  return {{"conversations", conversations_},
          {"turns", turns_},
          {"reusable_tokens", later.reusable},
          {"reused_tokens", later.reused},
          {"reprocessed_tokens", later.reusable - later.reused},
          {"reuse", later.reuse()},
          {"median_cold_ttft_ms", cold},
          {"median_later_ttft_ms", Median(later.ttft_ms)},
          {"p90_later_ttft_ms", Percentile(later.ttft_ms, 90)},
          {"later_ttft_to_cold", cold > 0 ? Median(later.ttft_ms) / cold : 0.0},
          {"regenerated", gone_back(again)},
          {"answer_shortened", gone_back(shortened)},
          {"by_turn", std::move(by_turn)}};
}

void PrintReport(const json::object& report) {
  const auto number = [&](const char* key) { return report.at(key).to_number<double>(); };
  fmt::print("{:>5} {:>10} {:>10} {:>10} {:>12} {:>10}\n", "turn", "prompt", "reusable", "reused",
             "reprocessed", "TTFT ms");
  size_t turn = 0;
  for (const json::value& value : report.at("by_turn").as_array()) {
    const json::object& row = value.as_object();
    const auto tokens = [&](const char* key) { return row.at(key).to_number<int64_t>(); };
    fmt::print("{:>5} {:>10} {:>10} {:>10} {:>12} {:>10.1f}\n", ++turn, tokens("prompt_tokens"),
               tokens("reusable_tokens"), tokens("reused_tokens"), tokens("reprocessed_tokens"),
               row.at("median_ttft_ms").to_number<double>());
  }
  fmt::print("\nreused {:.1f} % of {:.0f} reusable tokens; {:.0f} were computed again\n",
             100 * number("reuse"), number("reusable_tokens"), number("reprocessed_tokens"));
  fmt::print("time to first token: first turn {:.1f} ms, later {:.1f} ms ({:.1f} % of it)\n",
             number("median_cold_ttft_ms"), number("median_later_ttft_ms"),
             100 * number("later_ttft_to_cold"));
  for (const auto& [key, what] : {std::pair("regenerated", "regenerated answers"),
                                  {"answer_shortened", "turns after a shortened answer"}}) {
    const json::object& gone_back = report.at(key).as_object();
    const auto figure = [&](const char* name) { return gone_back.at(name).to_number<double>(); };
    fmt::print("{}: reused {:.1f} % of {:.0f} tokens of their prompts, first token {:.1f} ms\n",
               what, 100 * figure("reuse"), figure("reusable_tokens"), figure("median_ttft_ms"));
  }
  fmt::print("cache: {:.0f} pages, {:.0f} filled, {:.0f} evictions\n", number("cache_pages"),
             number("cache_pages_filled"), number("evictions"));
}

Result<json::object> BenchAgenticCommand::Measure() const {
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(options_));
  ASSIGN_OR_RETURN(const std::vector<Conversation> conversations, Converse(engine->driver()));
  json::object report = Report(conversations);
  const SchedulerStats stats = engine->driver().stats().scheduler;
  report["cache_pages"] = stats.pages_total;
  report["cache_pages_filled"] = stats.pages_used + stats.pages_cached;
  report["cache_page_bytes"] = engine->limits().cache.page_bytes;
  report["evictions"] = stats.evictions_full + stats.evictions_state;
  return report;
}

Status BenchAgenticCommand::Run() {
  if (cache_share_ && LaunchHere().several()) {
    return Error{ErrorCode::kInvalid,
                 "--cache-share runs twice, which a launcher's processes do once: start it alone; "
                 "its ranks are threads then",
                 "--cache-share"};
  }
  if (FollowsAsRank()) return Engine::Follow(options_);
  if (turn_tokens_ <= output_tokens_) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("--turn-tokens {} must be more than --output-tokens {}: the rest is "
                             "what the user says",
                             turn_tokens_, output_tokens_)};
  }
  // The first run of two only tells the size of all pages; the second one finds no pages on disk.
  const EngineOptions given = options_;
  if (cache_share_) {
    options_.cache_dir.clear();
    options_.cache_key_file.clear();
    options_.cache_disk_bytes = kCacheDiskBytes;
    options_.cache_host_bytes = 0;
    options_.cache_host_node.reset();
  }
  ASSIGN_OR_RETURN(json::object report, Measure());
  if (cache_share_) {
    if (report.at("evictions").to_number<int64_t>() > 0) {
      return Error{ErrorCode::kExhausted,
                   "the first run evicted: its cache is too small to hold all conversations. Give "
                   "more --memory or fewer --conversations"};
    }
    const auto pages =
        static_cast<int64_t>(*cache_share_ * report.at("cache_pages_filled").to_number<double>());
    options_ = given;
    options_.memory_bytes = 0;
    options_.cache_bytes = (pages + 1) * report.at("cache_page_bytes").to_number<int64_t>();
    ASSIGN_OR_RETURN(report, Measure());
  }
  if (json_) {
    fmt::print("{}\n", json::serialize(report));
  } else {
    PrintReport(report);
  }
  return {};
}

}  // namespace

CommandPointer MakeBenchAgenticCommand() { return std::make_unique<BenchAgenticCommand>(); }

}  // namespace braid
