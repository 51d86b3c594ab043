// `braid bench agentic`: conversations that grow turn by turn and take turns with each other, as
// programs that call models in a loop have them. How much of what a server computed before does it
// compute again, and what does a later turn's first token cost? At the end some of the last answers
// are regenerated, and others lose their first half, as thinking is lost, before the next turn.
// Works with any server that streams OpenAI's completions; without one, serves MODEL in this
// process.
#include <fmt/core.h>

#include <algorithm>

#include "base/progress.h"
#include "cli/bench/load_generator.h"
#include "cli/bench/local_server.h"
#include "cli/bench/statistics.h"
#include "cli/command/command_factories.h"
#include "cli/command/engine_flags.h"

namespace braid {
namespace {

// One turn of one conversation, as the server answered it.
struct Turn : StreamedAnswer {
  int64_t reusable_tokens = 0;  // computed before in this conversation
};

// What a conversation has said so far, as the next prompt: ids or text.
struct Conversation {
  json::value said;
  std::vector<Turn> turns;
  json::value asked;                     // the last turn's prompt
  std::optional<Turn> again, shortened;  // after it: its prompt once more; a part of its answer
};

struct Totals {
  int64_t prompt = 0, reusable = 0, reused = 0;  // tokens of turns after the first
  std::vector<double> cold_ms, later_ms;
  bool reported = true;  // every answer had cached_tokens; otherwise they are estimated
};

class BenchAgenticCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Optional("MODEL", options_.model_dir, "Directory of a checkpoint to serve here");
    server_.AddFlags(flags);
    flags.Number("--conversations", conversations_, {1, 4096}, "Conversations, turn about");
    flags.Number("--turns", turns_, {2, 1000}, "Turns of each");
    flags.Number("--first-tokens", first_tokens_, {1, 1 << 24}, "Prompt tokens of the first turn");
    flags.Number("--turn-tokens", turn_tokens_, {1, 1 << 20},
                 "Tokens that a turn adds, its answer among them");
    flags.Number("--output-tokens", output_tokens_, {1, 1 << 20}, "Tokens of an answer");
    flags.Number("--concurrency", concurrency_, {1, 4096}, "Requests at the same time");
    flags.Number("--cache-share", cache_share_, {0.01, 1},
                 "With MODEL: cache of so much of what the conversations fill when nothing is ever "
                 "evicted, found by a run before");
    flags.Switch("--words", words_, "Prompts of words, for servers that take no token ids");
    flags.Seed("--seed", seed_, "Of the prompts (default: 0)");
    flags.Switch("--json", json_, "Print a JSON object");
    AddEngineFlags(flags, options_);
  }
  Status Run() override;

 private:
  Status CheckFlags() const;
  Result<json::object> Measure();
  Result<std::vector<Conversation>> Converse(const Endpoint& endpoint) const;
  Status TakeTurn(const Endpoint& endpoint, std::vector<Conversation>& conversations) const;
  Status GoBack(const Endpoint& endpoint, Rng& rng, std::vector<Conversation>& conversations) const;
  Result<std::vector<Turn>> Ask(const Endpoint& endpoint,
                                const std::vector<json::value>& prompts) const;
  void Say(Conversation& conversation, const json::value& more) const;
  json::object Report(const std::vector<Conversation>& conversations) const;

  EngineOptions options_;
  CompletionServer server_{.base_url = "", .model = "", .api_key = ""};
  int32_t conversations_ = 8, turns_ = 12;
  int32_t first_tokens_ = 1500, turn_tokens_ = 100, output_tokens_ = 32;
  int32_t concurrency_ = 1;
  std::optional<double> cache_share_;
  std::optional<uint64_t> seed_;
  bool words_ = false, json_ = false;
};

Status BenchAgenticCommand::CheckFlags() const {
  const auto wrong = [](const char* text) { return Error{ErrorCode::kInvalid, text}; };
  if (server_.base_url.empty() == options_.model_dir.empty()) {
    return wrong("give MODEL, a checkpoint to serve here, or --base-url of a running server");
  }
  if (cache_share_ && !server_.base_url.empty())
    return wrong("--cache-share needs MODEL: it sets a cache");
  if (turn_tokens_ <= output_tokens_) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("--turn-tokens {} must be more than --output-tokens {}: the rest is "
                             "what the user says",
                             turn_tokens_, output_tokens_)};
  }
  return {};
}

void BenchAgenticCommand::Say(Conversation& conversation, const json::value& more) const {
  json::value& said = conversation.said;
  if (said.is_null()) {
    said = more;
  } else if (words_) {
    said.get_string() += more.get_string();
  } else {
    said.get_array().insert(said.get_array().end(), more.get_array().begin(),
                            more.get_array().end());
  }
}

Result<std::vector<Turn>> BenchAgenticCommand::Ask(const Endpoint& endpoint,
                                                   const std::vector<json::value>& prompts) const {
  const json::object more = words_ ? json::object() : json::object{{"return_token_ids", true}};
  std::vector<HttpCall> calls;
  for (const json::value& prompt : prompts) {
    calls.push_back(CompletionCall(server_.model, prompt, output_tokens_, more));
  }
  std::vector<StreamedAnswer> answers =
      StreamCompletions(endpoint, server_.api_key, concurrency_, calls);
  std::vector<Turn> turns;
  for (StreamedAnswer& answer : answers) {
    Turn turn{std::move(answer)};
    if (turn.error.empty() && turn.prompt_tokens == 0) {
      turn.error = "no usage came: the server does not know stream_options";
    } else if (turn.error.empty() && !words_ && turn.token_ids.empty()) {
      turn.error = "no token ids came: the server does not know return_token_ids; give --words";
    }
    if (!turn.error.empty()) return Error{ErrorCode::kUnavailable, turn.error};
    turns.push_back(std::move(turn));
  }
  return turns;
}

// One turn of every conversation, in their order.
Status BenchAgenticCommand::TakeTurn(const Endpoint& endpoint,
                                     std::vector<Conversation>& conversations) const {
  std::vector<json::value> prompts;
  for (const Conversation& conversation : conversations) prompts.push_back(conversation.said);
  ASSIGN_OR_RETURN(std::vector<Turn> turns, Ask(endpoint, prompts));
  for (size_t i = 0; i < turns.size(); ++i) {
    Turn& turn = turns[i];
    Conversation& conversation = conversations[i];
    conversation.asked = std::move(prompts[i]);
    if (!conversation.turns.empty()) {
      // The last token that was sampled has not been through the model yet.
      const Turn& before = conversation.turns.back();
      turn.reusable_tokens =
          std::min(before.prompt_tokens + before.output_tokens, turn.prompt_tokens) - 1;
    }
    Say(conversation, words_ ? json::value(turn.text) : json::value(turn.token_ids));
    conversation.turns.push_back(std::move(turn));
  }
  return {};
}

// The even conversations ask for their last answer again; the odd ones go on from its second half,
// which comes right after the prompt. A single conversation does both.
Status BenchAgenticCommand::GoBack(const Endpoint& endpoint, Rng& rng,
                                   std::vector<Conversation>& conversations) const {
  std::vector<json::value> prompts;
  std::vector<std::pair<Conversation*, std::optional<Turn> Conversation::*>> places;
  for (size_t i = 0; i < conversations.size(); ++i) {
    Conversation& c = conversations[i];
    const Turn& last = c.turns.back();
    if (i % 2 == 0) {
      prompts.push_back(c.asked);
      places.emplace_back(&c, &Conversation::again);
    }
    if (i % 2 == 0 && conversations.size() > 1) continue;
    Conversation shorter{.said = c.asked};
    const auto half = static_cast<ptrdiff_t>(last.token_ids.size() / 2);
    Say(shorter,
        words_ ? json::value(last.text.substr(last.text.size() / 2))
               : json::value(json::array(last.token_ids.begin() + half, last.token_ids.end())));
    Say(shorter, RandomPrompt(rng, turn_tokens_ - output_tokens_, words_));
    prompts.push_back(std::move(shorter.said));
    places.emplace_back(&c, &Conversation::shortened);
  }
  ASSIGN_OR_RETURN(std::vector<Turn> turns, Ask(endpoint, prompts));
  for (size_t i = 0; i < turns.size(); ++i) {
    const auto& [conversation, place] = places[i];
    turns[i].reusable_tokens = conversation->turns.back().prompt_tokens - 1;
    conversation->*place = std::move(turns[i]);
  }
  return {};
}

Result<std::vector<Conversation>> BenchAgenticCommand::Converse(const Endpoint& endpoint) const {
  std::vector<Conversation> conversations(static_cast<size_t>(conversations_));
  ProgressBar bar("turns", 0);
  Rng rng(seed_.value_or(0));
  for (int32_t turn = 0; turn < turns_; ++turn) {
    for (Conversation& conversation : conversations) {
      const int32_t tokens = turn == 0 ? first_tokens_ : turn_tokens_ - output_tokens_;
      Say(conversation, RandomPrompt(rng, tokens, words_));
    }
    RETURN_IF_ERROR(TakeTurn(endpoint, conversations));
    bar.Show(static_cast<double>(turn + 1) / turns_);
  }
  RETURN_IF_ERROR(GoBack(endpoint, rng, conversations));
  return conversations;
}

// What a turn took over. A server that does not say: what its first token came earlier than the
// first turns' pace would have it, as tokens.
int64_t ReusedOf(const Turn& turn, bool reported, double cold_ms_per_token) {
  if (reported) return *turn.cached_tokens;
  const auto computed = static_cast<int64_t>(turn.ttft_ms() / cold_ms_per_token);
  return std::clamp<int64_t>(turn.prompt_tokens - computed, 0, turn.reusable_tokens);
}

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Of those who went back in one of the two ways.
json::object GoneBack(const std::vector<Conversation>& conversations,
                      std::optional<Turn> Conversation::* place, bool reported,
                      double cold_ms_per_token) {
  int64_t requests = 0, reusable = 0, reused = 0;
  std::vector<double> ttft;
  for (const Conversation& conversation : conversations) {
    const std::optional<Turn>& turn = conversation.*place;
    if (!turn) continue;
    ++requests;
    reusable += turn->reusable_tokens;
    reused += std::min(ReusedOf(*turn, reported, cold_ms_per_token), turn->reusable_tokens);
    ttft.push_back(turn->ttft_ms());
  }
  return {{"requests", requests},
          {"reusable_tokens", reusable},
          {"reused_tokens", reused},
          {"reuse", Share(static_cast<double>(reused), static_cast<double>(reusable))},
          {"median_ttft_ms", Median(ttft)}};
}

json::object BenchAgenticCommand::Report(const std::vector<Conversation>& conversations) const {
  Totals totals;
  double cold_ms = 0, cold_tokens = 0;
  for (const Conversation& conversation : conversations) {
    for (const Turn& turn : conversation.turns) totals.reported &= turn.cached_tokens.has_value();
    for (const auto& turn : {conversation.again, conversation.shortened}) {
      totals.reported &= !turn || turn->cached_tokens.has_value();
    }
    cold_ms += conversation.turns.front().ttft_ms();
    cold_tokens += static_cast<double>(conversation.turns.front().prompt_tokens);
    totals.cold_ms.push_back(conversation.turns.front().ttft_ms());
  }
  json::array by_turn;
  for (size_t t = 0; t < static_cast<size_t>(turns_); ++t) {
    int64_t prompt = 0, reusable = 0, reused = 0;
    std::vector<double> ttft;
    for (const Conversation& conversation : conversations) {
      const Turn& turn = conversation.turns[t];
      prompt += turn.prompt_tokens;
      reusable += turn.reusable_tokens;
      if (t > 0) reused += ReusedOf(turn, totals.reported, cold_ms / cold_tokens);
      ttft.push_back(turn.ttft_ms());
    }
    if (t > 0) {
      totals.prompt += prompt;
      totals.reusable += reusable;
      totals.reused += reused;
      totals.later_ms.insert(totals.later_ms.end(), ttft.begin(), ttft.end());
    }
    by_turn.push_back(json::object{{"prompt_tokens", prompt},
                                   {"reusable_tokens", reusable},
                                   {"reused_tokens", reused},
                                   {"reprocessed_tokens", reusable - reused},
                                   {"median_ttft_ms", Median(ttft)}});
  }
  const double cold = Median(totals.cold_ms);
  return {
      {"conversations", conversations_},
      {"turns", turns_},
      {"cached_tokens_reported", totals.reported},
      {"reusable_tokens", totals.reusable},
      {"reused_tokens", totals.reused},
      {"reprocessed_tokens", totals.reusable - totals.reused},
      {"reuse", Share(static_cast<double>(totals.reused), static_cast<double>(totals.reusable))},
      {"median_cold_ttft_ms", cold},
      {"median_later_ttft_ms", Median(totals.later_ms)},
      {"p90_later_ttft_ms", Percentile(totals.later_ms, 90)},
      {"later_ttft_to_cold", Share(Median(totals.later_ms), cold)},
      {"regenerated",
       GoneBack(conversations, &Conversation::again, totals.reported, cold_ms / cold_tokens)},
      {"answer_shortened",
       GoneBack(conversations, &Conversation::shortened, totals.reported, cold_ms / cold_tokens)},
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
  fmt::print("\nreused {:.1f} % of {:.0f} reusable tokens{}; {:.0f} were computed again\n",
             100 * number("reuse"), number("reusable_tokens"),
             report.at("cached_tokens_reported").as_bool()
                 ? ""
                 : " (estimated from the time to the first token: the server does not say)",
             number("reprocessed_tokens"));
  fmt::print("time to first token: first turn {:.1f} ms, later {:.1f} ms ({:.1f} % of it)\n",
             number("median_cold_ttft_ms"), number("median_later_ttft_ms"),
             100 * number("later_ttft_to_cold"));
  for (const auto& [key, what] : {std::pair("regenerated", "answers asked for again"),
                                  {"answer_shortened", "turns after a shortened answer"}}) {
    const json::object& gone_back = report.at(key).as_object();
    const auto figure = [&](const char* name) { return gone_back.at(name).to_number<double>(); };
    fmt::print("{}: reused {:.1f} % of {:.0f} tokens of their prompts, first token {:.1f} ms\n",
               what, 100 * figure("reuse"), figure("reusable_tokens"), figure("median_ttft_ms"));
  }
  if (report.contains("cache_pages")) {
    fmt::print("cache: {:.0f} pages, filled {:.0f}; evicted: {:.0f} parts\n", number("cache_pages"),
               number("cache_pages_filled"), number("evictions"));
  }
}

// Serves the model here; with a share, a first run finds how many pages are filled.
Result<json::object> BenchAgenticCommand::Measure() {
  std::unique_ptr<LocalServer> local;
  CompletionServer server = server_;
  if (server.base_url.empty()) {
    ASSIGN_OR_RETURN(local, LocalServer::Start(options_));
    server.base_url = local->base_url();
  }
  ASSIGN_OR_RETURN(const Endpoint endpoint, server.Find());
  server_.model = server.model;
  ASSIGN_OR_RETURN(const std::vector<Conversation> conversations, Converse(endpoint));
  json::object report = Report(conversations);
  if (local == nullptr) return report;
  const SchedulerStats stats = local->engine().driver().stats().scheduler;
  report["cache_pages"] = stats.pages_total;
  report["cache_pages_filled"] = stats.pages_used + stats.pages_cached;
  report["cache_page_bytes"] = local->engine().limits().cache.page_bytes;
  report["evictions"] = stats.evictions_full + stats.evictions_state;
  return report;
}

Status BenchAgenticCommand::Run() {
  RETURN_IF_ERROR(CheckFlags());
  ASSIGN_OR_RETURN(json::object report, Measure());
  if (cache_share_) {
    if (report.at("evictions").to_number<int64_t>() > 0) {
      return Error{ErrorCode::kExhausted,
                   "the cache is too small to find out what the conversations fill: it evicted in "
                   "the first run; give more --memory, or fewer --conversations"};
    }
    const auto pages =
        static_cast<int64_t>(*cache_share_ * report.at("cache_pages_filled").to_number<double>());
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
